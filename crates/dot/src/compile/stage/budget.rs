//! What a run may spend: what its nodes have reported, and what is left undone once that is over a limit.

use std::sync::Arc;

use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::state::{Context, ContextUpdate};
use serde_json::{Map, Value as Json, json};

use super::StageNode;
use crate::outcome::{StageOutcome, Status, Usage};
use crate::pipeline::Pipeline;
use crate::value::Value;

/// Where the context keeps what nodes have reported, by branch and node: branches write side by side.
pub(super) const SPENT: &str = "internal.spent";

/// Where the context keeps that the run goes on beyond its budget, to where the pipeline says.
pub(super) const BEYOND: &str = "internal.beyond_budget";

/// What the keys begin with that tell nodes and conditions what was spent.
pub(super) const USAGE: &str = "usage.";

/// The most that a run may spend.
#[derive(Debug, Default)]
pub(in crate::compile) struct Budget {
    cost: Option<f64>,
    tokens: Option<f64>,
    seconds: Option<f64>,
    /// Where the run goes once it is spent.
    target: Option<String>,
}

impl Budget {
    pub(in crate::compile) fn of(pipeline: &Pipeline) -> Arc<Self> {
        let attributes = &pipeline.attributes;
        let number = |key: &str| attributes.get(key).and_then(Value::as_amount);
        let cost = number("max_cost").or_else(|| number("max_cost_cents").map(|cents| cents / 100.0));
        let seconds = attributes.get("max_time").and_then(Value::as_duration).map(|time| time.as_secs_f64());
        let target = pipeline.node(&attributes.text("budget_target")).map(|node| node.id().to_owned());
        Arc::new(Self { cost, tokens: number("max_total_tokens"), seconds, target })
    }

    fn is_set(&self) -> bool {
        self.cost.is_some() || self.tokens.is_some() || self.seconds.is_some()
    }

    /// Says what is over its limit.
    fn over(&self, spent: &Usage) -> Option<String> {
        #[expect(clippy::cast_precision_loss, reason = "a limit of tokens is far below 2^53")]
        let tokens = spent.tokens as f64;
        let all = [
            ("cost", spent.cost, self.cost, "max_cost"),
            ("tokens", tokens, self.tokens, "max_total_tokens"),
            ("seconds", spent.seconds, self.seconds, "max_time"),
        ];
        let over = all.into_iter().find(|(_, spent, most, _)| most.is_some_and(|most| *spent >= most));
        over.map(|(what, spent, most, name)| {
            let most = most.unwrap_or_default();
            format!("the budget is spent: {what} {spent} of {most}, the `{name}` of the pipeline")
        })
    }
}

/// Names what an attempt has spent whose update is dropped.
fn slot(number: u32) -> String {
    format!("usage.{number}")
}

/// Sums up what nodes have reported.
fn spent(state: &Context) -> Usage {
    let all = state.get_value(SPENT).and_then(Json::as_object);
    let read = |one: &Json| serde_json::from_value(one.clone()).unwrap_or_default();
    all.into_iter().flat_map(Map::values).map(read).fold(Usage::default(), Usage::plus)
}

impl StageNode {
    /// Tells what the node comes to instead of beginning, and where the run goes then, if the budget is spent.
    ///
    /// # Errors
    ///
    /// That the budget is spent, if the pipeline does not say where the run goes then.
    pub(super) fn kept_from_work(
        &self,
        state: &Context,
        earlier: Usage,
    ) -> Result<Option<StageOutcome>, NodeError> {
        if !self.works || !self.budget.is_set() || state.contains_key(BEYOND) {
            return Ok(None);
        }
        let Some(why) = self.budget.over(&spent(state).plus(earlier)) else { return Ok(None) };
        if self.budget.target.is_none() {
            let message =
                format!("{why}; `{}` was not begun: raise it, or set `budget_target`", self.node.id());
            return Err(NodeError::new(message).fatal().not_done());
        }
        Ok(Some(StageOutcome::new(Status::Skipped).with_notes(why)))
    }

    /// Returns where the run goes once the budget is spent.
    pub(super) fn budget_target(&self) -> Option<String> {
        self.budget.target.clone()
    }

    /// Keeps what an attempt has spent that is followed by another one, or that fails the run: its update is dropped.
    ///
    /// # Errors
    ///
    /// What the runtime says.
    pub(super) async fn keep_usage(&self, cx: &NodeContext, usage: Option<Usage>) -> Result<(), NodeError> {
        let Some(usage) = usage.filter(|_| self.budget.is_set()) else { return Ok(()) };
        // A retry of the run counts attempts from 1 again.
        let unused = (1..).map(slot).find(|slot| !cx.has_step(slot)).unwrap_or_default();
        let keep = async || Ok::<_, NodeError>(usage);
        cx.step(unused, keep).await.map(|_: Usage| ())
    }

    /// Keeps what an attempt has spent whose outcome is refused, as [`keep_usage`](Self::keep_usage).
    ///
    /// # Errors
    ///
    /// Why it is refused, or what the runtime says.
    pub(super) async fn or_kept<T>(
        &self,
        cx: &NodeContext,
        usage: Option<Usage>,
        came: Result<T, NodeError>,
    ) -> Result<T, NodeError> {
        if came.is_err() {
            self.keep_usage(cx, usage).await?;
        }
        came
    }

    /// Returns what the attempts before have spent, those of before a retry of the run included.
    ///
    /// # Errors
    ///
    /// What the runtime says.
    pub(super) async fn earlier(&self, cx: &NodeContext) -> Result<Usage, NodeError> {
        let mut earlier = Usage::default();
        if !self.works || !self.budget.is_set() {
            return Ok(earlier);
        }
        for number in 1.. {
            let slot = slot(number);
            if cx.has_step(&slot) {
                let nothing = async || Ok::<_, NodeError>(Usage::default());
                earlier = earlier.plus(cx.step(slot, nothing).await?);
            } else if number >= cx.attempt() {
                break;
            }
        }
        Ok(earlier)
    }

    /// Tells the context what was spent by now, and returns what is to be kept of what the node has spent.
    pub(super) fn count_usage(
        &self,
        state: &Context,
        branch: Option<&str>,
        outcome: &mut StageOutcome,
    ) -> Option<(String, Json)> {
        let own = outcome.usage.unwrap_or_default();
        let total = spent(state).plus(own);
        if total == Usage::default() {
            return None;
        }
        for (key, value) in
            [("cost", json!(total.cost)), ("tokens", json!(total.tokens)), ("seconds", json!(total.seconds))]
        {
            outcome.context_updates.insert(format!("{USAGE}{key}"), value);
        }
        if own == Usage::default() {
            return None;
        }
        let slot = format!("{}/{}", branch.unwrap_or_default(), self.node.id());
        let before = state.get_value(SPENT).and_then(|all| all.get(&slot));
        let before = before.and_then(|one| serde_json::from_value(one.clone()).ok()).unwrap_or_default();
        Some((slot, json!(own.plus(before))))
    }
}

/// Adds to an update what the node has spent, and that the run goes on beyond its budget.
pub(super) fn counted(
    update: ContextUpdate,
    spent: Option<(String, Json)>,
    goes_beyond: bool,
) -> ContextUpdate {
    let update = match spent {
        Some(one) => update.merge(SPENT, [one]),
        None => update,
    };
    if goes_beyond { update.set(BEYOND, true) } else { update }
}
