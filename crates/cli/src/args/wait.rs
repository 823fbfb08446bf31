//! Arguments of `wait`.

use std::time::Duration;

use crate::time;

/// Wait until a run ends or is idle, and exit with the code of its status.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ferrata wait 019a6f2e --timeout 10m && echo completed")]
pub(crate) struct WaitArgs {
    /// Run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Wait no longer than this, as in 90s or 10m.
    #[arg(long, value_name = "DURATION", value_parser = time::parse)]
    pub(crate) timeout: Option<Duration>,
    /// Go on waiting while the run waits for an answer, a message or a resume.
    #[arg(long)]
    pub(crate) to_end: bool,
}
