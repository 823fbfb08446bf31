//! The command `store check` tests whether the store can be reached, and prints its guarantees and its latency.

use std::sync::Arc;
use std::time::Duration;

use ferrata::store::{Page, RunQuery};
use ferrata::{CheckpointStore, Clock};
use serde::Serialize;

use crate::args::{CheckArgs, StoreArgs, StoreCommand};
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::time::short;
use crate::{probe, store};

/// Number of reads whose time is measured.
const READS: u32 = 20;

/// The results of the check.
#[derive(Serialize)]
struct StoreReport {
    store: String,
    kind: &'static str,
    durable: bool,
    shared: bool,
    notices: bool,
    set_up: bool,
    reads: Option<CallTiming>,
    writes: Option<CallTiming>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conformance: Option<probe::Conformance>,
}

/// The durations of calls, in microseconds.
#[derive(Serialize)]
pub(crate) struct CallTiming {
    calls: usize,
    min_us: u128,
    median_us: u128,
    max_us: u128,
}

impl CallTiming {
    fn of(mut took: Vec<Duration>) -> Option<Self> {
        took.sort_unstable();
        let us = |at: usize| took.get(at).map(Duration::as_micros);
        let last = took.len().checked_sub(1)?;
        Some(Self { calls: took.len(), min_us: us(0)?, median_us: us(last / 2)?, max_us: us(last)? })
    }

    fn shown(&self) -> String {
        let ms = |us: u128| format!("{}.{:03} ms", us / 1_000, us % 1_000);
        format!(
            "calls {}: minimum {}, median {}, maximum {}",
            self.calls,
            ms(self.min_us),
            ms(self.median_us),
            ms(self.max_us)
        )
    }
}

pub(super) async fn run(context: &CommandContext, args: &StoreArgs) -> Result<ExitReason, CommandFailure> {
    match &args.command {
        StoreCommand::Check(args) => check(context, args).await,
        #[cfg(feature = "envelope")]
        StoreCommand::Keys(args) => super::keys::run(context, args).await,
        #[cfg(feature = "envelope")]
        StoreCommand::Rekey(args) => super::rekey::run(context, args).await,
    }
}

async fn check(context: &CommandContext, args: &CheckArgs) -> Result<ExitReason, CommandFailure> {
    if args.print_migrations {
        return print_migrations(context);
    }
    let opened = if args.setup { context.new_store()? } else { context.store()? };
    let promises = opened.capabilities();
    if args.setup {
        opened.setup().await?;
    }
    let reads = reads(context, &*opened).await?;
    let writes = writes(context, &opened, args).await?;
    let conformance = match args.conformance {
        true => Some(probe::conformance(context).await?),
        false => None,
    };
    let found = StoreReport {
        store: store::redact_url(&context.global.store),
        kind: promises.name,
        durable: promises.durable,
        shared: promises.shared,
        notices: promises.notices,
        set_up: args.setup,
        reads: CallTiming::of(reads),
        writes: CallTiming::of(writes),
        conformance,
    };
    context.out.one(&found, |found| found.kind.to_owned(), people)?;
    match found.conformance.as_ref().filter(|conformance| !conformance.failed.is_empty()) {
        None => Ok(ExitReason::Done),
        Some(conformance) => {
            let message =
                format!("the store breaks its contract; failed properties: {}", conformance.failed.len());
            let details =
                conformance.failed.iter().map(|failed| format!("{}: {}", failed.property, failed.why));
            Err(CommandFailure::new(ExitReason::RunFailed, message, "ferrata store check")
                .with_details(details))
        }
    }
}

fn people(found: &StoreReport) -> String {
    let yes = |is: bool, yes: &str, no: &str| if is { yes.to_owned() } else { no.to_owned() };
    let mut lines = vec![
        ("store", found.store.clone()),
        ("kind", found.kind.to_owned()),
        ("durable", yes(found.durable, "yes: acknowledged records survive the process", "no")),
        ("shared", yes(found.shared, "yes: several processes can use it concurrently", "no")),
        (
            "notices",
            yes(found.notices, "yes: the store notifies of changes", "no: processes poll for changes"),
        ),
    ];
    if found.set_up {
        lines.push(("setup", "done".into()));
    }
    lines.extend(found.reads.as_ref().map(|timing| ("reads", timing.shown())));
    lines.extend(found.writes.as_ref().map(|timing| ("writes", timing.shown())));
    if let Some(conformance) = &found.conformance {
        let told = format!(
            "properties passed: {}, failed: {}, in {}; skipped: {}",
            conformance.held,
            conformance.failed.len(),
            short(Duration::from_millis(conformance.took_ms)),
            conformance.left_out.join(", ")
        );
        lines.push(("contract", told));
        lines.push(("place", format!("{} remains, empty", conformance.place)));
    }
    lines.iter().map(|(name, value)| format!("{name:<10}{value}\n")).collect()
}

/// Measures the time of the smallest listing. The first call also connects, so it is not measured.
async fn reads(
    context: &CommandContext,
    opened: &dyn CheckpointStore,
) -> Result<Vec<Duration>, CommandFailure> {
    let mut took = Vec::new();
    for call in 0..=READS {
        let before = context.clock.monotonic();
        opened
            .runs(&RunQuery::default(), Page::first(1))
            .await
            .map_err(|error| CommandFailure::from(error).or_type("ferrata store check --setup"))?;
        if call > 0 {
            took.push(context.clock.monotonic().saturating_sub(before));
        }
    }
    Ok(took)
}

/// Measures the time of appends to a temporary run. The run is purged afterwards, even if an append fails.
async fn writes(
    context: &CommandContext,
    opened: &Arc<dyn CheckpointStore>,
    args: &CheckArgs,
) -> Result<Vec<Duration>, CommandFailure> {
    if args.writes == 0 {
        return Ok(Vec::new());
    }
    let (run, records) = probe::records(context, args.writes)?;
    let mut took = Vec::new();
    let mut failed = None;
    for append in records {
        let before = context.clock.monotonic();
        match opened.append(vec![append]).await.pop() {
            Some(Ok(_)) => took.push(context.clock.monotonic().saturating_sub(before)),
            Some(Err(error)) => {
                failed = Some(error);
                break;
            }
            None => break,
        }
    }
    opened.purge(&run, None).await?;
    match failed {
        Some(error) => Err(CommandFailure::from(error).or_type("ferrata store check --setup --writes 1")),
        None => Ok(took),
    }
}

fn print_migrations(context: &CommandContext) -> Result<ExitReason, CommandFailure> {
    let url = &context.global.store;
    if !(url.starts_with("postgres:") || url.starts_with("postgresql:")) {
        let message = "only a Postgres store has SQL migrations; name one with --store postgres://…";
        let next = "ferrata store check --print-migrations --store postgres://localhost/app";
        return Err(CommandFailure::usage(message, next));
    }
    context.out.text(&migrations(url)?)?;
    Ok(ExitReason::Done)
}

#[cfg(feature = "postgres")]
fn migrations(url: &str) -> Result<String, CommandFailure> {
    let options = ferrata::PostgresOptions::default();
    Ok(ferrata::PostgresStore::from_url(url, options)?.print_migrations())
}

#[cfg(not(feature = "postgres"))]
fn migrations(url: &str) -> Result<String, CommandFailure> {
    // The call fails with the error that the feature is disabled.
    store::open(url).map(|_| String::new())
}
