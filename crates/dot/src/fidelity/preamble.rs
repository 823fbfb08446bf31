//! The text before a task that describes the previous run. The text depends only on the context, and the length of the text is limited.

use ferrata_core::state::Context;
use ferrata_core::wording::count;
use serde_json::Value as Json;

use super::{Fidelity, STAGES};
use crate::handler::{RESULTS, response_key};
use crate::suggest::{beginning, ending, one_line, shortened};
use crate::variable::{GOAL, text_of};

/// The context key of a child run for its manager's instructions to the next tasks.
pub(crate) const STEERING: &str = "stack.steering";

/// Keys that the engine sets for conditions. The preamble omits them, because its list of nodes has the same information.
const ENGINE: [&str; 6] =
    ["outcome", "preferred_label", "failure_reason", "current_node", "last_stage", "last_response"];

/// The limits of a fidelity.
struct FidelityLimits {
    /// The maximum size of the whole preamble in bytes. About four bytes are one token.
    all: usize,
    /// The maximum size of one node's answer.
    answer: usize,
    /// The maximum size of one value.
    value: usize,
    /// The maximum number of nodes. The latest nodes are included.
    stages: usize,
    /// The maximum size of the latest answer in bytes. The latest answer does not count for `all`.
    last: usize,
}

impl FidelityLimits {
    const fn of(fidelity: Fidelity) -> Option<Self> {
        Some(match fidelity {
            Fidelity::Full | Fidelity::Truncate => return None,
            Fidelity::Compact => Self { all: 8_000, answer: 0, value: 200, stages: 200, last: 16_000 },
            Fidelity::SummaryLow => Self { all: 2_400, answer: 120, value: 100, stages: 8, last: 0 },
            Fidelity::SummaryMedium => Self { all: 6_000, answer: 600, value: 300, stages: 40, last: 0 },
            Fidelity::SummaryHigh => Self { all: 12_000, answer: 2_000, value: 1_000, stages: 200, last: 0 },
        })
    }
}

/// The last result of a node.
struct StageSummary<'a> {
    id: &'a str,
    said: &'a Json,
}

impl StageSummary<'_> {
    fn text(&self, key: &str) -> &str {
        self.said.get(key).and_then(Json::as_str).unwrap_or_default()
    }

    fn number(&self, key: &str) -> u64 {
        self.said.get(key).and_then(Json::as_u64).unwrap_or(0)
    }
}

/// Returns the preamble of a task. The preamble is empty if there is nothing to describe.
pub(crate) fn preamble(fidelity: Fidelity, context: &Context, run: &str) -> String {
    let mut text = String::new();
    let goal = context.get_value(GOAL).map(text_of).unwrap_or_default();
    if fidelity != Fidelity::Full && !goal.is_empty() {
        text = format!("Goal: {goal}\n");
    }
    if fidelity == Fidelity::Truncate {
        text.push_str(&format!("Run: {run}\n"));
    }
    if let Some(measure) = FidelityLimits::of(fidelity) {
        write_stages(&mut text, &measure, context);
        if measure.last > 0 {
            add_latest_answers(&mut text, measure.last, context);
        }
    }
    // The instructions of a supervisor are new to every session.
    if let Some(steering) =
        context.get_value(STEERING).and_then(Json::as_object).filter(|said| !said.is_empty())
    {
        text.push_str("Instructions of the supervisor, the last one counts most:\n");
        let mut said: Vec<_> = steering.iter().collect();
        said.sort_by_key(|(cycle, _)| cycle.parse::<u64>().unwrap_or(0));
        for (_, said) in said.iter().rev().take(5).rev() {
            text.push_str(&format!("- {}\n", beginning(text_of(said).trim(), 8_000)));
        }
    }
    text
}

/// Adds the latest answers. If they are long, each gets an equal part of the space.
fn add_latest_answers(text: &mut String, most: usize, context: &Context) {
    let answers = latest_answers(context);
    for answer in &answers {
        text.push_str(&answer.excerpt(most / answers.len()));
    }
}

/// Returns the last result of each node. The latest result comes last.
fn stages(context: &Context) -> Vec<StageSummary<'_>> {
    let of_stage = |(key, said)| Some(StageSummary { id: str::strip_prefix(key, STAGES)?, said });
    let mut stages: Vec<StageSummary<'_>> =
        context.iter().filter(|(_, value)| value.is_object()).filter_map(of_stage).collect();
    stages.sort_by_key(|stage| stage.number("at"));
    stages
}

/// Adds nodes and values until the space is used up.
fn write_stages(text: &mut String, measure: &FidelityLimits, context: &Context) {
    let stages = stages(context);
    let left_out = stages.len().saturating_sub(measure.stages);
    let stages = &stages[left_out..];
    let mut lines = Vec::new();
    // Begin with the last node, so that the oldest nodes are omitted if space runs out.
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
            text.push_str(&format!("- (left out: {} before these)\n", count(untold, "node")));
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
        let line = format!("- {key} = {}\n", shortened(&one_line(&text_of(value)), measure.value));
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
            text.push_str(&format!("- ({})\n", count(left_out, "more value")));
        }
    }
}

fn line(stage: &StageSummary<'_>, measure: &FidelityLimits, context: &Context) -> String {
    let mut line = format!("- {}: {}", stage.id, stage.text("outcome"));
    if stage.number("visit") > 1 {
        line.push_str(&format!(", visit {}", stage.number("visit")));
    }
    let why = [stage.text("reason"), stage.text("notes")].into_iter().find(|text| !text.is_empty());
    if let Some(why) = why {
        line.push_str(&format!(" ({})", shortened(&one_line(why), 200)));
    }
    line.push('\n');
    let answer = context.get_value(&response_key(stage.id)).map(text_of).unwrap_or_default();
    let answer = if answer.is_empty() { stage.text("output") } else { &*answer };
    if measure.answer > 0 && !answer.trim().is_empty() {
        line.push_str(&format!("  > {}\n", beginning(&one_line(answer), measure.answer)));
    }
    line
}

/// The latest answer of a node, for later tasks and for a person at a gate.
pub(crate) struct LatestAnswer {
    /// The description of the source of the answer.
    of: String,
    text: String,
    /// Whether a tool printed the text. The end of such a text is the most useful part.
    is_output: bool,
}

impl LatestAnswer {
    /// Returns the source, and at most `most` characters of the answer.
    pub(crate) fn excerpt(&self, most: usize) -> String {
        let text = if self.is_output { ending(&self.text, most) } else { beginning(&self.text, most) };
        format!("{}:\n{text}\n", self.of)
    }
}

/// Returns the latest answers: that of the last task, or that of the last task in each branch if branches met since then. Adds the output of a tool
/// that ran after them.
pub(crate) fn latest_answers(context: &Context) -> Vec<LatestAnswer> {
    let mut answers = Vec::new();
    let stages = stages(context);
    if stages.is_empty()
        && let Some(text) = text_in(context.get_value("tool.output"))
    {
        // In a pipeline without tasks, the context stores no results of nodes.
        answers.push(LatestAnswer { of: "the last command printed".to_owned(), text, is_output: true });
    }
    for stage in stages.iter().rev() {
        let own = text_in(context.get_value(&response_key(stage.id)));
        let answered =
            own.map(|text| LatestAnswer { of: format!("`{}` answered", stage.id), text, is_output: false });
        if stage.said.get("joined").is_some() {
            let results = context.get_value(RESULTS).and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
            let before = answers.len();
            answers.extend(answered);
            answers.extend(results.iter().rev().filter_map(of_branch));
            if answers.len() > before {
                break;
            }
            continue;
        }
        if let Some(answered) = answered {
            answers.push(answered);
            break;
        }
        // The context has the complete output only of the last tool.
        let output = || text_in(context.get_value("tool.output")).filter(|_| answers.is_empty());
        if let Some(text) = (!stage.text("output").is_empty()).then(output).flatten() {
            answers.push(LatestAnswer { of: format!("`{}` printed", stage.id), text, is_output: true });
        }
    }
    answers.reverse();
    answers
}

fn of_branch(result: &Json) -> Option<LatestAnswer> {
    let (id, set) = (result.get("id")?.as_str()?, result.get("context")?);
    let answer = || text_in(set.get(response_key(set.get("last_stage")?.as_str()?)));
    let of = format!("the branch of `{id}` came to this");
    match answer() {
        Some(text) => Some(LatestAnswer { of, text, is_output: false }),
        None => Some(LatestAnswer { of, text: text_in(set.get("tool.output"))?, is_output: true }),
    }
}

fn text_in(value: Option<&Json>) -> Option<String> {
    let text = value?.as_str()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}
