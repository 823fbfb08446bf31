//! The command `show` shows the status of a run, its nodes, and the next command to type.

use std::collections::BTreeMap;
use std::fmt::Write;

use ferrata::ask::{Question, QuestionKind};
use ferrata::queue::{QUEUE_LABEL, QueueMembership, QueueOverview};
use ferrata::runtime::{
    Ancestor, Checkpoint, ReasonCache, ReasonKind, RunExplanation, RunOrigin, RunReason, is_internal_label,
};
use ferrata::store::RunHead;
use ferrata::{RunKey, RunStatus, Runtime};
use serde::Serialize;
use serde_json::{Value, json};

use super::node;
use crate::args::ShowArgs;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::idle_warnings::PIPELINE;
use crate::nodes::{self, ReadMoment};
use crate::output::{completed, quoted};
use crate::queue_waits;
use crate::reasons;
use crate::resolution_help;
use crate::run::BACKEND;
use crate::run_tree;
use crate::table::{clean, clean_lines, of_status, paint, word};
use crate::watch::PollResult;

/// The JSON output of `show`.
#[derive(Serialize)]
struct RunReport {
    head: RunHead,
    /// The reasons for the status of the run, the most urgent first.
    why: Vec<RunReason>,
    checkpoint: Checkpoint,
    lineage: Vec<Value>,
    /// The node of another run that started this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<RunOrigin>,
    /// The runs that the nodes of this run have started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    children: Vec<Value>,
    /// Open questions of descendants for which this run waits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    asked_below: Vec<Question>,
    /// The positions of the run in queues. Queues in which it waits come first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    queues: Vec<QueueMembership>,
}

pub(super) async fn run(context: &CommandContext, args: &ShowArgs) -> Result<ExitReason, CommandFailure> {
    let (runtime, cache) = (context.runtime()?, ReasonCache::new());
    args.watch.run(context, async || read_report(context, &runtime, &cache, args).await).await
}

async fn read_report(
    context: &CommandContext,
    runtime: &Runtime,
    cache: &ReasonCache,
    args: &ShowArgs,
) -> Result<PollResult, CommandFailure> {
    let head = context.find(&**runtime.store(), &args.run).await?;
    let seen = PollResult::of(&head);
    if args.report {
        context.out.text(&clean_lines(&runtime.post_mortem(&head.run).await?))?;
        return Ok(seen);
    }
    let mut checkpoint = runtime.checkpoint(&head.run, args.at.clone()).await?;
    if !args.reveal {
        checkpoint.hide_secrets();
    }
    let moment = ReadMoment::of(&checkpoint, &head, context.now());
    if let Some(wanted) = &args.node {
        return node::print(context, runtime, checkpoint, wanted, moment).await.map(|()| seen);
    }
    let line = runtime.lineage(&head.run).await?;
    let lineage = line.iter().map(ancestor).collect();
    let origin = RunOrigin::of(&head);
    let children = run_tree::children(&**runtime.store(), &head).await?.iter().map(child).collect();
    let (mut explained, queues) = if head.id == checkpoint.record {
        let explained = runtime.explain(&head, cache).await?;
        explain_queues(context, runtime, &head, &checkpoint, explained).await
    } else {
        (explain_past(&head, &checkpoint), Vec::new())
    };
    let asked_below = std::mem::take(&mut explained.questions);
    let all = RunReport {
        head,
        why: explained.reasons,
        checkpoint,
        lineage,
        origin,
        children,
        asked_below,
        queues,
    };
    context.out.one(&all, |all| display_key(&all.head.run), |all| format_run(context, all, moment))?;
    Ok(seen)
}

/// Returns the reasons for the status of a run at an older record. These reasons come only from the log of the run.
fn explain_past(head: &RunHead, then: &Checkpoint) -> RunExplanation {
    let mut head = head.clone();
    (head.status, head.epoch, head.owner, head.wake_at) = (then.status, then.epoch, then.owner, then.wake_at);
    head.owner_alive = then.owner.is_some();
    let mut explained = RunExplanation::default();
    explained.reasons = then.reasons(&head, then.at);
    explained
}

/// Reads the positions of a run in queues, if it can have any, and adds them to the reasons for its status.
async fn explain_queues(
    context: &CommandContext,
    runtime: &Runtime,
    head: &RunHead,
    now: &Checkpoint,
    mut explained: RunExplanation,
) -> (RunExplanation, Vec<QueueMembership>) {
    let is_busy = head.status == RunStatus::InProgress && head.wake_at.is_none();
    let is_queued = head.facts.labels.get(QUEUE_LABEL).is_some();
    let rests = || now.questions.iter().any(|question| question.id.to_string().contains(":queue."));
    if head.status.is_finished() || !(is_busy || is_queued || rests()) {
        return (explained, Vec::new());
    }
    let mut overview = QueueOverview::new();
    queue_waits::refresh_queues(context, runtime, &mut overview).await;
    let standings = overview.memberships(&head.run, context.now());
    queue_waits::explain(&mut explained.reasons, &standings, &overview, context.now());
    (explained, standings)
}

fn ancestor(one: &Ancestor) -> Value {
    json!({ "run": one.run, "forked_at": one.forked_at, "status": one.status })
}

fn child(head: &RunHead) -> Value {
    json!({ "run": head.run, "workflow": head.facts.workflow, "status": head.status, "origin": RunOrigin::of(head) })
}

fn format_run(context: &CommandContext, all: &RunReport, moment: ReadMoment) -> String {
    let RunReport { head, checkpoint: now, .. } = all;
    let (out, time) = (&context.out, context.now());
    let at = |when| out.time.write(when, time);
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            // Writing to a string never fails.
            let _ = writeln!(text, "{name:<10}{}", value);
        }
    };
    line("run", display_key(&head.run));
    line("workflow", format!("{} {}", now.workflow, clean(&now.version)));
    line("status", paint(&now.status.to_string(), of_status(now.status).bold(), out.color));
    for reason in &all.why {
        line("why", reasons::sentence(reason, at));
    }
    line("started", at(now.created));
    line("record", format!("{} ({}) {}", now.index, word(&now.kind), at(now.at)));
    // The label with the parent is printed separately below.
    let told = |key: &str| !is_internal_label(key) || [PIPELINE, BACKEND].contains(&key);
    let labels: Vec<String> = now
        .labels
        .iter()
        .filter(|(key, _)| told(key))
        .map(|(key, value)| clean(&format!("{key}={value}")))
        .collect();
    line("labels", labels.join(" "));
    line("user", now.user.as_deref().map(clean).unwrap_or_default());
    let parent = now.parent.as_ref();
    line(
        "forked",
        parent.map(|p| format!("from {} at record {}", display_key(&p.run), p.at.seq)).unwrap_or_default(),
    );
    let origin = all.origin.as_ref();
    line(
        "parent",
        origin
            .map(|one| format!("{} at {} {}", display_key(&one.parent), clean(&one.at), clean(&one.name)))
            .unwrap_or_default(),
    );
    line("children", children(all));
    for one in all.queues.iter().filter(|one| one.before.is_none()) {
        line("holds", queue_waits::describe_slot(one, &at(one.since)));
    }
    line("messages", if now.unread > 0 { format!("{} unread", now.unread) } else { String::new() });
    line("memory", memory(now));
    for table in nodes::table(now, moment, at).into_iter().chain(nodes::artifacts(now)) {
        let _ = write!(text, "\n{}", table.render(out.color, out.room));
    }
    now.questions.iter().for_each(|question| text.push_str(&ask(context, &head.run, question)));
    all.asked_below.iter().for_each(|question| text.push_str(&ask(context, &head.run, question)));
    if let Some(next) = next(all) {
        let _ = writeln!(text, "\nnext: {}", completed(&next, &context.global));
    }
    text
}

/// Formats a question, the shape of its answer, and the commands that resolve work with an unknown outcome.
pub(super) fn ask(context: &CommandContext, run: &RunKey, question: &Question) -> String {
    let by = question.asked_by.as_ref().map(|by| format!(" of {}", display_key(by))).unwrap_or_default();
    let mut text = format!("\n? {}{by}  {}\n", question.id, clean(&question.prompt()));
    // Writing to a string never fails.
    if let Some(expects) = &question.expects {
        let _ = writeln!(text, "  expects {}", clean(&expects.to_string()));
    }
    if question.kind == QuestionKind::Doubt {
        let name = quoted(&display_key(run));
        let command = |more: &str| completed(&format!("ferrata answer {name} {more}"), &context.global);
        for line in resolution_help::resolution_lines(&question.id, command) {
            let _ = writeln!(text, "  {line}");
        }
    }
    text
}

/// Counts the runs that the nodes of this run have started, by status.
fn children(all: &RunReport) -> String {
    let mut by_status: BTreeMap<String, usize> = BTreeMap::new();
    for child in &all.children {
        *by_status.entry(child["status"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    let counts: Vec<String> = by_status.iter().map(|(status, count)| format!("{count} {status}")).collect();
    match counts.is_empty() {
        true => String::new(),
        false => format!("{}; ferrata tree {}", counts.join(", "), quoted(&display_key(&all.head.run))),
    }
}

/// Counts the nodes' reads of a memory, and the writes that are still pending.
fn memory(now: &Checkpoint) -> String {
    let counts = [(now.memory.reads.len(), "reads"), (now.memory.pending_writes.len(), "pending writes")];
    let told: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{what} {count}"))
        .collect();
    told.join(", ")
}

/// Returns the text of a question for people.
pub(crate) fn asked(question: &Question) -> String {
    question.prompt()
}

/// Returns the command that the user probably needs next for this run.
fn next(all: &RunReport) -> Option<String> {
    let RunReport { head, checkpoint: now, .. } = all;
    let name = quoted(&display_key(&head.run));
    if head.seq != now.index {
        return Some(format!("ferrata fork {name} {}", now.index));
    }
    // If an operator unpauses or answers such a run, it starts before its turn. So suggest the command that only shows the queue.
    if let Some(waits) = all.queues.iter().find(|one| one.before.is_some()) {
        return Some(format!("ferrata queue show {}", quoted(&waits.queue)));
    }
    let first = all.why.first()?;
    let meant = first.run.as_ref().map_or_else(|| name.clone(), |run| quoted(&display_key(run)));
    match (first.kind, &first.question) {
        // The possible resolutions are printed with the question. The user must check the outcome first, so suggest none of them.
        (ReasonKind::Doubt, _) => None,
        (ReasonKind::Child, Some(question)) if is_doubt(all, question, first.run.as_ref()) => None,
        (_, Some(question)) => Some(format!("ferrata answer {meant} {} VALUE", quoted(question))),
        (ReasonKind::Child, None) => Some(format!("ferrata show {meant}")),
        (ReasonKind::Failed, _) => Some(format!("ferrata retry {name}")),
        (ReasonKind::Paused, _) => Some(format!("ferrata unpause {name}")),
        (ReasonKind::Message, _) => Some(format!("ferrata send {name} VALUE")),
        (ReasonKind::Orphaned | ReasonKind::Queued, _) if now.labels.get(PIPELINE).is_some() => {
            Some(format!("ferrata resume {name}"))
        }
        _ if head.status.is_finished() => None,
        _ => Some(format!("ferrata logs {name} -f")),
    }
}

/// Returns whether a question of a descendant is about work that must not be repeated.
fn is_doubt(all: &RunReport, question: &str, run: Option<&RunKey>) -> bool {
    let of_it = |one: &&Question| one.asked_by.as_ref() == run && one.id.ends_with(question);
    all.asked_below.iter().find(of_it).is_some_and(|one| one.kind == QuestionKind::Doubt)
}
