//! The nodes of the simulation, and the external ledger of their effects.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::graph::{Effect, Graph};
use ferrata_core::node::{NodeContext, NodeError, NodeResult};
use ferrata_core::record::{RecordKind, RunStatus};
use ferrata_core::runtime::{ChildError, OnParentEnd, OutboxMessage, OutboxSink, SinkError};
use ferrata_core::state::{Context, Draft, Update};
use ferrata_core::{Clock, ExecutorId, RunKey};

use super::clock::SkewedClock;
use super::rules::Rules;
use crate::support::dice::Dice;
use crate::support::letters::{Received, TOPIC};
use crate::support::log::Log;

/// Maximum duration of a hazard.
pub(crate) const HAZARD: Duration = Duration::from_secs(2);

/// External effects, by run, generation and activation.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Number of starts of each activation, and its idempotency key.
    began: BTreeMap<Place, (u64, String)>,
    /// Number of permitted repetitions of each `External` effect: by an answer, or because the node reported no effect.
    pub(crate) retried: BTreeMap<Place, u64>,
    /// The received outbox messages.
    pub(crate) received: Received,
}

/// A run, its generation, and an activation.
pub(crate) type Place = (RunKey, String, String);

impl Ledger {
    pub(crate) fn has(&self, place: &Place) -> bool {
        self.began.contains_key(place)
    }
}

/// A process, as seen by its nodes.
pub(crate) struct Seat {
    pub(crate) process: u64,
    pub(crate) clock: Arc<SkewedClock>,
    pub(crate) dice: Arc<Dice>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) ledger: Arc<Mutex<Ledger>>,
    kid: Graph<Context>,
    /// Whether nodes send outbox messages.
    sends: bool,
    executor: Mutex<Option<ExecutorId>>,
}

impl Seat {
    pub(crate) fn new(
        process: u64,
        clock: Arc<SkewedClock>,
        dice: Arc<Dice>,
        rules: Arc<Rules>,
        ledger: Arc<Mutex<Ledger>>,
        kid: Graph<Context>,
        sends: bool,
    ) -> Self {
        Self { process, clock, dice, rules, ledger, kid, sends, executor: Mutex::default() }
    }

    pub(crate) fn executor(&self) -> Option<ExecutorId> {
        *self.executor.lock().unwrap()
    }

    pub(crate) fn is_executor(&self, executor: ExecutorId) {
        *self.executor.lock().unwrap() = Some(executor);
    }

    fn broken(&self, cx: &NodeContext, what: &str) {
        let what = format!("{}: process {}: {} {what}", cx.run(), self.process, at(cx));
        self.rules.seen().broken.push(what);
    }

    /// Whether the run was claimed by another process or purged, and this process continues until it notices.
    fn is_zombie(&self, cx: &NodeContext) -> bool {
        let seen = self.rules.seen();
        seen.logs.get(cx.run()).is_none_or(|log| log.holder != self.executor() || log.life != life(cx))
    }

    /// Works for a random time, sometimes longer than the timeouts of others.
    async fn work(&self) {
        self.dice.give_way(6).await;
        if self.dice.below(4) == 0 {
            let time = *self.dice.pick(&[1, 40, 400, 3_000, 9_000]);
            self.clock.sleep(Duration::from_millis(time)).await;
        }
    }
}

fn at(cx: &NodeContext) -> String {
    format!("{}@{}", cx.node(), cx.visit())
}

/// The generation of the node's run.
fn life(cx: &NodeContext) -> String {
    cx.idempotency_key().split(':').next().unwrap().to_owned()
}

fn seat(cx: &NodeContext) -> Arc<Seat> {
    Arc::clone(cx.resource::<Arc<Seat>>())
}

/// Records that a node starts, and checks that it may.
async fn begin(cx: &NodeContext, effect: Effect) -> Arc<Seat> {
    let seat = seat(cx);
    seat.rules.note(&format!("process {} begins {} of {}", seat.process, at(cx), cx.run()));
    let (is_recorded, is_intended) = {
        let seen = seat.rules.seen();
        let gone = Log::default();
        let log = seen.logs.get(cx.run()).filter(|log| log.life == life(cx)).unwrap_or(&gone);
        let is_intent = |kind, node: Option<&str>, visit| {
            kind == RecordKind::Intent && node == Some(cx.node().as_str()) && visit == Some(cx.visit())
        };
        let mut headers = log.records.iter().map(|record| &record.header);
        let is_intended = headers.any(|header| {
            is_intent(header.kind, header.node.as_ref().map(|node| node.as_str()), header.visit)
        });
        (log.done.contains(&at(cx)), is_intended)
    };
    if is_recorded && !seat.is_zombie(cx) {
        seat.broken(cx, "is recorded and ran again");
    }
    let place = (cx.run().clone(), life(cx), at(cx));
    let (times, is_same) = {
        let mut ledger = seat.ledger.lock().unwrap();
        let key = cx.idempotency_key();
        let entry = ledger.began.entry(place.clone()).or_insert_with(|| (0, key.clone()));
        entry.0 += 1;
        let (times, is_same) = (entry.0, entry.1 == key);
        (times.saturating_sub(ledger.retried.get(&place).copied().unwrap_or_default()), is_same)
    };
    if !is_same {
        seat.broken(cx, "has another key");
    }
    if effect == Effect::External && !is_intended && !seat.is_zombie(cx) {
        seat.broken(cx, "must not be repeated, and its intent was not on record");
    }
    if effect == Effect::External && times > 1 {
        seat.broken(cx, "must not be repeated and was");
    }
    if seat.sends {
        cx.send_out(TOPIC, format!("{} begins", at(cx))).unwrap();
    }
    seat.work().await;
    seat
}

fn done(cx: &NodeContext) -> Update<Context> {
    let update = Update::from(Context::update().append("trace", [at(cx)]));
    if seat(cx).sends { update.send_out(TOPIC, format!("{} ends", at(cx))) } else { update }
}

/// A sink that fails before, during and after the receipt of a message.
pub(crate) struct Mail(pub(crate) Arc<Seat>);

#[async_trait]
impl OutboxSink for Mail {
    async fn deliver(&self, batch: &[OutboxMessage]) -> Result<(), SinkError> {
        let Seat { dice, rules, ledger, clock, process, .. } = &*self.0;
        for (place, letter) in batch.iter().enumerate() {
            let chance = dice.below(24);
            match chance {
                0 => return Err(SinkError::new("it is down").after(place)),
                1 => return Err(SinkError::new("no such address").after(place).refused()),
                // Sometimes longer than the sink's timeout.
                2 => clock.sleep(Duration::from_millis(*dice.pick(&[40, 3_000, 25_000]))).await,
                _ => dice.give_way(3).await,
            }
            rules.note(&format!("process {process} delivers letter {} of {}", letter.number, letter.run));
            let mut seen = rules.seen();
            let log = seen.logs.get(&letter.run).filter(|log| letter.key().starts_with(&log.life));
            let broken = ledger.lock().unwrap().received.add(letter, log.map(|log| &log.letters));
            seen.broken.extend(broken);
            drop(seen);
            match chance {
                3 => return Err(SinkError::new("the reply was lost").after(place)),
                4 => std::panic::resume_unwind(Box::new("a bug in the outlet")),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Works as the effect of the node allows.
pub(crate) async fn work(cx: NodeContext, effect: Effect) -> NodeResult<Context> {
    begin(&cx, effect).await;
    Ok(done(&cx))
}

/// Performs an `External` effect, and ends in one of the ways in which it can go wrong.
pub(crate) async fn hazard(cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    let seat = begin(&cx, Effect::External).await;
    match seat.dice.below(8) {
        0 | 1 => {
            let place = (cx.run().clone(), life(&cx), at(&cx));
            *seat.ledger.lock().unwrap().retried.entry(place).or_default() += 1;
            let error = NodeError::new("it was refused").not_done();
            Err(if seat.dice.below(4) == 0 { error.fatal() } else { error })
        }
        2 => Err(NodeError::new("the line broke")),
        3 => Err(NodeError::new("the line broke for good").fatal()),
        // Skip the panic hook, which would print.
        4 => std::panic::resume_unwind(Box::new("a panic")),
        5 => {
            seat.clock.sleep(2 * HAZARD).await;
            Ok(done(&cx))
        }
        _ => Ok(done(&cx)),
    }
}

pub(crate) async fn steps(cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    let seat = begin(&cx, Effect::Write).await;
    for name in ["first", "second"] {
        step(&cx, &seat, name).await?;
    }
    Ok(done(&cx))
}

fn is_noted(cx: &NodeContext, seat: &Seat, note: &str) -> bool {
    seat.rules.seen().logs.get(cx.run()).is_some_and(|log| log.noted.contains(note))
}

async fn step(cx: &NodeContext, seat: &Seat, name: &str) -> Result<(), NodeError> {
    let note = format!("{}:{name}", at(cx));
    cx.step(name, async || {
        if is_noted(cx, seat, &note) && !seat.is_zombie(cx) {
            seat.broken(cx, &format!("did the step {name} again, which is recorded"));
        }
        seat.work().await;
        Ok::<_, NodeError>(())
    })
    .await?;
    if !is_noted(cx, seat, &note) && !seat.is_zombie(cx) {
        seat.broken(cx, &format!("has done the step {name}, which is not on record"));
    }
    Ok(())
}

pub(crate) async fn asks(cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    let seat = begin(&cx, Effect::Write).await;
    let answer: u64 = cx.ask("ok", "Go on?").await?;
    let id = format!("{}:ok", at(&cx));
    let recorded = seat.rules.seen().logs.get(cx.run()).and_then(|log| log.answers.get(&id)).cloned();
    if !seat.is_zombie(&cx) && recorded.as_deref() != Some(&*answer.to_string()) {
        seat.broken(&cx, &format!("was answered {answer}, on record is {recorded:?}"));
    }
    step(&cx, &seat, "then").await?;
    Ok(done(&cx))
}

pub(crate) async fn hears(cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    let seat = begin(&cx, Effect::Write).await;
    let message: String = cx.receive().await?;
    let message_is_taken = {
        let (seen, message) = (seat.rules.seen(), serde_json::json!(message));
        seen.logs.get(cx.run()).is_some_and(|log| log.taken.contains(&message))
    };
    if !message_is_taken && !seat.is_zombie(&cx) {
        seat.broken(&cx, "has a message whose taking is not on record");
    }
    seat.work().await;
    Ok(Context::update().append("trace", [at(&cx)]).append("said", [message]).into())
}

pub(crate) async fn naps(cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    let seat = begin(&cx, Effect::Write).await;
    let seconds = if cx.visit().get().is_multiple_of(2) { 3 } else { 20 };
    cx.sleep(Duration::from_secs(seconds)).await?;
    seat.work().await;
    Ok(done(&cx))
}

/// Waits for children, and checks that their results are recorded.
pub(crate) async fn family(cx: NodeContext, children: usize) -> NodeResult<Context> {
    let seat = begin(&cx, Effect::Write).await;
    wait_for(&cx, &seat, children, |_| false).await?;
    Ok(done(&cx))
}

async fn wait_for(
    cx: &NodeContext,
    seat: &Seat,
    children: usize,
    is_ended: impl Fn(&ChildError) -> bool,
) -> Result<(), ChildError> {
    let waited = if children == 1 {
        cx.child(&seat.kid, Context::new()).await.map(drop)
    } else {
        let inputs = (0..children).map(|_| Context::new());
        cx.children(&seat.kid, inputs).max_running(2).await.map(drop)
    };
    match waited {
        Err(error) if is_ended(&error) => return Err(error),
        waited => heard(cx, seat, waited)?,
    }
    let start = format!("{}:{}:{}:", life(cx), cx.node(), cx.visit());
    let found = seat.rules.children_of(&start);
    // A child may be purged after its parent has noted its result.
    let is_swept = |status: &Option<RunStatus>| status.is_none() && seat.rules.are_swept();
    let is_well = |status: &Option<RunStatus>| *status == Some(RunStatus::Completed) || is_swept(status);
    let is_whole = found.len() == children && found.iter().all(is_well);
    if !is_whole && !seat.is_zombie(cx) {
        seat.broken(cx, &format!("heard that {children} children are completed, on record is {found:?}"));
    }
    Ok(())
}

/// Checks that a child's result is no failure: no child fails by itself, and no process cancels a child that its parent waits for.
fn heard<T>(cx: &NodeContext, seat: &Seat, of: Result<T, ChildError>) -> Result<T, ChildError> {
    if let Err(error) = &of
        && !seat.is_zombie(cx)
    {
        seat.broken(cx, &format!("heard of a child that it waits for: {error}"));
    }
    of
}

/// Checks that a node computes the same value as its earlier attempts, to the extent that it is recorded.
async fn same(cx: &NodeContext, seat: &Seat, what: String) -> Result<(), NodeError> {
    let kept: String = cx.step("same", async || Ok::<_, NodeError>(what.clone())).await?;
    if kept != what && !seat.is_zombie(cx) {
        seat.broken(cx, &format!("came to {what}, and had come to {kept} before"));
    }
    Ok(())
}

/// Waits for a child for `time`, and then abandons it.
pub(crate) async fn race(cx: NodeContext, time: Duration, left: OnParentEnd) -> NodeResult<Context> {
    let seat = begin(&cx, Effect::Write).await;
    // Use a fixed order, because the random order of `select!` does not come from the seed.
    let first = tokio::select! {
        biased;
        child = cx.child(&seat.kid, Context::new()).on_parent_end(left) => {
            heard(&cx, &seat, child)?;
            "the child"
        }
        slept = cx.sleep(time) => {
            slept?;
            "the time"
        }
    };
    same(&cx, &seat, first.to_owned()).await?;
    Ok(done(&cx))
}

/// Waits for the first of several children.
pub(crate) async fn enough(cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    let seat = begin(&cx, Effect::Write).await;
    let inputs = (0..3).map(|_| Context::new());
    let states = heard(&cx, &seat, cx.children(&seat.kid, inputs).max_running(2).at_least(1).await)?;
    let came: Vec<bool> = states.iter().map(Option::is_some).collect();
    if !came.contains(&true) {
        seat.broken(&cx, "went on without a child that it needs");
    }
    same(&cx, &seat, format!("{came:?}")).await?;
    Ok(done(&cx))
}

/// Waits for children, and fails if they take long. After some attempts it needs no children.
pub(crate) async fn hasty(cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    let seat = begin(&cx, Effect::Write).await;
    let place = (cx.run().clone(), life(&cx), at(&cx));
    let times = seat.ledger.lock().unwrap().began[&place].0;
    // The process crashed after it had stopped the children of the last attempt, and before this was recorded. So the attempt runs again.
    let is_ended = |error: &ChildError| matches!(error, ChildError::Cancelled { run, .. } if seat.rules.is_stopped_since_retry(run, cx.run()));
    if times <= 4 {
        tokio::select! {
            biased;
            waited = wait_for(&cx, &seat, 2, is_ended) => waited?,
            // Use the process clock, because the node's timeout does not count waits.
            () = seat.clock.sleep(Duration::from_secs(3)) => return Err(NodeError::new("they take too long")),
        }
    }
    Ok(done(&cx))
}

pub(crate) async fn flaky(cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    begin(&cx, Effect::Write).await;
    if cx.attempt() < 3 {
        return Err(NodeError::new("not yet"));
    }
    Ok(done(&cx))
}
