//! A run named by its directory: `ferrata show runs/42` is about the run that `ferrata run --run-dir runs/42` stores in it.

use ferrata_dot::run_dir::RunDirectory;

use crate::args::{Cli, Command};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::find::shown;
use crate::output::quoted;
use crate::run::place;
use crate::store;

/// Replaces a directory by the run's id, and selects the store in the directory unless the command line names another.
pub(crate) fn resolve(cli: &mut Cli) -> Result<(), Failure> {
    let Some(word) = named(&mut cli.command) else { return Ok(()) };
    let directory = std::path::PathBuf::from(word.as_str());
    let unread = |error: ferrata::Error| {
        let next = format!("ferrata resume {}", quoted(&directory.display().to_string()));
        Failure::new(Exit::Internal, error.message().to_owned(), next)
    };
    let Some(manifest) = RunDirectory::manifest(&directory).map_err(unread)? else { return Ok(()) };
    let inside = RunDirectory::store_directory(&directory);
    let implied = std::env::var("FERRATA_STORE").unwrap_or_else(|_| store::DEFAULT.to_owned());
    if cli.global.store == implied && inside.is_dir() {
        cli.global.store = store::of_folder(&inside);
    }
    let run = place::key(&manifest)?;
    *word = shown(&run);
    cli.global.of_directory = Some(run);
    if let Command::Purge(args) = &mut cli.command {
        args.directory = Some(directory);
    }
    Ok(())
}

/// Returns the run in a command line, if any.
fn named(command: &mut Command) -> Option<&mut String> {
    match command {
        Command::Show(args) => Some(&mut args.run),
        Command::History(args) => Some(&mut args.run),
        Command::State(args) => Some(&mut args.run),
        Command::Diff(args) => Some(&mut args.run),
        Command::Logs(args) => Some(&mut args.run),
        Command::Wait(args) => Some(&mut args.run),
        Command::Answer(args) => Some(&mut args.run),
        Command::Send(args) => Some(&mut args.run),
        Command::Edit(args) => Some(&mut args.run),
        Command::Goto(args) => Some(&mut args.run),
        Command::Fork(args) => Some(&mut args.run),
        Command::Verify(args) => Some(&mut args.run),
        Command::Export(args) => Some(&mut args.run),
        Command::Prune(args) => Some(&mut args.run),
        Command::Graph(args) => Some(&mut args.what),
        Command::Tree(args) => Some(&mut args.run),
        Command::Questions(args) => args.run.as_mut(),
        Command::Retry(args) => args.target.only(),
        Command::Cancel(args) => args.target.only(),
        Command::Pause(args) => args.target.only(),
        Command::Unpause(args) => args.target.only(),
        Command::Purge(args) => match args.runs.as_mut_slice() {
            [only] => Some(only),
            _ => None,
        },
        _ => None,
    }
}
