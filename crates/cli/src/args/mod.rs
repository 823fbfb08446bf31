//! The command line: the options that every verb takes, and the verbs, one file for each group of them.

mod blobs;
mod completions;
mod keep;
mod list;
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
pub(crate) use keep::{ExportArgs, ImportArgs, Keep, PruneArgs, PurgeArgs, SweepArgs, VerifyArgs};
pub(crate) use list::{Filter, LsArgs};
pub(crate) use pipeline::{Drawing, GraphArgs, LintArgs};
pub(crate) use queue::{LimitArgs, QueueArgs, QueueCommand, QueueName};
pub(crate) use read::{
    DiffArgs, HistoryArgs, LogsArgs, OutboxArgs, QuestionsArgs, ShowArgs, StateArgs, TreeArgs, position,
};
pub(crate) use run::{HowArgs, ProgressFace, ResumeArgs, RunArgs};
pub(crate) use schedule::{NextArgs, ScheduleArgs, ScheduleCommand, ScheduleName};
pub(crate) use serve::ServeArgs;
pub(crate) use steer::{
    AnswerArgs, CancelArgs, Changes, EditArgs, ForkArgs, GotoArgs, PauseArgs, RetryArgs, Runs, SendArgs,
    UnpauseArgs,
};
pub(crate) use store::{CheckArgs, StoreArgs, StoreCommand};
#[cfg(feature = "envelope")]
pub(crate) use store::{KeysArgs, RekeyArgs};
pub(crate) use verbs::parse;
pub(crate) use wait::WaitArgs;

use crate::output::{Color, Format};
use crate::store::DEFAULT;
use crate::time::TimeFormat;

/// Runs pipelines, and reads and steers the runs of any Ferrata service through its store.
///
/// RUN is a run's id or the beginning of it, with its tenant before a slash if that is not `default`.
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
    /// The options that every verb takes.
    #[command(flatten)]
    pub(crate) global: Global,
    /// What is to be done.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The options that every verb takes.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// The store, as a URL: file:DIR, sqlite:FILE, postgres://, nats://, redis://, redis-cluster://, s3://, or sharded:FILE for several as one.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "FERRATA_STORE",
        hide_env_values = true,
        default_value = DEFAULT
    )]
    pub(crate) store: String,
    /// Only runs of this tenant; of all unless given.
    #[arg(long, global = true, value_name = "NAME", env = "FERRATA_TENANT", value_parser = tenant)]
    pub(crate) tenant: Option<TenantId>,
    /// The form of the data on stdout.
    #[arg(short, long, global = true, value_enum, default_value_t)]
    pub(crate) output: Format,
    /// When there is colour; NO_COLOR turns `auto` off.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) color: Color,
    /// How times are written in tables.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORM")]
    pub(crate) time: TimeFormat,
    /// Say nothing on stderr but errors.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Never ask anything on the terminal.
    #[arg(long, global = true)]
    pub(crate) no_input: bool,
    /// The run whose directory was named in the place of its id.
    #[arg(skip)]
    pub(crate) of_directory: Option<RunKey>,
}

/// What is to be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a pipeline from a DOT file.
    Run(Box<RunArgs>),
    /// Go on with a run of a pipeline.
    Resume(Box<ResumeArgs>),
    /// List runs, the newest first.
    #[command(aliases = ["list", "ps"])]
    Ls(LsArgs),
    /// Show how a run stands: its nodes, its questions, and what to type next.
    #[command(aliases = ["get", "describe"])]
    Show(ShowArgs),
    /// Show a run and the runs that its nodes have started, with what is open at each level.
    Tree(TreeArgs),
    /// List the records of a run's log, without what they hold.
    History(HistoryArgs),
    /// Print the state of a run, as it was at any place in its log.
    State(StateArgs),
    /// Tell what differs between the states at two places.
    Diff(DiffArgs),
    /// Tell what happened to a run, record by record.
    Logs(LogsArgs),
    /// List the open questions of a run, or of all runs.
    Questions(QuestionsArgs),
    /// Show the runs of the store in a browser.
    Serve(ServeArgs),
    /// List what runs sent out and no outlet has taken; --retry or --drop what was put aside.
    Outbox(OutboxArgs),
    /// Answer a question of a run.
    Answer(AnswerArgs),
    /// Send a message to a run, for whichever node receives next.
    Send(SendArgs),
    /// Have the failed nodes of failed runs tried again, attempts counted anew.
    Retry(RetryArgs),
    /// Stop runs until `unpause`: nodes at work finish, nothing new starts.
    Pause(PauseArgs),
    /// Let paused runs go on; a process that serves their workflow takes them up.
    Unpause(UnpauseArgs),
    /// Stop runs for good.
    Cancel(CancelArgs),
    /// Wait until nothing moves a run any more, and end as it ended.
    Wait(WaitArgs),
    /// Look at queues, change their limits, and hold their lines for a while.
    Queue(QueueArgs),
    /// Look at schedules, and stop their ticks for a while.
    Schedule(ScheduleArgs),
    /// Change the state of a run.
    Edit(EditArgs),
    /// Have a run at rest go on at other nodes than where it is; what it had begun there is dropped.
    Goto(GotoArgs),
    /// Make a new run that goes on from some place in the log of another; that one stays as it is.
    Fork(ForkArgs),
    /// Check the log of a run: every checksum and link, and that each base holds what the records before it amount to.
    Verify(VerifyArgs),
    /// Write a run down as one file of JSON lines, to keep it elsewhere or to move it.
    Export(ExportArgs),
    /// Bring a run into the store that was exported from this one or another.
    Import(ImportArgs),
    /// Drop old records of a run; it can go on as before. Tells what it would drop unless --yes is given.
    Prune(PruneArgs),
    /// Remove runs and every trace of them.
    Purge(PurgeArgs),
    /// Drop old records of all runs, and whole runs that ended long ago. Tells what it would drop unless --yes is given.
    Sweep(SweepArgs),
    /// Deal with large values that are kept beside the records.
    Blobs(BlobsArgs),
    /// Check pipelines, and show the place of each mistake.
    Lint(LintArgs),
    /// Draw a pipeline, or how a run has gone.
    Graph(GraphArgs),
    /// Look at the store itself.
    Store(StoreArgs),
    /// Print what a shell needs to complete this command.
    Completions(CompletionsArgs),
}

fn tenant(text: &str) -> Result<TenantId, String> {
    TenantId::new(text).map_err(|error| error.to_string())
}

/// The table of exit codes, at the end of the help.
fn exit_codes() -> String {
    let mut text = String::from("Exit codes:\n");
    for exit in crate::exit::Exit::ALL {
        text.push_str(&format!("  {:>3}  {}\n", exit.code(), exit.meaning()));
    }
    text
}
