//! `outbox`: undelivered outbox messages of runs.

use ferrata::runtime::OutboxMessage;
use ferrata::store::RunQuery;
use ferrata::{RunKey, Runtime, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;

use super::newest::of_newest;
use crate::args::OutboxArgs;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::find::shown;
use crate::table::Table;
use crate::unreadable::UnreadableRuns;

/// An outbox message, for output.
#[derive(Debug, Serialize)]
struct OutboxRow {
    run: RunKey,
    number: u64,
    key: String,
    topic: String,
    node: String,
    visit: u32,
    sent: Timestamp,
    tries: u32,
    put_aside: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_at: Option<Timestamp>,
    payload: Option<Box<RawValue>>,
}

impl From<OutboxMessage> for OutboxRow {
    fn from(letter: OutboxMessage) -> Self {
        Self {
            key: letter.key(),
            // As recorded, which is JSON.
            payload: RawValue::from_string(letter.json().to_owned()).ok(),
            number: letter.number,
            topic: letter.topic.to_string(),
            node: letter.node.to_string(),
            visit: letter.visit.get(),
            sent: letter.sent,
            tries: letter.tries,
            put_aside: letter.is_dead,
            why: letter.why,
            retry_at: letter.retry_at,
            run: letter.run,
        }
    }
}

pub(super) async fn run(context: &Context, args: &OutboxArgs) -> Result<Exit, Failure> {
    let runtime = context.runtime()?;
    let (letters, unreadable) = match &args.run {
        Some(name) => {
            let run = context.find(&**runtime.store(), name).await?.run;
            (of_run(context, &runtime, &run, args).await?, UnreadableRuns::default())
        }
        None => of_all(context, &runtime, args.limit).await?,
    };
    let meant = |letter: &OutboxMessage| args.letters.is_empty() || args.letters.contains(&letter.number);
    let letters: Vec<OutboxRow> = letters.into_iter().filter(meant).map(OutboxRow::from).collect();
    print(context, &letters)?;
    match unreadable.failure("their outbox messages are not listed") {
        Some(failure) => Err(failure),
        None => Ok(Exit::Done),
    }
}

/// Retries or drops the messages of a run, if requested, and returns the remaining ones.
async fn of_run(
    context: &Context,
    runtime: &Runtime,
    run: &RunKey,
    args: &OutboxArgs,
) -> Result<Vec<OutboxMessage>, Failure> {
    let mut letters = runtime.letters(run).await?;
    let request = match (args.retry, args.drop) {
        (true, _) => runtime.retry_letters(run, &args.letters),
        (_, true) => runtime.drop_letters(run, &args.letters),
        _ => return Ok(letters),
    };
    match &args.by {
        Some(by) => request.by(by.clone()).await?,
        None => request.await?,
    }
    match runtime.letters(run).await {
        Ok(letters) => Ok(letters),
        Err(error) => {
            // The request is recorded, and a script that reads the messages gets those from before.
            context.tell_unseen(&error.into());
            let is_asked = |letter: &OutboxMessage| match args.letters.is_empty() {
                true => letter.is_dead,
                false => args.letters.contains(&letter.number),
            };
            letters.retain(|letter| args.retry || !is_asked(letter));
            for letter in letters.iter_mut().filter(|letter| is_asked(letter)) {
                (letter.is_dead, letter.tries) = (false, 0);
            }
            Ok(letters)
        }
    }
}

fn print(context: &Context, letters: &[OutboxRow]) -> Result<(), Failure> {
    let now = context.now();
    context.out.all(
        letters,
        |letter| format!("{} {}", shown(&letter.run), letter.number),
        |letters| {
            let mut table = Table::new(["RUN", "LETTER", "TOPIC", "NODE", "SENT", "TRIES", "NEXT", "WHY"])
                .sparing(["WHY", "NODE", "SENT"]);
            for letter in letters {
                let next = match letter.retry_at {
                    _ if letter.put_aside => "put aside".to_owned(),
                    Some(at) => context.out.time.write(at, now),
                    None => String::new(),
                };
                table.row([
                    shown(&letter.run).into(),
                    letter.number.to_string().into(),
                    letter.topic.clone().into(),
                    format!("{}@{}", letter.node, letter.visit).into(),
                    context.out.time.write(letter.sent, now).into(),
                    letter.tries.to_string().into(),
                    next.into(),
                    letter.why.clone().unwrap_or_default().into(),
                ]);
            }
            table
        },
    )?;
    if letters.is_empty() {
        context.out.note("no letter waits");
    }
    Ok(())
}

/// Reads the runs that are active, idle, or ended with undelivered messages.
async fn of_all(
    context: &Context,
    runtime: &Runtime,
    limit: usize,
) -> Result<(Vec<OutboxMessage>, UnreadableRuns), Failure> {
    of_newest(context, runtime, RunQuery::default(), limit, async |head| {
        if head.status.is_finished() && !head.is_delivering() {
            return Ok(Vec::new());
        }
        runtime.letters(&head.run).await
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use clap::Parser as _;
    use ferrata::prelude::*;
    use ferrata::runtime::{OutboxSink, SinkError};
    use ferrata_core::store::MemoryStore;
    use ferrata_testing::{FaultPlan, FaultStore};

    use super::*;
    use crate::args::{Cli, Command};

    struct Refuses;

    #[async_trait::async_trait]
    impl OutboxSink for Refuses {
        async fn deliver(&self, _batch: &[OutboxMessage]) -> Result<(), SinkError> {
            Err(SinkError::new("no such address").refused())
        }
    }

    /// If the store is unreachable after the request, nothing was printed, and JSON output is one document.
    ///
    /// Guarantees: CLI-17.
    #[tokio::test]
    async fn letters_are_told_though_the_store_is_away_behind_the_request() {
        let graph = Graph::<ferrata::Context>::builder("order")
            .node("confirm", async |_cx, s: Draft<ferrata::Context>| {
                Ok(Update::from(s).send_out("mail", 1).send_out("mail", 2))
            })
            .entry("confirm")
            .build()
            .unwrap();
        for (line, left) in [
            ("--drop", &[][..]),
            ("--drop --letter 1", &[(2, true)]),
            ("--retry", &[(1, false), (2, false)]),
            ("--retry --letter 2", &[(1, true), (2, false)]),
        ] {
            let inside = MemoryStore::new();
            let service = Runtime::builder(inside.clone()).outlet("mail", Refuses).build().await.unwrap();
            let run = service.start(&graph, ferrata::Context::new()).id("order-1").await.unwrap();
            run.wait().await.unwrap();
            while !service.letters(run.run()).await.unwrap().iter().all(|letter| letter.is_dead) {
                tokio::task::yield_now().await;
            }
            service.shutdown(Duration::ZERO).await.unwrap();
            let store = Arc::new(FaultStore::new(inside.clone(), FaultPlan::new()));
            let dies = Arc::downgrade(&store);
            store.after(0, async move { dies.upgrade().unwrap().crash() });
            let runtime = Runtime::builder_with(store).operator();
            let cli = Cli::parse_from(["ferrata", "outbox", "order-1"].into_iter().chain(line.split(' ')));
            let context = crate::context::Context::new(cli.global);
            let Command::Outbox(args) = cli.command else { panic!("{line}") };
            let told = of_run(&context, &runtime, run.run(), &args).await.unwrap();
            let recorded = Runtime::builder(inside).operator().letters(run.run()).await.unwrap();
            for letters in [told, recorded] {
                let letters: Vec<_> = letters.iter().map(|letter| (letter.number, letter.is_dead)).collect();
                assert_eq!(letters, left, "{line}");
            }
        }
    }
}
