//! What `completions` takes.

use clap_complete::Shell;

/// Print what a shell needs to complete this command.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  ferrata completions bash > ~/.local/share/bash-completion/completions/ferrata"
)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: Shell,
}
