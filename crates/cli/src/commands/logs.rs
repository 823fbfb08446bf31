//! The command `logs` prints the events of a run, record by record, and can follow the run.

use std::time::Duration;

use ferrata::runtime::TimelineEntry;
use ferrata::store::RunHead;
use ferrata::{Clock, Runtime, Seq, Timestamp};
use serde_json::json;

use super::node::named;
use crate::args::LogsArgs;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::output::OutputFormat;
use crate::table::clean;

/// Interval of the polls for new records of a followed run.
const LOOK: Duration = Duration::from_millis(200);

pub(super) async fn run(context: &CommandContext, args: &LogsArgs) -> Result<ExitReason, CommandFailure> {
    let runtime = context.runtime()?;
    let head = context.find(&**runtime.store(), &args.run).await?;
    if let Some(node) = &args.node {
        named(&runtime, &head.run, node).await?;
    }
    let mut lines = read(context, &runtime, &head, args, head.first).await?;
    if let Some(limit) = args.limit {
        lines.drain(..lines.len().saturating_sub(limit));
    }
    if !args.follow {
        if context.out.format == OutputFormat::Json {
            context.out.json(&lines.iter().map(as_json).collect::<Vec<_>>())?;
        } else {
            lines.iter().try_for_each(|line| print(context, line))?;
        }
        return Ok(ExitReason::Done);
    }
    lines.iter().try_for_each(|line| print(context, line))?;
    tokio::select! {
        exit = follow(context, &runtime, &head, args) => exit,
        result = tokio::signal::ctrl_c() => {
            result.map_err(|error| CommandFailure::internal("cannot listen for Ctrl-C", &error))?;
            Ok(ExitReason::Interrupted)
        }
    }
}

async fn follow(
    context: &CommandContext,
    runtime: &Runtime,
    head: &RunHead,
    args: &LogsArgs,
) -> Result<ExitReason, CommandFailure> {
    let (mut now, mut next) = (head.clone(), head.seq.next());
    loop {
        if let Some(exit) = ExitReason::for_status(now.status).filter(|_| now.status.is_finished()) {
            return Ok(exit);
        }
        if !context.out.is_read() {
            return Ok(ExitReason::Done);
        }
        context.clock.sleep(LOOK).await;
        let gone =
            || ferrata::Error::new(ferrata::ErrorKind::NotFound, "the run was purged").with_run(&head.run);
        now = runtime.head(&head.run).await?.ok_or_else(gone)?;
        if now.seq >= next {
            for line in read(context, runtime, &now, args, next).await? {
                next = next.max(line.header.seq.next());
                print(context, &line)?;
            }
            next = next.max(now.seq.next());
        }
    }
}

/// Reads the requested events, beginning at a record.
async fn read(
    context: &CommandContext,
    runtime: &Runtime,
    head: &RunHead,
    args: &LogsArgs,
    from: Seq,
) -> Result<Vec<TimelineEntry>, CommandFailure> {
    let since = args.since.map(|since| {
        let ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_unix_ms(context.now().unix_ms().saturating_sub(ms))
    });
    let mut lines = runtime.timeline(&head.run, from).await?;
    lines.retain(|line| {
        // Leave records that are appended during the read to the next poll.
        line.header.seq <= head.seq
            && since.is_none_or(|since| line.header.at >= since)
            && args.node.as_ref().is_none_or(|wanted| {
                line.activation.as_ref().is_some_and(|(node, visit)| {
                    wanted == node.as_str() || *wanted == format!("{node}@{visit}")
                })
            })
    });
    Ok(lines)
}

fn as_json(line: &TimelineEntry) -> serde_json::Value {
    json!({
        "seq": line.header.seq,
        "at": line.header.at,
        "kind": line.header.kind,
        "status": line.header.status,
        "node": line.activation.as_ref().map(|(node, _)| node),
        "visit": line.activation.as_ref().map(|(_, visit)| visit),
        "text": line.text,
    })
}

fn print(context: &CommandContext, line: &TimelineEntry) -> Result<(), CommandFailure> {
    match context.out.format {
        OutputFormat::Json | OutputFormat::Jsonl => context.out.json_line(&as_json(line)),
        OutputFormat::Ids => context.out.line(&line.header.seq.to_string()),
        OutputFormat::Table => {
            let at = context.out.time.write(line.header.at, context.now());
            context.out.line(&format!("{:>4}  {at:>10}  {}", line.header.seq.get(), clean(&line.text)))
        }
    }
}
