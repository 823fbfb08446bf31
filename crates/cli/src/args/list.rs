//! Arguments of `ls`.

use std::time::Duration;

use clap::ValueEnum;
use ferrata::{RunStatus, WorkflowName};

use crate::time;
use crate::watch::WatchOption;

/// Status of a run on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusArg {
    /// Active, or not claimed yet.
    #[value(alias = "in_progress")]
    InProgress,
    /// Completed.
    Completed,
    /// Failed; can be retried.
    Failed,
    /// Waits for an answer, or is paused.
    Interrupted,
    /// Waits for a message.
    #[value(alias = "awaiting_input")]
    AwaitingInput,
    /// Cancelled.
    Cancelled,
    /// Waits for an answer or a message, or is paused.
    Waiting,
}

impl StatusArg {
    /// Returns the run statuses that the argument selects.
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

/// Filters of runs, the same for every verb.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct FilterArgs {
    /// Only runs with this status; several with commas.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "STATUS")]
    pub(crate) status: Vec<StatusArg>,
    /// Only runs of this workflow. Without it, queues and schedules are not listed.
    #[arg(long, value_name = "NAME", value_parser = workflow)]
    pub(crate) workflow: Option<WorkflowName>,
    /// Only runs of this user.
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Only runs with this label; repeatable.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) label: Vec<(String, String)>,
    /// Only runs started within this time, such as 2h or 30d.
    #[arg(long, value_name = "DURATION", value_parser = time::parse)]
    pub(crate) since: Option<Duration>,
    /// Only runs in progress that no process drives.
    #[arg(long)]
    pub(crate) orphaned: bool,
    /// Only runs that are not awaited children.
    #[arg(long)]
    pub(crate) roots: bool,
    /// Only forks of this run.
    #[arg(long, value_name = "RUN")]
    pub(crate) parent: Option<String>,
}

/// The flags of [`FilterArgs`]. Without a run id, the command needs at least one of them.
pub(crate) const FILTERS: [&str; 8] =
    ["status", "workflow", "user", "label", "since", "orphaned", "roots", "parent"];

/// List runs, newest first.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata ls --status waiting,failed --since 2h\n  ferrata ls --workflow pay --label region=eu --all"
)]
pub(crate) struct LsArgs {
    /// Filters.
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Maximum number of runs.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 50)]
    pub(crate) limit: usize,
    /// No maximum.
    #[arg(short, long, conflicts_with = "limit")]
    pub(crate) all: bool,
    /// Repeat until Ctrl-C.
    #[command(flatten)]
    pub(crate) watch: WatchOption,
}

fn workflow(text: &str) -> Result<WorkflowName, String> {
    WorkflowName::new(text).map_err(|error| error.to_string())
}

/// Parses `key=value` into the key and the value.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| format!("`{}` is not a pair; write key=value", text.escape_debug()))?;
    Ok((key.to_owned(), value.to_owned()))
}
