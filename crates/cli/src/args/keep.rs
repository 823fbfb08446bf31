//! What the verbs take that check, copy and remove logs: `verify`, `export`, `import`, `prune`, `purge`, `sweep`.

use std::path::PathBuf;
use std::time::Duration;

use super::list::{FILTERS, Filter, Status};
use crate::time;

/// Check the log of a run: every checksum and link, and that each base holds what the records before it amount to.
///
/// With the pipeline's file, also whether it would go the same way today.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ferrata verify 019a6f2e\n  ferrata verify 019a6f2e release.dot")]
pub(crate) struct VerifyArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// The pipeline as it is today.
    #[arg(value_name = "FILE.dot")]
    pub(crate) pipeline: Option<PathBuf>,
}

/// Write a run down as one file of JSON lines, to keep it elsewhere or to move it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ferrata export 019a6f2e --to run.jsonl")]
pub(crate) struct ExportArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// The file; stdout unless given. One that is there is not overwritten.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    /// Write down a run with secret channels: the file holds their values.
    #[arg(long)]
    pub(crate) reveal: bool,
}

/// Bring a run into the store that was exported from this one or another.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata import run.jsonl\n  ferrata export 019a6f2e --store postgres://prod/app | ferrata import - --id from-prod"
)]
pub(crate) struct ImportArgs {
    /// The file; `-` for stdin.
    #[arg(value_name = "FILE")]
    pub(crate) file: String,
    /// Another id for it.
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
}

/// What is kept of a log: a record that any of these keeps is kept.
#[derive(Debug, clap::Args)]
pub(crate) struct Keep {
    /// Keep the last records.
    #[arg(long, value_name = "RECORDS")]
    pub(crate) keep_last: Option<u32>,
    /// Keep records that are younger than this, as in 30d.
    #[arg(long, value_name = "DURATION", value_parser = time::parse)]
    pub(crate) keep_for: Option<Duration>,
    /// Keep the last records that take so many bytes together.
    #[arg(long, value_name = "BYTES")]
    pub(crate) keep_bytes: Option<u64>,
}

/// Drop old records of a run; it can go on as before. Tells what it would drop unless --yes is given.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ferrata prune 019a6f2e --keep-last 100 --yes")]
pub(crate) struct PruneArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// What is kept.
    #[command(flatten)]
    pub(crate) keep: Keep,
    /// Do it.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Remove runs and every trace of them.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata purge 019a6f2e --yes\n  ferrata ls --status cancelled -a -o ids | ferrata purge - --yes"
)]
pub(crate) struct PurgeArgs {
    /// The runs; `-` reads them from stdin, one a line.
    #[arg(value_name = "RUN", required_unless_present_any = FILTERS, conflicts_with_all = FILTERS)]
    pub(crate) runs: Vec<String>,
    /// All that are so, instead of naming them.
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Only list the runs that are meant.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The directory by which the run was named.
    #[arg(skip)]
    pub(crate) directory: Option<PathBuf>,
    /// Also runs that are not finished, or that a child, a parent or an undelivered letter still needs: a process that drives one stops at
    /// its next record.
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Drop old records of all runs, and whole runs that ended long ago. Tells what it would drop unless --yes is given.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata sweep --purge completed=30d --purge cancelled=7d\n  ferrata sweep --keep-last 100 --only completed --yes\n  ferrata sweep --keep-last 100 --gentle --yes"
)]
pub(crate) struct SweepArgs {
    /// What is kept.
    #[command(flatten)]
    pub(crate) keep: Keep,
    /// Drop records only of runs that stand so; several with commas.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "STATUS")]
    pub(crate) only: Vec<Status>,
    /// Remove runs that have been in this status for so long, as in completed=30d; may be given again.
    #[arg(long, value_name = "STATUS=DURATION", value_parser = aged)]
    pub(crate) purge: Vec<(Status, Duration)>,
    /// Go gently where a service works on the same store: one run at a time, with a rest after each hundred.
    #[arg(long)]
    pub(crate) gentle: bool,
    /// Do it.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

fn aged(text: &str) -> Result<(Status, Duration), String> {
    let (status, age) = super::list::pair(text)?;
    let status = <Status as clap::ValueEnum>::from_str(&status, false)?;
    if !matches!(status, Status::Completed | Status::Failed | Status::Cancelled) {
        return Err("only runs that have ended are removed: completed, failed or cancelled".into());
    }
    Ok((status, time::parse(&age)?))
}
