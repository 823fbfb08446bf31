//! The command `fork` starts a new run from a position in the log of another run, and can list these positions.

use std::collections::BTreeMap;

use ferrata::graph::Effect;
use ferrata::runtime::{Change, Checkpoint, Diff, RepeatedEffect};
use ferrata::store::RunHead;
use ferrata::{Position, Runtime};
use serde::Serialize;
use serde_json::Value;

use crate::args::ForkArgs;
use crate::bulk_signal::BulkOutcome;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::idle_warnings::PIPELINE;
use crate::output::quoted;
use crate::table::Table;

/// Maximum number of listed positions. The last positions are listed, and the command reads the state at each of them.
const PLACES: usize = 200;

/// Maximum number of changed paths that a line names.
const NAMED: usize = 4;

pub(super) async fn run(context: &CommandContext, args: &ForkArgs) -> Result<ExitReason, CommandFailure> {
    let runtime = context.runtime()?;
    let head = context.find(&**runtime.store(), &args.run).await?;
    let name = display_key(&head.run);
    if args.list {
        return list(context, &runtime, &head).await;
    }
    let unfit = |error| CommandFailure::from(error).or_type(format!("ferrata fork {name} --list"));
    let mut request = runtime.fork(&head.run, args.at.clone());
    if !args.start_at.is_empty() {
        request = request.start_at(args.start_at.clone());
    }
    let repeats = request.repeated_effects().await.map_err(unfit)?;
    let again = count_repeats(&repeats);
    if !again.is_empty() && !args.yes {
        let begin = format!("the fork may repeat work of {name}, with new idempotency keys:");
        let lines = || again.iter().map(|(node, (effect, times))| format!("{node}  {effect}, {times}×"));
        if context.is_attended() {
            context.out.note(&std::iter::once(begin.clone()).chain(lines()).collect::<Vec<_>>().join("\n  "));
        }
        let confirmed =
            context.confirm(false, &format!("fork {name} at {}", args.at), &command_with_yes(&name, args));
        confirmed.map_err(|failure| match context.is_attended() {
            true => failure,
            false => failure.with_details(std::iter::once(begin).chain(lines())),
        })?;
    }
    if !args.changes.is_empty() {
        let state = runtime.channels_at(&head.run, args.at.clone()).await?;
        request = request.edit(args.changes.patch(&head.run, &state)?);
    }
    if let Some(id) = &args.id {
        request = request.id(id);
    }
    for (key, value) in &args.label {
        request = request.label(key.clone(), value.clone());
    }
    let forked = request.await.map_err(unfit)?;
    if let Some(real) = &context.real_store {
        // The run was read from a copy of its log. The fork is created there, and must then be moved to the store of the original run.
        let text = runtime.export(&forked).await?;
        let there = ferrata::Runtime::builder_with(crate::store::open(real)?).operator();
        there.import(&text, None).await?;
    }
    // If the fork is a run of a pipeline, the command tells the user how to resume it. A process that serves the workflow claims any other fork.
    let pipeline = head.facts.labels.get(PIPELINE).is_some();
    if pipeline {
        context.next(&format!("ferrata resume {}", display_key(&forked)));
    } else {
        context.out.note(&format!("a process that serves `{}` claims it", head.facts.workflow));
        context.next(&format!("ferrata wait {}", display_key(&forked)));
    }
    context.print_done(&[BulkOutcome::new(forked.clone(), "forked")])?;
    if !pipeline {
        context.warn_idle(&**runtime.store(), [&forked]).await;
    }
    Ok(ExitReason::Done)
}

/// Counts the work that a fork may repeat, by node and with the effect of the node.
fn count_repeats(repeats: &[RepeatedEffect]) -> BTreeMap<&str, (&str, usize)> {
    let mut all = BTreeMap::new();
    for repeat in repeats {
        let effect = repeat.effect.map_or("unknown effect", Effect::as_str);
        all.entry(repeat.node.as_str()).or_insert((effect, 0)).1 += 1;
    }
    all
}

/// Returns the same command with `--yes`.
fn command_with_yes(name: &str, args: &ForkArgs) -> String {
    let mut line = format!("ferrata fork {} {}", quoted(name), args.at);
    let mut add = |option: &str, value: &str| {
        line.push_str(&format!(" {option} {}", quoted(value)));
    };
    args.id.iter().for_each(|id| add("--id", id));
    args.start_at.iter().for_each(|node| add("--start-at", node));
    args.label.iter().for_each(|(key, value)| add("--label", &format!("{key}={value}")));
    args.changes.set.iter().for_each(|(place, value)| add("--set", &format!("{place}={value}")));
    args.changes.remove.iter().for_each(|channel| add("--remove", channel));
    args.changes.patch.iter().for_each(|file| add("--patch", file));
    line.push_str(if args.changes.force { " --force --yes" } else { " --yes" });
    line
}

/// A position from which a run can be forked.
#[derive(Debug, Serialize)]
struct ForkPosition {
    seq: u64,
    place: String,
    ok: bool,
    outcome: String,
    at: Option<ferrata::Timestamp>,
    changed: Vec<String>,
}

async fn list(
    context: &CommandContext,
    runtime: &Runtime,
    head: &RunHead,
) -> Result<ExitReason, CommandFailure> {
    let now: Checkpoint = runtime.checkpoint(&head.run, Position::Latest).await?;
    let mut places = Vec::new();
    let mut before: Option<Value> = None;
    let older = now.history.len().saturating_sub(PLACES);
    for past in now.history.iter().skip(older) {
        // A fork cannot start at a pruned record.
        let Some(index) = past.index else { continue };
        let state = Value::from(runtime.channels_at(&head.run, index).await?);
        let changed = before.as_ref().map_or_else(Vec::new, |before| {
            Diff::redacted(before, &state, &now.secret).changes.iter().map(summary).collect()
        });
        before = Some(state);
        places.push(ForkPosition {
            seq: index.get(),
            place: format!("{}@{}", past.node, past.visit),
            ok: past.ok,
            outcome: crate::verdict::word(past).to_owned(),
            at: past.at,
            changed,
        });
    }
    let time = context.now();
    context.out.all(
        &places,
        |place| place.place.clone(),
        |places| {
            let mut table = Table::new(["SEQ", "NODE@VISIT", "OUTCOME", "AT", "CHANGED"]).omit_first(["AT"]);
            for place in places {
                let mut changed: Vec<&str> = place.changed.iter().map(String::as_str).take(NAMED).collect();
                if place.changed.len() > NAMED {
                    changed.push("…");
                }
                table.row([
                    place.seq.to_string().into(),
                    place.place.clone().into(),
                    place.outcome.clone().into(),
                    place.at.map(|at| context.out.time.write(at, time)).unwrap_or_default().into(),
                    changed.join(" ").into(),
                ]);
            }
            table
        },
    )?;
    if older > 0 {
        context.out.note(&format!("and {older} earlier positions; list them with `ferrata history`"));
    }
    if places.is_empty() {
        context
            .out
            .note("cannot find an ended activation in the stored records; fork from `latest` or a number");
    }
    Ok(ExitReason::Done)
}

fn summary(change: &Change) -> String {
    match change {
        Change::Add { path, .. } => format!("+{path}"),
        Change::Remove { path, .. } => format!("-{path}"),
        Change::Replace { path, value, before } if is_short(value) && is_short(before) => {
            format!("~{path} {before}→{value}")
        }
        Change::Replace { path, .. } => format!("~{path}"),
        _ => String::new(),
    }
}

fn is_short(value: &Value) -> bool {
    value.to_string().len() <= 12
}
