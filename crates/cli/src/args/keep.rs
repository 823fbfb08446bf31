//! Arguments of the commands that check, copy and remove logs: `verify`, `export`, `import`, `prune`, `purge`, `sweep`.

use std::path::PathBuf;
use std::time::Duration;

use super::list::{FILTERS, FilterArgs, StatusArg};
use crate::time;

/// Check the log of a run: every checksum and link, and each base against the records before it.
///
/// With a pipeline file, also check whether the pipeline would take the same path today.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ferrata verify 019a6f2e\n  ferrata verify 019a6f2e release.dot")]
pub(crate) struct VerifyArgs {
    /// Run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Current pipeline file.
    #[arg(value_name = "FILE.dot")]
    pub(crate) pipeline: Option<PathBuf>,
}

/// Export a run as JSON lines, as a copy or to move it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata export 019a6f2e --to run.jsonl\n  ferrata export 019a6f2e --redact --to bug.jsonl"
)]
pub(crate) struct ExportArgs {
    /// Run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Output file, by default stdout. An existing file is not overwritten.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    /// Export a run that has secret channels: the file contains their values.
    #[arg(long, conflicts_with = "redact")]
    pub(crate) reveal: bool,
    /// Replace the values of the application by placeholders, for a bug report. Names of nodes, steps, channels and fields stay.
    #[arg(long)]
    pub(crate) redact: bool,
    /// Keep numbers, which are otherwise replaced by 0.
    #[arg(long, requires = "redact")]
    pub(crate) keep_numbers: bool,
}

/// Import a run that was exported from this store or another.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata import run.jsonl\n  ferrata export 019a6f2e --store postgres://prod/app | ferrata import - --id from-prod"
)]
pub(crate) struct ImportArgs {
    /// File; `-` for stdin.
    #[arg(value_name = "FILE")]
    pub(crate) file: String,
    /// New id of the run.
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
}

/// Records to keep. A record is kept if one of these options keeps it.
#[derive(Debug, clap::Args)]
pub(crate) struct Keep {
    /// Keep the last N records.
    #[arg(long, value_name = "RECORDS")]
    pub(crate) keep_last: Option<u32>,
    /// Keep records younger than this, such as 30d.
    #[arg(long, value_name = "DURATION", value_parser = time::parse)]
    pub(crate) keep_for: Option<Duration>,
    /// Keep the last records up to this many bytes in sum.
    #[arg(long, value_name = "BYTES")]
    pub(crate) keep_bytes: Option<u64>,
}

/// Drop old records of a run, which can continue as before. Lists them only, unless --yes is given.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ferrata prune 019a6f2e --keep-last 100 --yes")]
pub(crate) struct PruneArgs {
    /// Run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Records to keep.
    #[command(flatten)]
    pub(crate) keep: Keep,
    /// Execute.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Remove runs with all their data.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata purge 019a6f2e --yes\n  ferrata ls --status cancelled -a -o ids | ferrata purge - --yes"
)]
pub(crate) struct PurgeArgs {
    /// Runs; `-` reads them from stdin, one per line.
    #[arg(value_name = "RUN", required_unless_present_any = FILTERS, conflicts_with_all = FILTERS)]
    pub(crate) runs: Vec<String>,
    /// Filters, instead of run ids.
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Only list the matching runs and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Directory that named the run.
    #[arg(skip)]
    pub(crate) directory: Option<PathBuf>,
    /// Also purge unfinished runs, and runs that a child, a parent or an undelivered message still needs. A process that drives one stops at
    /// its next record.
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask for confirmation.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Drop old records of all runs, and runs that ended long ago. Lists them only, unless --yes is given.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata sweep --purge completed=30d --purge cancelled=7d\n  ferrata sweep --keep-last 100 --only completed --yes\n  ferrata sweep --keep-last 100 --gentle --yes"
)]
pub(crate) struct SweepArgs {
    /// Records to keep.
    #[command(flatten)]
    pub(crate) keep: Keep,
    /// Drop records only of runs with this status; several with commas.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "STATUS")]
    pub(crate) only: Vec<StatusArg>,
    /// Remove runs that have had this status for a time, such as completed=30d; repeatable.
    #[arg(long, value_name = "STATUS=DURATION", value_parser = aged)]
    pub(crate) purge: Vec<(StatusArg, Duration)>,
    /// Spare a service on the same store: one run at a time, with a pause after each hundred.
    #[arg(long)]
    pub(crate) gentle: bool,
    /// Execute.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

fn aged(text: &str) -> Result<(StatusArg, Duration), String> {
    let (status, age) = super::list::pair(text)?;
    let status = <StatusArg as clap::ValueEnum>::from_str(&status, false)?;
    if !matches!(status, StatusArg::Completed | StatusArg::Failed | StatusArg::Cancelled) {
        return Err("only ended runs can be removed; use completed, failed or cancelled".into());
    }
    Ok((status, time::parse(&age)?))
}
