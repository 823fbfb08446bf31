//! The verbs, one file for each; `run/` is what executes pipelines.

mod completions;
mod ls;
mod wait;

use crate::args::Command;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Does what the command line says.
pub(crate) async fn run(context: &Context, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Run(args) => Box::pin(crate::run::run(context, *args)).await,
        Command::Resume(args) => Box::pin(crate::run::resume(context, *args)).await,
        Command::Ls(args) => ls::run(context, args).await,
        Command::Wait(args) => wait::run(context, &args).await,
        Command::Completions(args) => completions::run(context, &args),
    }
}
