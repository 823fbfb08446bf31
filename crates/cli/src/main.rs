//! The command `ferrata` reads and controls the runs of any service through its store, and runs pipelines.

mod args;
mod bulk_signal;
mod changes;
mod choose;
mod commands;
mod concurrent;
mod context;
mod directory;
mod draw;
mod exit;
mod failure;
mod find;
mod idle_warnings;
mod input;
mod nodes;
mod output;
mod pipeline;
mod probe;
mod queue_waits;
mod reasons;
mod resolution_help;
mod run;
mod run_tree;
mod salvage;
mod store;
mod table;
mod time;
mod unreadable;
mod verdict;
mod watch;

use std::process::ExitCode;

use ferrata::ErrorKind;

use context::CommandContext;
use exit::ExitReason;
use failure::CommandFailure;
use output::Output;

fn main() -> ExitCode {
    let mut cli = match args::parse() {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    find::note_tenant(cli.global.tenant.as_ref());
    if let Err(failure) = directory::resolve(&mut cli) {
        Output::new(&cli.global).failure(&failure, &cli.global);
        return failure.exit().into();
    }
    let context = CommandContext::new(cli.global);
    let done = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let done = runtime.block_on(async {
                match commands::run(&context, cli.command).await {
                    Err(failure) if failure.code() == Some(ErrorKind::Corrupt.code()) => {
                        salvaged(failure).await
                    }
                    done => done,
                }
            });
            // A pending read of the terminal, or a write to an unreachable store, must not delay the exit of the process.
            runtime.shutdown_background();
            done
        }
        Err(error) => Err(CommandFailure::internal("cannot start threads", &error)),
    };
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => {
            context.out.failure(&failure, &context.global);
            failure.exit().into()
        }
    }
}

/// If a command failed because of a damaged log, repeats the command with a copy of the log up to the damage, if possible.
async fn salvaged(failure: CommandFailure) -> Result<ExitReason, CommandFailure> {
    let Ok(mut cli) = args::parse() else { return Err(failure) };
    directory::resolve(&mut cli)?;
    let Some(salvaged) = salvage::prepare(&mut cli).await? else { return Err(failure) };
    let mut context = CommandContext::new(cli.global);
    context.out.note(&salvaged.note);
    context.real_store = Some(salvaged.store.clone());
    commands::run(&context, cli.command).await
}

/// Prints the message of clap: the help on stdout, or a mistake in the command line on stderr.
fn refused(error: &clap::Error) -> ExitCode {
    let exit = if error.use_stderr() { ExitReason::Usage } else { ExitReason::Done };
    if exit == ExitReason::Done {
        // If stdout has no reader, nobody would see a message about that.
        let _ = error.print();
    } else {
        // The message repeats words that were typed or come from a script, so make them safe for a terminal.
        let color = Output::of_mistakes();
        let said = error.render();
        output::to_stderr(&if color { said.ansi().to_string() } else { said.to_string() }, color);
    }
    exit.into()
}
