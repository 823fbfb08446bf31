//! The command `ferrata`: reads and steers the runs of any service through its store, and runs pipelines.

mod args;
mod changes;
mod commands;
mod context;
mod directory;
mod doubt;
mod draw;
mod exit;
mod failure;
mod find;
mod input;
mod output;
mod pipeline;
mod probe;
mod run;
mod say;
mod store;
mod table;
mod time;
mod verdict;

use std::process::ExitCode;

use clap::Parser;

use args::Cli;
use context::Context;
use exit::Exit;
use failure::Failure;
use output::Output;

fn main() -> ExitCode {
    let mut cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    if let Err(failure) = directory::resolve(&mut cli) {
        Output::new(&cli.global).failure(&failure, &cli.global);
        return failure.exit().into();
    }
    let context = Context::new(cli.global);
    let done = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let done = runtime.block_on(commands::run(&context, cli.command));
            // What still reads from the terminal or writes to a store that is away must not hold up the end.
            runtime.shutdown_background();
            done
        }
        Err(error) => Err(Failure::internal("threads cannot be started", &error)),
    };
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => {
            context.out.failure(&failure, &context.global);
            failure.exit().into()
        }
    }
}

/// Says what clap has to say: the help on stdout, a mistake on stderr.
fn refused(error: &clap::Error) -> ExitCode {
    let exit = if error.use_stderr() { Exit::Usage } else { Exit::Done };
    // Nobody reads: there is nobody to tell.
    let _ = error.print();
    exit.into()
}
