//! An invoice that waits for a person. One process asks, a second answers, a third pays.
//!
//! ```text
//! cargo run --example approval -- start inv-7
//! cargo run --example approval -- approve inv-7 --by ann
//! cargo run --example approval -- resume inv-7
//! ```
//!
//! No process runs between the commands: the store holds the question and its answer.
#![expect(clippy::print_stdout, reason = "what the run does is what the program is for")]
#![expect(clippy::print_stderr, reason = "errors of a command go there")]

use std::error::Error;
use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;

use ferrata::ask::{DeclineReason, Question, QuestionKind};
use ferrata::prelude::*;
use ferrata::{ErrorKind, RunId, RunKey, RunStatus};
use serde::{Deserialize, Serialize};
use serde_json::Value;

const USAGE: &str = "\
usage: approval COMMAND [--store URL]

  start ID                      starts the run ID, which asks whether to pay, and ends
  questions ID                  lists what the run asks
  approve ID [EUR] [--by NAME]  says yes, to the whole amount or to so much of it
  reject ID COMMENT [--by NAME] says no
  resume ID                     goes on with the run

  --store URL                   where runs are kept (default: file:.ferrata-approval)

exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 the run still waits for an answer";

const STORE: &str = "file:.ferrata-approval";

/// The id of the question that the gate asks at its first visit. While the question is open, the name of the gate is enough.
const QUESTION: &str = "approve@1:gate";

/// Exit code of `resume` if the run has an open question.
const WAITS: u8 = 3;

#[derive(Clone, Debug, Default, Serialize, Deserialize, State)]
struct Invoice {
    payee: String,
    eur: u32,
    /// The amount that was approved.
    granted: Option<u32>,
    /// The text of the result.
    result: String,
}

/// The question for the approver.
#[derive(Debug, Serialize, Deserialize)]
struct Payment {
    payee: String,
    eur: u32,
}

fn graph() -> Result<Graph<Invoice>, GraphError> {
    let graph = Graph::<Invoice>::builder("approval")
        .node("check", async |_cx, s| {
            println!("process {}: checks the invoice", std::process::id());
            Ok(s)
        })
        .gate_with(
            "approve",
            |s: &Invoice| Ask::<u32>::new(Payment { payee: s.payee.clone(), eur: s.eur }),
            |s: &mut Invoice, answer: Result<u32, DeclineReason>| match answer {
                Ok(eur) => s.granted = Some(eur.min(s.eur)),
                Err(declined) => s.result = format!("not paid, {declined}"),
            },
        )
        .node("pay", async |cx, mut s| {
            let eur = s.granted.unwrap_or_default();
            // A recorded step never runs again. If the process dies between the transfer and its record, the step runs again with
            // the same key, by which the bank recognizes the transfer.
            let _key = cx.idempotency_key();
            let process: u32 = cx
                .step("transfer", async || {
                    println!("process {}: pays", std::process::id());
                    Ok::<_, NodeError>(std::process::id())
                })
                .await?;
            s.result = format!("paid {eur} EUR to {} by process {process}", s.payee);
            Ok(s)
        })
        .node("file", async |_cx, s| Ok(s))
        .entry("check")
        .edge("check", "approve")
        .route("approve", ["pay", "file"], |s: &Invoice, _| if s.granted.is_some() { "pay" } else { "file" })
        .edge("pay", "file")
        .build()?;
    Ok(graph)
}

fn invoice() -> Invoice {
    Invoice { payee: "ACME".into(), eur: 120, ..Invoice::default() }
}

/// The parsed command line.
struct Args {
    words: Vec<String>,
    by: Option<String>,
    store: Option<String>,
}

impl Args {
    /// Reads the arguments; `None` if they ask for help.
    fn parse(args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let (mut words, mut by, mut store) = (Vec::new(), None, None);
        let mut args = args.peekable();
        while let Some(arg) = args.next() {
            let place = match arg.as_str() {
                "-h" | "--help" => return Ok(None),
                "--by" => &mut by,
                "--store" => &mut store,
                option if option.starts_with("--") => return Err(format!("there is no option `{option}`")),
                _ => {
                    words.push(arg);
                    continue;
                }
            };
            let value = args.next().ok_or_else(|| format!("`{arg}` needs a value"))?;
            if place.replace(value).is_some() {
                return Err(format!("`{arg}` is given twice"));
            }
        }
        Ok(Some(Self { words, by, store }))
    }

    /// Returns a command line of this program that the user can type.
    fn command(&self, words: &[&str]) -> String {
        let program = match std::env::var_os("CARGO") {
            Some(_) => "cargo run --example approval --".to_owned(),
            None => quoted(&std::env::args().next().unwrap_or_else(|| "approval".to_owned())),
        };
        let store = self.store.iter().flat_map(|store| ["--store", store]);
        let words = words.iter().copied().chain(store);
        words.fold(program, |command, word| format!("{command} {}", quoted(word)))
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=".contains(c);
    if word.chars().all(plain) && !word.is_empty() {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = match ferrata_examples::arguments(USAGE, Args::parse) {
        Ok(args) => args,
        Err(exit) => return exit,
    };
    let words: Vec<&str> = args.words.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["start", id] => Box::pin(start(&args, id)).await,
        ["questions", id] => questions(&args, id).await,
        ["approve", id] => approve(&args, id, None).await,
        ["approve", id, eur] => approve(&args, id, Some(eur)).await,
        ["reject", id, comment] => reject(&args, id, comment).await,
        ["resume", id] => Box::pin(resume(&args, id)).await,
        ["reject", _] => return misused("`reject` needs a comment: why not?"),
        [] => return misused("say what to do"),
        [command @ ("start" | "questions" | "approve" | "resume" | "reject"), ..] => {
            return misused(&format!("`{command}` needs the id of one run, and nothing that is not listed"));
        }
        [other, ..] => return misused(&format!("there is no command `{other}`")),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

fn misused(mistake: &str) -> ExitCode {
    eprintln!("error: {mistake}\n\n{USAGE}");
    ExitCode::from(2)
}

type Done = Result<ExitCode, Box<dyn Error>>;

/// Opens the store for one command.
async fn open(args: &Args, id: &str) -> Result<(Runtime, RunKey), Box<dyn Error>> {
    let url = args.store.as_deref().unwrap_or(STORE);
    let key = RunKey::from(RunId::new(id)?);
    Ok((Runtime::builder_with(ferrata_examples::open(url)?).build().await?, key))
}

/// Opens the store of a run that must exist.
async fn open_run(args: &Args, id: &str) -> Result<(Runtime, RunKey, RunStatus), Box<dyn Error>> {
    let (runtime, key) = open(args, id).await?;
    match runtime.head(&key).await? {
        Some(head) => Ok((runtime, key, head.status)),
        None => Err(format!("there is no run `{id}`\nnext: {}", args.command(&["start", id])).into()),
    }
}

/// A start of an existing run returns the existing run. So this function also reports the outcome of a run that has ended.
async fn start(args: &Args, id: &str) -> Done {
    let (runtime, key) = open(args, id).await?;
    ferrata_examples::free(&runtime, &key).await?;
    let run = runtime.start(&graph()?, invoice()).id(id).await?;
    let code = show(args, id, run.wait().await?);
    runtime.shutdown(Duration::ZERO).await?;
    // A run that waits is the expected result of a start.
    Ok(if code == ExitCode::from(WAITS) { ExitCode::SUCCESS } else { code })
}

async fn resume(args: &Args, id: &str) -> Done {
    let (runtime, key, status) = open_run(args, id).await?;
    if status.is_finished() {
        let command = args.command(&["start", id]);
        return Err(format!(
            "the run is {status}, there is nothing to resume; to see how it ended\nnext: {command}"
        )
        .into());
    }
    ferrata_examples::free(&runtime, &key).await?;
    let run = runtime.resume(&graph()?, &key).await?;
    let code = show(args, id, run.wait().await?);
    runtime.shutdown(Duration::ZERO).await?;
    Ok(code)
}

/// Prints the status of the run and the next command.
fn show(args: &Args, id: &str, outcome: Outcome<Invoice>) -> ExitCode {
    match outcome {
        Outcome::Completed(invoice) => {
            println!("{id}: {}", invoice.result);
            ExitCode::SUCCESS
        }
        Outcome::Interrupted(questions) => {
            questions.iter().for_each(|question| tell(id, question));
            println!("next: {}", args.command(&["approve", id, "--by", "ann"]));
            println!("next: {}", args.command(&["reject", id, "too much", "--by", "bob"]));
            ExitCode::from(WAITS)
        }
        Outcome::Failed { failure, .. } => {
            eprintln!("error: {id} failed: {failure}");
            ExitCode::FAILURE
        }
        Outcome::Cancelled { reason, .. } => {
            eprintln!("error: {id} was cancelled: {reason}");
            ExitCode::FAILURE
        }
        other => {
            eprintln!("error: {id} stopped early ({other:?})\nnext: {}", args.command(&["resume", id]));
            ExitCode::FAILURE
        }
    }
}

fn tell(id: &str, question: &Question) {
    let asked: &dyn Display = match question.read::<Payment>() {
        Ok(Payment { payee, eur }) => &format!("pay {eur} EUR to {payee}?"),
        Err(_) => &"go on?",
    };
    let expects = question.expects.as_ref().map(|shape| format!(" (answer: {shape})"));
    println!("{id} asks {}: {asked}{}", question.id, expects.unwrap_or_default());
}

async fn questions(args: &Args, id: &str) -> Done {
    let (runtime, key, status) = open_run(args, id).await?;
    let open = runtime.questions(&key).await?;
    open.iter().for_each(|question| tell(id, question));
    if open.is_empty() {
        println!("{id} asks nothing; it is {status}");
        let next = if status.is_finished() { "start" } else { "resume" };
        println!("next: {}", args.command(&[next, id]));
    }
    Ok(ExitCode::SUCCESS)
}

async fn approve(args: &Args, id: &str, eur: Option<&str>) -> Done {
    let (runtime, key, _) = open_run(args, id).await?;
    let answer = match eur {
        // The question records the shape of its answer. So any process can check an answer, without the code that asked.
        Some(text) => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
        None => {
            let open = runtime.questions(&key).await?;
            let asked = open.iter().find(|question| question.kind == QuestionKind::Asked);
            asked
                .map(Question::read::<Payment>)
                .transpose()?
                .map_or(Value::Null, |payment| payment.eur.into())
        }
    };
    respond(args, id, &runtime, &key, Answer::accept(answer)?).await
}

async fn reject(args: &Args, id: &str, comment: &str) -> Done {
    let (runtime, key, _) = open_run(args, id).await?;
    respond(args, id, &runtime, &key, Answer::reject(comment)).await
}

async fn respond(args: &Args, id: &str, runtime: &Runtime, key: &RunKey, answer: Answer) -> Done {
    let mut said = runtime.respond(key, QUESTION, answer.clone());
    if let Some(by) = &args.by {
        said = said.by(by);
    }
    if let Err(error) = said.await {
        let next = match error.kind() {
            ErrorKind::AlreadyExists => args.command(&["resume", id]),
            ErrorKind::Invalid => args.command(&["approve", id, "120"]),
            ErrorKind::WrongStatus => args.command(&["start", id]),
            _ => args.command(&["questions", id]),
        };
        return Err(format!("{error}\nnext: {next}").into());
    }
    println!("{id}: answer recorded: {answer}");
    println!("next: {}", args.command(&["resume", id]));
    Ok(ExitCode::SUCCESS)
}
