//! The command `questions` lists the open questions of runs.

use ferrata::ask::Question;
use ferrata::store::RunQuery;
use ferrata::{RunKey, RunStatus, Runtime};
use serde::Serialize;
use serde_json::Value;

use super::newest::of_newest;
use crate::args::QuestionsArgs;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::output::OutputFormat;
use crate::table::Table;
use crate::unreadable::UnreadableRuns;
use crate::watch::PollResult;

/// An open question, and the run that asks it.
#[derive(Debug, Serialize)]
struct OpenQuestion {
    run: RunKey,
    #[serde(flatten)]
    question: Question,
    /// The JSON Schema of the answer.
    schema: Value,
}

impl OpenQuestion {
    fn new(run: &RunKey, question: Question) -> Self {
        Self { run: run.clone(), schema: question.answer_schema(), question }
    }
}

pub(super) async fn run(
    context: &CommandContext,
    args: &QuestionsArgs,
) -> Result<ExitReason, CommandFailure> {
    let runtime = context.runtime()?;
    args.watch.run(context, async || list(context, &runtime, args).await).await
}

async fn list(
    context: &CommandContext,
    runtime: &Runtime,
    args: &QuestionsArgs,
) -> Result<PollResult, CommandFailure> {
    let (open, unreadable) = match &args.run {
        Some(name) => {
            let run = context.find(&**runtime.store(), name).await?.run;
            of(runtime, &run).await?
        }
        None => of_all(context, runtime, args.limit).await?,
    };
    let now = context.now();
    context.out.all(
        &open,
        |one| format!("{} {}", display_key(&one.run), one.question.id),
        |open| {
            let mut table = Table::new(["RUN", "QUESTION", "ASKED", "TAKES", "UNTIL", "DEFAULT"])
                .omit_first(["DEFAULT", "UNTIL", "TAKES"]);
            for OpenQuestion { run, question, .. } in open {
                table.row([
                    display_key(run).into(),
                    question.id.clone().into(),
                    question.prompt().into(),
                    question.expects.as_ref().map(|takes| cut(&takes.to_string())).unwrap_or_default().into(),
                    question.deadline.map(|at| context.out.time.write(at, now)).unwrap_or_default().into(),
                    question.default.clone().unwrap_or_default().into(),
                ]);
            }
            table
        },
    )?;
    let seen = unreadable.into_poll_result("their questions are not listed");
    if open.is_empty() && context.out.format == OutputFormat::Table {
        let some = if matches!(seen, PollResult::Partly(_)) { " in readable runs" } else { "" };
        context.out.note(&format!("no open questions{some}"));
    }
    Ok(seen)
}

/// Shortens a text, so that a column does not push the next column off the screen. `show` and JSON have the whole text.
fn cut(text: &str) -> String {
    const WIDTH: usize = 40;
    if text.chars().count() <= WIDTH {
        text.to_owned()
    } else {
        text.chars().take(WIDTH - 1).chain(['…']).collect()
    }
}

async fn of(runtime: &Runtime, run: &RunKey) -> Result<(Vec<OpenQuestion>, UnreadableRuns), CommandFailure> {
    let found = runtime.open_questions(run).await?;
    let mut unreadable = UnreadableRuns::default();
    for error in found.unreadable {
        let below = error.run().unwrap_or(run).clone();
        unreadable.add(&below, error);
    }
    Ok((found.questions.into_iter().map(|question| OpenQuestion::new(run, question)).collect(), unreadable))
}

/// Reads the unfinished runs. A run in progress may also have an open question, from one of its branches.
async fn of_all(
    context: &CommandContext,
    runtime: &Runtime,
    limit: usize,
) -> Result<(Vec<OpenQuestion>, UnreadableRuns), CommandFailure> {
    let mut query = RunQuery::default();
    query.statuses = vec![RunStatus::Interrupted, RunStatus::InProgress, RunStatus::AwaitingInput];
    of_newest(context, runtime, query, limit, async |head| {
        let questions = runtime.questions(&head.run).await?.into_iter();
        // Skip the questions of descendants here, because they are listed with the descendants.
        let own = questions.filter(|question| question.asked_by.is_none());
        Ok(own.map(|question| OpenQuestion::new(&head.run, question)).collect())
    })
    .await
}
