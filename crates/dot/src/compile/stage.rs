//! A node of a pipeline as a node of a graph: its attempts, its outcome, and what that changes of the context.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::Clock;
use ferrata_core::node::{Node as CoreNode, NodeContext, NodeError, NodeResult};
use ferrata_core::state::{Context, ContextUpdate, Draft, Update};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::branch::{self, Limits, Results};
use super::plan::{GATES, Next, Sent, Ways, gate_key};
use crate::handler::{Handler, HandlerError, Stage};
use crate::outcome::{StageOutcome, Status};
use crate::pipeline::{Node, Pipeline};
use crate::value::Value;

/// Where the context keeps what the run was started with, if an edge may start it afresh.
const INPUT: &str = "internal.input";

/// Where the context counts how often the run was started afresh.
const RESTARTS: &str = "internal.restarts";

/// What a node is to the run besides its work.
#[derive(Debug)]
pub(super) enum Role {
    /// It copies the graph's attributes into the context.
    Start {
        mirror: Arc<Map<String, Json>>,
        keep_input: bool,
    },
    /// It lets the run end only if the goals are met.
    Exit,
    /// It takes in what came of the branches of a fork, which begin with these nodes.
    FanIn {
        fork: Arc<Node>,
        order: Vec<String>,
    },
    Work,
}

/// A node of a pipeline.
pub(super) struct StageNode {
    pub(super) handler: Arc<dyn Handler>,
    pub(super) node: Arc<Node>,
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) ways: Arc<Ways>,
    pub(super) attempts: u32,
    pub(super) timeout: Option<Duration>,
    pub(super) role: Role,
    pub(super) limit: Option<Limit>,
    pub(super) clock: Arc<dyn Clock>,
}

/// How many nodes beside it may be at work at once.
pub(super) struct Limit {
    pub(super) most: usize,
    pub(super) open: Arc<Limits>,
}

#[async_trait]
impl CoreNode<Context> for StageNode {
    async fn run(&self, cx: NodeContext, state: Draft<Context>) -> NodeResult<Context> {
        let (branch, arrived) = self.arrived(&cx);
        let context = Arc::new(branch::view(&state, branch.as_deref()));
        let _room = match (&self.limit, &branch) {
            // A semaphore that is never closed gives way in the end.
            (Some(limit), Some(branch)) => {
                limit.open.of(cx.run(), branch, limit.most).acquire_owned().await.ok()
            }
            _ => None,
        };
        let mut outcome = self.attempt(&cx, &context).await?;
        if self.ways.decides && outcome.status == Status::Success {
            outcome = before(&context, outcome);
        }
        let mut results = None;
        if let Role::FanIn { fork, order } = &self.role {
            let gathered = Results::gather(&state, arrived, order);
            if outcome.status == Status::Success {
                outcome = gathered.outcome(fork);
            }
            results = Some(gathered);
        }
        let mut after = Context::clone(&context);
        let mut update = self.update(&outcome, results.as_ref(), &mut after, branch.as_deref())?;
        for ended in results.iter().flat_map(Results::branches) {
            update = update.remove(branch::channel(ended));
        }
        let sent = Sent::of(&outcome, branch, self.ways.forks);
        match self.ways.next(&sent, &after) {
            Next::Fail => {
                let reason = match &*outcome.failure_reason {
                    "" => "the node failed and said nothing about it",
                    reason => reason,
                };
                Err(NodeError::new(reason.to_owned()).fatal())
            }
            Next::Unmet { gate } => {
                let message = format!(
                    "goal gate unsatisfied and no retry target: `{gate}` did not succeed; give it a `retry_target`"
                );
                Err(NodeError::new(message).fatal())
            }
            Next::Edge { to, reason, restart } => {
                self.tell(&cx, &to, &reason.to_string())?;
                if restart {
                    let sent = Sent { restart: Some(to), ..sent };
                    return Ok(self.finish(self.afresh(&after)?, &outcome, sent));
                }
                Ok(self.finish(update, &outcome, sent))
            }
            Next::Jump { to, why } => {
                self.tell(&cx, &to, why.as_str())?;
                Ok(self.finish(update, &outcome, sent))
            }
            Next::Fork | Next::End => Ok(self.finish(update, &outcome, sent)),
        }
    }
}

impl StageNode {
    /// Does the work once, and decides whether it is to be done again.
    ///
    /// # Errors
    ///
    /// Only to ask the runtime for another attempt; it counts them durably and waits between them.
    async fn attempt(&self, cx: &NodeContext, context: &Arc<Context>) -> Result<StageOutcome, NodeError> {
        let stage = Stage {
            cx: cx.clone(),
            node: Arc::clone(&self.node),
            pipeline: Arc::clone(&self.pipeline),
            context: Arc::clone(context),
        };
        let last = cx.attempt() >= self.attempts;
        match self.guarded(&stage).await {
            Ok(outcome) if outcome.status == Status::Retry && !last => {
                let reason = match &*outcome.failure_reason {
                    "" => "the node asks to be tried again".to_owned(),
                    reason => reason.to_owned(),
                };
                Err(NodeError::new(reason))
            }
            Ok(mut outcome) if outcome.status == Status::Retry => {
                if self.says("allow_partial") {
                    outcome.status = Status::PartialSuccess;
                    outcome.notes = "retries exhausted, partial accepted".to_owned();
                } else {
                    outcome.status = Status::Fail;
                    let reason = std::mem::take(&mut outcome.failure_reason);
                    outcome.failure_reason = match &*reason {
                        "" => "max retries exceeded".to_owned(),
                        reason => format!("max retries exceeded: {reason}"),
                    };
                }
                Ok(outcome)
            }
            Ok(outcome) => Ok(outcome),
            Err(error) if error.is_no_status() && self.says("auto_status") => {
                Ok(StageOutcome::success().with_notes("auto-status: the handler gave no status"))
            }
            Err(error) if error.is_transient() && !last => Err(NodeError::new(error.to_string())),
            Err(error) => match error.into_runtime() {
                Ok(error) => Err(error),
                Err(error) => Ok(StageOutcome::fail(error.to_string())),
            },
        }
    }

    /// Runs the handler within its timeout; a panic is an error that stays.
    async fn guarded(&self, stage: &Stage) -> Result<StageOutcome, HandlerError> {
        let mut work = self.handler.run(stage);
        let mut time = pin!(async {
            match self.timeout {
                Some(timeout) => self.clock.sleep(timeout).await,
                None => std::future::pending().await,
            }
        });
        poll_fn(|task| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(task))) {
            Ok(Poll::Ready(result)) => Poll::Ready(result),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().copied();
                let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
                let message = format!("the handler panicked: {}", text.unwrap_or("no message"));
                Poll::Ready(Err(HandlerError::permanent(message)))
            }
            Ok(Poll::Pending) => time.as_mut().poll(task).map(|()| {
                let message = format!(
                    "the node took longer than its timeout of {:?}",
                    self.timeout.unwrap_or_default()
                );
                Err(HandlerError::transient(message))
            }),
        })
        .await
    }

    /// Finds the branch that the node runs in by what arrived at it, and returns that as well.
    fn arrived(&self, cx: &NodeContext) -> (Option<String>, Vec<Sent>) {
        let mut arrived = Vec::new();
        let mut here = None;
        for input in cx.inputs() {
            let Ok(sent) = input.output::<Sent>() else { continue };
            here = match &sent.branch {
                around if sent.fork => {
                    let visit = input.visit.to_string();
                    Some(branch::name(around.as_deref(), input.from.as_str(), &visit, self.node.id()))
                }
                around => around.clone(),
            };
            arrived.push(sent);
        }
        if let Role::FanIn { .. } = self.role {
            here = here.and_then(|branch| branch::around(&branch).map(str::to_owned));
        }
        (here, arrived)
    }

    fn says(&self, key: &str) -> bool {
        self.node.attributes.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    /// Makes the update of an outcome, and the context that it leads to.
    fn update(
        &self,
        outcome: &StageOutcome,
        results: Option<&Results>,
        after: &mut Context,
        branch: Option<&str>,
    ) -> Result<ContextUpdate, NodeError> {
        let mut changes: Vec<(String, Option<Json>)> = Vec::new();
        if let Role::Start { mirror, keep_input } = &self.role {
            if *keep_input {
                let input: Map<String, Json> =
                    after.iter().map(|(key, value)| (key.to_owned(), value.clone())).collect();
                changes.push((INPUT.to_owned(), Some(Json::Object(input))));
            }
            changes.extend(mirror.iter().map(|(key, value)| (key.clone(), Some(value.clone()))));
        }
        for (key, value) in &outcome.context_updates {
            if key.starts_with("internal.") {
                let message =
                    format!("the outcome sets `{key}`; keys that begin with `internal.` are not for nodes");
                return Err(NodeError::new(message).fatal());
            }
            changes.push((key.clone(), Some(value.clone())));
        }
        changes.push(("current_node".to_owned(), Some(self.node.id().into())));
        changes.push(("outcome".to_owned(), Some(outcome.status.as_str().into())));
        for (key, text) in
            [("preferred_label", &outcome.preferred_label), ("failure_reason", &outcome.failure_reason)]
        {
            // What the last outcome does not say is taken away: an old label would steer a node that it was not meant for.
            changes.push((key.to_owned(), (!text.is_empty()).then(|| text.as_str().into())));
        }
        if self.node.is_goal_gate() {
            changes.push((gate_key(self.node.id()), Some(outcome.status.as_str().into())));
        }
        if let Some(results) = results {
            changes.extend(results.gates(GATES).into_iter().map(|(key, value)| (key, Some(value))));
        }
        let (mut update, mut set) = (Context::update(), Map::new());
        for (key, value) in changes {
            let known = after.get_value(&key).filter(|known| !known.is_null());
            if known == value.as_ref().filter(|value| !value.is_null()) {
                continue;
            }
            let shown = value.clone().unwrap_or_default();
            after.set(key.clone(), &shown).map_err(|error| NodeError::new(error).fatal())?;
            match (branch, value) {
                (Some(_), _) => drop(set.insert(key, shown)),
                (None, Some(value)) => update = update.set(key, value),
                (None, None) => {
                    after.remove(&key);
                    update = update.remove(key);
                }
            }
        }
        Ok(match branch {
            Some(branch) if !set.is_empty() => update.merge(branch::channel(branch), set),
            _ => update,
        })
    }

    /// Makes the update that leaves of a context what it was after the start, and counts that.
    fn afresh(&self, after: &Context) -> Result<ContextUpdate, NodeError> {
        let input: Map<String, Json> = after.get(INPUT).map_err(NodeError::new)?.unwrap_or_default();
        let mut update = Context::update();
        for (key, value) in after.iter() {
            let stays = key == INPUT || key == RESTARTS || key.starts_with("graph.");
            match input.get(key) {
                Some(before) if before != value => update = update.set(key, before),
                None if !stays => update = update.remove(key),
                _ => {}
            }
        }
        for (key, value) in input.iter().filter(|(key, _)| !after.contains_key(key)) {
            update = update.set(key, value);
        }
        let restarts = after.get_value(RESTARTS).and_then(Json::as_u64).unwrap_or(0);
        Ok(update.set(RESTARTS, restarts.saturating_add(1)))
    }

    fn finish(&self, update: ContextUpdate, outcome: &StageOutcome, sent: Sent) -> Update<Context> {
        let update = Update::from(update).with_output(sent);
        if outcome.notes.is_empty() { update } else { update.with_notes(&*outcome.notes) }
    }

    /// Tells subscribers where the run goes and why.
    fn tell(&self, cx: &NodeContext, to: &str, reason: &str) -> Result<(), NodeError> {
        let event = json!({"from": self.node.id(), "to": to, "reason": reason});
        cx.emit("edge.selected", event).map_err(NodeError::new)
    }
}

/// Gives a node that only decides the outcome of the node before it, as the context tells it.
fn before(context: &Context, mut outcome: StageOutcome) -> StageOutcome {
    let text = |key: &str| context.get_value(key).and_then(Json::as_str).unwrap_or_default().to_owned();
    if let Some(status) = context.get_value("outcome").and_then(|value| Status::deserialize(value).ok()) {
        outcome.status = status;
        outcome.preferred_label = text("preferred_label");
        outcome.failure_reason = text("failure_reason");
    }
    outcome
}
