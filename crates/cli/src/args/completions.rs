//! Arguments of `completions`.

use clap_complete::Shell;

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  ferrata completions bash > ~/.local/share/bash-completion/completions/ferrata"
)]
pub(crate) struct CompletionsArgs {
    /// Shell.
    pub(crate) shell: Shell,
}
