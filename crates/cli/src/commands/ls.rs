//! The command `ls` lists runs from their heads. For a table, it also reads the logs of the first unfinished runs.

use std::collections::HashMap;

use ferrata::queue::QueueMembership;
use ferrata::runtime::{ReasonCache, ReasonKind, RunOrigin, RunReason, is_internal_label, is_system};
use ferrata::store::{Page, RunFilter, RunHead, RunQuery};
use ferrata::{CheckpointStore, RunKey, RunStatus, Runtime, Timestamp};
use ferrata_core::wording::count;
use futures_util::StreamExt as _;
use serde::Serialize;

use crate::args::{FilterArgs, LsArgs};
use crate::concurrent::each;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::idle_warnings::is_idle;
use crate::output::OutputFormat;
use crate::queue_waits::QueueCache;
use crate::reasons::sentence;
use crate::table::{Table, TableCell, of_status};
use crate::unreadable::UnreadableRuns;
use crate::watch::PollResult;

/// Maximum number of runs for which reasons are read: about one screen.
const EXPLAINED: usize = 50;

/// A run in the listing.
#[derive(Serialize)]
struct RunRow {
    #[serde(flatten)]
    head: RunHead,
    /// The queues in which the run waits for a slot.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    queues: Vec<QueueMembership>,
}

pub(super) async fn run(context: &CommandContext, args: &LsArgs) -> Result<ExitReason, CommandFailure> {
    let (runtime, turns, cache) = (context.runtime()?, QueueCache::default(), ReasonCache::new());
    let once = async || list(context, &runtime, &turns, &cache, args).await;
    args.watch.run(context, once).await
}

async fn list(
    context: &CommandContext,
    runtime: &Runtime,
    turns: &QueueCache,
    cache: &ReasonCache,
    args: &LsArgs,
) -> Result<PollResult, CommandFailure> {
    let store = &**runtime.store();
    let roots = args.filter.roots;
    let limit = if args.all { usize::MAX } else { args.limit };
    let query = query(context, store, &args.filter).await?;
    let stream = context.out.is_stream();
    let (mut all, mut listed) = (Vec::new(), 0);
    let mut unreadable = UnreadableRuns::default();
    let mut cursor = None;
    loop {
        let wanted = limit.saturating_sub(listed).min(Page::MAX as usize);
        if wanted == 0 {
            break;
        }
        let mut page = Page::first(u32::try_from(wanted).unwrap_or(Page::MAX));
        if let Some(cursor) = cursor.take() {
            page = page.with_cursor(cursor);
        }
        let mut found = unreadable.page(store, &query, page).await?;
        if roots {
            found.items.retain(RunOrigin::is_root);
        }
        found.items.retain(|head| args.filter.workflow.is_some() || !is_system(head));
        listed += found.items.len();
        let mut waits = match context.out.format {
            OutputFormat::Ids => HashMap::new(),
            _ => turns.of(context, runtime, &found.items).await,
        };
        let page = found.items.into_iter().map(|head| {
            let queues = waits.remove(&head.run).unwrap_or_default();
            RunRow { head, queues }
        });
        if stream {
            context.out.all(
                &page.collect::<Vec<_>>(),
                |one| display_key(&one.head.run),
                |_| Table::new([]),
            )?;
        } else {
            all.extend(page);
        }
        cursor = found.next;
        if cursor.is_none() || !context.out.is_read() {
            break;
        }
    }
    if !stream {
        let (now, time) = (context.now(), context.out.time);
        let at = |at: Timestamp| time.write(at, now);
        let why = match context.out.format {
            OutputFormat::Table => explain_newest(context, runtime, turns, cache, &all).await,
            _ => HashMap::new(),
        };
        let why = |head: &RunHead| why.get(&head.run).cloned();
        let people = |all: &[RunRow]| table(all.iter().map(|one| &one.head), why, at);
        context.out.all(&all, |one| display_key(&one.head.run), people)?;
    }
    if cursor.is_some() && context.out.format == OutputFormat::Table {
        context
            .out
            .note(&format!("listed the newest {}; add --limit or --all for more", count(listed, "run")));
    }
    if listed == 0 && context.out.format == OutputFormat::Table {
        context.out.note("no matching runs");
    }
    Ok(unreadable.into_poll_result("they are not listed"))
}

/// Converts the filter arguments to a query of the store.
pub(crate) async fn query(
    context: &CommandContext,
    store: &dyn CheckpointStore,
    args: &FilterArgs,
) -> Result<RunQuery, CommandFailure> {
    let mut query = RunQuery::default();
    query.tenant.clone_from(&context.global.tenant);
    query.workflow.clone_from(&args.workflow);
    query.statuses = args.status.iter().flat_map(|status| status.meant()).copied().collect();
    query.user.clone_from(&args.user);
    query.labels.clone_from(&args.label);
    query.created_from = args.since.map(|since| {
        let ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_unix_ms(context.now().unix_ms().saturating_sub(ms))
    });
    if args.orphaned {
        query.filter = RunFilter::Orphaned;
    }
    if let Some(parent) = &args.parent {
        query.parent = Some(context.find(store, parent).await?.run);
    }
    Ok(query)
}

/// Reads the logs of the newest runs to find the reasons why these runs failed, wait or were cancelled.
async fn explain_newest(
    context: &CommandContext,
    runtime: &Runtime,
    turns: &QueueCache,
    cache: &ReasonCache,
    all: &[RunRow],
) -> HashMap<RunKey, String> {
    let asks = |one: &&RunRow| one.head.status != RunStatus::Completed;
    let wanted: Vec<&RunRow> = all.iter().filter(asks).take(EXPLAINED).collect();
    let now = context.now();
    let explain = async |one: &&RunRow| {
        let mut reasons = match runtime.explain(&one.head, cache).await {
            Ok(explained) => explained.reasons,
            Err(error) => {
                let text = format!("cannot be read: {}", error.message());
                vec![RunReason::new(ReasonKind::Unreadable, text)]
            }
        };
        turns.explain(&mut reasons, &one.queues, now).await;
        let first = reasons.into_iter().find(|reason| reason.kind != ReasonKind::Working)?;
        Some((one.head.run.clone(), sentence(&first, |at| context.out.time.write(at, now))))
    };
    each(&wanted, |one| Box::pin(explain(one))).filter_map(async |told| told).collect().await
}

/// Formats a table of runs. `why` returns the text of the last column for each run.
pub(crate) fn table<'a>(
    runs: impl Iterator<Item = &'a RunHead>,
    why: impl Fn(&RunHead) -> Option<String>,
    at: impl Fn(Timestamp) -> String,
) -> Table {
    let mut table = Table::new(["RUN", "STATUS", "WORKFLOW", "RECORDS", "STARTED", "UPDATED", "DETAILS"])
        .omit_first(["RECORDS", "UPDATED", "WORKFLOW"])
        .cut_last(["RUN", "STATUS", "STARTED"]);
    for head in runs {
        let labels = head.facts.labels.iter().filter(|(key, _)| !is_internal_label(key));
        let labels = labels.map(|(key, value)| format!("{key}={value}"));
        let short = || match head.wake_at.filter(|_| !head.status.is_finished()) {
            Some(wake) => Some(format!("wakes {}", at(wake))),
            None => is_idle(head).then(|| "has no process".to_owned()),
        };
        let delivers = head.is_delivering().then(|| "delivers outbox messages".to_owned());
        let details: Vec<String> =
            delivers.into_iter().chain(why(head).or_else(short)).chain(labels).collect();
        table.row([
            display_key(&head.run).into(),
            TableCell::styled(head.status.to_string(), of_status(head.status)),
            head.facts.workflow.to_string().into(),
            head.seq.next().get().to_string().into(),
            at(head.facts.created).into(),
            at(head.updated).into(),
            details.join("  ").into(),
        ]);
    }
    table
}
