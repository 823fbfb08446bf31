//! Arguments of `schedule`.

use clap::Subcommand;

/// List schedules, and pause their ticks.
///
/// NAME is the name of a schedule. A tenant other than `default` comes before it, with a slash.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata schedule ls\n  ferrata schedule next nightly -n 10\n  ferrata schedule pause nightly --reason stocktaking --by ann"
)]
pub(crate) struct ScheduleArgs {
    /// Action.
    #[command(subcommand)]
    pub(crate) command: ScheduleCommand,
}

/// Action on schedules.
#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// List the schedules by name.
    #[command(alias = "list")]
    Ls,
    /// Show a schedule, its next tick, and the results of its last ticks.
    #[command(alias = "get")]
    Show(ScheduleName),
    /// List the next ticks of a schedule.
    Next(NextArgs),
    /// Pause a schedule until `unpause`. Started runs continue.
    Pause(PauseScheduleArgs),
    /// Unpause a schedule.
    Unpause(SteerSchedule),
}

/// Schedule of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct ScheduleName {
    /// Schedule.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// Arguments of `schedule next`.
#[derive(Debug, clap::Args)]
pub(crate) struct NextArgs {
    /// Schedule.
    #[command(flatten)]
    pub(crate) schedule: ScheduleName,
    /// Number of ticks; at most 1,000.
    #[arg(short = 'n', long, value_name = "TICKS", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) ticks: u16,
}

/// Schedule and author.
#[derive(Debug, clap::Args)]
pub(crate) struct SteerSchedule {
    /// Schedule.
    #[command(flatten)]
    pub(crate) schedule: ScheduleName,
    /// Name to record as the author.
    #[arg(long, value_name = "NAME", env = "FERRATA_BY")]
    pub(crate) by: Option<String>,
}

/// Arguments of `schedule pause`.
#[derive(Debug, clap::Args)]
pub(crate) struct PauseScheduleArgs {
    /// Schedule and author.
    #[command(flatten)]
    pub(crate) steer: SteerSchedule,
    /// Reason to record.
    #[arg(long, value_name = "TEXT", default_value = "paused by an operator")]
    pub(crate) reason: String,
}
