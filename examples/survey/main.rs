//! Surveys a directory: measures every file, finds the largest and the duplicates, and writes a report.
//!
//! ```text
//! cargo run --release --example survey -- [DIR] [--id ID] [--store URL] [--out FILE]
//! ```
//!
//! Kill it at any moment, even with `kill -9`, and start it again: it continues, and measures only files without a record.
#![expect(clippy::print_stdout, reason = "the summary is what the program is for")]
#![expect(clippy::print_stderr, reason = "progress and errors of a command go there")]

mod args;
mod findings;
mod graph;
mod measure;
mod progress;
mod report;

use std::error::Error;
use std::future::ready;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ferrata::prelude::*;
use ferrata::runtime::EventSubscription;
use ferrata::{ErrorKind, RunId, RunKey, RunStatus};

use crate::args::{Args, USAGE};
use crate::graph::{Files, LeftOut, Survey};
use crate::progress::Progress;

/// Grace period of nodes after Ctrl-C.
const GRACE: Duration = Duration::from_secs(5);

/// Maximum size of a record in bytes. The list of files is one record, and so is the combined result.
const MAX_BODY: usize = 64 * 1024 * 1024;

/// Exit code of an interrupted command.
const INTERRUPTED: u8 = 130;

#[tokio::main]
async fn main() -> ExitCode {
    let args = match Args::parse(std::env::args_os().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(mistake) => {
            eprintln!("error: {mistake}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    Box::pin(survey(&args)).await.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        let mut cause = error.source();
        while let Some(error) = cause {
            eprintln!("  because: {error}");
            cause = error.source();
        }
        ExitCode::FAILURE
    })
}

async fn survey(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let store = ferrata_examples::open(&args.store)?;
    let mut left_out = LeftOut(vec![PathBuf::from(&args.out)]);
    if let Some(folder) = args.store.strip_prefix("file:") {
        // Leave out the files that this process itself writes into its store.
        let folder = folder.strip_prefix("//").unwrap_or(folder);
        std::fs::create_dir_all(folder)?;
        left_out.0.push(Path::new(folder).canonicalize()?);
    }
    let files = Arc::new(Files::default());
    let runtime = Runtime::builder_with(store)
        .max_body(MAX_BODY)
        .resource(left_out)
        .resource(Arc::clone(&files))
        .build()
        .await?;

    let key = RunKey::from(RunId::new(&args.id)?);
    ferrata_examples::free(&runtime, &key).await?;
    let before = runtime.head(&key).await?;
    if before.as_ref().is_some_and(|head| head.status == RunStatus::Failed) {
        eprintln!("the survey failed before; trying again from where it stopped");
        runtime.retry(&key).await?;
    }
    let mut events = runtime.events();
    let graph = graph::graph()?;
    let started = runtime.start(&graph, Survey::of(&args.dir, &args.out)).id(&args.id).await;
    let run = started.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => format!(
            "`{}` is a survey of another directory or with another report; name another --id",
            args.id
        )
        .into(),
        _ => Box::<dyn Error>::from(error),
    })?;
    let finished = before.is_some_and(|head| head.status.is_finished() && head.status != RunStatus::Failed);
    if !run.is_driven_here() && !finished {
        eprintln!("another process is at work on `{}`; waiting for it", args.id);
    }

    let mut progress = Progress::new(files);
    let outcome = tokio::select! {
        outcome = follow(&run, &mut events, &mut progress) => outcome?,
        pressed = tokio::signal::ctrl_c() => {
            pressed?;
            runtime.shutdown(GRACE).await?;
            // The run may have ended already.
            follow(&run, &mut events, &mut progress).await?
        }
    };
    progress.finish();
    runtime.shutdown(GRACE).await?;
    let survey = match outcome {
        Outcome::Completed(survey) => survey,
        Outcome::Failed { failure, .. } => {
            return Err(format!("the survey failed: {failure}\nto go on: {}", args.command()).into());
        }
        Outcome::Cancelled { reason, .. } => return Err(format!("the survey was cancelled: {reason}").into()),
        Outcome::Released => {
            eprintln!("stopped; what is recorded stays. To go on:\n  {}", args.command());
            return Ok(ExitCode::from(INTERRUPTED));
        }
        _ => return Err(format!("the survey stopped before its end; to go on: {}", args.command()).into()),
    };
    if let Some(findings) = &survey.findings {
        print!("{}", report::summary(findings));
    }
    if run.is_driven_here() {
        println!("{progress}");
        println!("report: {}", args.out);
    } else {
        println!("already done; the report is at {}", args.out);
        println!("to survey again, name another --id than {}", args.id);
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for the end of the run and prints its progress.
async fn follow(
    run: &RunHandle<Survey>,
    events: &mut EventSubscription,
    progress: &mut Progress,
) -> ferrata::Result<Outcome<Survey>> {
    let mut end = std::pin::pin!(run.wait());
    let outcome = loop {
        tokio::select! {
            outcome = &mut end => break outcome?,
            event = events.next() => progress.see(event?.map(|event| event.event)),
        }
    };
    // Some events may have arrived before the end and not been read yet.
    loop {
        tokio::select! {
            biased;
            event = events.next() => progress.see(event?.map(|event| event.event)),
            () = ready(()) => return Ok(outcome),
        }
    }
}
