//! The command `completions` prints the completion script for a shell.

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;

pub(super) fn run(context: &CommandContext, args: &CompletionsArgs) -> Result<ExitReason, CommandFailure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ferrata", &mut script);
    context.out.text(&String::from_utf8_lossy(&script))?;
    Ok(ExitReason::Done)
}
