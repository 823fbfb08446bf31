//! `completions`: the completion script for a shell.

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

pub(super) fn run(context: &Context, args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ferrata", &mut script);
    context.out.text(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
