//! An agent that plans research, starts an agent for each question, and writes a report. One of the agents has a
//! question for you.
//!
//! ```text
//! cargo run --example research -- "electric ferries"
//! cargo run --example research -- --answer 2030
//! ```
//!
//! Each agent is a child run of the first agent, and the review at the end is a subgraph. The model is a stand-in with fixed answers, so the program
//! calls no service. Kill it at any moment, even with `kill -9`: the same command continues.
#![expect(clippy::print_stdout, reason = "the report is what the program is for")]
#![expect(clippy::print_stderr, reason = "errors of a command go there, and what is shown while it comes")]

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use ferrata::prelude::*;
use ferrata::runtime::{Watch, WatchKind};
use ferrata::store::RunHead;
use ferrata::{Clock, RunId, RunKey, RunStatus, SystemClock};
use serde::{Deserialize, Serialize};

const USAGE: &str = "\
usage: research [TOPIC] [--answer TEXT] [--id ID] [--store URL]

  TOPIC          what is researched; once, when the run begins (default: electric ferries)
  --answer TEXT  answers what an agent has asked, and goes on
  --id ID        the run; the same command continues it (default: research)
  --store URL    where runs are kept (default: file:.ferrata-research)

exit codes: 0 done, 1 failed, 2 wrong usage, 3 an agent waits for an answer";

/// Exit code of a run that waits for a person.
const WAITS: u8 = 3;

/// Maximum number of agents that work concurrently.
const AT_ONCE: u32 = 2;

/// Interval between checks of the agents.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The state of the first agent.
#[derive(Clone, Debug, Default, Serialize, Deserialize, State)]
struct Research {
    topic: String,
    questions: Vec<String>,
    #[state(append)]
    findings: Vec<Finding>,
    report: String,
    remarks: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Finding {
    question: String,
    answer: String,
}

/// The state of an agent that answers one question.
#[derive(Clone, Debug, Default, Serialize, Deserialize, State)]
struct Agent {
    question: String,
    sources: Vec<String>,
    year: Option<u32>,
    answer: String,
}

/// The state of the review of a text. The reviewer knows nothing about the research.
#[derive(Clone, Debug, Default, Serialize, Deserialize, State)]
struct Review {
    text: String,
    remarks: Vec<String>,
}

/// A stand-in for a model. Its answer depends only on the question.
mod model {
    /// Splits a topic into questions.
    pub(super) fn plan(topic: &str) -> Vec<String> {
        ["What is known of", "Who works on", "What will be the cost of"]
            .map(|ask| format!("{ask} {topic}?"))
            .into()
    }

    /// Finds sources.
    pub(super) fn search(question: &str) -> Vec<String> {
        question
            .split_whitespace()
            .filter(|word| word.len() > 4)
            .map(|word| format!("a page on {word}"))
            .collect()
    }

    /// Returns whether the answer needs a year, which only a person knows.
    pub(super) fn needs_year(question: &str) -> bool {
        question.contains("cost")
    }

    /// Returns an answer from sources.
    pub(super) fn answer(sources: &[String], year: Option<u32>) -> String {
        let year = year.map(|year| format!(", as of {year}")).unwrap_or_default();
        format!("{} sources agree{year}", sources.len())
    }

    /// Writes a text piece by piece.
    pub(super) fn write(text: &str) -> impl Iterator<Item = &str> {
        text.split_inclusive(' ')
    }
}

fn say(what: &str) {
    println!("process {}: {what}", std::process::id());
}

fn agent() -> Result<Graph<Agent>, GraphError> {
    Graph::<Agent>::builder("agent")
        .node("search", async |_cx, mut agent| {
            say(&format!("searches: {}", agent.question));
            agent.sources = model::search(&agent.question);
            Ok(agent)
        })
        .gate(
            "year",
            |agent: &Agent| Ask::<u32>::new(format!("{} For which year?", agent.question)),
            |agent, year| {
                agent.year = Some(year);
            },
        )
        .node("answer", async |_cx, mut agent| {
            agent.answer = model::answer(&agent.sources, agent.year);
            Ok(agent)
        })
        .entry("search")
        .route("search", ["year", "answer"], |agent: &Agent, _| {
            if model::needs_year(&agent.question) { "year" } else { "answer" }
        })
        .edge("year", "answer")
        .build()
}

fn review() -> Result<Graph<Review>, GraphError> {
    Graph::<Review>::builder("review")
        .node("length", async |_cx, mut review| {
            let lines = review.text.lines().count();
            review.remarks.push(format!("{lines} lines"));
            Ok(review)
        })
        .node("style", async |_cx, mut review| {
            review.remarks.push("nothing to improve".into());
            Ok(review)
        })
        .entry("length")
        .edge("length", "style")
        .build()
}

fn research(agent: &Graph<Agent>) -> Result<Graph<Research>, GraphError> {
    let part = Lens::new(
        |research: &Research| Review { text: research.report.clone(), remarks: research.remarks.clone() },
        |research: &mut Research, review: Review| research.remarks = review.remarks,
    );
    Graph::<Research>::builder("research")
        .node("plan", async |_cx, mut research| {
            say("plans");
            research.questions = model::plan(&research.topic);
            Ok(research)
        })
        .child(
            "agent",
            agent,
            |_research: &Research, cx| Ok(Agent { question: cx.item()?, ..Agent::default() }),
            |research: &mut Research, agent: Agent| {
                research.findings.push(Finding { question: agent.question, answer: agent.answer });
            },
        )
        .max_running(AT_ONCE)
        .node("write", async |cx, mut research| {
            say("writes");
            let mut findings = research.findings.clone();
            // Agents end in any order, but the report must not depend on it.
            findings.sort_unstable();
            let lines = findings.iter().map(|found| format!("- {} {}.\n", found.question, found.answer));
            research.report = format!("On {}:\n{}", research.topic, lines.collect::<String>());
            // Watchers see the report while the model writes it. The run records it once it is complete.
            let mut tokens = cx.stream("report")?;
            for token in model::write(&research.report) {
                tokens.send(token).await?;
            }
            Ok(research)
        })
        .subgraph("review", &review()?, part)
        .entry("plan")
        .route("plan", ["agent"], |research: &Research, _| Route::each("agent", &research.questions))
        .edge("agent", "write")
        .edge("write", "review")
        .build()
}

#[derive(Debug)]
struct Args {
    topic: String,
    answer: Option<String>,
    id: String,
    store: String,
}

/// Reads the arguments; `None` if they ask for help.
fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Args>, String> {
    let (mut topic, mut answer, mut id, mut store) = (None, None, None, None);
    while let Some(arg) = args.next() {
        let (place, value) = match arg.as_str() {
            "-h" | "--help" => return Ok(None),
            "--answer" => (&mut answer, args.next().ok_or("`--answer` needs a value")?),
            "--id" => (&mut id, args.next().ok_or("`--id` needs a value")?),
            "--store" => (&mut store, args.next().ok_or("`--store` needs a value")?),
            option if option.starts_with('-') => return Err(format!("there is no option `{option}`")),
            _ => (&mut topic, arg),
        };
        if let Some(before) = place.replace(value) {
            return Err(format!("`{before}` is one too many"));
        }
    }
    let or = |given: Option<String>, usual: &str| given.unwrap_or_else(|| usual.into());
    let (id, store) = (or(id, "research"), or(store, "file:.ferrata-research"));
    Ok(Some(Args { topic: or(topic, "electric ferries"), answer, id, store }))
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
    let runtime = Runtime::builder_with(ferrata_examples::open(&args.store)?).build().await?;
    let agent = agent()?;
    let research = research(&agent)?;
    ferrata_examples::free(&runtime, &key).await?;
    if let Some(answer) = &args.answer {
        let year: u32 = answer.parse().map_err(|_| format!("`{answer}` is no year"))?;
        match runtime.questions(&key).await?.first() {
            Some(question) => {
                runtime.respond(&key, &question.id, Answer::accept(year)?).by("you").await?;
            }
            // A killed process may have answered the question already. Then the same command continues.
            None => eprintln!("no agent asks anything; the run continues"),
        }
    }
    #[expect(clippy::disallowed_methods, reason = "it ends with the run that it shows, or with the program")]
    let mut shown =
        tokio::spawn(show(runtime.watch(&key).before_start().from_now().kinds([WatchKind::Chunk]).await?));
    // This process also claims the agents of a killed process.
    match runtime.head(&key).await? {
        None => {
            let input = Research { topic: args.topic.clone(), ..Research::default() };
            drop(runtime.start(&research, input).id(&args.id).await?);
        }
        Some(head) if head.status.is_finished() => {}
        Some(_) => drop(runtime.resume(&research, args.id.as_str()).await?),
    }
    runtime.serve(&agent)?;
    runtime.serve(&research)?;
    let clock = SystemClock::new();
    let ended = loop {
        let head = runtime.head(&key).await?.ok_or("the run was removed")?;
        match head.status {
            RunStatus::Completed => {
                // The task ends with the run.
                (&mut shown).await??;
                let done = runtime.state_at(&research, &key, ferrata::Position::Latest).await?;
                print!("{}", done.report);
                println!("reviewed: {}", done.remarks.join(", "));
                break ExitCode::SUCCESS;
            }
            RunStatus::Failed | RunStatus::Cancelled => {
                return Err(format!("the run is {}; name another --id", head.status).into());
            }
            _ => {}
        }
        let agents = agents(&runtime, &key).await?;
        // Wait until the other agents have ended, because an agent that asks a question occupies one of the slots.
        let is_told = |agent: &&RunHead| agent.status.is_finished() || agent.status == RunStatus::Interrupted;
        let is_planned = agents.len() == model::plan("").len();
        if is_planned && agents.iter().all(|agent| is_told(&agent)) {
            let questions = runtime.questions(&key).await?;
            for question in &questions {
                println!("{} asks: {}", question.id, question.text.as_deref().unwrap_or_default());
            }
            if !questions.is_empty() {
                println!("answer with: --answer YEAR");
                break ExitCode::from(WAITS);
            }
        }
        clock.sleep(CHECK_INTERVAL).await;
    };
    shown.abort();
    runtime.shutdown(Duration::ZERO).await?;
    Ok(ended)
}

/// Prints the report while the model writes it, token by token.
async fn show(mut watch: Watch) -> Result<(), ferrata::Error> {
    while let Some(event) = watch.next().await? {
        for chunk in event.chunks() {
            if chunk.number == 0 {
                // Another attempt writes the report from the beginning.
                eprintln!("\n({}, attempt {})", chunk.node, chunk.attempt);
            }
            eprint!("{}", chunk.read::<String>()?);
        }
    }
    Ok(())
}

/// Lists the agents of a run.
async fn agents(runtime: &Runtime, run: &RunKey) -> Result<Vec<RunHead>, Box<dyn Error>> {
    Ok(runtime.runs().label("ferrata.parent", run.run.as_str()).await?.items)
}
