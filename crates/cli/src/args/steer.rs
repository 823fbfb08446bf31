//! What the verbs take that say something to runs: `answer`, `send`, `retry`, `cancel`, `pause`, `unpause`, `edit`, `fork`.

use ferrata::Position;

use super::list::{FILTERS, Filter, pair};
use super::read::position;

/// Which runs are meant, and who says so.
#[derive(Debug, clap::Args)]
pub(crate) struct Runs {
    /// The runs; `-` reads them from stdin, one a line.
    #[arg(value_name = "RUN", required_unless_present_any = FILTERS, conflicts_with_all = FILTERS)]
    pub(crate) runs: Vec<String>,
    /// All that are so, instead of naming them.
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Only list the runs that are meant.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Who says so; it is recorded.
    #[arg(long, value_name = "NAME", env = "FERRATA_BY")]
    pub(crate) by: Option<String>,
}

impl Runs {
    /// Returns the run, if only one is meant.
    pub(crate) fn only(&mut self) -> Option<&mut String> {
        match self.runs.as_mut_slice() {
            [only] => Some(only),
            _ => None,
        }
    }
}

/// Answer a question of a run.
///
/// VALUE is JSON, or plain text where the question takes text or one of several choices.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata answer 019a6f2e yes\n  ferrata answer 019a6f2e approve '{\"amount\": 120}' --by ann\n  ferrata answer 019a6f2e approve --reject 'too expensive'\n  ferrata answer 019a6f2e charge --resolve skip\n  ferrata answer 019a6f2e charge --resolve supply --set receipt=r-7"
)]
pub(crate) struct AnswerArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// The question, by its id or node, if several are open; then the answer. `@FILE` reads it from a file, `-` from stdin.
    #[arg(value_name = "[QUESTION] VALUE", num_args = 0..=2, allow_hyphen_values = false)]
    pub(crate) words: Vec<String>,
    /// Say no, for this reason.
    #[arg(long, value_name = "REASON", conflicts_with_all = ["cancel", "resolve"])]
    pub(crate) reject: Option<String>,
    /// Cancel the run instead, for this reason.
    #[arg(long, value_name = "REASON", conflicts_with = "resolve")]
    pub(crate) cancel: Option<String>,
    /// Settle work in doubt: `supply` with the changes that the node made (`--set`, `--remove`, `--patch`), `skip`, `fail:REASON` or `retry`.
    /// `ferrata show` explains them.
    #[arg(long, value_name = "HOW")]
    pub(crate) resolve: Option<String>,
    /// The changes that the node made.
    #[command(flatten)]
    pub(crate) changes: Changes,
    /// Who answers; it is recorded.
    #[arg(long, value_name = "NAME", env = "FERRATA_BY")]
    pub(crate) by: Option<String>,
}

/// Send a message to a run, for whichever node receives next.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata send 019a6f2e 'how are you?'\n  ferrata send 019a6f2e @order.json --by shop"
)]
pub(crate) struct SendArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// The message: JSON, or text if it is none. `@FILE` reads it from a file, `-` from stdin.
    #[arg(value_name = "VALUE")]
    pub(crate) value: String,
    /// Send it as text, whatever it looks like.
    #[arg(long)]
    pub(crate) text: bool,
    /// Send it once for this key, however often the command is repeated.
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Who sends it; it is recorded.
    #[arg(long, value_name = "NAME", env = "FERRATA_BY")]
    pub(crate) by: Option<String>,
}

/// Have the failed nodes of failed runs tried again, attempts counted anew.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata retry 019a6f2e\n  ferrata retry --workflow pay --since 2h --dry-run"
)]
pub(crate) struct RetryArgs {
    /// The runs.
    #[command(flatten)]
    pub(crate) target: Runs,
}

/// Stop runs for good.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata cancel 019a6f2e --yes --reason 'ordered twice'\n  ferrata cancel --label batch=7 --dry-run"
)]
pub(crate) struct CancelArgs {
    /// The runs.
    #[command(flatten)]
    pub(crate) target: Runs,
    /// Why; it is recorded.
    #[arg(long, value_name = "TEXT", default_value = "cancelled from the command line")]
    pub(crate) reason: String,
    /// Do not ask.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Stop runs until `unpause`: nodes at work finish, nothing new starts.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ferrata pause 019a6f2e --reason 'the bank is closed'")]
pub(crate) struct PauseArgs {
    /// The runs.
    #[command(flatten)]
    pub(crate) target: Runs,
    /// Why; it is recorded.
    #[arg(long, value_name = "TEXT", default_value = "paused from the command line")]
    pub(crate) reason: String,
}

/// Let paused runs go on; a process that serves their workflow takes them up.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ferrata unpause 019a6f2e")]
pub(crate) struct UnpauseArgs {
    /// The runs.
    #[command(flatten)]
    pub(crate) target: Runs,
}

/// Changes of a state.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Changes {
    /// Put a value (JSON, or text if it is none) at a channel or JSON pointer; may be given again.
    #[arg(long, value_name = "WHERE=VALUE", value_parser = pair)]
    pub(crate) set: Vec<(String, String)>,
    /// Take a channel away; may be given again.
    #[arg(long, value_name = "CHANNEL")]
    pub(crate) remove: Vec<String>,
    /// A file with operations, as in [{"append": ["notes", ["checked"]]}]; `-` for stdin.
    #[arg(long, value_name = "FILE")]
    pub(crate) patch: Option<String>,
    /// Also where that makes another kind of value, or a new channel.
    #[arg(long)]
    pub(crate) force: bool,
}

/// Change the state of a run.
///
/// Activations that start afterwards see the change. Its code is not asked: keep the form of the state.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata edit 019a6f2e --set retries=0 --set /review/owner='\"ann\"' --by ann\n  ferrata edit 019a6f2e --patch changes.json"
)]
pub(crate) struct EditArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// What changes.
    #[command(flatten)]
    pub(crate) changes: Changes,
    /// Who changes it; it is recorded.
    #[arg(long, value_name = "NAME", env = "FERRATA_BY")]
    pub(crate) by: Option<String>,
}

/// Have a run at rest go on at other nodes than where it is; what it had begun there is dropped.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ferrata goto 019a6f2e refund --reason 'the bank is closed' --yes")]
pub(crate) struct GotoArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// The nodes at which it goes on.
    #[arg(value_name = "NODE", required = true)]
    pub(crate) nodes: Vec<String>,
    /// Why; it is recorded.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Who says so; it is recorded.
    #[arg(long, value_name = "NAME", env = "FERRATA_BY")]
    pub(crate) by: Option<String>,
    /// Do not ask.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Make a new run that goes on from some place in the log of another; that one stays as it is.
///
/// A process that serves the workflow takes the new run up. Gates are asked again. Where nodes that change the world (`Write`, `External`) ran
/// behind the place, they are listed, and forking takes a yes: the fork may run them again.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata fork 019a6f2e --list\n  ferrata fork 019a6f2e review@1 --set model='\"big\"' --id second-try"
)]
pub(crate) struct ForkArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// The place: `node@visit`, a record's number or id, `latest`.
    #[arg(value_name = "PLACE", value_parser = position, default_value = "latest")]
    pub(crate) at: Position,
    /// List the places to fork from, and make nothing.
    #[arg(long)]
    pub(crate) list: bool,
    /// The new run's id: the same fork under the same id is the same run.
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Begin with this node instead; may be given again.
    #[arg(long, value_name = "NODE")]
    pub(crate) start_at: Vec<String>,
    /// A label of the new run; may be given again.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) label: Vec<(String, String)>,
    /// What changes.
    #[command(flatten)]
    pub(crate) changes: Changes,
    /// Do not ask, also where nodes that change the world ran behind the place and may run again.
    #[arg(short, long)]
    pub(crate) yes: bool,
}
