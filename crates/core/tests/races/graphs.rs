//! The graphs of the races: small graphs with questions, messages, steps, timers, failures and edited routes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::ExecutorId;
use ferrata_core::ask::Ask;
use ferrata_core::graph::{Effect, Graph, GraphBuilder};
use ferrata_core::node::{NodeContext, NodeError, NodeResult};
use ferrata_core::runtime::{OutboxMessage, OutboxSink, SinkError};
use ferrata_core::state::{Context, Draft, Reducer, Update};
use ferrata_core::store::MemoryStore;
use ferrata_testing::{LedgerDatabase, LedgerRows};

use crate::support::dice::Dice;
use crate::support::letters::{Received, TOPIC};
use crate::support::log::Log;

/// Actions of nodes, recorded outside the store.
pub(crate) struct Witness {
    pub(crate) store: MemoryStore,
    pub(crate) dice: Arc<Dice>,
    /// Number of further failures of the shaky node.
    pub(crate) failures: Mutex<u64>,
    /// Whether nodes send outbox messages.
    pub(crate) sends: bool,
    /// The received outbox messages.
    pub(crate) received: Mutex<Received>,
    /// Number of starts of each activation.
    pub(crate) began: Mutex<BTreeMap<String, u32>>,
    pub(crate) broken: Mutex<Vec<String>>,
}

/// A process, as seen by its nodes.
pub(crate) struct Seat {
    pub(crate) witness: Arc<Witness>,
    /// The id of the process.
    pub(crate) executor: OnceLock<ExecutorId>,
}

impl Witness {
    async fn log(&self, cx: &NodeContext) -> Log {
        Log::read(&self.store, cx.run()).await
    }

    fn broken(&self, what: String) {
        self.broken.lock().unwrap().push(what);
    }
}

fn at(cx: &NodeContext) -> String {
    format!("{}@{}", cx.node(), cx.visit())
}

fn witness(cx: &NodeContext) -> Arc<Witness> {
    Arc::clone(&cx.resource::<Arc<Seat>>().witness)
}

/// Whether another process owns the run, and this one continues until its next write.
fn is_taken_away(cx: &NodeContext, log: &Log) -> bool {
    log.holder != cx.resource::<Arc<Seat>>().executor.get().copied()
}

/// Records that a node starts, and yields as work would.
async fn begin(cx: &NodeContext) {
    let seen = witness(cx);
    let log = seen.log(cx).await;
    if log.done.contains(&at(cx)) && !is_taken_away(cx, &log) {
        seen.broken(format!("{} is recorded and ran again", at(cx)));
    }
    *seen.began.lock().unwrap().entry(at(cx)).or_default() += 1;
    if seen.sends {
        cx.send_out(TOPIC, format!("{} begins", at(cx))).unwrap();
    }
    seen.dice.give_way(12).await;
}

async fn step(cx: &NodeContext, name: &str) -> Result<(), NodeError> {
    let (seen, note) = (witness(cx), format!("{}:{name}", at(cx)));
    cx.step(name, async || {
        let log = seen.log(cx).await;
        if log.noted.contains(&note) && !is_taken_away(cx, &log) {
            seen.broken(format!("the step {note} is recorded and was done again"));
        }
        seen.dice.give_way(6).await;
        Ok::<_, NodeError>(())
    })
    .await?;
    if !seen.log(cx).await.noted.contains(&note) {
        seen.broken(format!("the step {note} came back before it was on record"));
    }
    Ok(())
}

async fn ask(cx: &NodeContext, name: &str) -> Result<String, NodeError> {
    let answer: u64 = cx.ask(name, name).await?;
    let (seen, id) = (witness(cx), format!("{}:{name}", at(cx)));
    let recorded = seen.log(cx).await.answers.get(&id).cloned();
    if recorded.as_deref() != Some(&*answer.to_string()) {
        seen.broken(format!("{id} was answered with {answer}, on record is {recorded:?}"));
    }
    Ok(format!("{id}={answer}"))
}

fn done(cx: &NodeContext, got: Vec<String>) -> Update<Context> {
    sending(cx, Context::update().append("trace", [at(cx)]).append("got", got).into())
}

/// Adds an outbox message with the end of the node.
fn sending(cx: &NodeContext, update: Update<Context>) -> Update<Context> {
    if witness(cx).sends { update.send_out(TOPIC, format!("{} ends", at(cx))) } else { update }
}

async fn work(cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    begin(&cx).await;
    Ok(done(&cx, Vec::new()))
}

async fn asks(cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    begin(&cx).await;
    step(&cx, "first").await?;
    let (one, two) = tokio::join!(ask(&cx, "one"), ask(&cx, "two"));
    let got = vec![one?, two?];
    step(&cx, "last").await?;
    Ok(done(&cx, got))
}

async fn hears(cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    begin(&cx).await;
    let one: String = cx.receive().await?;
    witness(&cx).dice.give_way(8).await;
    let two: String = cx.receive().await?;
    Ok(sending(&cx, Context::update().append("trace", [at(&cx)]).append("said", [one, two]).into()))
}

async fn naps(cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    begin(&cx).await;
    cx.sleep(Duration::from_secs(2)).await?;
    cx.sleep(Duration::from_secs(3_600)).await?;
    Ok(done(&cx, Vec::new()))
}

async fn shaky(cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    begin(&cx).await;
    let seen = witness(&cx);
    let mut failures = seen.failures.lock().unwrap();
    if *failures > 0 {
        *failures -= 1;
        return Err(NodeError::new("not now").fatal());
    }
    drop(failures);
    Ok(done(&cx, Vec::new()))
}

/// Adds to a row of the activation and to a shared row, in one commit with the record.
async fn books(cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    begin(&cx).await;
    let mut tx = cx.transaction::<LedgerDatabase>().await?;
    tx.add(&at(&cx), 1);
    witness(&cx).dice.give_way(12).await;
    tx.add(SHARED, 1);
    Ok(done(&cx, Vec::new()).commit_with(tx))
}

/// Does the same in two steps, with a wait between them.
async fn debits(cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    begin(&cx).await;
    for name in ["debit", "credit"] {
        let row = format!("{}:{name}", at(&cx));
        cx.step_in::<LedgerDatabase, _, _, _>(name, async |tx: &mut LedgerRows| {
            tx.add(&row, 1);
            witness(&cx).dice.give_way(6).await;
            tx.add(SHARED, 1);
            Ok::<_, NodeError>(())
        })
        .await?;
        step(&cx, &format!("after-{name}")).await?;
    }
    Ok(done(&cx, Vec::new()))
}

/// The row that all booking nodes change.
pub(crate) const SHARED: &str = "shared";

/// A sink that fails before, during and after the receipt of a message.
pub(crate) struct Mail(pub(crate) Arc<Witness>);

#[async_trait]
impl OutboxSink for Mail {
    async fn deliver(&self, batch: &[OutboxMessage]) -> Result<(), SinkError> {
        let seen = &self.0;
        for (place, letter) in batch.iter().enumerate() {
            seen.dice.give_way(6).await;
            let chance = seen.dice.below(16);
            match chance {
                0 => return Err(SinkError::new("it is down").after(place)),
                1 | 4 => return Err(SinkError::new("no such address").after(place).refused()),
                _ => {}
            }
            let log = Log::read(&seen.store, &letter.run).await;
            let broken = seen.received.lock().unwrap().add(letter, Some(&log.letters));
            broken.into_iter().for_each(|what| seen.broken(what));
            match chance {
                2 => return Err(SinkError::new("the reply was lost").after(place)),
                // Skip the panic hook, which would print.
                3 => std::panic::resume_unwind(Box::new("a bug in the outlet")),
                _ => {}
            }
        }
        Ok(())
    }
}

fn builder(name: &str) -> GraphBuilder<Context> {
    ["trace", "got", "said", "edits"]
        .into_iter()
        .fold(Graph::<Context>::builder(name), |graph, channel| graph.channel(channel, Reducer::Append))
}

pub(crate) fn all() -> Vec<Graph<Context>> {
    vec![beside(), row(), detour(), short(), booking()]
}

/// A graph with concurrent waits of every kind.
fn beside() -> Graph<Context> {
    let graph = builder("beside")
        .node("split", work)
        .effect(Effect::Pure)
        .node("asks", asks)
        .node("hears", hears)
        .effect(Effect::Pure)
        .node("naps", naps)
        .node("shaky", shaky)
        .node("end", work)
        .entry("split")
        .edge("split", ["asks", "hears", "naps", "shaky"])
        .edge(["asks", "hears", "naps", "shaky"], "end");
    graph.build().unwrap()
}

/// A sequence of nodes, with a declared interrupt around one of them.
fn row() -> Graph<Context> {
    let graph = builder("row")
        .node("hears", hears)
        .gate("ok", |_s: &Context| Ask::<u64>::new("Go on?"), |_s, _n| ())
        .node("shaky", shaky)
        .interrupt_before()
        .interrupt_after()
        .node("end", work)
        .effect(Effect::Pure)
        .entry("hears")
        .edge("hears", "ok")
        .edge("ok", "shaky")
        .edge("shaky", "end");
    graph.build().unwrap()
}

/// Quick nodes that run ahead of their records, with a route that an edit changes.
fn detour() -> Graph<Context> {
    let side = |s: &Context| s.get::<u64>("side").ok().flatten().unwrap_or_default() % 2;
    let graph = builder("detour")
        .node("head", work)
        .effect(Effect::Pure)
        .node("left", work)
        .effect(Effect::Pure)
        .node("right", work)
        .effect(Effect::Pure)
        .node("both", async |cx, s| {
            // The recorded origin must equal the node's inputs.
            begin(&cx).await;
            let from: Vec<_> =
                cx.inputs().iter().map(|input| format!("{}<{}", at(&cx), input.from)).collect();
            drop(s);
            witness(&cx).dice.give_way(12).await;
            Ok(done(&cx, from))
        })
        .effect(Effect::Pure)
        .node("asks", asks)
        .node("end", work)
        .entry("head")
        .route("head", ["left", "right"], move |s: &Context, _| if side(s) == 0 { "left" } else { "right" })
        .edge(["left", "right"], "both")
        .route("both", ["head", "asks"], |_s, cx| if cx.visit().get() < 4 { "head" } else { "asks" })
        .edge("asks", "end");
    graph.build().unwrap()
}

/// A run so short that most operations arrive late.
fn short() -> Graph<Context> {
    let graph = builder("short").node("one", work).node("shaky", shaky).entry("one").edge("one", "shaky");
    graph.build().unwrap()
}

/// Rows and records in one commit, next to nodes that wait or fail.
fn booking() -> Graph<Context> {
    let graph = builder("booking")
        .node("split", work)
        .effect(Effect::Pure)
        .node("left", books)
        .effect(Effect::Transactional)
        .node("right", books)
        .effect(Effect::Transactional)
        .node("debits", debits)
        .node("hears", hears)
        .node("shaky", shaky)
        .node("last", books)
        .effect(Effect::Transactional)
        .entry("split")
        .edge("split", ["left", "right", "debits", "hears", "shaky"])
        .edge(["left", "right", "debits", "hears", "shaky"], "last");
    graph.build().unwrap()
}
