//! `export`: a run as a file of JSON lines.

use std::io::{ErrorKind, Write};

use crate::args::ExportArgs;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::find::shown;
use crate::output::quoted;
use crate::table::clean;

pub(super) async fn run(context: &Context, args: &ExportArgs) -> Result<Exit, Failure> {
    let runtime = context.runtime()?;
    let run = context.find(&**runtime.store(), &args.run).await?.run;
    let secrets = runtime.secrets(&run).await?;
    if !args.reveal && !secrets.is_empty() {
        let names: Vec<&str> = secrets.iter().collect();
        let message = format!(
            "the file would contain the values of secret channels: {}; add --reveal to write them",
            clean(&names.join(", "))
        );
        return Err(Failure::usage(message, format!("ferrata export {} --reveal", quoted(&shown(&run)))));
    }
    let text = runtime.export(&run).await?;
    let Some(path) = &args.to else {
        context.out.text(&text)?;
        return Ok(Exit::Done);
    };
    let name = shown(&run);
    let written = std::fs::File::create_new(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            let message = format!("cannot overwrite the file `{}`; choose another name", path.display());
            Failure::new(Exit::Conflict, message, format!("ferrata export {name} --to {name}.jsonl"))
        }
        _ => Failure::internal(&format!("cannot write `{}`", path.display()), &error),
    })?;
    context.out.note(&format!("wrote run {name} to {}", path.display()));
    Ok(Exit::Done)
}
