//! What stands before a task: the run so far as text, always the same for the same context, and never longer than it may be.

use ferrata_core::state::Context;
use serde_json::Value as Json;

use super::{Fidelity, STAGES};
use crate::suggest::shortened;

/// The key under which the context of a child has what its manager says to the tasks that follow.
pub(crate) const STEERING: &str = "stack.steering";

/// Keys that the engine sets for conditions: what they say, the list of nodes says better.
const ENGINE: [&str; 6] =
    ["outcome", "preferred_label", "failure_reason", "current_node", "last_stage", "last_response"];

/// How much a fidelity tells.
struct Measure {
    /// In bytes, of all; four to a token.
    all: usize,
    /// Of what one node answered.
    answer: usize,
    /// Of one value.
    value: usize,
    /// How many nodes, the latest ones.
    stages: usize,
}

impl Measure {
    const fn of(fidelity: Fidelity) -> Option<Self> {
        Some(match fidelity {
            Fidelity::Full | Fidelity::Truncate => return None,
            Fidelity::Compact => Self { all: 8_000, answer: 0, value: 200, stages: 200 },
            Fidelity::SummaryLow => Self { all: 2_400, answer: 120, value: 100, stages: 8 },
            Fidelity::SummaryMedium => Self { all: 6_000, answer: 600, value: 300, stages: 40 },
            Fidelity::SummaryHigh => Self { all: 12_000, answer: 2_000, value: 1_000, stages: 200 },
        })
    }
}

/// What a node last came to.
struct Stage<'a> {
    id: &'a str,
    said: &'a Json,
}

impl Stage<'_> {
    fn text(&self, key: &str) -> &str {
        self.said.get(key).and_then(Json::as_str).unwrap_or_default()
    }

    fn number(&self, key: &str) -> u64 {
        self.said.get(key).and_then(Json::as_u64).unwrap_or(0)
    }
}

/// Returns what a task is told of the run; empty if there is nothing to tell.
pub(crate) fn preamble(fidelity: Fidelity, context: &Context, run: &str) -> String {
    let mut text = String::new();
    let goal = context.get_value("graph.goal").map(shown).unwrap_or_default();
    if fidelity != Fidelity::Full && !goal.is_empty() {
        text = format!("Goal: {goal}\n");
    }
    if fidelity == Fidelity::Truncate {
        text.push_str(&format!("Run: {run}\n"));
    }
    if let Some(measure) = Measure::of(fidelity) {
        told(&mut text, &measure, context);
    }
    // What a supervisor says is new to every session.
    if let Some(steering) =
        context.get_value(STEERING).and_then(Json::as_object).filter(|said| !said.is_empty())
    {
        text.push_str("Instructions of the supervisor, the last one counts most:\n");
        let mut said: Vec<_> = steering.iter().collect();
        said.sort_by_key(|(cycle, _)| cycle.parse::<u64>().unwrap_or(0));
        for (_, said) in said.iter().rev().take(5).rev() {
            text.push_str(&format!("- {}\n", shortened(shown(said).trim(), 1_000)));
        }
    }
    text
}

/// Adds nodes and values, as far as there is room.
fn told(text: &mut String, measure: &Measure, context: &Context) {
    let of_stage = |(key, said)| Some(Stage { id: str::strip_prefix(key, STAGES)?, said });
    let mut stages: Vec<Stage<'_>> =
        context.iter().filter(|(_, value)| value.is_object()).filter_map(of_stage).collect();
    stages.sort_by_key(|stage| stage.number("at"));
    let left_out = stages.len().saturating_sub(measure.stages);
    let stages = &stages[left_out..];
    let mut lines = Vec::new();
    // From the last one back: what is left out for lack of room is what is longest ago.
    let mut room = measure.all.saturating_sub(text.len());
    for stage in stages.iter().rev() {
        let line = line(stage, measure, context);
        if line.len() > room {
            break;
        }
        room -= line.len();
        lines.push(line);
    }
    let untold = left_out + stages.len() - lines.len();
    if !lines.is_empty() || untold > 0 {
        text.push_str("So far:\n");
        if untold > 0 {
            text.push_str(&format!("- ({untold} nodes before these are left out)\n"));
        }
        lines.iter().rev().for_each(|line| text.push_str(line));
    }
    let hidden = |key: &str| {
        ENGINE.contains(&key)
            || ["internal.", "graph.", "response.", "stack.steering"]
                .iter()
                .any(|prefix| key.starts_with(prefix))
    };
    let mut values = String::new();
    let mut left_out = 0;
    for (key, value) in context.iter().filter(|(key, value)| !hidden(key) && !value.is_null()) {
        let line = format!("- {key} = {}\n", shortened(&one_line(&shown(value)), measure.value));
        if values.len() + line.len() > room {
            left_out += 1;
        } else {
            values.push_str(&line);
        }
    }
    if !values.is_empty() {
        text.push_str("Known:\n");
        text.push_str(&values);
        if left_out > 0 {
            text.push_str(&format!("- ({left_out} more values)\n"));
        }
    }
}

fn line(stage: &Stage<'_>, measure: &Measure, context: &Context) -> String {
    let mut line = format!("- {}: {}", stage.id, stage.text("outcome"));
    if stage.number("visit") > 1 {
        line.push_str(&format!(", visit {}", stage.number("visit")));
    }
    let why = [stage.text("reason"), stage.text("notes")].into_iter().find(|text| !text.is_empty());
    if let Some(why) = why {
        line.push_str(&format!(" ({})", shortened(&one_line(why), 200)));
    }
    line.push('\n');
    let answer = context.get_value(&format!("response.{}", stage.id)).map(shown).unwrap_or_default();
    let answer = if answer.is_empty() { stage.text("output").to_owned() } else { answer };
    if measure.answer > 0 && !answer.trim().is_empty() {
        line.push_str(&format!("  > {}\n", shortened(&one_line(&answer), measure.answer)));
    }
    line
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn shown(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
