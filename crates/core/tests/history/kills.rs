//! Crashes at every write of a prune, purge or copy: no data is lost, and the next process finishes the work.
//!
//! `crates/store-fs/tests` includes this file.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ferrata_core::ask::Answer;
use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Outcome, Position, RetentionPolicy, Runtime, SweepLimits};
use ferrata_core::state::{Context, Op, Patch, Reducer};
use ferrata_core::store::{At, CheckpointStore, HeaderRange, Page, RunQuery};
use ferrata_core::{Result, RunKey};
use ferrata_testing::{Fault, FaultPlan, FaultStore};

type Store = Arc<dyn CheckpointStore>;

/// An operation that any process can start from the beginning.
type Work = for<'a> fn(&'a Runtime, &'a str) -> Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

struct Case {
    name: &'static str,
    work: Work,
    /// Whether the logs must be as long as without a fault. The log of a resumed run contains claims, too.
    exact: bool,
}

fn cases() -> Vec<Case> {
    let case = |name, work: Work| Case { name, work, exact: true };
    vec![
        case("prune", |runtime, _| Box::pin(prune(runtime))),
        case("sweep", |runtime, _| Box::pin(sweep(runtime))),
        case("purge", |runtime, _| Box::pin(purge(runtime))),
        case("import", |runtime, text| Box::pin(import(runtime, text))),
        case("move", |runtime, text| Box::pin(carry(runtime, text))),
        Case { exact: false, ..case("fork", |runtime, _| Box::pin(fork(runtime))) },
    ]
}

fn key(id: &str) -> RunKey {
    RunKey::try_from(id).unwrap()
}

async fn prune(runtime: &Runtime) -> Result<()> {
    for (id, keep) in [("done", 9), ("asks", 5), ("done", 4)] {
        runtime.apply_retention(&key(id), &RetentionPolicy::keep_all().keep_last(keep)).await?;
    }
    Ok(())
}

async fn sweep(runtime: &Runtime) -> Result<()> {
    let policy = RetentionPolicy::keep_all().keep_last(4).purge_after(RunStatus::Cancelled, Duration::ZERO);
    let mut limits = SweepLimits::default().with_runs(1);
    loop {
        let mut report = runtime.sweep(&policy, limits.clone(), false).await?;
        if let Some((_, error)) = report.failed.pop() {
            return Err(error);
        }
        match report.next {
            Some(next) => limits = limits.with_cursor(next),
            None => return Ok(()),
        }
    }
}

async fn purge(runtime: &Runtime) -> Result<()> {
    runtime.purge(&key("done")).await?;
    runtime.purge(&key("cancelled")).await.map(|_| ())
}

async fn import(runtime: &Runtime, text: &str) -> Result<()> {
    runtime.import(text, Some(key("copy"))).await.map(|_| ())
}

/// Purges a run and imports it again.
async fn carry(runtime: &Runtime, text: &str) -> Result<()> {
    if runtime.head(&key("done")).await?.is_some() {
        runtime.purge(&key("done")).await?;
    }
    runtime.import(text, None).await.map(|_| ())
}

async fn fork(runtime: &Runtime) -> Result<()> {
    let graph = graph();
    let at: Position = "n3@1".parse()?;
    let patch = Patch::from_ops(&[Op::Set("forked".into(), true.into())])?;
    let mut run = runtime.fork(&key("done"), at).id("f").edit(patch).drive(&graph).await?;
    loop {
        if !run.is_driven_here() {
            if runtime.head(&key("f")).await?.is_some_and(|head| head.status == RunStatus::Completed) {
                return Ok(());
            }
            run = runtime.resume(&graph, "f").take_over().await?;
        }
        match run.wait().await? {
            Outcome::Interrupted(questions) => {
                runtime.respond(run.run(), &questions[0].id, Answer::accept(7)?).await?;
                run = runtime.resume(&graph, "f").take_over().await?;
            }
            _ => return Ok(()),
        }
    }
}

/// A graph of twelve nodes, a question, and one more node.
fn graph() -> Graph<Context> {
    let mut builder = Graph::<Context>::builder("kills").channel("path", Reducer::Append).entry("n0");
    for at in 0..14_u32 {
        let name = format!("n{at}");
        builder = builder.node(&name, move |cx: NodeContext, _s| async move {
            let said: u32 = match at {
                // The work before the question is not repeated.
                12 => {
                    let one: u32 = cx.step("one", async || Ok::<_, std::io::Error>(1)).await?;
                    one + cx.ask::<u32>("q", "How much?").await?
                }
                _ => at,
            };
            Ok(Context::update().append("path", [said]))
        });
        if at > 0 {
            builder = builder.edge(format!("n{}", at - 1), &name);
        }
    }
    builder.build().unwrap()
}

async fn process(store: Store) -> Runtime {
    Runtime::builder_with(store).store_retries(1, Duration::from_millis(1)).build().await.unwrap()
}

/// Creates a completed run, a run that asks, and a cancelled run. Returns the export of the completed run.
async fn fill(store: Store) -> String {
    let (runtime, graph) = (process(store).await, graph());
    for id in ["done", "asks", "cancelled"] {
        runtime.start(&graph, Context::new()).id(id).await.unwrap().wait().await.unwrap();
    }
    runtime.respond(&key("done"), "n12", Answer::accept(41).unwrap()).await.unwrap();
    runtime.resume(&graph, "done").await.unwrap().wait().await.unwrap();
    runtime.cancel(&key("cancelled"), "no").await.unwrap();
    // A message that no node has received.
    runtime.send(&key("asks"), "early").await.unwrap();
    runtime.export(&key("done")).await.unwrap()
}

/// A run without ids and times: its id, its first and last sequence numbers, its status, its state, and the open items.
type Told = (String, (u64, u64), RunStatus, serde_json::Value, (usize, usize));

/// Reads all retained records. Checks that none is missing.
async fn told(store: Store) -> Vec<Told> {
    let runtime = process(Arc::clone(&store)).await;
    let mut seen = Vec::new();
    for head in store.runs(&RunQuery::default(), Page::first(100)).await.unwrap().items {
        let run = &head.run;
        let headers = store.headers(run, HeaderRange::oldest(1_000)).await.unwrap().items;
        assert_eq!((headers[0].seq, headers.last().unwrap().seq), (head.first, head.seq), "{run}");
        assert!(headers[0].base, "{run}: the oldest record must be a base");
        for pair in headers.windows(2) {
            assert_eq!(
                (pair[1].seq, pair[1].prev),
                (pair[0].seq.next(), Some(pair[0].id)),
                "{run}: a record is missing"
            );
        }
        for header in &headers {
            let records = store.load(run, At::Seq(header.seq)).await.unwrap().unwrap();
            assert!(records[0].header.base, "{run}");
        }
        let now = runtime.checkpoint(run, Position::Latest).await.unwrap();
        let open = (now.questions.len(), now.unread);
        seen.push((run.run.to_string(), (head.first.get(), head.seq.get()), head.status, now.state, open));
    }
    seen.sort_by(|one, other| one.0.cmp(&other.0));
    seen
}

fn but_for_lengths(told: &[Told]) -> Vec<Told> {
    told.iter().cloned().map(|(id, _, status, state, open)| (id, (0, 0), status, state, open)).collect()
}

/// The run that asks continues to its end, whatever was dropped.
async fn goes_on(store: Store, label: &str) {
    let runtime = process(Arc::clone(&store)).await;
    if runtime.head(&key("asks")).await.unwrap().is_none() {
        return;
    }
    let questions = runtime.questions(&key("asks")).await.unwrap();
    assert_eq!(questions[0].id, "n12@1:q", "{label}");
    runtime.respond(&key("asks"), "n12", Answer::accept(7).unwrap()).await.unwrap();
    let run = runtime.resume(&graph(), "asks").await.unwrap();
    let state = run.wait().await.unwrap().completed().unwrap();
    let path: Vec<u32> = (0..14).map(|at| if at == 12 { 8 } else { at }).collect();
    assert_eq!(state.get::<Vec<u32>>("path").unwrap().unwrap(), path, "{label}");
}

/// Runs each operation with each fault at each write. `place` creates a store, and returns a function that opens this store again.
pub(crate) async fn at_every_write<P: Fn() -> Store>(place: impl Fn() -> P) {
    for case in cases() {
        let open = place();
        let text = fill(open()).await;
        let calm = Arc::new(FaultStore::new(open(), FaultPlan::new()));
        (case.work)(&process(Arc::clone(&calm) as Store).await, &text).await.unwrap();
        let (writes, wanted) = (calm.operations(), told(open()).await);
        assert!(writes > 0, "{}", case.name);
        for at in 0..writes {
            for fault in Fault::ALL {
                let label = format!("{}: {fault:?} at write {at} of {writes}", case.name);
                let open = place();
                let text = fill(open()).await;
                let store = Arc::new(FaultStore::new(open(), FaultPlan::new().with_fault(at, fault)));
                let runtime = process(Arc::clone(&store) as Store).await;
                let ended = (case.work)(&runtime, &text).await;
                assert!(ended.is_err(), "{label}: the fault had no effect");
                store.crash();
                drop(runtime);
                told(open()).await;
                for again in ["finished", "repeated"] {
                    let ended = (case.work)(&process(open()).await, &text).await;
                    ended.unwrap_or_else(|error| panic!("{label}, {again}: {error:?}"));
                    let found = told(open()).await;
                    match case.exact {
                        true => assert_eq!(found, wanted, "{label}, {again}"),
                        false => {
                            assert_eq!(but_for_lengths(&found), but_for_lengths(&wanted), "{label}, {again}")
                        }
                    }
                }
                goes_on(open(), &label).await;
            }
        }
    }
}
