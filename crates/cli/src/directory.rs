//! Runs that are named by their directory: `ferrata show runs/42` shows the run that `ferrata run --run-dir runs/42` stores there.

use ferrata_dot::run_dir::RunDirectory;

use crate::args::{Cli, CliCommand};
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::output::quoted;
use crate::run::location;
use crate::store;

/// Replaces a directory in the command line by the id of its run. Selects the store in the directory, unless the command line names a store.
pub(crate) fn resolve(cli: &mut Cli) -> Result<(), CommandFailure> {
    let Some(word) = named(&mut cli.command) else { return Ok(()) };
    let directory = std::path::PathBuf::from(word.as_str());
    let unread = |error: ferrata::Error| {
        let next = format!("ferrata resume {}", quoted(&directory.display().to_string()));
        CommandFailure::new(ExitReason::Internal, error.message().to_owned(), next)
    };
    let Some(manifest) = RunDirectory::manifest(&directory).map_err(unread)? else { return Ok(()) };
    let inside = RunDirectory::store_directory(&directory);
    let implied = std::env::var("FERRATA_STORE").unwrap_or_else(|_| store::DEFAULT.to_owned());
    if cli.global.store == implied && inside.is_dir() {
        cli.global.store = store::of_folder(&inside);
    }
    let run = location::key(&manifest)?;
    *word = display_key(&run);
    cli.global.of_directory = Some(run);
    if let CliCommand::Purge(args) = &mut cli.command {
        args.directory = Some(directory);
    }
    Ok(())
}

/// Returns the argument that names the run, if the command has one.
fn named(command: &mut CliCommand) -> Option<&mut String> {
    match command {
        CliCommand::Show(args) => Some(&mut args.run),
        CliCommand::History(args) => Some(&mut args.run),
        CliCommand::State(args) => Some(&mut args.run),
        CliCommand::Diff(args) => Some(&mut args.run),
        CliCommand::Logs(args) => Some(&mut args.run),
        CliCommand::Wait(args) => Some(&mut args.run),
        CliCommand::Answer(args) => Some(&mut args.run),
        CliCommand::Send(args) => Some(&mut args.run),
        CliCommand::Edit(args) => Some(&mut args.run),
        CliCommand::Goto(args) => Some(&mut args.run),
        CliCommand::Fork(args) => Some(&mut args.run),
        CliCommand::Verify(args) => Some(&mut args.run),
        CliCommand::Export(args) => Some(&mut args.run),
        CliCommand::Prune(args) => Some(&mut args.run),
        CliCommand::Graph(args) => Some(&mut args.what),
        CliCommand::Tree(args) => Some(&mut args.run),
        CliCommand::Questions(args) => args.run.as_mut(),
        CliCommand::Retry(args) => args.target.only(),
        CliCommand::Cancel(args) => args.target.only(),
        CliCommand::Pause(args) => args.target.only(),
        CliCommand::Unpause(args) => args.target.only(),
        CliCommand::Purge(args) => match args.runs.as_mut_slice() {
            [only] => Some(only),
            _ => None,
        },
        _ => None,
    }
}
