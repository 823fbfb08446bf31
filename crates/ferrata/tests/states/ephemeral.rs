//! Ephemeral channels: nodes of one process pass them on, and no stored value depends on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrata::graph::{CheckpointFrequency, CheckpointPolicy, Effect, Graph, Lens, NodeCheckpoint};
use ferrata::node::{NodeContext, NodeResult};
use ferrata::runtime::Outcome;
use ferrata::state::{Draft, PatchWriter, WrittenPatch};
use ferrata::testing::{Fault, Process, World, assert_replays, check_reads_back};
use ferrata::{ErrorKind, Position, RunKey, State, Update};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

/// A type that serde cannot encode. Its text must not be stored anywhere.
#[derive(Debug, PartialEq)]
struct Page(&'static str);

const MARK: &str = "mark-of-what-is-not-stored";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
struct Reading {
    #[serde(skip)]
    #[state(ephemeral)]
    page: Option<Arc<Page>>,
    #[state(append)]
    said: Vec<String>,
    #[serde(skip, default = "seven")]
    #[state(ephemeral, sum)]
    asked: u8,
    #[state(sum)]
    count: u32,
}

fn seven() -> u8 {
    7
}

/// The same state without its ephemeral channels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
struct Stored {
    #[state(append)]
    said: Vec<String>,
    #[state(sum)]
    count: u32,
}

fn apply(state: &mut Reading, update: impl Into<Update<Reading>>) -> ferrata::Result<WrittenPatch> {
    let mut patch = PatchWriter::recording();
    update.into().apply(state, &mut patch)?;
    Ok(patch.finish())
}

#[test]
fn an_update_of_it_alone_writes_no_channel() {
    let page = Arc::new(Page(MARK));
    let mut live = Reading { asked: 7, ..Reading::default() };
    let update = Reading::update().page(Arc::clone(&page)).asked(2);
    assert_eq!(format!("{update:?}"), r#"ReadingUpdate {"page", "asked"}"#);
    let written = apply(&mut live, update).unwrap();
    assert!(written.touched.is_empty() && written.patch.unwrap().is_empty());
    assert_eq!((live.page.as_deref(), live.asked), (Some(&Page(MARK)), 9));

    // A draft is compared with its base, so a draft that did not change the page reverts nothing.
    let mut beside = Draft::new(Arc::new(Reading { asked: 7, ..Reading::default() }));
    beside.said.push("beside".into());
    let written = apply(&mut live, beside).unwrap();
    assert_eq!(serde_json::to_string(&written.patch).unwrap(), r#"[{"append":["said",["beside"]]}]"#);
    assert_eq!((live.page.as_deref(), live.asked), (Some(&Page(MARK)), 9));

    let error = apply(&mut live, Reading::update().asked(250).said(["too much"])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("\"asked\""), "{error}");
    assert_eq!((live.said.len(), live.asked), (1, 9));
}

#[test]
fn ephemeral_channel_reads_back_as_serde_default() {
    let mut state = Reading { page: Some(Arc::new(Page(MARK))), asked: 9, ..Reading::default() };
    let text = state.to_channels_json().unwrap();
    assert_eq!(text.get(), r#"{"said":[],"count":0}"#);
    let read: Reading = serde_json::from_str(text.get()).unwrap();
    state.forget_ephemeral();
    assert_eq!((state.page.is_none(), state.asked), (true, 7));
    assert_eq!(state, read);
    check_reads_back(&state).unwrap();

    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, State)]
    #[serde(default)]
    struct WithOwn {
        kept: u32,
        #[serde(skip)]
        #[state(ephemeral)]
        own: u32,
        #[serde(skip, default)]
        #[state(ephemeral)]
        of_type: u32,
    }
    impl Default for WithOwn {
        fn default() -> Self {
            Self { kept: 1, own: 2, of_type: 3 }
        }
    }
    let mut state = WithOwn { kept: 5, own: 5, of_type: 5 };
    state.forget_ephemeral();
    assert_eq!(state, serde_json::from_str(r#"{"kept":5}"#).unwrap());
    assert_eq!((state.own, state.of_type), (2, 0));

    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, State)]
    #[serde(default = "made")]
    struct Made {
        #[serde(skip)]
        #[state(ephemeral, append)]
        own: Vec<u32>,
    }
    fn made() -> Made {
        Made { own: vec![4] }
    }
    let mut state = Made { own: Vec::new() };
    state.forget_ephemeral();
    assert_eq!(state, serde_json::from_str("{}").unwrap());
    assert_eq!(state.own, [4]);
}

#[test]
fn a_schema_and_a_fingerprint_leave_it_out() {
    assert_eq!(Reading::schema(), Stored::schema());
    const { assert!(Reading::EPHEMERAL && !Stored::EPHEMERAL) };
    fn graph<S: State>() -> Graph<S> {
        Graph::<S>::builder("read").node("one", async |_cx, s| Ok(s)).entry("one").build().unwrap()
    }
    assert_eq!(graph::<Reading>().fingerprint(), graph::<Stored>().fingerprint());
}

async fn fetch(_cx: NodeContext, s: Draft<Reading>) -> NodeResult<Reading> {
    assert!(s.page.is_none(), "the caller's ephemeral value must be dropped, as after a crash");
    Ok(Reading::update().page(Arc::new(Page(MARK))).asked(1).said(["fetched"]).into())
}

/// A graph that fetches a page, uses it in a route, a condition and a goal, and reads it in a later node.
fn reading() -> Graph<Reading> {
    Graph::<Reading>::builder("read")
        .node("fetch", fetch)
        .node("left", async |_cx, s| {
            assert_eq!((s.page.as_deref(), s.asked), (Some(&Page(MARK)), 8));
            Ok(Reading::update().page(Arc::new(Page("left"))).count(1))
        })
        .node("right", async |_cx, mut s| {
            tokio::task::yield_now().await;
            s.page = Some(Arc::new(Page("right")));
            s.count += 1;
            Ok(s)
        })
        .node("join", async |_cx, mut s| {
            let page = s.page.as_ref().map_or("", |page| page.0);
            assert!(page == "left" || page == "right", "{page}");
            s.said.push("joined".into());
            Ok(s)
        })
        .goal_gate(|s: &Reading| s.page.is_none() && s.asked == 7)
        .node("wrong", async |_cx, _s: Draft<Reading>| -> NodeResult<Reading> {
            Err("a choice saw it".into())
        })
        .entry("fetch")
        .route("fetch", ["left", "right", "wrong"], |s: &Reading, _cx| match s.page {
            None => vec!["left", "right"],
            Some(_) => vec!["wrong"],
        })
        .edge(["left", "right"], "join")
        .edge("join", "wrong")
        .when(|s: &Reading| s.page.is_some() || s.asked != 7)
        .build()
        .unwrap()
}

#[tokio::test]
async fn ephemeral_channel_reaches_nodes_and_no_record() {
    let world = World::new();
    let process = world.process().await.unwrap();
    let graph = reading();
    let given = Reading { page: Some(Arc::new(Page(MARK))), asked: 1, ..Reading::default() };
    let run = process.start(&graph, given).id("r").await.unwrap();
    let done = world.pass(run.completed()).await.unwrap();
    let wanted = Reading { said: vec!["fetched".into(), "joined".into()], count: 2, asked: 7, page: None };
    assert_eq!(done, wanted);
    assert_eq!(process.state_at(&graph, run.run(), Position::Latest).await.unwrap(), wanted);
    let log = process.export(run.run()).await.unwrap();
    for absent in [MARK, "page", "asked"] {
        assert!(!log.contains(absent), "{absent}: {log}");
    }
    assert_replays(&log, &graph).await;
}

/// A part that is one field of a state is stored as a whole, so its ephemeral channels are neither ephemeral nor kept separately.
#[tokio::test]
async fn ephemeral_channel_of_part_follows_outer_state() {
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
    struct Outer {
        part: Reading,
        pages: u32,
    }
    async fn look(_cx: NodeContext, s: Draft<Reading>) -> NodeResult<Reading> {
        Ok(Reading::update().count(u32::from(s.page.is_some())).into())
    }
    let part = Graph::<Reading>::builder("part").node("fetch", fetch).node("look", look);
    let part = part.entry("fetch").edge("fetch", "look").build().unwrap();
    let field = Lens::field(|s: &Outer| &s.part, |s: &mut Outer| &mut s.part);
    let graph = Graph::<Outer>::builder("outer").subgraph("by_field", &part, field);
    let graph = graph.entry("by_field").build().unwrap();
    let world = World::new();
    let process = world.process().await.unwrap();
    let run = process.start(&graph, Outer::default()).await.unwrap();
    assert_eq!(world.pass(run.completed()).await.unwrap().part.count, 0);

    let whole = Graph::<Reading>::builder("outer").subgraph("whole", &part, Lens::whole());
    let whole = whole.entry("whole").build().unwrap();
    let run = process.start(&whole, Reading::default()).await.unwrap();
    assert_eq!(world.pass(run.completed()).await.unwrap().count, 1);
}

/// The action of a node of a random program on the ephemeral cache, before it uses the cache.
#[derive(Clone, Copy, Debug)]
enum Act {
    Put,
    Replace,
    Log,
    Leave,
}

/// A program: the action of each node, its key, and whether a route leaves it.
type Program = Vec<(Act, u8, bool)>;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
struct Cached {
    #[serde(skip)]
    #[state(ephemeral, merge)]
    cache: BTreeMap<u8, Arc<str>>,
    #[state(append)]
    seen: Vec<String>,
    #[serde(skip)]
    #[state(ephemeral, append)]
    log: Vec<String>,
}

fn program() -> impl Strategy<Value = Program> {
    let act = prop::sample::select(vec![Act::Put, Act::Replace, Act::Log, Act::Leave]);
    prop::collection::vec((act, 0_u8..3, any::<bool>()), 2..6)
}

/// The graph of a program. With `forgetful`, each node gets default values, as in a new process.
fn graph_of(program: &Program, forgetful: bool) -> Graph<Cached> {
    let name = |n: usize| format!("n{n}");
    let mut builder = Graph::<Cached>::builder("cached");
    for (n, &(act, key, _)) in program.iter().enumerate() {
        let node = move |cx: NodeContext, mut s: Draft<Cached>| async move {
            if forgetful {
                s.forget_ephemeral();
            }
            // The value is the same with and without the cache.
            let value = s.cache.get(&key).cloned().unwrap_or_else(|| format!("v{key}").into());
            let seen = format!("{}:{}:{value}", cx.node(), cx.visit());
            let update = Cached::update().seen([seen]);
            let update: Update<Cached> = match act {
                Act::Put => update.cache([(key, value)]).log([cx.node().to_string()]).into(),
                Act::Replace => {
                    s.cache = BTreeMap::from([(key, value)]);
                    s.seen.push(format!("{}:replaced", cx.node()));
                    s.into()
                }
                Act::Log => update.log([cx.node().to_string()]).into(),
                Act::Leave => update.into(),
            };
            NodeResult::Ok(update)
        };
        builder = builder.node(name(n), node).effect(Effect::Pure);
        if key > 0 {
            // A separate record for the nodes before it. After a crash they are recorded, and their ephemeral values are lost.
            builder = builder.checkpoint(NodeCheckpoint::Before);
        }
    }
    for (n, &(_, _, routed)) in program.iter().enumerate() {
        let rest: Vec<String> =
            [n + 1, n + 2].into_iter().filter(|&to| to < program.len()).map(name).collect();
        builder = match (rest.first().cloned(), rest.get(1).cloned()) {
            (Some(next), Some(after)) if routed => builder.route(name(n), rest, move |s: &Cached, _cx| {
                // It never sees the cache.
                if s.cache.is_empty() && s.log.is_empty() { after.clone() } else { next.clone() }
            }),
            (Some(next), _) => builder.edge(name(n), next),
            (None, _) => builder,
        };
    }
    builder.entry(name(0)).build().unwrap()
}

/// Starts or continues the run, and waits for its end.
async fn drive(
    world: &World,
    process: &Process,
    graph: &Graph<Cached>,
    policy: CheckpointPolicy,
) -> ferrata::Result<Outcome<Cached>> {
    let run = world.pass(process.start(graph, Cached::default()).id("r").checkpoints(policy)).await?;
    world.pass(run.wait()).await
}

/// Runs a program to its end, with a fault at a write. Returns the process that saw the end, whether a process crashed, and the result.
async fn lived(
    graph: &Graph<Cached>,
    policy: CheckpointPolicy,
    fault: Option<(u64, Fault)>,
) -> (Process, bool, Vec<String>) {
    let world = World::new();
    let mut process = world.process().await.unwrap();
    if let Some((at, fault)) = fault {
        process.fail_write(at, fault);
    }
    let mut end = drive(&world, &process, graph, policy).await;
    let crashed = process.is_crashed();
    if crashed {
        process.crash().await;
        process = world.process().await.unwrap();
        end = drive(&world, &process, graph, policy).await;
    }
    let Ok(Outcome::Completed(done)) = end else { panic!("the run does not complete: {end:?}") };
    assert!(done.cache.is_empty() && done.log.is_empty());
    (process, crashed, done.seen)
}

async fn check(program: &Program, frequency: CheckpointFrequency, fault: Fault) {
    let policy = CheckpointPolicy::default().with_frequency(frequency);
    let run = RunKey::try_from("r").unwrap();
    let (graph, forgetful) = (graph_of(program, false), graph_of(program, true));
    let (calm, _, wanted) = lived(&graph, policy, None).await;
    let (reset, _, seen) = lived(&forgetful, policy, None).await;
    assert_eq!(seen, wanted);
    // Compare every byte of every record, not only the final state.
    assert_eq!(calm.export(&run).await.unwrap(), reset.export(&run).await.unwrap());
    for at in 0.. {
        let (_, crashed, seen) = lived(&graph, policy, Some((at, fault))).await;
        assert_eq!(seen, wanted, "{fault:?} at write {at}");
        if !crashed {
            break;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn crash_at_any_write_resets_ephemeral_channels(
        program in program(),
        frequency in prop::sample::select(vec![
            CheckpointFrequency::EveryNode,
            CheckpointFrequency::EveryNth(3.try_into().unwrap()),
            CheckpointFrequency::StatusChangeOnly,
        ]),
        fault in prop::sample::select(vec![Fault::CrashBefore, Fault::CrashAfter]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check(&program, frequency, fault));
    }
}
