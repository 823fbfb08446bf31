//! `state`: the state of a run at any position in its log.

use serde_json::Value;

use crate::args::StateArgs;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::find::shown;
use crate::output::Format;

pub(super) async fn run(context: &Context, args: &StateArgs) -> Result<Exit, Failure> {
    let runtime = context.runtime()?;
    let run = context.find(&**runtime.store(), &args.run).await?.run;
    let state = match args.reveal {
        true => Value::from(runtime.channels_at(&run, args.at.clone()).await?),
        false => runtime.shown_at(&run, args.at.clone()).await?,
    };
    let found = state.pointer(&args.pointer).ok_or_else(|| {
        let message = match args.pointer.starts_with('/') || args.pointer.is_empty() {
            true => format!("the state has no value at `{}`", args.pointer.escape_debug()),
            false => format!("`{0}` is not a JSON pointer; write /{0}", args.pointer.escape_debug()),
        };
        Failure::new(Exit::NotFound, message, format!("ferrata state {} -o ids", shown(&run)))
    })?;
    match context.out.format {
        Format::Jsonl => context.out.json_line(found)?,
        Format::Ids => {
            let names = found.as_object().into_iter().flatten().map(|(name, _)| name);
            names.into_iter().try_for_each(|name| context.out.line(&crate::table::clean(name)))?;
        }
        Format::Json | Format::Table => context.out.json(found)?,
    }
    Ok(Exit::Done)
}
