//! `show`: how a run stands, node by node, and what to type next.

use std::collections::BTreeMap;
use std::fmt::Write;

use ferrata::ask::{Question, QuestionKind};
use ferrata::queue::{Overview, QUEUE_LABEL, Standing};
use ferrata::runtime::{Ancestor, Checkpoint};
use ferrata::store::RunHead;
use ferrata::{RunKey, RunStatus, Runtime};
use serde::Serialize;
use serde_json::{Value, json};

use super::node;
use crate::args::ShowArgs;
use crate::context::Context;
use crate::doubt;
use crate::driven::PIPELINE;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::family::{self, Origin};
use crate::find::shown;
use crate::nodes;
use crate::output::{completed, quoted};
use crate::table::{clean, clean_lines, of_status, paint, word};
use crate::turns;
use crate::watch::Seen;

/// What `show` prints as JSON.
#[derive(Serialize)]
struct Shown {
    head: RunHead,
    checkpoint: Checkpoint,
    lineage: Vec<Value>,
    /// Where a node of another run started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<Origin>,
    /// The runs that its nodes have started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    children: Vec<Value>,
    /// How it stands in queues, what it waits for first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    queues: Vec<Standing>,
}

pub(super) async fn run(context: &Context, args: &ShowArgs) -> Result<Exit, Failure> {
    let runtime = context.runtime()?;
    args.watch.run(context, async || look(context, &runtime, args).await).await
}

async fn look(context: &Context, runtime: &Runtime, args: &ShowArgs) -> Result<Seen, Failure> {
    let head = context.find(&**runtime.store(), &args.run).await?;
    let seen = Seen::of(&head);
    if args.report {
        context.out.text(&clean_lines(&runtime.post_mortem(&head.run).await?))?;
        return Ok(seen);
    }
    let mut checkpoint = runtime.checkpoint(&head.run, args.at.clone()).await?;
    if !args.reveal {
        checkpoint.hide_secrets();
    }
    if let Some(wanted) = &args.node {
        return node::print(context, runtime, checkpoint, wanted).await.map(|()| seen);
    }
    let line = runtime.lineage(&head.run).await?;
    let lineage = line.iter().map(ancestor).collect();
    let origin = Origin::of(&head);
    let children = family::children(&**runtime.store(), &head).await?.iter().map(child).collect();
    let queues = queues(context, runtime, &head, &checkpoint).await;
    let all = Shown { head, checkpoint, lineage, origin, children, queues };
    context.out.one(&all, |all| shown(&all.head.run), |all| people(context, all))?;
    Ok(seen)
}

/// Looks how a run stands in queues as it is now, if it can be in one.
async fn queues(context: &Context, runtime: &Runtime, head: &RunHead, now: &Checkpoint) -> Vec<Standing> {
    let is_busy = head.status == RunStatus::InProgress && head.wake_at.is_none();
    let is_queued = head.facts.labels.get(QUEUE_LABEL).is_some();
    let rests = || now.questions.iter().any(|question| question.id.to_string().contains(":queue."));
    if head.seq != now.index || head.status.is_finished() || !(is_busy || is_queued || rests()) {
        return Vec::new();
    }
    let mut overview = Overview::new();
    turns::look(context, runtime, &mut overview).await;
    overview.standings(&head.run, context.now())
}

fn ancestor(one: &Ancestor) -> Value {
    json!({ "run": one.run, "forked_at": one.forked_at, "status": one.status })
}

fn child(head: &RunHead) -> Value {
    json!({ "run": head.run, "workflow": head.facts.workflow, "status": head.status, "origin": Origin::of(head) })
}

fn people(context: &Context, all: &Shown) -> String {
    let Shown { head, checkpoint: now, .. } = all;
    let (out, time) = (&context.out, context.now());
    let at = |when| out.time.write(when, time);
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            // Writing to a string never fails.
            let _ = writeln!(text, "{name:<10}{}", value);
        }
    };
    line("run", shown(&head.run));
    line("workflow", format!("{} {}", now.workflow, clean(&now.version)));
    line("status", paint(&now.status.to_string(), of_status(now.status).bold(), out.color));
    line("started", at(now.created));
    line("record", format!("{} ({}) {}", now.index, word(&now.kind), at(now.at)));
    // Where a child belongs is told below.
    let told = |key: &str| all.origin.is_none() || !key.starts_with(family::OWN) || key == PIPELINE;
    let labels: Vec<String> = now
        .labels
        .iter()
        .filter(|(key, _)| told(key))
        .map(|(key, value)| clean(&format!("{key}={value}")))
        .collect();
    line("labels", labels.join(" "));
    line("user", now.user.as_deref().map(clean).unwrap_or_default());
    line("owner", owner(head, now));
    line("wakes", now.wake_at.filter(|_| !now.status.is_finished()).map(at).unwrap_or_default());
    let parent = now.parent.as_ref();
    line(
        "forked",
        parent.map(|p| format!("from {} at record {}", shown(&p.run), p.at.seq)).unwrap_or_default(),
    );
    let origin = all.origin.as_ref();
    line(
        "parent",
        origin.map(|one| format!("{} at {}", shown(&one.parent), clean(&one.place()))).unwrap_or_default(),
    );
    line("children", children(all));
    line("failed", now.failure.as_ref().map(|failure| clean(&failure.to_string())).unwrap_or_default());
    line("paused", now.paused.as_deref().map(clean).unwrap_or_default());
    for one in &all.queues {
        line(if one.before.is_some() { "waits for" } else { "holds" }, turns::told(one, &at(one.since)));
    }
    line("cancelled", now.cancelled.as_deref().map(clean).unwrap_or_default());
    line("messages", if now.unread > 0 { format!("{} unread", now.unread) } else { String::new() });
    line("memory", memory(now));
    for table in nodes::table(now, at).into_iter().chain(nodes::artifacts(now)) {
        let _ = write!(text, "\n{}", table.render(out.color, out.room));
    }
    now.questions.iter().for_each(|question| text.push_str(&ask(context, &head.run, question)));
    // A run that an operator lets go, or answers, goes before its turn.
    let waits = all.queues.iter().find(|one| one.before.is_some());
    let turn = waits.map(|one| format!("ferrata queue show {}", quoted(&one.queue)));
    if let Some(next) = turn.or_else(|| next(head, now)) {
        let _ = writeln!(text, "\nnext: {}", completed(&next, &context.global));
    }
    text
}

/// Writes a question, what it takes, and the commands that settle work in doubt.
pub(super) fn ask(context: &Context, run: &RunKey, question: &Question) -> String {
    let mut text = format!("\n? {}  {}\n", question.id, clean(&asked(question)));
    // Writing to a string never fails.
    if let Some(expects) = &question.expects {
        let _ = writeln!(text, "  takes {}", clean(&expects.to_string()));
    }
    if question.kind == QuestionKind::Doubt {
        let name = quoted(&shown(run));
        let command = |more: &str| completed(&format!("ferrata answer {name} {more}"), &context.global);
        for line in doubt::lines(&question.id, command) {
            let _ = writeln!(text, "  {line}");
        }
    }
    text
}

/// Counts the runs that nodes have started, by how they stand.
fn children(all: &Shown) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for status in all.children.iter().filter_map(|child| child["status"].as_str()) {
        *counts.entry(status).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(status, count)| format!("{count} {status}")).collect();
    match counts.is_empty() {
        true => String::new(),
        false => format!("{}; ferrata tree {} has them", counts.join(", "), quoted(&shown(&all.head.run))),
    }
}

/// Counts what nodes read from a memory, and what is to be written to one.
fn memory(now: &Checkpoint) -> String {
    let counts = [(now.memory.reads.len(), "read"), (now.memory.pending_writes.len(), "to be written")];
    let told: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    told.join(", ")
}

/// Says who drives the run.
fn owner(head: &RunHead, now: &Checkpoint) -> String {
    match (now.owner, head.owner_alive) {
        (Some(owner), true) => format!("executor {owner}, alive"),
        (Some(owner), false) => format!("executor {owner}, not heard of any more"),
        (None, _) if now.status == RunStatus::InProgress && now.wake_at.is_none() => {
            "no process drives it".into()
        }
        _ => String::new(),
    }
}

/// Returns what is asked, as people read it: the text itself, where what is asked is or has one.
pub(crate) fn asked(question: &Question) -> String {
    let Some(text) = &question.text else { return word(&question.kind) };
    match serde_json::from_str(text) {
        Ok(Value::String(text)) => text,
        Ok(Value::Object(fields)) => match fields.get("text") {
            Some(Value::String(text)) => text.clone(),
            _ => text.clone(),
        },
        _ => text.clone(),
    }
}

/// Says what an operator would do about the run now.
fn next(head: &RunHead, now: &Checkpoint) -> Option<String> {
    let name = shown(&head.run);
    if head.seq != now.index {
        return Some(format!("ferrata fork {name} {}", now.index));
    }
    match now.status {
        RunStatus::Failed => Some(format!("ferrata retry {name}")),
        RunStatus::Interrupted if now.paused.is_some() => Some(format!("ferrata unpause {name}")),
        RunStatus::Interrupted => {
            // What to say about work in doubt stands beside it: none of it is to be done without looking.
            let question = now.questions.iter().find(|question| question.kind != QuestionKind::Doubt)?;
            Some(format!("ferrata answer {name} {} VALUE", question.id))
        }
        RunStatus::AwaitingInput => Some(format!("ferrata send {name} VALUE")),
        RunStatus::InProgress if !head.owner_alive && now.labels.get(PIPELINE).is_some() => {
            Some(format!("ferrata resume {name}"))
        }
        RunStatus::InProgress => Some(format!("ferrata logs {name} -f")),
        _ => None,
    }
}
