//! The command `queue` shows and changes queues: their limits, the holders of slots, and the waiters.

use std::fmt::Write;
use std::time::Duration;

use ferrata::queue::{Queue, QueueOverrides, QueueStatus, RateLimit, RuntimeQueueExt, SlotKind};
use ferrata::{ErrorKind, RunKey, Runtime};

use crate::args::{LimitArgs, QueueArgs, QueueName, QueueSubcommand};
use crate::bulk_signal::BulkOutcome;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::table::{Table, clean};
use crate::unreadable::{UnreadableRuns, is_unreadable};

pub(super) async fn run(context: &CommandContext, args: &QueueArgs) -> Result<ExitReason, CommandFailure> {
    let runtime = context.runtime()?;
    match &args.command {
        QueueSubcommand::Ls => list(context, &runtime).await,
        QueueSubcommand::Show(name) => show(context, &runtime, name).await,
        QueueSubcommand::Set(args) => set(context, &runtime, args).await,
        QueueSubcommand::Pause(args) => {
            let queue = find(&runtime, &args.steer.queue, args.steer.by.as_deref()).await?;
            let run = queue.status().await?.run;
            queue.pause(&args.reason).await?;
            report_act(context, run, "paused")
        }
        QueueSubcommand::Unpause(args) => {
            let queue = find(&runtime, &args.queue, args.by.as_deref()).await?;
            let run = queue.status().await?.run;
            queue.unpause().await?;
            report_act(context, run, "unpaused")
        }
    }
}

/// Finds a queue by its name.
async fn find(runtime: &Runtime, name: &QueueName, by: Option<&str>) -> Result<Queue, CommandFailure> {
    let found = runtime.queue(&name.name).find().await?.ok_or_else(|| {
        let message = format!("cannot find the queue `{}`", clean(&name.name));
        CommandFailure::new(ExitReason::NotFound, message, "ferrata queue ls").with_code(ErrorKind::NotFound)
    })?;
    Ok(found.by(by.unwrap_or("operator")))
}

async fn set(
    context: &CommandContext,
    runtime: &Runtime,
    args: &LimitArgs,
) -> Result<ExitReason, CommandFailure> {
    let queue = find(runtime, &args.steer.queue, args.steer.by.as_deref()).await?;
    let change = |set: &mut QueueOverrides| {
        if args.reset {
            let paused = set.paused.take();
            *set = QueueOverrides::default();
            set.paused = paused;
        }
        set.at_once = args.at_once.or(set.at_once);
        set.at_once_per_key = args.at_once_per_key.or(set.at_once_per_key);
        let rate = |said: Option<(u32, Duration)>, burst| {
            said.map(|(starts, period)| RateLimit::new(starts, period).burst(burst))
        };
        set.rate = rate(args.rate, args.burst).or(set.rate);
        set.rate_per_key = rate(args.rate_per_key, args.burst_per_key).or(set.rate_per_key);
    };
    let run = queue.status().await?.run;
    queue.set(change).await?;
    report_act(context, run, "set")
}

async fn list(context: &CommandContext, runtime: &Runtime) -> Result<ExitReason, CommandFailure> {
    let (mut all, mut unreadable) = (Vec::new(), UnreadableRuns::default());
    for queue in Queue::list(runtime).await? {
        match queue.status().await {
            Ok(status) => all.push(status),
            // The queue was purged after it was listed.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // A queue that is unreadable or cancelled does not prevent the others from being shown.
            Err(error) if is_unreadable(&error) || error.kind() == ErrorKind::WrongStatus => {
                unreadable.add_error(error);
            }
            Err(error) => return Err(error.into()),
        }
    }
    context.out.all(
        &all,
        |one| one.name.clone(),
        |all| {
            let mut table = Table::new(["QUEUE", "STATUS", "SLOTS", "RATE", "HELD", "WAITING"]);
            for one in all {
                let limits = one.limits();
                table.row([
                    one.name.clone().into(),
                    describe_state(one).into(),
                    limits.at_once.map_or_else(|| "any".to_owned(), |places| places.to_string()).into(),
                    rate(limits.rate).into(),
                    one.held.iter().map(|held| u64::from(held.places)).sum::<u64>().to_string().into(),
                    one.waiting.to_string().into(),
                ]);
            }
            table
        },
    )?;
    if all.is_empty() {
        context.out.note("no queues");
    }
    match unreadable.failure("the queues are not listed") {
        Some(failure) => Err(failure),
        None => Ok(ExitReason::Done),
    }
}

async fn show(
    context: &CommandContext,
    runtime: &Runtime,
    name: &QueueName,
) -> Result<ExitReason, CommandFailure> {
    let status = find(runtime, name, None).await?.status().await?;
    context.out.one(&status, |one| one.name.clone(), |one| format_queue(context, one))?;
    Ok(ExitReason::Done)
}

fn describe_state(one: &QueueStatus) -> String {
    match (&one.overrides.paused, one.closed_until) {
        (Some(_), _) => "paused".to_owned(),
        (None, Some(_)) => "closed".to_owned(),
        (None, None) => "open".to_owned(),
    }
}

fn rate(rate: Option<RateLimit>) -> String {
    let Some(rate) = rate else { return "any".to_owned() };
    let burst = if rate.burst > 1 { format!(", bursts of {}", rate.burst) } else { String::new() };
    format!("{} in {:?}{burst}", rate.starts, Duration::from_millis(rate.period_ms))
}

fn format_queue(context: &CommandContext, one: &QueueStatus) -> String {
    let now = context.now();
    let at = |at| context.out.time.write(at, now);
    let (limits, any) = (one.limits(), || "any".to_owned());
    let is_set = |is_set: bool| if is_set { ", set by an operator" } else { "" };
    let stands = match (&one.overrides.paused, one.closed_until) {
        (Some(why), _) => format!("paused: {why}"),
        (None, Some(until)) => format!("closed until {}", at(until)),
        (None, None) => "open".to_owned(),
    };
    let mut text = String::new();
    for (key, value) in [
        ("queue", format!("{} version {}", one.name, one.settings.version)),
        ("status", stands),
        ("run", display_key(&one.run)),
        (
            "slots",
            limits.at_once.map_or_else(any, |n| n.to_string()) + is_set(one.overrides.at_once.is_some()),
        ),
        (
            "per key",
            limits.at_once_per_key.map_or_else(any, |n| n.to_string())
                + is_set(one.overrides.at_once_per_key.is_some()),
        ),
        (
            "processes",
            match limits.tags.is_empty() {
                true => "any that serves the workflow".to_owned(),
                false => format!(
                    "with the tags {}",
                    limits.tags.iter().map(String::as_str).collect::<Vec<_>>().join(",")
                ),
            },
        ),
        ("rate", rate(limits.rate) + is_set(one.overrides.rate.is_some())),
        ("key rate", rate(limits.rate_per_key) + is_set(one.overrides.rate_per_key.is_some())),
        ("held", one.held.iter().map(|held| u64::from(held.places)).sum::<u64>().to_string()),
        ("waiting", format!("{} of at most {}", one.waiting, limits.max_waiting)),
        (
            "weights",
            match limits.weights.is_empty() {
                true => "each key gets one slot in its turn".to_owned(),
                false => limits
                    .weights
                    .iter()
                    .map(|(key, slots)| format!("{key}={slots}"))
                    .collect::<Vec<_>>()
                    .join(", "),
            },
        ),
    ] {
        // Writing to a string never fails.
        let _ = writeln!(text, "{key:9} {}", clean(&value));
    }
    let kind = |kind| if kind == SlotKind::Run { "run" } else { "node" };
    let mut table = Table::new(["", "RUN", "KIND", "KEY", "PRIORITY", "SINCE"]);
    for held in &one.held {
        table.row([
            "holds".into(),
            display_key(&held.run).into(),
            kind(held.kind).into(),
            clean(&held.key).into(),
            "".into(),
            at(held.at).into(),
        ]);
    }
    for (before, waiting) in one.line.iter().enumerate() {
        table.row([
            format!("waits {}", before + 1).into(),
            display_key(&waiting.run).into(),
            kind(waiting.kind).into(),
            clean(&waiting.key).into(),
            waiting.priority.to_string().into(),
            at(waiting.since).into(),
        ]);
    }
    if !one.held.is_empty() || !one.line.is_empty() {
        text.push('\n');
        text.push_str(&table.render(context.out.color, context.out.room));
    }
    text
}

/// Reports a change. The queue's run was read before the change: a read that fails afterwards would hide that the change succeeded.
fn report_act(
    context: &CommandContext,
    run: RunKey,
    done: &'static str,
) -> Result<ExitReason, CommandFailure> {
    context.print_done(&[BulkOutcome::new(run, done)])?;
    Ok(ExitReason::Done)
}
