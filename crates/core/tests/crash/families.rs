//! Crashes at every write of a whole run tree: each child starts once, and its parent gets its result once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::ask::{Answer, Ask};
use ferrata_core::graph::{Graph, RetryPolicy, Route};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{OnParentEnd, Runtime};
use ferrata_core::state::{Context, Draft, Reducer};
use ferrata_core::store::{CheckpointStore, MemoryStore, Page, RunHead, RunQuery};
use ferrata_core::{ErrorKind, RunKey};
use ferrata_testing::{Fault, FaultPlan, FaultStore, ManualClock, SeqIds};
use serde_json::{Value, json};

use super::log::records;

/// Maximum number of half seconds that a run tree may take.
const MOMENTS: u32 = 2_000;

/// Idempotency keys of each node and run, recorded outside the store as by a payment provider.
type Told = Arc<Mutex<BTreeMap<(String, String), BTreeSet<String>>>>;

/// A node function with its own clones of graphs.
macro_rules! using {
    ($($kept:ident),*; $cx:pat, $state:pat => $body:block) => {{
        $(let $kept = $kept.clone();)*
        move |$cx: NodeContext, $state: Draft<Context>| {
            $(let $kept = $kept.clone();)*
            async move $body
        }
    }};
}
pub(super) use using;

pub(super) fn tell(cx: &NodeContext) {
    let told = cx.resource::<Told>();
    let place = (cx.run().to_string(), format!("{}@{}", cx.node(), cx.visit()));
    told.lock().unwrap().entry(place).or_default().insert(cx.idempotency_key());
}

pub(super) fn with(number: u32) -> Context {
    let mut state = Context::new();
    state.set("number", number).unwrap();
    state
}

pub(super) fn number(state: &Context) -> Result<u32, NodeError> {
    Ok(state.get("number")?.unwrap_or_default())
}

/// A child of two nodes, so that it does not end in its first record.
fn leaf() -> Graph<Context> {
    Graph::<Context>::builder("leaf")
        .node("first", async |cx, s| {
            tell(&cx);
            Ok(s)
        })
        .node("double", async |cx, mut s| {
            tell(&cx);
            let doubled = number(&s)? * 2;
            s.set("number", doubled)?;
            Ok(s)
        })
        .entry("first")
        .edge("first", "double")
        .build()
        .unwrap()
}

/// A parent whose node runs the graph `child`.
fn over(name: &str, child: &Graph<Context>) -> Graph<Context> {
    Graph::<Context>::builder(name)
        .node(
            "wait",
            using!(child; cx, mut s => {
                tell(&cx);
                let got = cx.child(&child, with(3)).await?;
                s.set("number", number(&got)? + 1)?;
                Ok(s)
            }),
        )
        .node("end", async |cx, s| {
            tell(&cx);
            Ok(s)
        })
        .entry("wait")
        .edge("wait", "end")
        .build()
        .unwrap()
}

pub(super) struct Case {
    pub(super) name: &'static str,
    /// The graphs. The last one is that of the first run.
    pub(super) graphs: Vec<Graph<Context>>,
    /// Number of runs that stay active after the first run has ended.
    pub(super) left: usize,
    /// Whether parents become idle at once, and only a sweep claims them after a crash.
    pub(super) rests: bool,
}

fn one() -> Case {
    let child = leaf();
    let top = over("top", &child);
    Case { name: "one", graphs: vec![child, top], left: 0, rests: false }
}

pub(super) fn three() -> Case {
    let child = leaf();
    let top = Graph::<Context>::builder("top").node("wait", using!(child; cx, mut s => {
        tell(&cx);
        let [a, b, c] = ["a", "b", "c"].map(|name| cx.child(&child, with(u32::from(name.as_bytes()[0]))).name(name));
        let (a, b, c) = tokio::join!(a, b, c);
        s.set("got", [number(&a?)?, number(&b?)?, number(&c?)?])?;
        Ok(s)
    }));
    Case { name: "three", graphs: vec![child, top.entry("wait").build().unwrap()], left: 0, rests: false }
}

pub(super) fn nested() -> Case {
    let child = leaf();
    let third = over("third", &child);
    let second = over("second", &third);
    let top = over("top", &second);
    Case { name: "nested", graphs: vec![child, third, second, top], left: 0, rests: false }
}

fn many() -> Case {
    let child = leaf();
    let top = Graph::<Context>::builder("top").node(
        "wait",
        using!(child; cx, mut s => {
            tell(&cx);
            let mut started = Vec::new();
            for item in 0..20 {
                started.push(cx.child(&child, with(item)).name(format!("item{item}")).start().await?);
            }
            let mut got = Vec::new();
            for child in started {
                got.push(number(&child.await?)?);
            }
            s.set("got", got)?;
            Ok(s)
        }),
    );
    Case { name: "many", graphs: vec![child, top.entry("wait").build().unwrap()], left: 0, rests: false }
}

/// A map of items with limited concurrency.
pub(super) fn mapped() -> Case {
    let child = leaf();
    let top = Graph::<Context>::builder("top").node(
        "wait",
        using!(child; cx, mut s => {
            tell(&cx);
            let got = cx.children(&child, (0..6).map(with)).max_running(2).await?;
            let got: Result<Vec<u32>, _> = got.iter().map(number).collect();
            s.set("got", got?)?;
            Ok(s)
        }),
    );
    Case { name: "mapped", graphs: vec![child, top.entry("wait").build().unwrap()], left: 0, rests: false }
}

pub(super) fn asks() -> Case {
    let child = Graph::<Context>::builder("asks")
        .gate("ok", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("number", u32::from(yes)))
        .entry("ok")
        .build()
        .unwrap();
    let top = over("top", &child);
    Case { name: "asks", graphs: vec![child, top], left: 0, rests: false }
}

/// The first child fails, and the next attempt starts another one. A completed sibling is kept.
fn fails() -> Case {
    let good = leaf();
    let child = Graph::<Context>::builder("flaky")
        .node("try", async |cx, s| {
            tell(&cx);
            if number(&s)? == 1 { Err("not yet".into()) } else { Ok(s) }
        })
        .entry("try")
        .build()
        .unwrap();
    let top = Graph::<Context>::builder("top")
        .node(
            "wait",
            using!(child, good; cx, mut s => {
                tell(&cx);
                let one = cx.child(&good, with(4)).await?;
                let two = cx.child(&child, with(cx.attempt())).await?;
                s.set("got", (number(&one)?, number(&two)?))?;
                Ok(s)
            }),
        )
        .retry(RetryPolicy::none().with_attempts(2).with_delay(Duration::from_millis(1)));
    Case {
        name: "fails",
        graphs: vec![good, child, top.entry("wait").build().unwrap()],
        left: 0,
        rests: false,
    }
}

/// The parent waits for one child, cancels one, leaves one, and detaches one.
fn leaves() -> Case {
    let (child, asking) = (leaf(), asks().graphs.remove(0));
    let top = Graph::<Context>::builder("top").node(
        "wait",
        using!(child, asking; cx, mut s => {
            tell(&cx);
            cx.child(&asking, with(1)).name("bound").start().await?;
            cx.child(&asking, with(2)).name("left").on_parent_end(OnParentEnd::Leave).start().await?;
            cx.spawn(&child, with(3)).name("alone").await?;
            s.set("got", number(&cx.child(&child, with(4)).await?)?)?;
            Ok(s)
        }),
    );
    Case {
        name: "leaves",
        graphs: vec![child, asking, top.entry("wait").build().unwrap()],
        left: 1,
        rests: false,
    }
}

/// A map over items, two at a time. One child fails at first.
fn map() -> Case {
    let child = Graph::<Context>::builder("flaky")
        .node("try", async |cx, s| {
            tell(&cx);
            if number(&s)? == 1 { Err("not yet".into()) } else { Ok(s) }
        })
        .entry("try")
        .build()
        .unwrap();
    let top = Graph::<Context>::builder("top")
        .channel("got", Reducer::Append)
        .node("split", async |cx, s| {
            tell(&cx);
            Ok(s)
        })
        .child(
            "each",
            &child,
            |_s: &Context, cx| Ok(with(cx.attempt() + cx.item::<u32>()?)),
            |s, child: Context| s.push("got", child.get_value("number")),
        )
        .max_running(2)
        .retry(RetryPolicy::none().with_attempts(2).with_delay(Duration::from_millis(1)))
        .node("join", async |cx, mut s| {
            tell(&cx);
            // The children end in any order.
            let mut got: Vec<u32> = s.get("got")?.unwrap_or_default();
            got.sort_unstable();
            s.set("got", got)?;
            Ok(s)
        })
        .entry("split")
        .route("split", ["each"], |_s, _cx| Route::each("each", 0..4u32))
        .edge("each", "join");
    Case { name: "map", graphs: vec![child, top.build().unwrap()], left: 0, rests: false }
}

fn map_at_rest() -> Case {
    Case { name: "map at rest", rests: true, ..map() }
}

fn one_at_rest() -> Case {
    Case { name: "one at rest", rests: true, ..one() }
}

fn three_at_rest() -> Case {
    Case { name: "three at rest", rests: true, ..three() }
}

pub(super) fn nested_at_rest() -> Case {
    Case { name: "nested at rest", rests: true, ..nested() }
}

pub(super) fn asks_at_rest() -> Case {
    Case { name: "asks at rest", rests: true, ..asks() }
}

pub(super) struct Family {
    pub(super) label: String,
    pub(super) store: MemoryStore,
    pub(super) clock: Arc<ManualClock>,
    told: Told,
    lives: Mutex<u64>,
}

impl Family {
    pub(super) fn new(label: String) -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::with_clock(Arc::clone(&clock) as _);
        Self { label, store, clock, told: Told::default(), lives: Mutex::new(0) }
    }

    pub(super) async fn process(
        &self,
        case: &Case,
        plan: FaultPlan,
    ) -> (Arc<FaultStore<MemoryStore>>, Runtime) {
        let store = Arc::new(FaultStore::new(self.store.clone(), plan));
        let life = {
            let mut lives = self.lives.lock().unwrap();
            *lives += 1;
            *lives
        };
        let runtime = Runtime::builder_with(Arc::clone(&store) as Arc<dyn CheckpointStore>)
            .clock(Arc::clone(&self.clock) as _)
            .ids(Arc::new(SeqIds::new(life)))
            .resource(Arc::clone(&self.told))
            .store_retries(3, Duration::from_millis(1))
            .heartbeat_ttl(Duration::from_secs(2))
            .release_after(if case.rests { Duration::ZERO } else { Duration::from_secs(60) })
            .build()
            .await
            .unwrap();
        case.graphs.iter().for_each(|graph| runtime.serve(graph).unwrap());
        (store, runtime)
    }

    pub(super) async fn runs(&self) -> Vec<RunHead> {
        self.store.runs(&RunQuery::default(), Page::first(1_000)).await.unwrap().items
    }

    /// Lets one process run until the run tree has ended or the process has crashed. Returns whether the run tree has ended.
    pub(super) async fn live(&self, case: &Case, store: &FaultStore<MemoryStore>, runtime: &Runtime) -> bool {
        if !(case.rests && self.runs().await.iter().any(|run| run.run == key())) {
            self.begin(case, runtime).await;
        }
        for _ in 0..MOMENTS {
            self.settle().await;
            if store.is_crashed() {
                return false;
            }
            let runs = self.runs().await;
            if self.is_over(case, &runs) {
                return true;
            }
            self.answer_all(store, runtime).await;
            self.clock.advance(Duration::from_millis(500));
        }
        let runs = self.runs().await;
        let stands: Vec<_> = runs.iter().map(|run| (run.run.to_string(), run.status, run.wake_at)).collect();
        panic!("{}: the run tree does not advance: {stands:?}", self.label);
    }

    /// Starts the first run, and ignores the result, because the store shows it.
    pub(super) async fn begin(&self, case: &Case, runtime: &Runtime) {
        let top = case.graphs.last().unwrap();
        drop(self.pass(async { runtime.start(top, Context::new()).id("p").await }).await);
    }

    /// Runs all tasks that are ready, without advancing the clock.
    pub(super) async fn settle(&self) {
        for _ in 0..48 {
            tokio::task::yield_now().await;
        }
    }

    /// Answers the questions of all runs, unless the first run has ended.
    pub(super) async fn answer_all(&self, store: &FaultStore<MemoryStore>, runtime: &Runtime) {
        let runs = self.runs().await;
        let top_ended = runs.iter().any(|run| run.run == key() && run.status.is_finished());
        for asking in runs.iter().filter(|run| run.status == RunStatus::Interrupted && !top_ended) {
            let name = asking.facts.labels.get("ferrata.child").unwrap_or_default();
            if !(name.ends_with(":left") || name.ends_with(":bound")) {
                let answer = Answer::accept(true).unwrap();
                let said = self.pass(async { runtime.respond(&asking.run, "ok", answer).await }).await;
                let refused = [ErrorKind::NotFound, ErrorKind::AlreadyExists, ErrorKind::WrongStatus];
                assert!(
                    store.is_crashed()
                        || said.is_ok()
                        || said.is_err_and(|e| refused.contains(&e.kind()) || e.is_retryable())
                );
            }
        }
    }

    /// Advances the clock until `done` is ready. Store calls that fail are retried.
    async fn pass<T>(&self, done: impl Future<Output = T>) -> T {
        let time = async {
            loop {
                tokio::task::yield_now().await;
                self.clock.advance(Duration::from_millis(1));
            }
        };
        tokio::select! {
            biased;
            done = done => done,
            () = time => unreachable!("the future is not ready after the time limit"),
        }
    }

    fn is_over(&self, case: &Case, runs: &[RunHead]) -> bool {
        let open = runs.iter().filter(|run| !run.status.is_finished()).count();
        let top = runs.iter().find(|run| run.run == key());
        top.is_some_and(|top| match top.status {
            RunStatus::Completed => open <= case.left,
            status => status.is_finished() && open == 0,
        })
    }

    /// Checks the invariants: each child is known to its parent, and each child with a noted end has ended.
    pub(super) async fn check(&self) {
        let label = &self.label;
        let runs: BTreeMap<RunKey, RunHead> =
            self.runs().await.into_iter().map(|head| (head.run.clone(), head)).collect();
        let mut completed = BTreeSet::new();
        for head in runs.values().filter(|head| head.status == RunStatus::Completed) {
            if let Some(start) = head.facts.labels.get("ferrata.child") {
                assert!(completed.insert(start), "{label}: `{start}` is completed twice");
            }
        }
        for (run, head) in &runs {
            let mut known = BTreeSet::new();
            let mut told = BTreeSet::new();
            for note in records(&self.store, run).await {
                let body: Value = serde_json::from_slice(&note.body).unwrap();
                let Some(name) = body["name"].as_str() else { continue };
                let what = &body["what"]["result"];
                let named = |name: &str| format!("{}@{} {name}", body["node"], body["visit"]);
                if name.starts_with("#child") {
                    known.insert((
                        named(&name.replace("#child", "")),
                        what["run"].as_str().unwrap().to_owned(),
                    ));
                } else if let Some(of) = name.strip_prefix("#told").map(named) {
                    assert!(told.insert(of.clone()), "{label}: the result of `{of}` is received twice");
                    let (_, child) = known.iter().find(|(name, _)| *name == of).unwrap();
                    let child = RunKey::try_from(&**child).unwrap();
                    let ended = runs.get(&child).is_some_and(|child| child.status.is_finished());
                    assert!(ended, "{label}: `{of}` is noted as ended, but has not ended");
                }
            }
            let ids: BTreeSet<_> = known.iter().map(|(_, run)| run.as_str()).collect();
            // An attempt that continues with a child notes it again, under the next number.
            let names: BTreeSet<_> =
                known.iter().filter_map(|(name, run)| Some((name.split_once('.')?.1, run))).collect();
            assert_eq!(ids.len(), names.len(), "{label}: a child has two names");
            let theirs = runs
                .values()
                .filter(|child| child.facts.labels.get("ferrata.parent") == Some(run.run.as_str()));
            for child in theirs {
                assert!(
                    ids.contains(child.run.run.as_str()),
                    "{label}: {} does not know its child {}",
                    head.run,
                    child.run
                );
            }
        }
        for (place, keys) in self.told.lock().unwrap().iter() {
            assert_eq!(keys.len(), 1, "{label}: {place:?} ran with two keys");
        }
    }

    /// Summarizes the end of the run tree: number of runs by workflow and status, and state of the first run.
    pub(super) async fn ending(&self, runtime: &Runtime) -> Value {
        let mut count = BTreeMap::new();
        for head in self.runs().await {
            let stands = if head.status.is_finished() { head.status.to_string() } else { "open".to_owned() };
            *count.entry(format!("{} {stands}", head.facts.workflow)).or_insert(0) += 1;
        }
        let checkpoint = runtime.checkpoint(&key(), ferrata_core::runtime::Position::Latest).await.unwrap();
        json!({ "runs": count, "state": checkpoint.state, "status": checkpoint.status.to_string() })
    }
}

pub(super) fn key() -> RunKey {
    RunKey::try_from("p").unwrap()
}

/// Runs a run tree with these faults, one process after the other. Returns its end, and the number of writes of the last process.
pub(super) async fn live(case: &Case, faults: &[(u64, Fault)]) -> (Value, u64) {
    let family = Family::new(format!("{} {faults:?}", case.name));
    for &(at, fault) in faults {
        let (store, runtime) = family.process(case, FaultPlan::new().with_fault(at, fault)).await;
        let over = family.live(case, &store, &runtime).await;
        store.crash();
        drop(runtime);
        // Let the tasks of the crashed process end.
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        family.check().await;
        if case.name.starts_with("map") {
            let open = family.runs().await.iter().filter(|run| !run.status.is_finished()).count();
            assert!(open <= 3, "{}: {open} runs are active, including the parent", family.label);
        }
        if over {
            break;
        }
        family.clock.advance(Duration::from_secs(4));
    }
    let (store, runtime) = family.process(case, FaultPlan::new()).await;
    assert!(family.live(case, &store, &runtime).await);
    family.check().await;
    (family.ending(&runtime).await, store.operations())
}

pub(super) async fn crash_everywhere(case: &Case, stride: usize) {
    let (wanted, writes) = live(case, &[]).await;
    assert_eq!(wanted["status"], "completed", "{wanted}");
    for at in (0..writes).step_by(stride) {
        for fault in Fault::ALL {
            let (ended, _) = live(case, &[(at, fault)]).await;
            assert_eq!(ended, wanted, "{} {fault:?} at {at}", case.name);
        }
    }
}

macro_rules! cases {
    ($($case:ident $stride:literal),*) => {$(
        mod $case {
            /// Guarantees: CHILD-1, CHILD-15, COMPOSE-2.
            #[tokio::test]
            async fn run_tree_recovers_from_crash_at_every_write() {
                super::crash_everywhere(&super::$case(), $stride).await;
            }
        }
    )*};
}

cases!(one 1, three 3, nested 3, many 41, mapped 7, asks 1, fails 2, leaves 2, map 3, map_at_rest 5, one_at_rest 1, three_at_rest 5, nested_at_rest 5, asks_at_rest 1);

/// Guarantees: CHILD-1.
#[tokio::test]
async fn a_family_survives_two_crashes() {
    let case = one();
    let (wanted, writes) = live(&case, &[]).await;
    for first in 0..writes {
        for second in (first % 3..writes + 4).step_by(3) {
            let crashes = [(first, Fault::CrashBefore), (second, Fault::CrashAfter)];
            assert_eq!(live(&case, &crashes).await.0, wanted, "{crashes:?}");
        }
    }
}

/// If a parent is cancelled at any moment, no child stays active, and none starts after the cancellation.
///
/// Guarantees: CHILD-10.
#[tokio::test]
async fn cancelled_parent_leaves_no_active_child() {
    for case in [one(), three(), nested(), asks()] {
        let (_, writes) = live(&case, &[]).await;
        for at in 0..writes {
            let family = Family::new(format!("{} cancelled before {at}", case.name));
            let (_, operator) = family.process(&Case { graphs: Vec::new(), ..one() }, FaultPlan::new()).await;
            let (store, runtime) = family.process(&case, FaultPlan::new()).await;
            store.before(at, async move {
                // The cancellation is refused if the run has not started or has ended.
                drop(operator.cancel(&key(), "no need").await);
                std::mem::forget(operator);
            });
            assert!(family.live(&case, &store, &runtime).await);
            family.check().await;
            let top = family.store.head(&key()).await.unwrap().unwrap();
            let open = family.runs().await.into_iter().filter(|run| !run.status.is_finished()).count();
            assert_eq!(open, 0, "{}", family.label);
            assert!(matches!(top.status, RunStatus::Cancelled | RunStatus::Completed), "{}", family.label);
        }
    }
}
