//! The budget of a run: the usage that its nodes report, and the limits after which nodes do no more work.

use std::sync::Arc;

use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::state::{Context, ContextUpdate};
use serde_json::{Map, Value as Json, json};

use super::StageNode;
use crate::outcome::{StageOutcome, Status, Usage};
use crate::pipeline::Pipeline;
use crate::value::Value;

/// The context key of the reported usage, by branch and node. The separate entries let branches write independently.
pub(super) const SPENT: &str = "internal.spent";

/// The context key of the fact that the run continues beyond its budget, at the target that the pipeline sets for this case.
pub(super) const BEYOND: &str = "internal.beyond_budget";

/// Prefix of the context keys that show the usage to nodes and conditions.
pub(super) const USAGE: &str = "usage.";

/// The maximum usage of a run.
#[derive(Debug, Default)]
pub(in crate::compile) struct RunBudget {
    cost: Option<f64>,
    tokens: Option<f64>,
    seconds: Option<f64>,
    /// The node to which the run goes when its budget is spent.
    target: Option<String>,
}

impl RunBudget {
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

    /// Returns the limits that the usage exceeds.
    fn exceeded_limits(&self, spent: &Usage) -> Option<String> {
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

/// Returns the key of the usage of an attempt whose update is dropped.
fn slot(number: u32) -> String {
    format!("usage.{number}")
}

/// Returns the sum of the reported usage.
fn sum_usage(state: &Context) -> Usage {
    let all = state.get_value(SPENT).and_then(Json::as_object);
    let read = |one: &Json| serde_json::from_value(one.clone()).unwrap_or_default();
    all.into_iter().flat_map(Map::values).map(read).fold(Usage::default(), Usage::plus)
}

impl StageNode {
    /// If the budget is spent, returns an outcome that replaces the work of the node, and the next node.
    ///
    /// # Errors
    ///
    /// Returns an error if the budget is spent and the pipeline sets no target for this case.
    pub(super) fn outcome_over_budget(
        &self,
        state: &Context,
        earlier: Usage,
    ) -> Result<Option<StageOutcome>, NodeError> {
        if !self.works || !self.budget.is_set() || state.contains_key(BEYOND) {
            return Ok(None);
        }
        let Some(why) = self.budget.exceeded_limits(&sum_usage(state).plus(earlier)) else { return Ok(None) };
        if self.budget.target.is_none() {
            let message = format!(
                "{why}; `{}` did not start; raise the budget, or set `budget_target`",
                self.node.id()
            );
            return Err(NodeError::new(message).fatal().not_done());
        }
        Ok(Some(StageOutcome::new(Status::Skipped).with_notes(why)))
    }

    /// Returns the node to which the run goes when its budget is spent.
    pub(super) fn budget_target(&self) -> Option<String> {
        self.budget.target.clone()
    }

    /// Records the usage of an attempt whose update is dropped, because another attempt follows or the run fails.
    ///
    /// # Errors
    ///
    /// Returns the error of the runtime.
    pub(super) async fn keep_usage(&self, cx: &NodeContext, usage: Option<Usage>) -> Result<(), NodeError> {
        let Some(usage) = usage.filter(|_| self.budget.is_set()) else { return Ok(()) };
        // After a retry of the run, the attempt number starts at 1 again, so find an unused key.
        let unused = (1..).map(slot).find(|slot| !cx.has_step(slot)).unwrap_or_default();
        let keep = async || Ok::<_, NodeError>(usage);
        cx.step(unused, keep).await.map(|_: Usage| ())
    }

    /// Records the usage of an attempt whose outcome was rejected, like [`keep_usage`](Self::keep_usage).
    ///
    /// # Errors
    ///
    /// Returns the reason of the rejection, or the error of the runtime.
    pub(super) async fn keep_usage_on_error<T>(
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

    /// Returns the usage of the earlier attempts, including attempts before a retry of the run.
    ///
    /// # Errors
    ///
    /// Returns the error of the runtime.
    pub(super) async fn earlier_usage(&self, cx: &NodeContext) -> Result<Usage, NodeError> {
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

    /// Adds the total usage to the context. Returns the usage of the node, to be recorded.
    pub(super) fn count_usage(
        &self,
        state: &Context,
        branch: Option<&str>,
        outcome: &mut StageOutcome,
    ) -> Option<(String, Json)> {
        let own = outcome.usage.unwrap_or_default();
        let total = sum_usage(state).plus(own);
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

/// Adds to an update the usage of the node, and the fact that the run continues beyond its budget.
pub(super) fn add_usage(
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
