//! The graphs of the runs, and their external world.

mod beside;
mod plain;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::ask::AskError;
use ferrata_core::graph::{Graph, GraphBuilder, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::state::Context;
use tokio::sync::watch;

use crate::support::log::Log;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// The external world of the nodes, which outlives every process.
#[derive(Clone, Debug)]
pub(crate) struct Outside {
    /// Number of executed steps.
    pub(crate) steps: Arc<AtomicU32>,
    /// Whether the flaky node fails.
    pub(crate) rain: Arc<AtomicBool>,
    /// Sends the result to all working nodes.
    pub(crate) bank: watch::Sender<Bank>,
    /// Number of starts of `External` nodes, by activation.
    pub(crate) begun: Arc<Mutex<BTreeMap<String, u32>>>,
    /// Whether a running node was asked to stop although its run was not.
    pub(crate) told: Arc<AtomicBool>,
    /// The steps that have returned to their nodes.
    noted: Arc<Mutex<BTreeSet<String>>>,
    /// The messages that nodes received, with their receivers.
    heard: Arc<Mutex<BTreeMap<String, String>>>,
}

/// The result of work at the bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bank {
    Pays,
    /// Fails with an unknown outcome.
    Breaks,
    /// Fails, and nothing was done.
    Refuses,
    /// Fails permanently, and nothing was done.
    Closes,
    /// The node panics.
    Burns,
}

impl Outside {
    pub(crate) fn new() -> Self {
        Self {
            steps: Arc::default(),
            rain: Arc::new(AtomicBool::new(true)),
            bank: watch::channel(Bank::Pays).0,
            begun: Arc::default(),
            told: Arc::default(),
            noted: Arc::default(),
            heard: Arc::default(),
        }
    }

    /// Clears the records of a run before another one replaces it.
    pub(crate) fn forget(&self) {
        self.begun.lock().unwrap().clear();
        self.noted.lock().unwrap().clear();
        self.heard.lock().unwrap().clear();
    }

    /// Compares the actions of nodes with the log.
    pub(crate) fn check(&self, log: &Log) -> Result<(), String> {
        for (at, &times) in &*self.begun.lock().unwrap() {
            let most = log.intents.get(at).copied().unwrap_or_default();
            if times > most {
                return Err(format!(
                    "{at} was begun {times} times, and its intent is {most} times on record"
                ));
            }
        }
        if let Some(note) = self.noted.lock().unwrap().iter().find(|note| !log.noted.contains(*note)) {
            return Err(format!("the step {note} came back and is not on record"));
        }
        let heard = self.heard.lock().unwrap();
        // Each text with a space is unique.
        let all: Vec<&String> = heard.values().filter(|text| text.contains(' ')).collect();
        if all.iter().collect::<BTreeSet<_>>().len() < all.len() {
            return Err(format!("a message was given twice: {heard:?}"));
        }
        Ok(())
    }

    fn count(&self) -> u32 {
        self.steps.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// Works until the result is given.
async fn work(cx: &NodeContext) -> Result<Bank, NodeError> {
    let mut bank = cx.resource::<Outside>().bank.subscribe();
    bank.changed().await?;
    Ok(*bank.borrow())
}

/// Makes the payment that must not be repeated.
async fn pay(cx: &NodeContext) -> Result<(), NodeError> {
    let outside = cx.resource::<Outside>();
    let at = format!("{}@{}", cx.node(), cx.visit());
    *outside.begun.lock().unwrap().entry(at).or_default() += 1;
    if cx.is_cancelled() {
        outside.told.store(true, Ordering::SeqCst);
    }
    match work(cx).await? {
        Bank::Breaks => Err(NodeError::new("the line broke")),
        Bank::Refuses => Err(NodeError::new("it was refused").not_done()),
        Bank::Closes => Err(NodeError::new("there is no such bank").not_done().fatal()),
        // Skip the panic hook, which would print.
        Bank::Burns => std::panic::resume_unwind(Box::new("fire")),
        Bank::Pays => Ok(()),
    }
}

/// Receives the n-th message of an activation.
async fn hear(cx: &NodeContext, n: u32) -> Result<String, NodeError> {
    let text: String = cx.receive().await?;
    let at = format!("{}@{}:{n}", cx.node(), cx.visit());
    cx.resource::<Outside>().heard.lock().unwrap().insert(at, text.clone());
    Ok(text)
}

/// Executes a counted step.
async fn step(cx: &NodeContext, name: &str) -> Result<u32, NodeError> {
    let outside = cx.resource::<Outside>();
    let number = cx.step(name, async || Ok::<_, std::fmt::Error>(outside.count())).await?;
    outside.noted.lock().unwrap().insert(format!("{}@{}:{name}", cx.node(), cx.visit()));
    Ok(number)
}

/// Starts a graph. In the third revision its state has another form.
fn begin(name: &str, revision: &str) -> GraphBuilder<Context> {
    let graph = Graph::<Context>::builder(name);
    if revision != "3" {
        return graph;
    }
    graph.state_version(2).migrate(1, |channels| {
        if let Some(paid) = channels.remove("paid") {
            channels.insert("settled".into(), paid);
        }
        Ok(())
    })
}

/// The channel of payments.
fn paid(revision: &str) -> &'static str {
    if revision == "3" { "settled" } else { "paid" }
}

/// A policy of one more attempt, after 20 seconds.
fn once_more() -> RetryPolicy {
    RetryPolicy::none().with_attempts(2).with_delay(Duration::from_secs(20)).with_jitter(0.0)
}

/// Uses a default value after a timeout. In graphs with branches, an explicit call fails the run instead of a timeout: the documentation does not
/// define which of several expired times a branch sees first.
fn unless_late<A>(answer: Result<A, AskError>, late: A) -> Result<A, AskError> {
    match answer {
        Err(AskError::Expired { .. }) => Ok(late),
        answer => answer,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// A gate with a deadline and a default, and one with a deadline only, whose failure an edge handles.
    Approval,
    /// Three concurrent questions of two nodes.
    Parallel,
    /// A conversation with every kind of end, and then a receive with a timeout.
    Talk,
    /// A short and a long sleep, and a step.
    Journey,
    /// A step in a node that fails on request, with up to two more attempts.
    Flaky,
    /// Declared interrupts before and after nodes.
    Guarded,
    /// A route that replans.
    Replan,
    /// A payment that must not be repeated.
    Payment,
    /// A question, a sleep and a receive concurrently.
    Mixed,
    /// Work next to a question, a sleep and a receive, which stay in memory as long as the work lasts.
    Held,
    /// Two concurrent gates, each of which may fail the run.
    Gates,
    /// One of two waits, and then another one: the same wait must win again.
    Choice,
    /// Work with a timeout, after waits that are longer than the timeout.
    Slow,
    /// A payment next to a node that may fail the run.
    Beside,
    /// A question with a default, whose type may accept fewer values in newer code.
    Picky,
    /// Work, a question and a receive, with a graph deadline of two hours.
    Timed,
    /// The first of two branches starts the join.
    Quorum,
    /// Two messages with a step in between, and then an `External` node.
    Errand,
}

impl Family {
    pub(crate) const ALL: [Self; 18] = [
        Self::Approval,
        Self::Parallel,
        Self::Talk,
        Self::Journey,
        Self::Flaky,
        Self::Guarded,
        Self::Replan,
        Self::Payment,
        Self::Mixed,
        Self::Held,
        Self::Gates,
        Self::Choice,
        Self::Slow,
        Self::Beside,
        Self::Picky,
        Self::Timed,
        Self::Quorum,
        Self::Errand,
    ];

    /// Builds the graph with the node code of this revision.
    pub(crate) fn graph(self, revision: &str) -> Graph<Context> {
        match self {
            Self::Approval => plain::approval(revision),
            Self::Parallel => plain::parallel(revision),
            Self::Talk => plain::talk(revision),
            Self::Journey => plain::journey(revision),
            Self::Flaky => plain::flaky(revision),
            Self::Guarded => plain::guarded(revision),
            Self::Replan => plain::replan(revision),
            Self::Payment => plain::payment(revision),
            Self::Mixed => plain::mixed(revision),
            Self::Held => beside::held(revision),
            Self::Gates => beside::gates(revision),
            Self::Choice => beside::choice(revision),
            Self::Slow => beside::slow(revision),
            Self::Beside => beside::payment(revision),
            Self::Picky => beside::picky(revision),
            Self::Timed => beside::timed(revision),
            Self::Quorum => beside::quorum(revision),
            Self::Errand => beside::errand(revision),
        }
    }
}

pub(crate) use self::beside::set_most;
