//! The command `diff` compares the states at two positions, of one run or of two runs.

use anstyle::{AnsiColor, Style};
use ferrata::runtime::{Change, Diff};
use ferrata::state::Secrets;
use serde_json::Value;

use crate::args::{DiffArgs, position};
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::table::{clean, paint};

pub(super) async fn run(context: &CommandContext, args: &DiffArgs) -> Result<ExitReason, CommandFailure> {
    let runtime = context.runtime()?;
    let store = &**runtime.store();
    let run = context.find(store, &args.run).await?.run;
    // An id may contain a colon; a position never does.
    let (other, place) = match args.to.rsplit_once(':') {
        Some((other, place)) => (context.find(store, other).await?.run, place),
        None => (run.clone(), args.to.as_str()),
    };
    let to = position(place).map_err(|message| {
        CommandFailure::usage(message, format!("ferrata fork {} --list", display_key(&other)))
    })?;
    let from = Value::from(runtime.channels_at(&run, args.from.clone()).await?);
    let to = Value::from(runtime.channels_at(&other, to).await?);
    let diff = match args.reveal {
        true => Diff::between(&from, &to),
        // A channel that is secret in one of the runs may not be secret in the other.
        false => {
            let all = [runtime.secrets(&run).await?, runtime.secrets(&other).await?];
            Diff::redacted(&from, &to, &all.iter().flat_map(Secrets::iter).map(str::to_owned).collect())
        }
    };
    let color = context.out.color;
    context.out.one(
        &diff,
        |diff| diff.changes.iter().map(path).collect::<Vec<_>>().join("\n"),
        |diff| diff.changes.iter().map(|change| line(change, color)).collect(),
    )?;
    if diff.is_empty() {
        context.out.note("no difference");
    }
    Ok(ExitReason::Done)
}

fn path(change: &Change) -> String {
    match change {
        Change::Add { path, .. } | Change::Replace { path, .. } | Change::Remove { path, .. } => path.clone(),
        _ => String::new(),
    }
}

fn line(change: &Change, color: bool) -> String {
    let style = |color: AnsiColor| Style::new().fg_color(Some(color.into()));
    let (sign, text, look) = match change {
        Change::Add { path, value } => ("+", format!("{path}  {value}"), AnsiColor::Green),
        Change::Remove { path, before } => ("-", format!("{path}  {before}"), AnsiColor::Red),
        Change::Replace { path, value, before } => {
            ("~", format!("{path}  {before} → {value}"), AnsiColor::Yellow)
        }
        _ => return String::new(),
    };
    format!("{} {}\n", paint(sign, style(look), color), clean(&text))
}
