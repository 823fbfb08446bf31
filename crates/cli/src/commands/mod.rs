//! The commands, one file for each. The folder `run/` contains the code that runs pipelines.

mod answer;
mod blobs;
mod cancel;
mod completions;
mod demo;
mod diff;
mod edit;
mod export;
mod fork;
mod goto;
mod graph;
mod history;
mod import;
mod init;
#[cfg(feature = "envelope")]
mod keys;
mod lint;
mod logs;
pub(crate) mod ls;
mod man;
mod newest;
mod node;
mod outbox;
mod pause;
mod prune;
mod purge;
mod questions;
mod queue;
#[cfg(feature = "envelope")]
mod rekey;
mod retry;
mod schedule;
mod send;
mod serve;
mod show;
mod state;
mod store;
mod sweep;
mod tree;
mod unpause;
mod verify;
mod wait;

pub(crate) use show::asked;
pub(crate) use tree::of_run as family_of;

use crate::args::CliCommand;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;

/// Executes the command of a command line.
pub(crate) async fn run(context: &CommandContext, command: CliCommand) -> Result<ExitReason, CommandFailure> {
    match command {
        CliCommand::Run(args) => Box::pin(crate::run::run(context, *args)).await,
        CliCommand::Resume(args) => Box::pin(crate::run::resume(context, *args)).await,
        CliCommand::Ls(args) => ls::run(context, &args).await,
        CliCommand::Show(args) => show::run(context, &args).await,
        CliCommand::Tree(args) => tree::run(context, &args).await,
        CliCommand::History(args) => history::run(context, &args).await,
        CliCommand::State(args) => state::run(context, &args).await,
        CliCommand::Diff(args) => diff::run(context, &args).await,
        CliCommand::Logs(args) => logs::run(context, &args).await,
        CliCommand::Questions(args) => questions::run(context, &args).await,
        CliCommand::Serve(args) => serve::run(context, &args).await,
        CliCommand::Outbox(args) => outbox::run(context, &args).await,
        CliCommand::Answer(args) => answer::run(context, &args).await,
        CliCommand::Send(args) => send::run(context, &args).await,
        CliCommand::Retry(args) => retry::run(context, &args).await,
        CliCommand::Pause(args) => pause::run(context, &args).await,
        CliCommand::Unpause(args) => unpause::run(context, &args).await,
        CliCommand::Cancel(args) => cancel::run(context, &args).await,
        CliCommand::Wait(args) => wait::run(context, &args).await,
        CliCommand::Queue(args) => Box::pin(queue::run(context, &args)).await,
        CliCommand::Schedule(args) => Box::pin(schedule::run(context, &args)).await,
        CliCommand::Edit(args) => edit::run(context, &args).await,
        CliCommand::Goto(args) => goto::run(context, &args).await,
        CliCommand::Fork(args) => fork::run(context, &args).await,
        CliCommand::Verify(args) => verify::run(context, &args).await,
        CliCommand::Export(args) => export::run(context, &args).await,
        CliCommand::Import(args) => import::run(context, &args).await,
        CliCommand::Prune(args) => prune::run(context, &args).await,
        CliCommand::Purge(args) => purge::run(context, &args).await,
        CliCommand::Sweep(args) => sweep::run(context, &args).await,
        CliCommand::Blobs(args) => blobs::run(context, &args).await,
        CliCommand::Lint(args) => lint::run(context, &args).await,
        CliCommand::Graph(args) => graph::run(context, &args).await,
        CliCommand::Init(args) => init::run(context, &args),
        CliCommand::Demo(args) => Box::pin(demo::run(context, &args)).await,
        CliCommand::Store(args) => store::run(context, &args).await,
        CliCommand::Completions(args) => completions::run(context, &args),
        CliCommand::Man(args) => man::run(context, &args),
    }
}
