//! The verbs, one file for each; `run/` is what executes pipelines.

mod answer;
mod blobs;
mod cancel;
mod completions;
mod diff;
mod edit;
mod export;
mod fork;
mod goto;
mod graph;
mod history;
mod import;
#[cfg(feature = "envelope")]
mod keys;
mod lint;
mod logs;
pub(crate) mod ls;
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

use crate::args::Command;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Runs the command line.
pub(crate) async fn run(context: &Context, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Run(args) => Box::pin(crate::run::run(context, *args)).await,
        Command::Resume(args) => Box::pin(crate::run::resume(context, *args)).await,
        Command::Ls(args) => ls::run(context, &args).await,
        Command::Show(args) => show::run(context, &args).await,
        Command::Tree(args) => tree::run(context, &args).await,
        Command::History(args) => history::run(context, &args).await,
        Command::State(args) => state::run(context, &args).await,
        Command::Diff(args) => diff::run(context, &args).await,
        Command::Logs(args) => logs::run(context, &args).await,
        Command::Questions(args) => questions::run(context, &args).await,
        Command::Serve(args) => serve::run(context, &args).await,
        Command::Outbox(args) => outbox::run(context, &args).await,
        Command::Answer(args) => answer::run(context, &args).await,
        Command::Send(args) => send::run(context, &args).await,
        Command::Retry(args) => retry::run(context, &args).await,
        Command::Pause(args) => pause::run(context, &args).await,
        Command::Unpause(args) => unpause::run(context, &args).await,
        Command::Cancel(args) => cancel::run(context, &args).await,
        Command::Wait(args) => wait::run(context, &args).await,
        Command::Queue(args) => Box::pin(queue::run(context, &args)).await,
        Command::Schedule(args) => Box::pin(schedule::run(context, &args)).await,
        Command::Edit(args) => edit::run(context, &args).await,
        Command::Goto(args) => goto::run(context, &args).await,
        Command::Fork(args) => fork::run(context, &args).await,
        Command::Verify(args) => verify::run(context, &args).await,
        Command::Export(args) => export::run(context, &args).await,
        Command::Import(args) => import::run(context, &args).await,
        Command::Prune(args) => prune::run(context, &args).await,
        Command::Purge(args) => purge::run(context, &args).await,
        Command::Sweep(args) => sweep::run(context, &args).await,
        Command::Blobs(args) => blobs::run(context, &args).await,
        Command::Lint(args) => lint::run(context, &args).await,
        Command::Graph(args) => graph::run(context, &args).await,
        Command::Store(args) => store::run(context, &args).await,
        Command::Completions(args) => completions::run(context, &args),
    }
}
