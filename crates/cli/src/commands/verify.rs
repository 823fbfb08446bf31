//! The command `verify` checks that a log is consistent and fits its current pipeline.

use serde::Serialize;

use crate::args::VerifyArgs;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::pipeline;

#[derive(Serialize)]
struct VerifyReport {
    run: ferrata::RunKey,
    records: u64,
    bases: u64,
    bytes: u64,
    first: ferrata::Seq,
    last: ferrata::Seq,
    #[serde(skip_serializing_if = "Option::is_none")]
    pipeline: Option<ReplayReport>,
}

#[derive(Serialize)]
struct ReplayReport {
    checked: u64,
    unchecked: u64,
    divergence: Option<String>,
}

pub(super) async fn run(context: &CommandContext, args: &VerifyArgs) -> Result<ExitReason, CommandFailure> {
    let runtime = context.runtime()?;
    let graph = match &args.pipeline {
        Some(path) => Some(pipeline::compile(context, path)?),
        None => None,
    };
    let run = context.find(&**runtime.store(), &args.run).await?.run;
    let name = display_key(&run);
    let log = runtime.check_log(&run).await.map_err(|error| {
        let kept = error.kind() == ferrata::ErrorKind::Corrupt;
        let failure = CommandFailure::from(error);
        // The records before the damage are still readable.
        if kept { failure.or_type(format!("ferrata history {name}")) } else { failure }
    })?;
    let pipeline = match &graph {
        Some(graph) => {
            let verified = runtime.verify(graph, &run).await?;
            let divergence = verified.divergence.map(|divergence| divergence.to_string());
            Some(ReplayReport { checked: verified.checked, unchecked: verified.unchecked, divergence })
        }
        None => None,
    };
    let differs = pipeline.as_ref().and_then(|replayed| replayed.divergence.clone());
    let found = VerifyReport {
        run,
        records: log.records,
        bases: log.bases,
        bytes: log.bytes,
        first: log.first,
        last: log.last,
        pipeline,
    };
    context.out.one(&found, |_| name.clone(), |found| {
        let mut text = format!(
            "{name}: the log is complete: records {} ({} to {}), bases {}, bytes {}\n",
            found.records, found.first, found.last, found.bases, found.bytes
        );
        if let Some(replayed) = found.pipeline.as_ref().filter(|replayed| replayed.divergence.is_none()) {
            text.push_str(&format!(
                "{name}: the pipeline takes the same path: activations decided again {}, checked by their edges only {}\n",
                replayed.checked, replayed.unchecked
            ));
        }
        text
    })?;
    match differs {
        None => Ok(ExitReason::Done),
        Some(what) => {
            let message = format!("the pipeline takes another path today: {what}");
            Err(CommandFailure::new(ExitReason::RunFailed, message, format!("ferrata show {name}")))
        }
    }
}
