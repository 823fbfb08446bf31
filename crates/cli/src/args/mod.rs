//! The command line: the options that every command takes, and the commands. There is one file for each group of commands.

mod blobs;
mod completions;
mod demo;
mod init;
mod keep;
mod list;
mod man;
mod pipeline;
mod queue;
mod read;
mod run;
mod schedule;
mod serve;
mod steer;
mod store;
mod verbs;
mod wait;

use clap::{Parser, Subcommand};
use ferrata::{RunKey, TenantId};

pub(crate) use blobs::{BlobsArgs, BlobsCommand, CollectArgs};
pub(crate) use completions::CompletionsArgs;
pub(crate) use demo::DemoArgs;
pub(crate) use init::InitArgs;
pub(crate) use keep::{ExportArgs, ImportArgs, Keep, PruneArgs, PurgeArgs, SweepArgs, VerifyArgs};
pub(crate) use list::{FilterArgs, LsArgs};
pub(crate) use man::ManArgs;
pub(crate) use pipeline::{DrawingFormat, GraphArgs, LintArgs};
pub(crate) use queue::{LimitArgs, QueueArgs, QueueName, QueueSubcommand};
pub(crate) use read::{
    DiffArgs, HistoryArgs, LogsArgs, OutboxArgs, QuestionsArgs, ShowArgs, StateArgs, TreeArgs, position,
};
pub(crate) use run::{HowArgs, ProgressFace, ResumeArgs, RunArgs};
pub(crate) use schedule::{NextArgs, ScheduleArgs, ScheduleCommand, ScheduleName};
pub(crate) use serve::ServeArgs;
pub(crate) use steer::{
    AnswerArgs, CancelArgs, EditArgs, ForkArgs, GotoArgs, PauseArgs, RetryArgs, SendArgs, StateChanges,
    TargetArgs, UnpauseArgs,
};
pub(crate) use store::{CheckArgs, StoreArgs, StoreCommand};
#[cfg(feature = "envelope")]
pub(crate) use store::{KeysArgs, RekeyArgs};
pub(crate) use verbs::parse;
pub(crate) use wait::WaitArgs;

use crate::output::{ColorChoice, OutputFormat};
use crate::store::DEFAULT;
use crate::time::TimeFormat;

/// Run pipelines, and inspect and control the runs of any Ferrata service through its store.
///
/// RUN is a run id or its first characters. A tenant other than `default` comes before it, with a slash.
/// Data goes to stdout, everything else to stderr.
#[derive(Debug, Parser)]
#[command(
    name = "ferrata",
    version,
    propagate_version = true,
    infer_subcommands = true,
    max_term_width = 100,
    after_help = exit_codes()
)]
pub(crate) struct Cli {
    /// Options of every verb.
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    /// Action.
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// Options of every verb.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// URL of the store: file:DIR, sqlite:FILE, postgres://, nats://, redis://, redis-cluster://, s3://, or sharded:FILE for several stores.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "FERRATA_STORE",
        hide_env_values = true,
        default_value = DEFAULT
    )]
    pub(crate) store: String,
    /// Only runs of this tenant; by default of all.
    #[arg(long, global = true, value_name = "NAME", env = "FERRATA_TENANT", value_parser = tenant)]
    pub(crate) tenant: Option<TenantId>,
    /// Output format on stdout.
    #[arg(short, long, global = true, value_enum, default_value_t)]
    pub(crate) output: OutputFormat,
    /// Colors; NO_COLOR turns `auto` off.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) color: ColorChoice,
    /// Format of times in tables.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORM")]
    pub(crate) time: TimeFormat,
    /// Print only errors on stderr.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Never prompt on the terminal.
    #[arg(long, global = true)]
    pub(crate) no_input: bool,
    /// Whether `--store` is on the command line.
    #[arg(skip)]
    pub(crate) is_store_given: bool,
    /// Run whose directory was given instead of its id.
    #[arg(skip)]
    pub(crate) of_directory: Option<RunKey>,
}

/// Action.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run a pipeline from a DOT file.
    Run(Box<RunArgs>),
    /// Resume a run of a pipeline.
    Resume(Box<ResumeArgs>),
    /// List runs, newest first.
    #[command(aliases = ["list", "ps"])]
    Ls(LsArgs),
    /// Show the status of a run: its nodes, its questions, and the next command.
    #[command(aliases = ["get", "describe"])]
    Show(ShowArgs),
    /// Show a run and its children, with the open questions of each.
    Tree(TreeArgs),
    /// List the records of a run's log, without their contents.
    History(HistoryArgs),
    /// Print the state of a run at any position in its log.
    State(StateArgs),
    /// Compare the states at two positions.
    Diff(DiffArgs),
    /// Print the events of a run, record by record.
    Logs(LogsArgs),
    /// List the open questions of a run, or of all runs.
    Questions(QuestionsArgs),
    /// Show the runs of the store in a browser.
    Serve(ServeArgs),
    /// List undelivered outbox messages; --retry or --drop rejected ones.
    Outbox(OutboxArgs),
    /// Answer a question of a run.
    Answer(AnswerArgs),
    /// Send a message to a run; the next node that receives gets it.
    Send(SendArgs),
    /// Retry the failed nodes of failed runs, with a new count of attempts.
    Retry(RetryArgs),
    /// Pause runs until `unpause`: running nodes finish, nothing new starts.
    Pause(PauseArgs),
    /// Unpause runs. A process that serves their workflow claims them.
    Unpause(UnpauseArgs),
    /// Cancel runs.
    Cancel(CancelArgs),
    /// Wait until a run ends or is idle, and exit with the code of its status.
    Wait(WaitArgs),
    /// List queues, change their limits, and pause them.
    Queue(QueueArgs),
    /// List schedules, and pause their ticks.
    Schedule(ScheduleArgs),
    /// Change the state of a run.
    Edit(EditArgs),
    /// Move an idle run to other nodes and drop its unfinished activations.
    Goto(GotoArgs),
    /// Fork a run: start a new run from a position in its log. The run itself does not change.
    Fork(ForkArgs),
    /// Check the log of a run: every checksum and link, and each base against the records before it.
    Verify(VerifyArgs),
    /// Export a run as JSON lines, as a copy or to move it.
    Export(ExportArgs),
    /// Import a run that was exported from this store or another.
    Import(ImportArgs),
    /// Drop old records of a run, which can continue as before. Lists them only, unless --yes is given.
    Prune(PruneArgs),
    /// Remove runs with all their data.
    Purge(PurgeArgs),
    /// Drop old records of all runs, and runs that ended long ago. Lists them only, unless --yes is given.
    Sweep(SweepArgs),
    /// Manage large values that are stored next to the records.
    Blobs(BlobsArgs),
    /// Check pipeline files, and show the position of each mistake.
    Lint(LintArgs),
    /// Draw a pipeline, or the path of a run.
    Graph(GraphArgs),
    /// Create a crate with a durable function and its tests.
    Init(InitArgs),
    /// Show example runs in a browser: a failed, a waiting, a retrying and a running one.
    Demo(DemoArgs),
    /// Inspect the store itself.
    Store(StoreArgs),
    /// Print a completion script for a shell.
    Completions(CompletionsArgs),
    /// Print the manual page, or write the pages of all verbs into a folder.
    Man(ManArgs),
}

fn tenant(text: &str) -> Result<TenantId, String> {
    TenantId::new(text).map_err(|error| error.to_string())
}

/// Returns the table of exit codes for the end of the help.
fn exit_codes() -> String {
    let mut text = String::from("Exit codes:\n");
    for exit in crate::exit::ExitReason::ALL {
        text.push_str(&format!("  {:>3}  {}\n", exit.code(), exit.meaning()));
    }
    text
}
