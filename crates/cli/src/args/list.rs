//! What `ls` takes.

use std::time::Duration;

use clap::ValueEnum;
use ferrata::{RunStatus, WorkflowName};

use crate::time;
use crate::watch::Watch;

/// How a run stands, as it is written on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Status {
    /// It goes on, or no process has taken it up yet.
    #[value(alias = "in_progress")]
    InProgress,
    /// It ended well.
    Completed,
    /// It failed; it can be retried.
    Failed,
    /// It waits for an answer, or is paused.
    Interrupted,
    /// It waits for a message.
    #[value(alias = "awaiting_input")]
    AwaitingInput,
    /// It was cancelled.
    Cancelled,
    /// It waits for an answer or a message, or is paused.
    Waiting,
}

impl Status {
    /// Returns the statuses of the library that are meant.
    pub(crate) fn meant(self) -> &'static [RunStatus] {
        match self {
            Self::InProgress => &[RunStatus::InProgress],
            Self::Completed => &[RunStatus::Completed],
            Self::Failed => &[RunStatus::Failed],
            Self::Interrupted => &[RunStatus::Interrupted],
            Self::AwaitingInput => &[RunStatus::AwaitingInput],
            Self::Cancelled => &[RunStatus::Cancelled],
            Self::Waiting => &[RunStatus::Interrupted, RunStatus::AwaitingInput],
        }
    }
}

/// Which runs are meant, by what is known of them: the same flags wherever runs can be chosen so.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Filter {
    /// Only runs that stand so; several with commas.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "STATUS")]
    pub(crate) status: Vec<Status>,
    /// Only runs of this workflow; queues and schedules are left out where none is named.
    #[arg(long, value_name = "NAME", value_parser = workflow)]
    pub(crate) workflow: Option<WorkflowName>,
    /// Only runs for this user.
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Only runs with this label; may be given again.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) label: Vec<(String, String)>,
    /// Only runs started within this time, as in 2h or 30d.
    #[arg(long, value_name = "DURATION", value_parser = time::parse)]
    pub(crate) since: Option<Duration>,
    /// Only runs that are in progress and that no process drives.
    #[arg(long)]
    pub(crate) orphaned: bool,
    /// Only runs that no node of another run waits for.
    #[arg(long)]
    pub(crate) roots: bool,
    /// Only forks of this run.
    #[arg(long, value_name = "RUN")]
    pub(crate) parent: Option<String>,
}

/// The flags of [`Filter`], of which one stands in the place of names.
pub(crate) const FILTERS: [&str; 8] =
    ["status", "workflow", "user", "label", "since", "orphaned", "roots", "parent"];

/// List runs, the newest first.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata ls --status waiting,failed --since 2h\n  ferrata ls --workflow pay --label region=eu --all"
)]
pub(crate) struct LsArgs {
    /// Which.
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// At most so many.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 50)]
    pub(crate) limit: usize,
    /// All of them.
    #[arg(short, long, conflicts_with = "limit")]
    pub(crate) all: bool,
    /// Again and again.
    #[command(flatten)]
    pub(crate) watch: Watch,
}

fn workflow(text: &str) -> Result<WorkflowName, String> {
    WorkflowName::new(text).map_err(|error| error.to_string())
}

/// Reads `key=value`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| format!("`{}` is no pair; write it as key=value", text.escape_debug()))?;
    Ok((key.to_owned(), value.to_owned()))
}
