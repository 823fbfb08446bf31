//! The command `export` writes a run to a file of JSON lines.

use std::io::{ErrorKind, Write};

use ferrata::runtime::RedactedNumbers;
use ferrata::{RunKey, Runtime};

use crate::args::ExportArgs;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::output::quoted;
use crate::table::clean;

pub(super) async fn run(context: &CommandContext, args: &ExportArgs) -> Result<ExitReason, CommandFailure> {
    let runtime = context.runtime()?;
    let run = context.find(&**runtime.store(), &args.run).await?.run;
    let text = match args.redact {
        true => {
            let numbers = if args.keep_numbers { RedactedNumbers::Keep } else { RedactedNumbers::Zero };
            runtime.export_redacted(&run, numbers).await?
        }
        false => export_whole(&runtime, &run, args.reveal).await?,
    };
    let Some(path) = &args.to else {
        context.out.text(&text)?;
        return Ok(ExitReason::Done);
    };
    let name = display_key(&run);
    let written = std::fs::File::create_new(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            let message = format!("cannot overwrite the file `{}`; choose another name", path.display());
            CommandFailure::new(
                ExitReason::Conflict,
                message,
                format!("ferrata export {name} --to {name}.jsonl"),
            )
        }
        _ => CommandFailure::internal(&format!("cannot write `{}`", path.display()), &error),
    })?;
    context.out.note(&format!("wrote run {name} to {}", path.display()));
    if args.redact {
        context.out.note(
            "names of nodes, steps, channels and fields stay in the file; check that they contain no data",
        );
        context.out.note(&format!(
            "next: ferrata import {} --store file:redacted",
            quoted(&path.display().to_string())
        ));
    }
    Ok(ExitReason::Done)
}

/// Exports a run with all its values.
async fn export_whole(runtime: &Runtime, run: &RunKey, reveal: bool) -> Result<String, CommandFailure> {
    let secrets = runtime.secrets(run).await?;
    if reveal || secrets.is_empty() {
        return Ok(runtime.export(run).await?);
    }
    let names: Vec<&str> = secrets.iter().collect();
    let message = format!(
        "the file would contain the values of secret channels: {}; add --redact to replace all values, or --reveal to write them",
        clean(&names.join(", "))
    );
    Err(CommandFailure::usage(message, format!("ferrata export {} --redact", quoted(&display_key(run)))))
}
