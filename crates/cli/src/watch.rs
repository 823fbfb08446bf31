//! The option `--watch`: repeats the output of a command in the same place of the terminal.

use std::time::Duration;

use clap::Args;
use ferrata::store::RunHead;
use ferrata::{Clock, ErrorKind};

use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::time;

/// The option `--watch` of commands that can repeat their output.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct WatchOption {
    /// Repeat the output every two seconds, or at this interval. On a terminal, it stays in the same place. Ctrl-C ends it.
    #[arg(
        short = 'w',
        long = "watch",
        value_name = "EVERY",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2s",
        value_parser = time::parse
    )]
    every: Option<Duration>,
}

impl WatchOption {
    /// Runs a command once. With `--watch`, repeats it until its output can no longer change.
    pub(crate) async fn run(
        self,
        context: &CommandContext,
        once: impl AsyncFn() -> Result<PollResult, CommandFailure>,
    ) -> Result<ExitReason, CommandFailure> {
        let Some(every) = self.every else {
            return match once().await? {
                // The output is incomplete.
                PollResult::Partly(failure) => Err(failure),
                PollResult::Over(_) | PollResult::MayChange => Ok(ExitReason::Done),
            };
        };
        let mut first = true;
        // Create the future once, so that Ctrl-C during a poll is not lost.
        let mut stop = std::pin::pin!(tokio::signal::ctrl_c());
        loop {
            context.out.begin_screen();
            let seen = once().await;
            if let Err(failure) = &seen
                && !first
                && failure.code() == Some(ErrorKind::Unavailable.code())
            {
                // If the store cannot be reached for a moment, poll it again. The last output stays on the screen until then.
                context.out.drop_screen();
                context.out.failure(failure, &context.global);
            } else {
                let seen = seen?;
                if let PollResult::Partly(failure) = &seen {
                    context.out.note(&failure.lines());
                }
                context.out.end_screen()?;
                match seen {
                    PollResult::Over(exit) => return Ok(exit),
                    _ if !context.out.is_read() => return Ok(ExitReason::Done),
                    PollResult::MayChange | PollResult::Partly(_) => {}
                }
            }
            first = false;
            tokio::select! {
                () = context.clock.sleep(every) => {}
                result = &mut stop => {
                    result.map_err(|error| CommandFailure::internal("cannot listen for Ctrl-C", &error))?;
                    return Ok(ExitReason::Interrupted);
                }
            }
        }
    }
}

/// The result of one execution of a watched command.
#[derive(Debug)]
pub(crate) enum PollResult {
    /// The output may change later.
    MayChange,
    /// The run has ended, so a watching command ends too.
    Over(ExitReason),
    /// The output may change later, and unreadable runs are missing in it.
    Partly(CommandFailure),
}

impl PollResult {
    /// Returns the result for a run, by whether the run may still change.
    pub(crate) fn of(head: &RunHead) -> Self {
        let exit = ExitReason::for_status(head.status).filter(|_| head.status.is_finished());
        exit.map_or(Self::MayChange, Self::Over)
    }
}
