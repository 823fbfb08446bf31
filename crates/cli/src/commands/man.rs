//! The command `man` prints the manual page, or writes the pages of all verbs.

use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man;

use crate::args::{Cli, ManArgs};
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;

pub(super) fn run(context: &CommandContext, args: &ManArgs) -> Result<ExitReason, CommandFailure> {
    match &args.to {
        Some(folder) => {
            write_pages(folder).map_err(|error| {
                let what = format!("cannot write the manual pages to `{}`", folder.display());
                CommandFailure::internal(&what, &error).or_type("ferrata man")
            })?;
            context.out.note(&format!("wrote the manual pages to {}", folder.display()));
        }
        None => {
            let mut page = Vec::new();
            // `help` has no page of its own.
            Man::new(Cli::command().disable_help_subcommand(true))
                .render(&mut page)
                .map_err(|error| CommandFailure::internal("cannot render the manual page", &error))?;
            context.out.text(&String::from_utf8_lossy(&page))?;
        }
    }
    Ok(ExitReason::Done)
}

/// Writes a page for the command and for each verb, such as `ferrata-store-check.1`.
fn write_pages(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command(), folder)
}
