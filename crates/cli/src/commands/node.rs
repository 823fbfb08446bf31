//! The command `show --node` shows one node of a run, or one visit of it.

use std::fmt::Write;

use ferrata::runtime::Checkpoint;
use ferrata::{RunKey, Runtime};
use serde_json::{Value, json};

use super::show::ask;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::nodes::{self, ReadMoment};
use crate::table::{clean, clean_json};

/// Checks that a run has a node or a visit with the name `node` or `node@visit`.
pub(super) async fn named(runtime: &Runtime, run: &RunKey, wanted: &str) -> Result<(), CommandFailure> {
    let unknown = |error| CommandFailure::from(error).or_type(format!("ferrata show {}", display_key(run)));
    runtime.find_node(run, name(wanted)).await.map(|_| ()).map_err(unknown)
}

fn name(wanted: &str) -> &str {
    wanted.rsplit_once('@').map_or(wanted, |(name, _)| name)
}

/// Prints what a checkpoint contains about a node.
pub(super) async fn print(
    context: &CommandContext,
    runtime: &Runtime,
    mut now: Checkpoint,
    wanted: &str,
    moment: ReadMoment,
) -> Result<(), CommandFailure> {
    let is = |node: &str, visit: ferrata::Visit| wanted == node || wanted == format!("{node}@{visit}");
    now.history.retain(|past| is(past.node.as_str(), past.visit));
    now.next.retain(|one| is(one.node.as_str(), one.visit));
    if now.history.is_empty() && now.next.is_empty() {
        named(runtime, &now.run, wanted).await?;
        let message = format!("node `{}` has not started by record {}", wanted.escape_debug(), now.index);
        let next = format!("ferrata show {}", display_key(&now.run));
        return Err(CommandFailure::new(ExitReason::NotFound, message, next));
    }
    now.questions.retain(|question| is(question.node.as_str(), question.visit));
    now.diagnostics.retain(|failed| is(failed.node.as_str(), failed.visit));
    now.skipped.clear();
    let name = name(wanted);
    let result = now.results.iter().find(|(node, _)| node.as_str() == name).map(|(_, value)| value);
    let value = json!({
        "node": name,
        "ended": now.history,
        "next": now.next,
        "result": result,
        "questions": now.questions,
        "failures": now.diagnostics,
    });
    context.out.one(&value, |_| name.to_owned(), |_| format_node(context, &now, name, result, moment))
}

fn format_node(
    context: &CommandContext,
    now: &Checkpoint,
    name: &str,
    result: Option<&Value>,
    moment: ReadMoment,
) -> String {
    let (out, time) = (&context.out, context.now());
    let at = |when| out.time.write(when, time);
    let mut text = format!("{:<10}{name}\n{:<10}{}\n", "node", "run", display_key(&now.run));
    // Writing to a string never fails.
    if let Some(result) = result {
        let _ = writeln!(text, "{:<10}{}", "result", clean_json(&result.to_string()));
    }
    if let Some(table) = nodes::table(now, moment, at) {
        let _ = write!(text, "\n{}", table.render(out.color, out.room));
    }
    for one in &now.next {
        if let Some(item) = &one.item {
            let _ =
                writeln!(text, "\n{}@{} has the item {}", one.node, one.visit, clean_json(&item.to_string()));
        }
        if !one.steps.is_empty() {
            let steps = clean(&one.steps.join(", "));
            let _ = writeln!(text, "\n{}@{} has completed the steps {steps}", one.node, one.visit);
        }
    }
    if !now.diagnostics.is_empty() {
        text.push_str("\nfailures\n");
        for failed in &now.diagnostics {
            let again =
                failed.retry_at.map(|when| format!(", next attempt {}", at(when))).unwrap_or_default();
            let why = clean(&failed.failure.message);
            let (visit, attempt) = (failed.visit, failed.attempt);
            let _ = writeln!(text, "  @{visit}, attempt {attempt}, {}{again}: {why}", at(failed.at));
        }
    }
    for question in &now.questions {
        text.push_str(&ask(context, &now.run, question));
    }
    text
}
