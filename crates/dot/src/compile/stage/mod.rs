//! A node of a pipeline as a node of a graph. The node finds how the run arrived, does the work, and chooses the route.

mod attempt;
mod budget;
mod joined_branches;
mod restart;
mod update;
mod visits;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::node::{Node as CoreNode, NodeContext, NodeError, NodeResult};
use ferrata_core::state::{Context, ContextUpdate, Draft, Update};
use serde_json::{Map, Value as Json, json};

use self::attempt::WorkResult;
pub(super) use self::budget::RunBudget;
use self::joined_branches::JoinedBranches;
use super::abandonment::{BranchJoins, ENDED, JoinWatch, LeaveRule, joins, wait_until_settled};
use super::branch::{self, BranchLimits, BranchResults};
use super::each::{self, BranchItem};
use super::plan::{NextStep, NodeTargets, RouteInput};
use crate::fidelity::{EdgeArrival, FidelityChoice};
use crate::handler::{ActivityCounter, AttemptOutput, Handler, Stage, WaitMark};
use crate::outcome::{StageOutcome, Status, Usage};
use crate::pipeline::{Node, Pipeline};
use crate::run_dir::artifacts_of_attempt;
use crate::value::Value;

/// The role of a node in addition to its work.
#[derive(Debug)]
pub(super) enum NodeRole {
    /// The start of the pipeline. The start copies the attributes of the graph into the context.
    Start {
        mirror: Arc<Map<String, Json>>,
        keep_input: bool,
    },
    /// A node where the branches of a parallel node meet. The node gathers the results of the branches, whose first nodes are in `order`. If it is
    /// not a fan-in, it then does its own work.
    FanIn {
        fork: Arc<Node>,
        order: Vec<String>,
        implicit: bool,
    },
    Work,
}

/// A node of a pipeline, ready to run in a graph.
pub(super) struct StageNode {
    pub(super) handler: Arc<dyn Handler>,
    pub(super) node: Arc<Node>,
    pub(super) kind: Arc<str>,
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) ways: Arc<NodeTargets>,
    pub(super) attempts: u32,
    /// Whether the node retries a failure, and not only an outcome `retry`.
    pub(super) again_on_fail: bool,
    /// Whether the node retries a failure that is known only by an exit status.
    pub(super) again_on_exit: bool,
    /// Whether the work must not be repeated without a decision of an operator.
    pub(super) external: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) stall: Option<Duration>,
    pub(super) role: NodeRole,
    pub(super) limit: Option<SiblingLimit>,
    /// Maximum number of visits without a wait. Present if the node is in a loop and the pipeline sets no limit.
    pub(super) visits: Option<u32>,
    /// The rules for abandoning branches, by parallel node.
    pub(super) rules: Arc<HashMap<String, LeaveRule>>,
    pub(super) joins: Arc<BranchJoins>,
    /// Whether the node records its result for later tasks.
    pub(super) told_of: bool,
    /// Whether the node does more than route. Only such nodes stop working when the budget is spent.
    pub(super) works: bool,
    pub(super) budget: Arc<RunBudget>,
}

/// The limit on the number of concurrently running nodes in the branches of a parallel node.
pub(super) struct SiblingLimit {
    pub(super) most: usize,
    pub(super) open: Arc<BranchLimits>,
}

/// How the run arrived at a node.
struct NodeArrival {
    branch: Option<String>,
    sent: Vec<RouteInput>,
    by: EdgeArrival,
    /// The node inside a branch that is the target of the run, if this node is a parallel node on the way to it.
    enter: Option<String>,
    /// The item of the branch, at the first node of the branch.
    item: Option<BranchItem>,
}

#[async_trait]
impl CoreNode<Context> for StageNode {
    async fn run(&self, cx: NodeContext, state: Draft<Context>) -> NodeResult<Context> {
        let NodeArrival { branch, sent: arrived, by, enter, item } = self.find_arrival(&cx);
        let mut context = branch::view(&state, branch.as_deref());
        if let Some(item) = &item {
            // A value from a context always fits into one.
            let _ = context.set(each::ITEM, &item.item);
            let _ = context.set(each::INDEX, item.index);
        }
        let visit = self.count_visit(&context)?;
        let context = Arc::new(context);
        let told = FidelityChoice::of(&self.node, &self.pipeline, &by);
        let met = self.gather_branches(&state, arrived);
        let seen = met.as_ref().map_or_else(|| Arc::clone(&context), |met| Arc::new(met.shown_in(&context)));
        let stage = Stage {
            cx: cx.clone(),
            node: Arc::clone(&self.node),
            pipeline: Arc::clone(&self.pipeline),
            context: Arc::clone(&seen),
            kind: Arc::clone(&self.kind),
            told: told.clone(),
            pulse: ActivityCounter::default(),
            printed: AttemptOutput::default(),
            is_expanded: false,
            wait_mark: WaitMark::default(),
        };
        let settled_already = met.as_ref().and_then(|met| met.outcome_without_work(self.ways.decides));
        let mut goes = met.as_ref().and_then(JoinedBranches::abandoned_for);
        let earlier = self.earlier_usage(&cx).await?;
        // The usage of earlier attempts does not stop a further attempt. After a retry of the run, attempts start at 1 again, and that usage counts.
        let kept = if cx.attempt() == 1 { earlier } else { Usage::default() };
        let settled_already = match settled_already {
            None => self.outcome_over_budget(&state, kept)?.inspect(|_| goes = self.budget_target()),
            settled => settled,
        };
        let passed = settled_already.is_some();
        let (WorkResult { mut outcome, not_done }, left) =
            match self.settling_joins(&cx, &state, branch.as_deref()) {
                None => (abandoned_outcome().into(), true),
                Some(_) if settled_already.is_some() => {
                    (settled_already.unwrap_or_else(abandoned_outcome).into(), false)
                }
                Some(joins) => tokio::select! {
                    biased;
                    () = wait_until_settled(joins) => (abandoned_outcome().into(), true),
                    outcome = self.work(&stage, branch.as_deref()) => (classify_result(&cx, outcome)?, false),
                },
            };
        artifacts_of_attempt::listed_artifacts(&outcome).try_for_each(|artifact| cx.artifact(artifact))?;
        for suggested in &mut outcome.suggested_next_ids {
            // The outcome may name the node by its name in the file.
            if let Some(node) = self.pipeline.node(suggested) {
                *suggested = node.id().to_owned();
            }
        }
        if self.ways.decides && outcome.status == Status::Success {
            outcome = before(&seen, outcome);
        }
        if let Some(met) = &met {
            outcome = met.add_results(outcome);
        }
        let own = outcome.usage;
        outcome.usage =
            Some(own.unwrap_or_default().plus(earlier)).filter(|usage| *usage != Usage::default());
        let spent = self.count_usage(&state, branch.as_deref(), &mut outcome);
        let results = met.map(|met| met.results);
        let mut after = Context::clone(&context);
        // If a gate's work was skipped, its goal does not count as missed.
        let passed = left || passed && goes.is_some();
        let changes = self.changes(&outcome, results.as_ref(), &mut after, passed, &told, &cx);
        let mut changes = self.keep_usage_on_error(&cx, own, changes).await?;
        if self.ways.forks
            && outcome.status.is_success()
            && goes.is_none()
            && let Err(why) = self.ways.items(&after)
        {
            outcome = StageOutcome::fail(why);
            after = Context::clone(&context);
            changes = self.changes(&outcome, results.as_ref(), &mut after, passed, &told, &cx)?;
        }
        let mut sent = self.build_output(&cx, &outcome, branch, left);
        sent.goes = goes;
        sent.enter = enter.filter(|to| self.ways.entries.contains_key(to));
        let mut next = self.ways.next(&sent, &after);
        if next == NextStep::Stuck {
            // No edge accepts this outcome, so the run cannot continue with it.
            outcome.failure_reason = self.ways.describe_conditions(self.node.id(), &outcome);
            outcome.status = Status::Fail;
            after = Context::clone(&context);
            changes = self.changes(&outcome, results.as_ref(), &mut after, left, &told, &cx)?;
            sent = RouteInput { stuck: true, ..self.build_output(&cx, &outcome, sent.branch, left) };
            next = self.ways.next(&sent, &after);
        }
        sent.of_others = self.foreign_texts(&outcome, &context);
        sent.fork = matches!(next, NextStep::Fork | NextStep::Begin { .. });
        self.detour(&next, &mut sent);
        if self.ends_branch(&next) && self.may_abandon_siblings(sent.branch.as_deref()) {
            changes.set(ENDED, outcome.status.as_str());
            sent.start_id = Some(start_id_of(&cx));
        }
        let has_waited = stage.wait_mark.is_set() && !left;
        self.add_visit(&mut changes, &context, visit, has_waited, results.as_ref());
        if let Some(item) = item {
            changes.set(each::ITEM, item.item);
            changes.set(each::INDEX, item.index);
        }
        let beyond =
            passed && sent.leave.is_none() && sent.goes.is_some() && sent.goes == self.budget_target();
        let update = changes.into_update(sent.branch.as_deref());
        let mut update = budget::add_usage(update, spent.clone(), beyond);
        if next == NextStep::Fork
            && let Ok((counts, _)) = self.ways.items(&after)
            && !counts.is_empty()
        {
            let visit = cx.visit().to_string();
            let join = branch::join(sent.branch.as_deref(), self.node.id(), &visit);
            update = update.set(each::key(&join), counts);
        }
        for ended in results.iter().flat_map(BranchResults::branches) {
            update = update.remove(branch::channel(ended));
            if let Some((join, _)) = ended.rsplit_once('.') {
                update = each::forget(update, join);
                self.joins.close(&start_id_of(&cx), join);
            }
        }
        match next {
            NextStep::Fail => {
                let reason = match &*outcome.failure_reason {
                    "" => "the node failed without a reason",
                    reason => reason,
                };
                self.keep_usage(&cx, own).await?;
                let failure = NodeError::new(reason.to_owned()).fatal();
                Err(if not_done { failure.not_done() } else { failure })
            }
            NextStep::Unmet { gate } => {
                self.keep_usage(&cx, own).await?;
                let message = format!(
                    "goal gate unsatisfied and no retry target: `{gate}` did not succeed; set its `retry_target`"
                );
                Err(NodeError::new(message).fatal())
            }
            NextStep::Edge { to, place, reason, restart, carries, .. } => {
                self.report_next(&cx, &to, &reason.to_string())?;
                (sent.carries, sent.edge, sent.why) = (carries, place, Some(reason.to_string()));
                if restart {
                    let update =
                        self.keep_usage_on_error(&cx, own, self.restart_update(&after, &outcome)).await?;
                    let update = budget::add_usage(update, spent, beyond);
                    return Ok(finish(update, &outcome, RouteInput { restart: Some(to), ..sent }));
                }
                Ok(finish(update, &outcome, sent))
            }
            NextStep::Jump { to, why } => {
                self.report_next(&cx, &to, why.as_str())?;
                sent.why = Some(why.as_str().to_owned());
                Ok(finish(update, &outcome, sent))
            }
            NextStep::Fork
            | NextStep::Begin { .. }
            | NextStep::Skip { .. }
            | NextStep::End
            | NextStep::Stuck => Ok(finish(update, &outcome, sent)),
        }
    }
}

impl StageNode {
    /// Does the work once the limit on concurrent nodes of branches allows it.
    async fn work(&self, stage: &Stage, branch: Option<&str>) -> Result<WorkResult, NodeError> {
        let _room = match (&self.limit, branch) {
            // The semaphore is never closed, so it grants a permit at some time.
            (Some(limit), Some(branch)) => {
                limit.open.of(stage.cx.run(), branch, limit.most).acquire_owned().await.ok()
            }
            _ => None,
        };
        self.attempt(stage).await
    }

    /// Returns the output that the node sends along its edges.
    fn build_output(
        &self,
        cx: &NodeContext,
        outcome: &StageOutcome,
        branch: Option<String>,
        left: bool,
    ) -> RouteInput {
        let mut sent = RouteInput::of(outcome, branch, self.ways.forks);
        if left {
            sent.left = true;
            sent.failure_reason.clone_from(&outcome.notes);
        }
        sent.draw = self.ways.random.then(|| draw(&cx.idempotency_key()));
        sent
    }

    /// Finds how the run arrived: the branch of the node, and the edge that led to it.
    fn find_arrival(&self, cx: &NodeContext) -> NodeArrival {
        let mut arrived = NodeArrival {
            branch: None,
            sent: Vec::new(),
            by: EdgeArrival::default(),
            enter: None,
            item: None,
        };
        for input in cx.inputs() {
            arrived.by.from = Some(input.from.to_string());
            let Ok(sent) = input.output::<RouteInput>() else { continue };
            if sent.fork {
                let mut edges = self.pipeline.edges().iter();
                let edge =
                    edges.find(|edge| *edge.from == *input.from.as_str() && *edge.to == *self.node.id());
                arrived.by = edge.map(EdgeArrival::by).unwrap_or_default();
            } else if let Some(carries) = &sent.carries {
                arrived.by.fidelity.clone_from(&carries.fidelity);
                arrived.by.thread.clone_from(&carries.thread_id);
            }
            arrived.branch = match &sent.branch {
                around if sent.fork => {
                    let visit = input.visit.to_string();
                    arrived.item = cx.item().ok();
                    let first = match &arrived.item {
                        Some(item) => each::first(self.node.id(), item.index),
                        None => self.node.id().to_owned(),
                    };
                    Some(branch::name(around.as_deref(), input.from.as_str(), &visit, &first))
                }
                around => around.clone(),
            };
            arrived.enter.clone_from(&sent.enter);
            arrived.sent.push(sent);
        }
        if let NodeRole::FanIn { fork, .. } = &self.role
            && let Some(branch) = arrived.branch.take_if(|branch| branch::is_of(branch, fork.id()))
        {
            arrived.branch = branch::around(&branch).map(str::to_owned);
        }
        arrived
    }

    /// Returns the enclosing joins that may be settled while the node runs; `None` if one of them is already settled.
    fn settling_joins(
        &self,
        cx: &NodeContext,
        state: &Context,
        branch: Option<&str>,
    ) -> Option<Vec<JoinWatch>> {
        let mut open = Vec::new();
        for (join, fork) in branch.iter().flat_map(|branch| joins(branch)) {
            let Some(rule) = self.rules.get(fork) else { continue };
            let watched = self.joins.watch(cx, &start_id_of(cx), join);
            if *watched.settled.borrow() || rule.is_settled(state, join) {
                return None;
            }
            open.push(watched);
        }
        Some(open)
    }

    /// Returns whether the branch ends at this node.
    fn ends_branch(&self, next: &NextStep) -> bool {
        let to = match next {
            NextStep::Edge { to, .. } | NextStep::Jump { to, .. } => to,
            _ => return false,
        };
        self.ways.home.as_deref() == Some(self.ways.waypoint_to(to))
    }

    /// Adds to the output the final target of a route that leaves or enters a branch. The node on the way reads it.
    fn detour(&self, next: &NextStep, sent: &mut RouteInput) {
        if let NextStep::Edge { to, .. } | NextStep::Jump { to, .. } = next {
            sent.leave = Some(to.clone()).filter(|to| self.ways.home.is_some() && self.ways.out.contains(to));
            sent.enter = Some(to.clone()).filter(|to| self.ways.through.contains_key(to));
        }
    }

    /// Returns whether the result of this branch may lead to abandoning the other branches.
    fn may_abandon_siblings(&self, branch: Option<&str>) -> bool {
        let innermost = branch.and_then(|branch| joins(branch).last());
        innermost.is_some_and(|(_, fork)| self.rules.contains_key(fork))
    }

    fn has_attribute(&self, key: &str) -> bool {
        self.node.attributes.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    /// Emits an event with the next node and the reason.
    fn report_next(&self, cx: &NodeContext, to: &str, reason: &str) -> Result<(), NodeError> {
        let event = json!({"from": self.node.id(), "to": to, "reason": reason});
        cx.emit("edge.selected", event).map_err(NodeError::new)
    }
}

/// Returns the generation of the run: it differs if the same id is started again.
fn start_id_of(cx: &NodeContext) -> String {
    let key = cx.idempotency_key();
    key.split_once(':').map_or(key.clone(), |(start_id, _)| start_id.to_owned())
}

/// Separates a result of the work from an abort, because the run was cancelled or released to another process. A command that was killed for this
/// reason has not failed.
fn classify_result(cx: &NodeContext, came: Result<WorkResult, NodeError>) -> Result<WorkResult, NodeError> {
    let done = matches!(&came, Ok(came) if came.outcome.status.is_success());
    if done || !cx.is_cancelled() {
        return came;
    }
    Err(match came {
        Ok(came) => NodeError::new(format!("broken off: {}", came.outcome.failure_reason)).unfinished(),
        Err(error) => error.unfinished(),
    })
}

/// Returns the outcome of a node whose branch was abandoned.
fn abandoned_outcome() -> StageOutcome {
    StageOutcome::new(Status::Skipped).with_notes("abandoned: the other branches decided the join")
}

/// Returns a random number that is the same each time the activation is repeated.
fn draw(activation: &str) -> u64 {
    let hash = u64::from_str_radix(&super::text::digest(&[activation.to_owned()]), 16).unwrap_or(0);
    // SplitMix64 (Steele, Lea, Flood 2014). Keys that differ only in the last character give numbers that differ in all bits.
    let mix = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mix = (mix ^ (mix >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mix ^ (mix >> 31)
}

fn finish(update: ContextUpdate, outcome: &StageOutcome, sent: RouteInput) -> Update<Context> {
    let update = Update::from(update).with_output(sent);
    if outcome.notes.is_empty() { update } else { update.with_notes(&*outcome.notes) }
}

/// Replaces the outcome of a routing node by the outcome of the previous node, which is in the context.
fn before(context: &Context, mut outcome: StageOutcome) -> StageOutcome {
    let text = |key: &str| context.get_value(key).and_then(Json::as_str).unwrap_or_default().to_owned();
    let word = text("outcome");
    if !word.is_empty() {
        match Status::of_word(&word) {
            Some(status) => outcome.status = status,
            None => outcome.own_outcome = word,
        }
        outcome.preferred_label = text("preferred_label");
        outcome.failure_reason = text("failure_reason");
    }
    outcome
}
