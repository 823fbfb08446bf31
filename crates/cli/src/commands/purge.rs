//! The command `purge` removes runs with all their data and files.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use ferrata::store::At;
use ferrata::{CheckpointStore, HeadRef, RunKey, RunStatus, Runtime};
use ferrata_core::wording::count;
use ferrata_dot::Pipeline;
use ferrata_dot::run_dir::RunDirectory;
use futures_util::{FutureExt as _, TryStreamExt as _};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::PurgeArgs;
use crate::choose::RunSelector;
use crate::concurrent::each;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::output::OutputFormat;
use crate::run::location;
use crate::table::Table;

/// Maximum number of runs that a table lists.
const LISTED: usize = 50;

#[derive(Serialize)]
struct PurgedRun {
    run: RunKey,
    records: u64,
    bytes: u64,
}

pub(super) async fn run(context: &CommandContext, args: &PurgeArgs) -> Result<ExitReason, CommandFailure> {
    let store = context.store()?;
    let ended = [RunStatus::Completed, RunStatus::Failed, RunStatus::Cancelled];
    let chosen = context.select_runs(&*store, &args.runs, &args.filter, &ended).await?;
    if args.dry_run {
        return context.print_chosen(&*store, &chosen).await.map(|()| ExitReason::Done);
    }
    let ready = async |meant: &RunSelector| match context.find_meant(&*store, meant).await {
        Ok(head) if args.force => Ok((head.run, None)),
        Ok(head) if head.status.is_finished() => Ok((head.run.clone(), Some(head.head()))),
        Ok(head) => {
            let name = display_key(&head.run);
            let message =
                format!("cannot purge run {name}, which is {}; cancel it first, or add --force", head.status);
            let next = format!("ferrata cancel {name} --yes");
            Err(CommandFailure::new(ExitReason::Conflict, message, next)
                .with_code(ferrata::ErrorKind::WrongStatus))
        }
        // The head of a damaged run cannot be read, so `--force` accepts its full id without a head.
        Err(failure) if args.force && failure.code() == Some(ferrata::ErrorKind::Corrupt.code()) => {
            match meant {
                RunSelector::Named(name) => Ok((context.parse_full_id(name)?, None)),
                RunSelector::Exactly(run) => Ok((run.clone(), None)),
            }
        }
        Err(failure) => Err(failure),
    };
    let runs: Vec<_> = each(&chosen.runs, |meant| Box::pin(ready(meant))).try_collect().await?;
    let runtime = Runtime::builder_with(Arc::clone(&store)).operator();
    let checked: Vec<_> =
        runs.iter().filter(|(_, head)| head.is_some()).map(|(run, _)| run.clone()).collect();
    runtime.check_purge(&checked).await?;
    if !runs.is_empty() {
        let listed: Vec<String> = runs.iter().map(|(run, _)| display_key(run)).collect();
        let (what, next) = match chosen.by_filter {
            true => (chosen.describe(), "ferrata purge .. --yes".to_owned()),
            false => (listed.join(" "), format!("ferrata purge {} --yes", listed.join(" "))),
        };
        let traces = if runs.len() == 1 { "all its data" } else { "all their data" };
        context.confirm(args.yes, &format!("remove {what} and {traces}"), &next)?;
    }
    let (meant, mut gone) = (runs.len(), Vec::new());
    let removed = remove(context, args, &runtime, &store, runs, &mut gone).await;
    // Print the removed runs, even if the next run could not be removed.
    let is_long = context.out.format == OutputFormat::Table && gone.len() > LISTED;
    if !context.out.is_stream() && !is_long && (removed.is_ok() || !gone.is_empty()) {
        report_purged(context, &gone)?;
    }
    if is_long || gone.len() < meant {
        context.out.note(&sum(&gone, meant));
    }
    removed
}

/// Describes how many of the selected runs were removed.
fn sum(gone: &[PurgedRun], meant: usize) -> String {
    let runs = match gone.len() {
        all if all == meant => count(meant, "run"),
        some => format!("{some} of {}", count(meant, "run")),
    };
    let records: u64 = gone.iter().map(|one| one.records).sum();
    let bytes: u64 = gone.iter().map(|one| one.bytes).sum();
    format!("removed {runs}: {}, {}", count(records, "record"), count(bytes, "byte"))
}

/// Waits for a signal that stops the command. On a system without such signals, waits forever.
async fn wait_for_stop() {
    let Ok(mut terminated) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        Ok(()) = tokio::signal::ctrl_c() => {}
        Some(()) = terminated.recv() => {}
        else => std::future::pending().await,
    }
}

async fn remove(
    context: &CommandContext,
    args: &PurgeArgs,
    runtime: &Runtime,
    store: &Arc<dyn CheckpointStore>,
    runs: Vec<(RunKey, Option<HeadRef>)>,
    gone: &mut Vec<PurgedRun>,
) -> Result<ExitReason, CommandFailure> {
    let (progress, meant) = (context.out.progress(), runs.len());
    let mut stopped = pin!(wait_for_stop());
    // Remove the runs one after the other. If a filter selected them, begin with the newest, because later runs may need earlier ones.
    for (run, expected) in runs {
        if (&mut stopped).now_or_never().is_some() {
            progress.finish_and_clear();
            return Ok(ExitReason::Interrupted);
        }
        progress.set_message(format!("removed {} of {}", gone.len(), count(meant, "run")));
        progress.tick();
        let nodes = nodes(store, &run).await;
        // If a signal was sent to the run during the confirmation, the run has changed and is not purged, so the signal is not lost.
        let purged = match expected {
            Some(head) => runtime.purge_at(&run, head).await?,
            None => store.purge(&run, None).await?,
        };
        let one = PurgedRun { run: run.clone(), records: purged.records, bytes: purged.bytes };
        let told =
            if context.out.is_stream() { report_purged(context, std::slice::from_ref(&one)) } else { Ok(()) };
        gone.push(one);
        remove_views(context, args, &run, &nodes)?;
        told?;
    }
    progress.finish_and_clear();
    Ok(ExitReason::Done)
}

fn report_purged(context: &CommandContext, gone: &[PurgedRun]) -> Result<(), CommandFailure> {
    context.out.all(
        gone,
        |one| display_key(&one.run),
        |gone| {
            let mut table = Table::new(["RUN", "RECORDS", "BYTES"]);
            for one in gone {
                table.row([
                    display_key(&one.run).into(),
                    one.records.to_string().into(),
                    one.bytes.to_string().into(),
                ]);
            }
            table
        },
    )
}

/// Returns the nodes that a run has reached, from the readable part of its log.
async fn nodes(store: &Arc<dyn CheckpointStore>, run: &RunKey) -> Vec<String> {
    let runtime = Runtime::builder_with(Arc::clone(store)).operator();
    let Ok(checkpoint) = runtime.checkpoint(run, At::Latest).await else { return Vec::new() };
    let ended = checkpoint.history.iter().map(|past| past.node.to_string());
    ended.chain(checkpoint.next.iter().map(|pending| pending.node.to_string())).collect()
}

/// Removes the files with data of a run: prompts, answers and outputs.
fn remove_views(
    context: &CommandContext,
    args: &PurgeArgs,
    run: &RunKey,
    nodes: &[String],
) -> Result<(), CommandFailure> {
    let usual = location::default_directory(run);
    let is_its = |directory: &Path| {
        let manifest = RunDirectory::manifest(directory).ok().flatten();
        manifest.is_some_and(|manifest| location::key(&manifest).is_ok_and(|key| key == *run))
    };
    let own = args.directory.clone().or_else(|| Some(usual).filter(|directory| is_its(directory)));
    let Some(directory) = own else { return Ok(()) };
    // The pipeline also names nodes that ran in the damaged part of the log.
    let source = crate::input::bytes(&RunDirectory::source_path(&directory).to_string_lossy());
    let pipeline = source.ok().and_then(|source| Pipeline::parse(&source).ok());
    let named = pipeline.iter().flat_map(|pipeline| pipeline.nodes()).map(ferrata_dot::pipeline::Node::id);
    RunDirectory::remove(&directory, nodes.iter().map(String::as_str).chain(named))?;
    let beside = RunDirectory::beside(&directory, run);
    if beside.exists() {
        RunDirectory::remove(&beside, nodes.iter().map(String::as_str))?;
    }
    let inside = RunDirectory::store_directory(&directory);
    if context.global.store == crate::store::of_folder(&inside) && crate::store::remove_empty(&inside) {
        // If the directory contains other files, it stays.
        let _ = std::fs::remove_dir(&directory);
    }
    Ok(())
}
