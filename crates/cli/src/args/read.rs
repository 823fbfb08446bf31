//! What the verbs take that read one run: `show`, `history`, `state`, `diff`, `logs`, `questions`.

use std::time::Duration;

use ferrata::Position;

use crate::time;
use crate::watch::Watch;

/// Reads a place in a log; a number may have a `#` before it.
pub(crate) fn position(text: &str) -> Result<Position, String> {
    text.strip_prefix('#').unwrap_or(text).parse().map_err(|error: ferrata::Error| error.to_string())
}

/// Show how a run stands: its nodes, its questions, and what to type next.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata show 019a6f2e\n  ferrata show 019a6f2e --at review@2 -o json | jq .checkpoint.state\n  ferrata show 019a6f2e --report > what-happened.md"
)]
pub(crate) struct ShowArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// As it was after this place: `node@visit`, a record's number or id, `latest`.
    #[arg(long, value_name = "PLACE", value_parser = position, default_value = "latest")]
    pub(crate) at: Position,
    /// Only this node, or one visit of it, with everything the log says of it.
    #[arg(long, value_name = "NODE[@VISIT]")]
    pub(crate) node: Option<String>,
    /// The whole story as Markdown, with the state.
    #[arg(long, conflicts_with_all = ["node", "at"])]
    pub(crate) report: bool,
    /// Show the values of secret channels, too.
    #[arg(long, conflicts_with = "report")]
    pub(crate) reveal: bool,
    /// Again and again.
    #[command(flatten)]
    pub(crate) watch: Watch,
}

/// Show a run and the runs that its nodes have started, with what is open at each level.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata tree 019a6f2e\n  ferrata tree 019a6f2e -o json | jq '.. | .questions? // empty | .[].id'"
)]
pub(crate) struct TreeArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Again and again.
    #[command(flatten)]
    pub(crate) watch: Watch,
}

/// List the records of a run's log, without what they hold.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ferrata history 019a6f2e --all -o jsonl | jq -r 'select(.base) | .seq'")]
pub(crate) struct HistoryArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// At most so many, the last ones.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 50)]
    pub(crate) limit: usize,
    /// All of them.
    #[arg(short, long, conflicts_with = "limit")]
    pub(crate) all: bool,
}

/// Print the state of a run, as it was at any place in its log.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata state 019a6f2e\n  ferrata state 019a6f2e /review/score --at review@1"
)]
pub(crate) struct StateArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Only what stands at this JSON pointer.
    #[arg(value_name = "/POINTER", default_value = "")]
    pub(crate) pointer: String,
    /// As it was after this place: `node@visit`, a record's number or id, `latest`.
    #[arg(long, value_name = "PLACE", value_parser = position, default_value = "latest")]
    pub(crate) at: Position,
    /// Show the values of secret channels, too.
    #[arg(long)]
    pub(crate) reveal: bool,
}

/// Tell what differs between the states at two places.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata diff 019a6f2e review@1 review@2\n  ferrata diff 019a6f2e 4\n  ferrata diff 019a6f2e latest 019a7000:latest"
)]
pub(crate) struct DiffArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// One place: `node@visit`, a record's number or id, `latest`.
    #[arg(value_name = "A", value_parser = position)]
    pub(crate) from: Position,
    /// The other place, of another run if it is written as RUN:PLACE.
    #[arg(value_name = "B", default_value = "latest")]
    pub(crate) to: String,
    /// Show the values of secret channels, too.
    #[arg(long)]
    pub(crate) reveal: bool,
}

/// Tell what happened to a run, record by record.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata logs 019a6f2e -f\n  ferrata logs 019a6f2e --node review --since 2h"
)]
pub(crate) struct LogsArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Go on as long as the run does, and end as it ends.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only what this node did, or one visit of it.
    #[arg(long, value_name = "NODE[@VISIT]")]
    pub(crate) node: Option<String>,
    /// Only what happened within this time, as in 2h.
    #[arg(long, value_name = "DURATION", value_parser = time::parse)]
    pub(crate) since: Option<Duration>,
    /// At most so many lines of what has happened already, the last ones.
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub(crate) limit: Option<usize>,
}

/// List the open questions of a run, or of all runs.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ferrata questions\n  ferrata questions 019a6f2e -o json")]
pub(crate) struct QuestionsArgs {
    /// The run; all that wait unless given.
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Without a run, look at no more runs than this, the newest first.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1_000)]
    pub(crate) limit: usize,
    /// Again and again.
    #[command(flatten)]
    pub(crate) watch: Watch,
}

/// List what runs sent out and no outlet has taken; --retry or --drop what was put aside.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata outbox\n  ferrata outbox 019a6f2e --retry\n  ferrata outbox 019a6f2e --drop --letter 7"
)]
pub(crate) struct OutboxArgs {
    /// The run; all that have something to deliver unless given.
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Have letters that were put aside delivered after all.
    #[arg(long, requires = "run", conflicts_with = "drop")]
    pub(crate) retry: bool,
    /// Drop letters: they are never delivered.
    #[arg(long, requires = "run")]
    pub(crate) drop: bool,
    /// Who says so; it is recorded.
    #[arg(long, value_name = "NAME", env = "FERRATA_BY")]
    pub(crate) by: Option<String>,
    /// Only the letter of this number; all that were put aside unless given.
    #[arg(long = "letter", value_name = "NUMBER", requires = "run")]
    pub(crate) letters: Vec<u64>,
    /// Without a run, look at no more runs than this, the newest first.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1_000)]
    pub(crate) limit: usize,
}
