//! Arguments of `man`.

use std::path::PathBuf;

/// Print the manual page, or write the pages of all verbs into a folder.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ferrata man | man -l -\n  ferrata man --to ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Write one page for each verb into this folder, and overwrite older pages.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) to: Option<PathBuf>,
}
