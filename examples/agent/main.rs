//! An agent with tools: it searches, and asks a person before it sends a mail. The agent also asks for more money when its budget is spent.
//!
//! ```text
//! cargo run --example agent -- "climbing ropes"
//! cargo run --example agent -- --answer 10
//! cargo run --example agent -- --answer yes
//! ```
//!
//! The model is a stand-in with fixed answers, so the program calls no service. Kill it at any moment, even with `kill -9`: the same command
//! continues, repeats no recorded thought, and sends a mail once.
#![expect(clippy::print_stdout, reason = "the answer is what the program is for")]
#![expect(clippy::print_stderr, reason = "errors of a command go there")]

mod graph;
mod model;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use ferrata::prelude::*;
use ferrata::{Position, RunId, RunKey, RunStatus};

use crate::graph::{Agent, Outbox, graph};
use crate::model::Model;

const USAGE: &str = "\
usage: agent [TASK] [--answer VALUE] [--id ID] [--store URL] [--outbox FOLDER]

  TASK             what it looks for; once, when the run begins (default: climbing ropes)
  --answer VALUE   answers what it has asked, yes or no or a number of cents, and goes on
  --id ID          the run; the same command continues it (default: agent)
  --store URL      where runs are kept (default: file:.ferrata-agent)
  --outbox FOLDER  where mails go (default: .ferrata-outbox)

exit codes: 0 done, 1 failed, 2 wrong usage, 3 it waits for an answer";

/// Exit code of a run that waits for a person.
const WAITS: u8 = 3;

/// The first budget in cents. The next constant is the cost of a thought.
const CENTS: u32 = 5;
const THOUGHT: u32 = 2;

#[derive(Debug)]
struct Args {
    task: String,
    answer: Option<String>,
    id: String,
    store: String,
    outbox: String,
}

/// Reads the arguments; `None` if they ask for help.
fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Args>, String> {
    let (mut task, mut answer, mut id, mut store, mut outbox) = (None, None, None, None, None);
    while let Some(arg) = args.next() {
        let place = match arg.as_str() {
            "-h" | "--help" => return Ok(None),
            "--answer" => &mut answer,
            "--id" => &mut id,
            "--store" => &mut store,
            "--outbox" => &mut outbox,
            option if option.starts_with('-') => return Err(format!("there is no option `{option}`")),
            _ => {
                if let Some(before) = task.replace(arg) {
                    return Err(format!("`{before}` is one too many"));
                }
                continue;
            }
        };
        let value = args.next().ok_or_else(|| format!("`{arg}` needs a value"))?;
        if let Some(before) = place.replace(value) {
            return Err(format!("`{before}` is one too many"));
        }
    }
    let or = |given: Option<String>, usual: &str| given.unwrap_or_else(|| usual.into());
    Ok(Some(Args {
        task: or(task, "climbing ropes"),
        answer,
        id: or(id, "agent"),
        store: or(store, "file:.ferrata-agent"),
        outbox: or(outbox, ".ferrata-outbox"),
    }))
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = match ferrata_examples::arguments(USAGE, parse) {
        Ok(args) => args,
        Err(exit) => return exit,
    };
    Box::pin(go_on(&args)).await.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

async fn go_on(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let key = RunKey::from(RunId::new(&args.id)?);
    let runtime = Runtime::builder_with(ferrata_examples::open(&args.store)?)
        .resource(Model { cents: THOUGHT })
        .resource(Outbox(args.outbox.as_str().into()))
        .build()
        .await?;
    let graph = graph()?;
    ferrata_examples::free(&runtime, &key).await?;
    if let Some(answer) = &args.answer {
        let (node, said) = match (answer.as_str(), answer.parse::<u32>()) {
            ("yes" | "no", _) => ("approve", Answer::accept(answer == "yes")?),
            (_, Ok(cents)) => ("budget", Answer::accept(cents)?),
            _ => return Err(format!("`{answer}` is neither yes nor no nor a number of cents").into()),
        };
        let questions = runtime.questions(&key).await?;
        match questions.iter().find(|question| question.node.as_str() == node) {
            Some(question) => {
                runtime.respond(&key, &question.id, said).by("you").await?;
            }
            // A killed process may have answered the question already. Then the same command continues.
            None => eprintln!("no question takes the answer `{answer}`; the run continues"),
        }
    }
    let input = Agent { task: args.task.clone(), cents: CENTS, ..Agent::default() };
    let outcome = match runtime.head(&key).await? {
        None => runtime.start(&graph, input).id(&args.id).await?.wait().await?,
        Some(head) if head.status == RunStatus::Completed => {
            Outcome::Completed(runtime.state_at(&graph, &key, Position::Latest).await?)
        }
        Some(_) => runtime.resume(&graph, args.id.as_str()).await?.wait().await?,
    };
    let code = match outcome {
        Outcome::Interrupted(questions) => {
            for question in &questions {
                println!("{}", question.text.as_deref().unwrap_or_default());
            }
            println!("answer with: --answer VALUE");
            ExitCode::from(WAITS)
        }
        Outcome::Completed(done) => {
            println!("{}", done.answer.as_deref().unwrap_or_default());
            println!("{} of {} cents are spent", done.spent, done.cents);
            ExitCode::SUCCESS
        }
        other => return Err(format!("the run is {other:?}").into()),
    };
    runtime.shutdown(Duration::ZERO).await?;
    Ok(code)
}
