//! What `schedule` takes.

use clap::Subcommand;

/// Look at schedules, and stop their ticks for a while.
///
/// NAME is the name of a schedule, with its tenant before a slash if that is not `default`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata schedule ls\n  ferrata schedule next nightly -n 10\n  ferrata schedule pause nightly --reason stocktaking --by ann"
)]
pub(crate) struct ScheduleArgs {
    /// What is to be done.
    #[command(subcommand)]
    pub(crate) command: ScheduleCommand,
}

/// What is to be done with schedules.
#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// List the schedules, by their names.
    #[command(alias = "list")]
    Ls,
    /// Show what a schedule is, how far it has come, and what came of its latest ticks.
    #[command(alias = "get")]
    Show(ScheduleName),
    /// List the next ticks of a schedule.
    Next(NextArgs),
    /// Stop the ticks of a schedule until `unpause`; a run that has started goes on.
    Pause(PauseScheduleArgs),
    /// Let the ticks of a paused schedule start runs again.
    Unpause(SteerSchedule),
}

/// Which schedule is meant.
#[derive(Debug, clap::Args)]
pub(crate) struct ScheduleName {
    /// The schedule.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// What `schedule next` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct NextArgs {
    /// Which schedule.
    #[command(flatten)]
    pub(crate) schedule: ScheduleName,
    /// How many ticks; up to 1,000.
    #[arg(short = 'n', long, value_name = "TICKS", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) ticks: u16,
}

/// Which schedule is spoken to, and who speaks.
#[derive(Debug, clap::Args)]
pub(crate) struct SteerSchedule {
    /// Which schedule.
    #[command(flatten)]
    pub(crate) schedule: ScheduleName,
    /// Who says so; it is recorded.
    #[arg(long, value_name = "NAME", env = "FERRATA_BY")]
    pub(crate) by: Option<String>,
}

/// What `schedule pause` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct PauseScheduleArgs {
    /// Which schedule, and who speaks.
    #[command(flatten)]
    pub(crate) steer: SteerSchedule,
    /// Why; it is recorded.
    #[arg(long, value_name = "TEXT", default_value = "paused by an operator")]
    pub(crate) reason: String,
}
