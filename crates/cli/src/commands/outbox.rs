//! The command `outbox` lists the undelivered outbox messages of runs, and retries or drops rejected ones.

use ferrata::runtime::OutboxMessage;
use ferrata::store::RunQuery;
use ferrata::{RunKey, Runtime, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;

use super::newest::of_newest;
use crate::args::OutboxArgs;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::table::Table;
use crate::unreadable::UnreadableRuns;

/// An outbox message in the output.
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
    fn from(message: OutboxMessage) -> Self {
        Self {
            key: message.key(),
            // The payload as it was recorded, which is JSON.
            payload: RawValue::from_string(message.json().to_owned()).ok(),
            number: message.number,
            topic: message.topic.to_string(),
            node: message.node.to_string(),
            visit: message.visit.get(),
            sent: message.sent,
            tries: message.tries,
            put_aside: message.is_dead,
            why: message.why,
            retry_at: message.retry_at,
            run: message.run,
        }
    }
}

pub(super) async fn run(context: &CommandContext, args: &OutboxArgs) -> Result<ExitReason, CommandFailure> {
    let runtime = context.runtime()?;
    let (messages, unreadable) = match &args.run {
        Some(name) => {
            let run = context.find(&**runtime.store(), name).await?.run;
            (of_run(context, &runtime, &run, args).await?, UnreadableRuns::default())
        }
        None => of_all(context, &runtime, args.limit).await?,
    };
    let meant = |message: &OutboxMessage| args.messages.is_empty() || args.messages.contains(&message.number);
    let messages: Vec<OutboxRow> = messages.into_iter().filter(meant).map(OutboxRow::from).collect();
    print(context, &messages)?;
    match unreadable.failure("their outbox messages are not listed") {
        Some(failure) => Err(failure),
        None => Ok(ExitReason::Done),
    }
}

/// Retries or drops the messages of a run, if requested. Returns the messages that remain.
async fn of_run(
    context: &CommandContext,
    runtime: &Runtime,
    run: &RunKey,
    args: &OutboxArgs,
) -> Result<Vec<OutboxMessage>, CommandFailure> {
    let mut messages = runtime.outbox(run).await?;
    let request = match (args.retry, args.drop) {
        (true, _) => runtime.retry_outbox(run, &args.messages),
        (_, true) => runtime.drop_outbox(run, &args.messages),
        _ => return Ok(messages),
    };
    match &args.by {
        Some(by) => request.by(by.clone()).await?,
        None => request.await?,
    }
    match runtime.outbox(run).await {
        Ok(messages) => Ok(messages),
        Err(error) => {
            // The request is recorded, so the command succeeds. Its output has the messages as they were before.
            context.warn_unread(&error.into());
            let is_asked = |message: &OutboxMessage| match args.messages.is_empty() {
                true => message.is_dead,
                false => args.messages.contains(&message.number),
            };
            messages.retain(|message| args.retry || !is_asked(message));
            for message in messages.iter_mut().filter(|message| is_asked(message)) {
                (message.is_dead, message.tries) = (false, 0);
            }
            Ok(messages)
        }
    }
}

fn print(context: &CommandContext, messages: &[OutboxRow]) -> Result<(), CommandFailure> {
    let now = context.now();
    context.out.all(
        messages,
        |message| format!("{} {}", display_key(&message.run), message.number),
        |messages| {
            let mut table = Table::new(["RUN", "MESSAGE", "TOPIC", "NODE", "SENT", "TRIES", "NEXT", "WHY"])
                .omit_first(["WHY", "NODE", "SENT"]);
            for message in messages {
                let next = match message.retry_at {
                    _ if message.put_aside => "rejected".to_owned(),
                    Some(at) => context.out.time.write(at, now),
                    None => String::new(),
                };
                table.row([
                    display_key(&message.run).into(),
                    message.number.to_string().into(),
                    message.topic.clone().into(),
                    format!("{}@{}", message.node, message.visit).into(),
                    context.out.time.write(message.sent, now).into(),
                    message.tries.to_string().into(),
                    next.into(),
                    message.why.clone().unwrap_or_default().into(),
                ]);
            }
            table
        },
    )?;
    if messages.is_empty() {
        context.out.note("no outbox messages");
    }
    Ok(())
}

/// Reads the runs that are active or idle, and the ended runs that have undelivered messages.
async fn of_all(
    context: &CommandContext,
    runtime: &Runtime,
    limit: usize,
) -> Result<(Vec<OutboxMessage>, UnreadableRuns), CommandFailure> {
    of_newest(context, runtime, RunQuery::default(), limit, async |head| {
        if head.status.is_finished() && !head.is_delivering() {
            return Ok(Vec::new());
        }
        runtime.outbox(&head.run).await
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
    use crate::args::{Cli, CliCommand};

    struct Refuses;

    #[async_trait::async_trait]
    impl OutboxSink for Refuses {
        async fn deliver(&self, _batch: &[OutboxMessage]) -> Result<(), SinkError> {
            Err(SinkError::new("no such address").refused())
        }
    }

    /// If the store becomes unreachable after the request, nothing has been printed, and the JSON output is still a single document.
    ///
    /// Guarantees: CLI-17.
    #[tokio::test]
    async fn outbox_is_printed_despite_later_store_outage() {
        let graph = Graph::<ferrata::Context>::builder("order")
            .node("confirm", async |_cx, s: Draft<ferrata::Context>| {
                Ok(Update::from(s).send_out("mail", 1).send_out("mail", 2))
            })
            .entry("confirm")
            .build()
            .unwrap();
        for (line, left) in [
            ("--drop", &[][..]),
            ("--drop --message 1", &[(2, true)]),
            ("--retry", &[(1, false), (2, false)]),
            ("--retry --message 2", &[(1, true), (2, false)]),
        ] {
            let inside = MemoryStore::new();
            let service = Runtime::builder(inside.clone()).sink("mail", Refuses).build().await.unwrap();
            let run = service.start(&graph, ferrata::Context::new()).id("order-1").await.unwrap();
            run.wait().await.unwrap();
            while !service.outbox(run.run()).await.unwrap().iter().all(|message| message.is_dead) {
                tokio::task::yield_now().await;
            }
            service.shutdown(Duration::ZERO).await.unwrap();
            let store = Arc::new(FaultStore::new(inside.clone(), FaultPlan::new()));
            let dies = Arc::downgrade(&store);
            store.after(0, async move { dies.upgrade().unwrap().crash() });
            let runtime = Runtime::builder_with(store).operator();
            let cli = Cli::parse_from(["ferrata", "outbox", "order-1"].into_iter().chain(line.split(' ')));
            let context = crate::context::CommandContext::new(cli.global);
            let CliCommand::Outbox(args) = cli.command else { panic!("{line}") };
            let told = of_run(&context, &runtime, run.run(), &args).await.unwrap();
            let recorded = Runtime::builder(inside).operator().outbox(run.run()).await.unwrap();
            for messages in [told, recorded] {
                let messages: Vec<_> =
                    messages.iter().map(|message| (message.number, message.is_dead)).collect();
                assert_eq!(messages, left, "{line}");
            }
        }
    }
}
