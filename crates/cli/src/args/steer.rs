//! Arguments of the commands that change runs: `answer`, `send`, `retry`, `cancel`, `pause`, `unpause`, `edit`, `goto`, `fork`.

use ferrata::Position;

use super::list::{FILTERS, FilterArgs, pair};
use super::read::position;

/// Runs and author.
#[derive(Debug, clap::Args)]
pub(crate) struct TargetArgs {
    /// Runs; `-` reads them from stdin, one per line.
    #[arg(value_name = "RUN", required_unless_present_any = FILTERS, conflicts_with_all = FILTERS)]
    pub(crate) runs: Vec<String>,
    /// Filters, instead of run ids.
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Only list the matching runs and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Name to record as the author.
    #[arg(long, value_name = "NAME", env = "FERRATA_BY")]
    pub(crate) by: Option<String>,
}

impl TargetArgs {
    /// Returns the run, if the arguments name exactly one.
    pub(crate) fn only(&mut self) -> Option<&mut String> {
        match self.runs.as_mut_slice() {
            [only] => Some(only),
            _ => None,
        }
    }
}

/// Answer a question of a run.
///
/// VALUE is JSON, or plain text if the question takes text or a choice.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata answer 019a6f2e yes\n  ferrata answer 019a6f2e approve '{\"amount\": 120}' --by ann\n  ferrata answer 019a6f2e approve --reject 'too expensive'\n  ferrata answer 019a6f2e charge --resolve skip\n  ferrata answer 019a6f2e charge --resolve supply --set receipt=r-7"
)]
pub(crate) struct AnswerArgs {
    /// Run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Id or node of the question, if several are open; then the answer. `@FILE` reads it from a file, `-` from stdin.
    #[arg(value_name = "[QUESTION] VALUE", num_args = 0..=2, allow_hyphen_values = false)]
    pub(crate) words: Vec<String>,
    /// Reject the question, with this reason.
    #[arg(long, value_name = "REASON", conflicts_with_all = ["cancel", "resolve"])]
    pub(crate) reject: Option<String>,
    /// Cancel the run instead, with this reason.
    #[arg(long, value_name = "REASON", conflicts_with = "resolve")]
    pub(crate) cancel: Option<String>,
    /// Resolve work with an unknown outcome: `supply` the changes of the node (`--set`, `--remove`, `--patch`), `skip`, `fail:REASON` or `retry`.
    /// `ferrata show` explains them.
    #[arg(long, value_name = "HOW")]
    pub(crate) resolve: Option<String>,
    /// Changes that the node made.
    #[command(flatten)]
    pub(crate) changes: StateChanges,
    /// Name to record as the author.
    #[arg(long, value_name = "NAME", env = "FERRATA_BY")]
    pub(crate) by: Option<String>,
}

/// Send a message to a run; the next node that receives gets it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata send 019a6f2e 'how are you?'\n  ferrata send 019a6f2e @order.json --by shop"
)]
pub(crate) struct SendArgs {
    /// Run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Message: JSON, otherwise text. `@FILE` reads it from a file, `-` from stdin.
    #[arg(value_name = "VALUE")]
    pub(crate) value: String,
    /// Send it as text, even if it is valid JSON.
    #[arg(long)]
    pub(crate) text: bool,
    /// Idempotency key: repeated commands with this key send one message.
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Name to record as the author.
    #[arg(long, value_name = "NAME", env = "FERRATA_BY")]
    pub(crate) by: Option<String>,
}

/// Retry the failed nodes of failed runs, with a new count of attempts.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata retry 019a6f2e\n  ferrata retry --workflow pay --since 2h --dry-run"
)]
pub(crate) struct RetryArgs {
    /// Runs.
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

/// Cancel runs.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata cancel 019a6f2e --yes --reason 'ordered twice'\n  ferrata cancel --label batch=7 --dry-run"
)]
pub(crate) struct CancelArgs {
    /// Runs.
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Reason to record.
    #[arg(long, value_name = "TEXT", default_value = "cancelled from the command line")]
    pub(crate) reason: String,
    /// Do not ask for confirmation.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Pause runs until `unpause`: running nodes finish, nothing new starts.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ferrata pause 019a6f2e --reason 'the bank is closed'")]
pub(crate) struct PauseArgs {
    /// Runs.
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Reason to record.
    #[arg(long, value_name = "TEXT", default_value = "paused from the command line")]
    pub(crate) reason: String,
}

/// Unpause runs. A process that serves their workflow claims them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ferrata unpause 019a6f2e")]
pub(crate) struct UnpauseArgs {
    /// Runs.
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

/// Changes of a state.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct StateChanges {
    /// Set a channel or JSON pointer to a value (JSON, otherwise text); repeatable.
    #[arg(long, value_name = "WHERE=VALUE", value_parser = pair)]
    pub(crate) set: Vec<(String, String)>,
    /// Remove a channel; repeatable.
    #[arg(long, value_name = "CHANNEL")]
    pub(crate) remove: Vec<String>,
    /// File with operations, such as [{"append": ["notes", ["checked"]]}]; `-` for stdin.
    #[arg(long, value_name = "FILE")]
    pub(crate) patch: Option<String>,
    /// Allow a change that adds a channel or changes the type of a value.
    #[arg(long)]
    pub(crate) force: bool,
}

/// Change the state of a run.
///
/// Activations that start afterwards see the change. The service's code does not check it, so keep the shape of the state.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata edit 019a6f2e --set retries=0 --set /review/owner='\"ann\"' --by ann\n  ferrata edit 019a6f2e --patch changes.json"
)]
pub(crate) struct EditArgs {
    /// Run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Changes.
    #[command(flatten)]
    pub(crate) changes: StateChanges,
    /// Name to record as the author.
    #[arg(long, value_name = "NAME", env = "FERRATA_BY")]
    pub(crate) by: Option<String>,
}

/// Move an idle run to other nodes and drop its unfinished activations.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ferrata goto 019a6f2e refund --reason 'the bank is closed' --yes")]
pub(crate) struct GotoArgs {
    /// Run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Nodes to continue at.
    #[arg(value_name = "NODE", required = true)]
    pub(crate) nodes: Vec<String>,
    /// Reason to record.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Name to record as the author.
    #[arg(long, value_name = "NAME", env = "FERRATA_BY")]
    pub(crate) by: Option<String>,
    /// Do not ask for confirmation.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Fork a run: start a new run from a position in its log. The run itself does not change.
///
/// A process that serves the workflow claims the new run. Gates ask again. Nodes with effects (`Write`, `External`) that ran after the
/// position may run again in the fork: they are listed, and the command asks for confirmation.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata fork 019a6f2e --list\n  ferrata fork 019a6f2e review@1 --set model='\"big\"' --id second-try"
)]
pub(crate) struct ForkArgs {
    /// Run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Position: `node@visit`, number or id of a record, or `latest`.
    #[arg(value_name = "PLACE", value_parser = position, default_value = "latest")]
    pub(crate) at: Position,
    /// List the positions that can be forked, and change nothing.
    #[arg(long)]
    pub(crate) list: bool,
    /// Id of the new run. The same fork under the same id is the same run.
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Start at this node instead; repeatable.
    #[arg(long, value_name = "NODE")]
    pub(crate) start_at: Vec<String>,
    /// Label of the new run; repeatable.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) label: Vec<(String, String)>,
    /// Changes.
    #[command(flatten)]
    pub(crate) changes: StateChanges,
    /// Do not ask for confirmation, even if nodes with effects may run again.
    #[arg(short, long)]
    pub(crate) yes: bool,
}
