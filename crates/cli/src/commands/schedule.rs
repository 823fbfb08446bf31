//! The command `schedule` shows schedules, and pauses and unpauses them.

use std::fmt::Write;

use ferrata::runtime::SignalRequest;
use ferrata::schedule::{CatchUp, Overlap, RuntimeScheduleExt, Schedule, ScheduleStatus};
use ferrata::{ErrorKind, RunKey, Runtime, TenantId, Timestamp};
use serde::Serialize;

use crate::args::{NextArgs, ScheduleArgs, ScheduleCommand, ScheduleName};
use crate::bulk_signal::BulkOutcome;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::{display_key, is_default_tenant};
use crate::table::{Table, TableCell, clean, of_status};
use crate::unreadable::{UnreadableRuns, is_unreadable};

/// Number of future ticks that `show` lists.
const AHEAD: usize = 3;

/// A schedule and its next ticks in the output.
#[derive(Debug, Serialize)]
struct ScheduleRow {
    #[serde(flatten)]
    status: ScheduleStatus,
    /// The next ticks. While the schedule is paused, they start no runs.
    next: Vec<Timestamp>,
}

impl ScheduleRow {
    fn new(context: &CommandContext, status: ScheduleStatus) -> Result<Self, CommandFailure> {
        let next = match status.has_ended() {
            true => Vec::new(),
            false => status.next(context.now(), AHEAD)?,
        };
        Ok(Self { status, next })
    }

    fn name(&self) -> String {
        named(&self.status.run.tenant, &self.status.definition.name)
    }

    fn describe_state(&self) -> TableCell {
        let status = self.status.run_status;
        let word = match status.is_finished() {
            false if self.status.is_paused => "paused".to_owned(),
            false => "ticks".to_owned(),
            true => status.to_string(),
        };
        TableCell::styled(word, of_status(status))
    }
}

/// A future tick in the output.
#[derive(Debug, Serialize)]
struct UpcomingTick {
    tick: Timestamp,
}

pub(super) async fn run(context: &CommandContext, args: &ScheduleArgs) -> Result<ExitReason, CommandFailure> {
    let runtime = context.runtime()?;
    match &args.command {
        ScheduleCommand::Ls => list(context, &runtime).await,
        ScheduleCommand::Show(name) => show(context, &runtime, name).await,
        ScheduleCommand::Next(args) => next(context, &runtime, args).await,
        ScheduleCommand::Pause(args) => {
            let schedule = find(context, &runtime, &args.steer.schedule).await?;
            let request = schedule.pause(&args.reason).await?;
            report_act(context, &schedule, request, args.steer.by.as_deref(), "paused").await
        }
        ScheduleCommand::Unpause(args) => {
            let schedule = find(context, &runtime, &args.schedule).await?;
            let request = schedule.unpause().await?;
            report_act(context, &schedule, request, args.by.as_deref(), "unpaused").await
        }
    }
}

/// Finds a schedule by its name.
async fn find(
    context: &CommandContext,
    runtime: &Runtime,
    name: &ScheduleName,
) -> Result<Schedule, CommandFailure> {
    let (tenant, short) = match name.name.split_once('/') {
        Some((tenant, short)) => (Some(TenantId::new(tenant)?), short),
        None => (context.global.tenant.clone(), name.name.as_str()),
    };
    let found = runtime.schedule(short).tenant(tenant.unwrap_or_default()).find().await?;
    found.ok_or_else(|| {
        let message = format!("cannot find the schedule `{}`", clean(&name.name));
        CommandFailure::new(ExitReason::NotFound, message, "ferrata schedule ls")
            .with_code(ErrorKind::NotFound)
    })
}

async fn list(context: &CommandContext, runtime: &Runtime) -> Result<ExitReason, CommandFailure> {
    let (mut all, mut unreadable) = (Vec::new(), UnreadableRuns::default());
    for schedule in Schedule::list(runtime, context.global.tenant.as_ref()).await? {
        match schedule.status().await {
            Ok(status) => all.push(ScheduleRow::new(context, status)?),
            // The schedule was purged after it was listed.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // An unreadable schedule does not prevent the others from being shown.
            Err(error) if is_unreadable(&error) => unreadable.add_error(error),
            Err(error) => return Err(error.into()),
        }
    }
    let now = context.now();
    context.out.all(&all, ScheduleRow::name, |all| {
        let mut table = Table::new([
            "SCHEDULE", "STATUS", "CRON", "ZONE", "NEXT", "WORKFLOW", "STARTED", "SKIPPED", "MISSED",
        ])
        .omit_first(["MISSED", "SKIPPED", "STARTED", "WORKFLOW"]);
        for one in all {
            let (definition, progress) = (&one.status.definition, &one.status.progress);
            table.row([
                one.name().into(),
                one.describe_state(),
                definition.cron.clone().into(),
                definition.timezone.clone().into(),
                one.next.first().map(|at| context.out.time.write(*at, now)).unwrap_or_default().into(),
                definition.workflow.clone().into(),
                progress.started.to_string().into(),
                progress.skipped.to_string().into(),
                progress.missed.to_string().into(),
            ]);
        }
        table
    })?;
    if all.is_empty() {
        context.out.note("no schedules");
    }
    match unreadable.failure("are not listed as schedules") {
        Some(failure) => Err(failure),
        None => Ok(ExitReason::Done),
    }
}

async fn show(
    context: &CommandContext,
    runtime: &Runtime,
    name: &ScheduleName,
) -> Result<ExitReason, CommandFailure> {
    let status = find(context, runtime, name).await?.status().await?;
    let shown = ScheduleRow::new(context, status)?;
    context.out.one(&shown, ScheduleRow::name, |shown| format_schedule(context, shown))?;
    context.next(&format!("ferrata ls --label schedule={}", shown.status.definition.name));
    Ok(ExitReason::Done)
}

fn format_schedule(context: &CommandContext, one: &ScheduleRow) -> String {
    let (definition, progress) = (&one.status.definition, &one.status.progress);
    let at = |at: Timestamp| context.out.time.write(at, context.now());
    let next: Vec<_> = one.next.iter().map(|tick| at(*tick)).collect();
    let counts = format!(
        "{} started, {} skipped, {} missed, {} due",
        progress.started,
        progress.skipped,
        progress.missed,
        progress.due.len()
    );
    let stands = match one.status.is_paused {
        true => "paused".to_owned(),
        false => one.status.run_status.to_string(),
    };
    let active = one.status.active.as_ref();
    let active =
        active.map(|active| format!("{}, since {}", display_key(&active.run), at(active.started_at)));
    let mut text = String::new();
    for (key, value) in [
        ("schedule", format!("{} version {}", one.name(), definition.version)),
        ("status", stands),
        ("run", display_key(&one.status.run)),
        ("times", format!("{} in {}", definition.cron, definition.timezone)),
        ("starts", definition.workflow.clone()),
        ("late", late(definition.catch_up)),
        ("overlap", overlap(definition.overlap)),
        ("next", next.join(", ")),
        ("ticks", counts),
        ("active", active.unwrap_or_default()),
    ] {
        if key == "active" && value.is_empty() {
            continue;
        }
        // Writing to a string never fails.
        let _ = writeln!(text, "{key:9} {}", clean(&value));
    }
    if progress.recent.is_empty() {
        return text;
    }
    let mut table = Table::new(["TICK", "RESULT"]);
    for happened in progress.recent.iter().rev() {
        table.row([at(happened.tick).into(), clean(&happened.to_string()).into()]);
    }
    text.push('\n');
    text.push_str(&table.render(context.out.color, context.out.room));
    text
}

fn late(policy: CatchUp) -> String {
    match policy {
        CatchUp::None => "missed".to_owned(),
        CatchUp::Last => "the last missed tick starts late".to_owned(),
        CatchUp::All(most) => format!("at most the last {most} missed ticks start late"),
        _ => "set by a newer program".to_owned(),
    }
}

fn overlap(policy: Overlap) -> String {
    match policy {
        Overlap::Skip => "skipped".to_owned(),
        Overlap::Queue(most) => format!("at most {most} wait"),
        Overlap::CancelOld => "the old run is cancelled".to_owned(),
        Overlap::Allow => "both run".to_owned(),
        _ => "set by a newer program".to_owned(),
    }
}

async fn next(
    context: &CommandContext,
    runtime: &Runtime,
    args: &NextArgs,
) -> Result<ExitReason, CommandFailure> {
    let status = find(context, runtime, &args.schedule).await?.status().await?;
    if status.has_ended() {
        context.out.note("the schedule has ended; it has no further ticks");
    }
    let most = if status.has_ended() { 0 } else { usize::from(args.ticks) };
    let ticks = status.next(context.now(), most)?;
    let ticks: Vec<_> = ticks.into_iter().map(|tick| UpcomingTick { tick }).collect();
    let now = context.now();
    context.out.all(
        &ticks,
        |one| one.tick.to_string(),
        |all| {
            let mut table = Table::new(["TICK", "UTC"]);
            all.iter().for_each(|one| {
                table.row([context.out.time.write(one.tick, now).into(), one.tick.to_string().into()])
            });
            table
        },
    )?;
    if status.is_paused {
        context.out.note("the schedule is paused; these ticks start no run until it is unpaused");
        context.next(&format!("ferrata schedule unpause {}", args.schedule.name));
    }
    Ok(ExitReason::Done)
}

async fn report_act(
    context: &CommandContext,
    schedule: &Schedule,
    request: SignalRequest,
    by: Option<&str>,
    done: &'static str,
) -> Result<ExitReason, CommandFailure> {
    // Read the run before the change. A read that fails afterwards would hide that the change succeeded.
    let run: RunKey = schedule.status().await?.run;
    match by {
        Some(by) => request.by(by).await?,
        None => request.await?,
    };
    context.print_done(&[BulkOutcome::new(run, done)])?;
    Ok(ExitReason::Done)
}

fn named(tenant: &TenantId, name: &str) -> String {
    match is_default_tenant(tenant) {
        true => name.to_owned(),
        false => format!("{tenant}/{name}"),
    }
}
