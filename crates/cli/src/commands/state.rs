//! The command `state` prints the state of a run at a position in its log.

use serde_json::Value;

use crate::args::StateArgs;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::output::OutputFormat;

pub(super) async fn run(context: &CommandContext, args: &StateArgs) -> Result<ExitReason, CommandFailure> {
    let runtime = context.runtime()?;
    let run = context.find(&**runtime.store(), &args.run).await?.run;
    let state = match args.reveal {
        true => Value::from(runtime.channels_at(&run, args.at.clone()).await?),
        false => runtime.redacted_state_at(&run, args.at.clone()).await?,
    };
    let found = state.pointer(&args.pointer).ok_or_else(|| {
        let message = match args.pointer.starts_with('/') || args.pointer.is_empty() {
            true => format!("the state has no value at `{}`", args.pointer.escape_debug()),
            false => format!("`{0}` is not a JSON pointer; write /{0}", args.pointer.escape_debug()),
        };
        CommandFailure::new(
            ExitReason::NotFound,
            message,
            format!("ferrata state {} -o ids", display_key(&run)),
        )
    })?;
    match context.out.format {
        OutputFormat::Jsonl => context.out.json_line(found)?,
        OutputFormat::Ids => {
            let names = found.as_object().into_iter().flatten().map(|(name, _)| name);
            names.into_iter().try_for_each(|name| context.out.line(&crate::table::clean(name)))?;
        }
        OutputFormat::Json | OutputFormat::Table => context.out.json(found)?,
    }
    Ok(ExitReason::Done)
}
