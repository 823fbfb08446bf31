//! A conversation that survives `kill -9`: no sent message is lost, and none is answered twice.
//!
//! ```text
//! cargo run --example chat -- ann
//! ```
//!
//! Type lines, kill the process at any moment, and start it again with the same name: it shows the conversation and continues.
#![expect(clippy::print_stdout, reason = "it talks")]
#![expect(clippy::print_stderr, reason = "prompts and errors of a command go there")]

use std::error::Error;
use std::io::{IsTerminal, stdin};
use std::process::ExitCode;
use std::time::Duration;

use ferrata::prelude::*;
use ferrata::{Position, RunId, RunKey};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

const USAGE: &str = "\
usage: chat [NAME] [--store URL]

  NAME         the conversation; the same name goes on where it was left (default: chat)
  --store URL  where conversations are kept (default: file:.ferrata-chat)

Each line is a message; /quit ends the conversation for good. At the end of the input, or killed, it can be gone on with.

exit codes: 0 left or ended, 1 refused or failed, 2 wrong usage";

const STORE: &str = "file:.ferrata-chat";

/// The line that ends a conversation.
const QUIT: &str = "/quit";

#[derive(Clone, Debug, Default, Serialize, Deserialize, State)]
struct Chat {
    #[state(append)]
    turns: Vec<Turn>,
    /// Number of words so far.
    #[state(sum)]
    words: u64,
}

/// A message and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Turn {
    said: String,
    answer: String,
}

fn graph() -> Result<Graph<Chat>, GraphError> {
    let graph = Graph::<Chat>::builder("chat")
        // The run records the message that it takes before it calls this function. After a crash, it calls the function with the same message again.
        .conversation("talk", ["end"], Conversation::new().exit_on(QUIT), async |_cx, s, said: String| {
            let words = said.split_whitespace().count() as u64;
            let answer = format!("{words} words, {} in all", s.words + words);
            Ok(Chat::update().turns([Turn { said, answer }]).words(words))
        })
        .node("end", async |_cx, s| Ok(s))
        .entry("talk")
        .build()?;
    Ok(graph)
}

#[tokio::main]
async fn main() -> ExitCode {
    let (name, store) = match ferrata_examples::arguments(USAGE, parse) {
        Ok(args) => args,
        Err(exit) => return exit,
    };
    match Box::pin(chat(&name, &store)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Parses the name and the store from the arguments; `None` if they ask for help.
fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<(String, String)>, String> {
    let (mut name, mut store) = (None, None);
    while let Some(arg) = args.next() {
        let (place, value) = match arg.as_str() {
            "-h" | "--help" => return Ok(None),
            "--store" => (&mut store, args.next().ok_or("`--store` needs a value")?),
            option if option.starts_with('-') => return Err(format!("there is no option `{option}`")),
            _ => (&mut name, arg),
        };
        if let Some(before) = place.replace(value) {
            return Err(format!("`{before}` is one too many"));
        }
    }
    Ok(Some((name.unwrap_or_else(|| "chat".into()), store.unwrap_or_else(|| STORE.into()))))
}

async fn chat(name: &str, url: &str) -> Result<(), Box<dyn Error>> {
    let key = RunKey::from(RunId::new(name)?);
    let runtime = Runtime::builder_with(ferrata_examples::open(url)?).build().await?;
    ferrata_examples::free(&runtime, &key).await?;
    let talk = Talk { graph: graph()?, runtime, key };
    let mut seen = 0;
    let mut goes_on = talk.settled().await?;
    talk.show(&mut seen, None).await?;
    if !goes_on {
        return Err(format!("the conversation `{name}` has ended; name another, as in: chat {name}-2").into());
    }
    if stdin().is_terminal() {
        eprintln!("say something, or {QUIT} to end it for good");
    }
    while goes_on && let Some(line) = spawn_blocking(read_line).await?? {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        talk.runtime.send(&talk.key, line).by("you").await?;
        // At this point the message is durable.
        println!("noted");
        goes_on = talk.settled().await?;
        talk.show(&mut seen, Some(line)).await?;
    }
    match goes_on {
        true => eprintln!("left `{name}`; the same command continues it"),
        false => println!("ended; messages: {seen}"),
    }
    talk.runtime.shutdown(Duration::ZERO).await?;
    Ok(())
}

/// Reads the next line; `None` at the end of the input.
fn read_line() -> std::io::Result<Option<String>> {
    let mut line = String::new();
    Ok((stdin().read_line(&mut line)? > 0).then_some(line))
}

struct Talk {
    runtime: Runtime,
    graph: Graph<Chat>,
    key: RunKey,
}

impl Talk {
    /// Drives the run until it waits for the next message. Returns false if the conversation has ended.
    ///
    /// A start of an existing run claims the run if no process drives it, and otherwise only watches it.
    async fn settled(&self) -> Result<bool, Box<dyn Error>> {
        let run = self.runtime.start(&self.graph, Chat::default()).id(self.key.run.as_str()).await?;
        match run.wait().await? {
            Outcome::AwaitingInput => Ok(true),
            Outcome::Completed(_) => Ok(false),
            Outcome::Failed { failure, .. } => Err(format!("the conversation failed: {failure}").into()),
            Outcome::Cancelled { reason, .. } => {
                Err(format!("the conversation was cancelled: {reason}").into())
            }
            other => {
                Err(format!("the conversation stopped ({other:?}); the same command continues it").into())
            }
        }
    }

    /// Prints the turns in the store that are not on the screen yet. The line that the user typed last is already there.
    async fn show(&self, seen: &mut usize, own: Option<&str>) -> Result<(), Box<dyn Error>> {
        let chat = self.runtime.state_at(&self.graph, &self.key, Position::Latest).await?;
        for turn in chat.turns.iter().skip(*seen) {
            if own != Some(&turn.said) {
                println!("you: {}", turn.said);
            }
            println!("bot: {}", turn.answer);
        }
        *seen = chat.turns.len();
        Ok(())
    }
}
