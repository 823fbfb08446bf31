//! Arguments of the commands that read runs: `show`, `tree`, `history`, `state`, `diff`, `logs`, `questions`, `outbox`.

use std::time::Duration;

use ferrata::Position;

use crate::time;
use crate::watch::WatchOption;

/// Parses a position in a log. The number of a record may begin with `#`.
pub(crate) fn position(text: &str) -> Result<Position, String> {
    text.strip_prefix('#').unwrap_or(text).parse().map_err(|error: ferrata::Error| error.to_string())
}

/// Show the status of a run: its nodes, its questions, and the next command.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata show 019a6f2e\n  ferrata show 019a6f2e --at review@2 -o json | jq .checkpoint.state\n  ferrata show 019a6f2e --report > what-happened.md"
)]
pub(crate) struct ShowArgs {
    /// Run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// State after this position: `node@visit`, number or id of a record, or `latest`.
    #[arg(long, value_name = "PLACE", value_parser = position, default_value = "latest")]
    pub(crate) at: Position,
    /// Only this node, or one visit of it, with all details.
    #[arg(long, value_name = "NODE[@VISIT]")]
    pub(crate) node: Option<String>,
    /// Print the full report as Markdown, with the state.
    #[arg(long, conflicts_with_all = ["node", "at"])]
    pub(crate) report: bool,
    /// Show the values of secret channels, too.
    #[arg(long, conflicts_with = "report")]
    pub(crate) reveal: bool,
    /// Repeat until Ctrl-C.
    #[command(flatten)]
    pub(crate) watch: WatchOption,
}

/// Show a run and its children, with the open questions of each.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata tree 019a6f2e\n  ferrata tree 019a6f2e -o json | jq '.. | .questions? // empty | .[].id'"
)]
pub(crate) struct TreeArgs {
    /// Run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Repeat until Ctrl-C.
    #[command(flatten)]
    pub(crate) watch: WatchOption,
}

/// List the records of a run's log, without their contents.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ferrata history 019a6f2e --all -o jsonl | jq -r 'select(.base) | .seq'")]
pub(crate) struct HistoryArgs {
    /// Run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Maximum number of records, counted from the last.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 50)]
    pub(crate) limit: usize,
    /// No maximum.
    #[arg(short, long, conflicts_with = "limit")]
    pub(crate) all: bool,
}

/// Print the state of a run at any position in its log.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata state 019a6f2e\n  ferrata state 019a6f2e /review/score --at review@1"
)]
pub(crate) struct StateArgs {
    /// Run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Only the value at this JSON pointer.
    #[arg(value_name = "/POINTER", default_value = "")]
    pub(crate) pointer: String,
    /// State after this position: `node@visit`, number or id of a record, or `latest`.
    #[arg(long, value_name = "PLACE", value_parser = position, default_value = "latest")]
    pub(crate) at: Position,
    /// Show the values of secret channels, too.
    #[arg(long)]
    pub(crate) reveal: bool,
}

/// Compare the states at two positions.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata diff 019a6f2e review@1 review@2\n  ferrata diff 019a6f2e 4\n  ferrata diff 019a6f2e latest 019a7000:latest"
)]
pub(crate) struct DiffArgs {
    /// Run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// First position: `node@visit`, number or id of a record, or `latest`.
    #[arg(value_name = "A", value_parser = position)]
    pub(crate) from: Position,
    /// Second position; RUN:POSITION names another run.
    #[arg(value_name = "B", default_value = "latest")]
    pub(crate) to: String,
    /// Show the values of secret channels, too.
    #[arg(long)]
    pub(crate) reveal: bool,
}

/// Print the events of a run, record by record.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata logs 019a6f2e -f\n  ferrata logs 019a6f2e --node review --since 2h"
)]
pub(crate) struct LogsArgs {
    /// Run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Follow the run to its end, and exit with the code of its status.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only events of this node, or of one visit of it.
    #[arg(long, value_name = "NODE[@VISIT]")]
    pub(crate) node: Option<String>,
    /// Only events within this time, such as 2h.
    #[arg(long, value_name = "DURATION", value_parser = time::parse)]
    pub(crate) since: Option<Duration>,
    /// Maximum number of past lines, counted from the last.
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub(crate) limit: Option<usize>,
}

/// List the open questions of a run, or of all runs.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ferrata questions\n  ferrata questions 019a6f2e -o json")]
pub(crate) struct QuestionsArgs {
    /// Run; by default all waiting runs.
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Without a run, read at most this many runs, newest first.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1_000)]
    pub(crate) limit: usize,
    /// Repeat until Ctrl-C.
    #[command(flatten)]
    pub(crate) watch: WatchOption,
}

/// List undelivered outbox messages; --retry or --drop rejected ones.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata outbox\n  ferrata outbox 019a6f2e --retry\n  ferrata outbox 019a6f2e --drop --message 7"
)]
pub(crate) struct OutboxArgs {
    /// Run; by default all runs with undelivered messages.
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Deliver rejected messages again.
    #[arg(long, requires = "run", conflicts_with = "drop")]
    pub(crate) retry: bool,
    /// Drop rejected messages: they are never delivered.
    #[arg(long, requires = "run")]
    pub(crate) drop: bool,
    /// Name to record as the author.
    #[arg(long, value_name = "NAME", env = "FERRATA_BY")]
    pub(crate) by: Option<String>,
    /// Only the message with this number; by default all rejected ones.
    #[arg(long = "message", value_name = "NUMBER", requires = "run")]
    pub(crate) messages: Vec<u64>,
    /// Without a run, read at most this many runs, newest first.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1_000)]
    pub(crate) limit: usize,
}
