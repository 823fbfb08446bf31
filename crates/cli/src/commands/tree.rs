//! The command `tree` shows a run and the runs that its nodes have started, level by level.

use std::fmt::Write;

use ferrata::ask::Question;
use ferrata::runtime::{Checkpoint, RunOrigin};
use ferrata::{Error, ErrorKind, Position, RunKey, RunStatus, Runtime, Timestamp};
use serde::Serialize;

use crate::args::TreeArgs;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::run_tree::RunTree;
use crate::table::{clean, of_status, paint};
use crate::unreadable::{UnreadableRuns, is_unreadable};
use crate::watch::PollResult;

/// A run in the tree, with the runs below it.
#[derive(Debug, Serialize)]
struct TreeBranch {
    run: RunKey,
    workflow: String,
    status: RunStatus,
    started: Timestamp,
    updated: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<RunOrigin>,
    /// The open activations of the run.
    at: Vec<String>,
    /// The reason of its pause, if it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<String>,
    /// The reason why the log of the run is unreadable; `None` if it is readable. For an unreadable log, the open activations are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
    questions: Vec<Question>,
    children: Vec<Self>,
}

pub(super) async fn run(context: &CommandContext, args: &TreeArgs) -> Result<ExitReason, CommandFailure> {
    let runtime = context.runtime()?;
    args.watch.run(context, async || read_tree(context, &runtime, args).await).await
}

async fn read_tree(
    context: &CommandContext,
    runtime: &Runtime,
    args: &TreeArgs,
) -> Result<PollResult, CommandFailure> {
    let head = context.find(&**runtime.store(), &args.run).await?;
    let seen = PollResult::of(&head);
    let (run, root) = (head.run.clone(), RunOrigin::root_of(&head));
    let family = RunTree::below(&**runtime.store(), head).await?;
    let mut unreadable = UnreadableRuns::default();
    let tree = Box::pin(branch(runtime, family, &mut unreadable)).await?;
    context.out.one(&tree, |tree| ids(tree).join("\n"), |tree| format_tree(context, tree))?;
    if root != run {
        context.out.note(&format!("the run belongs to the run tree of {}", display_key(&root)));
        context.next(&format!("ferrata tree {}", display_key(&root)));
    }
    Ok(match unreadable.failure("their open questions are not shown") {
        Some(failure) => PollResult::Partly(failure),
        None => seen,
    })
}

/// Draws the tree of a run; `None` if the run has no children.
pub(crate) async fn of_run(
    context: &CommandContext,
    runtime: &Runtime,
    run: &RunKey,
) -> Result<Option<String>, CommandFailure> {
    let Some(head) = runtime.store().head(run).await? else { return Ok(None) };
    let family = RunTree::below(&**runtime.store(), head).await?;
    if family.children.is_empty() {
        return Ok(None);
    }
    let tree = Box::pin(branch(runtime, family, &mut UnreadableRuns::default())).await?;
    Ok(Some(format_tree(context, &tree)))
}

async fn branch(
    runtime: &Runtime,
    family: RunTree,
    unreadable: &mut UnreadableRuns,
) -> Result<TreeBranch, CommandFailure> {
    let RunTree { head, children: below } = family;
    // A run that has ended has no open activations, so do not read its log.
    let (now, why) = match head.status.is_finished() {
        true => (None, None),
        false => match open(runtime, &head.run).await? {
            Ok(now) => (now, None),
            Err(error) => {
                let why = error.message().to_owned();
                unreadable.add(&head.run, error);
                (None, Some(why))
            }
        },
    };
    let origin = RunOrigin::of(&head);
    let mut children = Vec::with_capacity(below.len());
    for child in below {
        children.push(Box::pin(branch(runtime, child, unreadable)).await?);
    }
    let (next, questions, paused) = now.map(|now| (now.next, now.questions, now.paused)).unwrap_or_default();
    Ok(TreeBranch {
        run: head.run,
        workflow: head.facts.workflow.to_string(),
        status: head.status,
        started: head.facts.created,
        updated: head.updated,
        origin,
        at: next.iter().map(|one| format!("{}@{}", one.node, one.visit)).collect(),
        paused,
        unreadable: why,
        questions,
        children,
    })
}

/// Reads an unfinished run. Returns `None` if the run was purged after it was listed, and the error if it is unreadable.
async fn open(runtime: &Runtime, run: &RunKey) -> Result<Result<Option<Checkpoint>, Error>, CommandFailure> {
    match runtime.checkpoint(run, Position::Latest).await {
        Ok(now) => Ok(Ok(Some(now))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Ok(None)),
        Err(error) if is_unreadable(&error) => Ok(Err(error)),
        Err(error) => Err(error.into()),
    }
}

fn ids(tree: &TreeBranch) -> Vec<String> {
    std::iter::once(display_key(&tree.run)).chain(tree.children.iter().flat_map(ids)).collect()
}

fn format_tree(context: &CommandContext, tree: &TreeBranch) -> String {
    let mut text = String::new();
    draw(context, tree, "", "", &mut text);
    text
}

/// Draws a run and the runs below it. `first` is printed before the line of the run, and `rest` before all other lines.
fn draw(context: &CommandContext, tree: &TreeBranch, first: &str, rest: &str, text: &mut String) {
    let status = paint(&tree.status.to_string(), of_status(tree.status), context.out.color);
    let at = if tree.at.is_empty() { String::new() } else { format!("  at {}", tree.at.join(", ")) };
    let place = tree
        .origin
        .as_ref()
        .map(|origin| clean(&format!("{} {}  ", origin.at, origin.name)))
        .unwrap_or_default();
    let age = context.out.time.write(tree.started, context.now());
    let unread = tree.unreadable.as_deref().map(|why| format!("  cannot be read: {}", clean(why)));
    let unread = unread.unwrap_or_default();
    let paused = tree.paused.as_deref().map(|why| format!("  paused: {}", clean(why))).unwrap_or_default();
    // Writing to a string never fails.
    let _ = writeln!(
        text,
        "{first}{place}{}  {}  {status}  {age}{at}{paused}{unread}",
        display_key(&tree.run),
        tree.workflow
    );
    let below = if tree.children.is_empty() { "    " } else { "│   " };
    for question in &tree.questions {
        let _ = writeln!(text, "{rest}{below}? {}  {}", question.id, clean(&question.prompt()));
    }
    let last = tree.children.len().saturating_sub(1);
    for (number, child) in tree.children.iter().enumerate() {
        let (branch, beside) = if number == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        draw(context, child, &format!("{rest}{branch}"), &format!("{rest}{beside}"), text);
    }
}
