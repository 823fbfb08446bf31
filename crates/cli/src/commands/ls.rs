//! `ls`: runs, from their heads alone, so that no log is read but those of queues.

use std::collections::HashMap;

use ferrata::queue::Standing;
use ferrata::runtime::is_system;
use ferrata::store::{Page, RunFilter, RunHead, RunQuery};
use ferrata::{CheckpointStore, Runtime, Timestamp};
use serde::Serialize;

use crate::args::{Filter, LsArgs};
use crate::context::Context;
use crate::driven::is_idle;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::family;
use crate::find::shown;
use crate::output::Format;
use crate::table::{Cell, Table, of_status};
use crate::turns::{self, Turns};
use crate::watch::Seen;

/// A run as it is listed.
#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    head: RunHead,
    /// The queues in which it waits for its turn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    queues: Vec<Standing>,
}

pub(super) async fn run(context: &Context, args: &LsArgs) -> Result<Exit, Failure> {
    let (runtime, turns) = (context.runtime()?, Turns::default());
    let once = async || list(context, &runtime, &turns, args).await.map(|()| Seen::MayChange);
    args.watch.run(context, once).await
}

async fn list(context: &Context, runtime: &Runtime, turns: &Turns, args: &LsArgs) -> Result<(), Failure> {
    let store = &**runtime.store();
    let roots = args.filter.roots;
    let limit = if args.all { usize::MAX } else { args.limit };
    let query = query(context, store, &args.filter).await?;
    let stream = context.out.is_stream();
    let (mut all, mut listed) = (Vec::new(), 0);
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
        let mut found = store.runs(&query, page).await?;
        if roots {
            found.items.retain(family::is_root);
        }
        found.items.retain(|head| args.filter.workflow.is_some() || !is_system(head));
        listed += found.items.len();
        let mut waits = match context.out.format {
            Format::Ids => HashMap::new(),
            _ => turns.of(context, runtime, &found.items).await,
        };
        let page = found.items.into_iter().map(|head| {
            let queues = waits.remove(&head.run).unwrap_or_default();
            Listed { head, queues }
        });
        if stream {
            context.out.all(&page.collect::<Vec<_>>(), |one| shown(&one.head.run), |_| Table::new([]))?;
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
        let people = |all: &[Listed]| table(all.iter().map(|one| (&one.head, one.queues.as_slice())), at);
        context.out.all(&all, |one| shown(&one.head.run), people)?;
    }
    if cursor.is_some() && context.out.format == Format::Table {
        context.out.note(&format!("the newest {listed} runs; more with --limit or --all"));
    }
    if listed == 0 && context.out.format == Format::Table {
        context.out.note("no such runs");
    }
    Ok(())
}

/// Makes a query of the flags that choose runs.
pub(crate) async fn query(
    context: &Context,
    store: &dyn CheckpointStore,
    args: &Filter,
) -> Result<RunQuery, Failure> {
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

/// Makes a table of runs, each with what it waits for in queues.
pub(crate) fn table<'a>(
    runs: impl Iterator<Item = (&'a RunHead, &'a [Standing])>,
    at: impl Fn(Timestamp) -> String,
) -> Table {
    let mut table = Table::new(["RUN", "STATUS", "WORKFLOW", "RECORDS", "STARTED", "UPDATED", "DETAILS"])
        .sparing(["STARTED", "RECORDS", "UPDATED"]);
    for (head, queues) in runs {
        let labels: Vec<String> =
            head.facts.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let mut details = labels.join(" ");
        if is_idle(head) {
            details = format!("no process drives it {details}");
        }
        if head.is_delivering() {
            details = format!("delivering {details}");
        }
        if let Some(wake) = head.wake_at.filter(|_| !head.status.is_finished()) {
            details = format!("wakes {} {details}", at(wake));
        }
        for one in queues.iter().rev() {
            details = format!("waits for {} {details}", turns::told(one, &at(one.since)));
        }
        table.row([
            shown(&head.run).into(),
            Cell::styled(head.status.to_string(), of_status(head.status)),
            head.facts.workflow.to_string().into(),
            head.seq.next().get().to_string().into(),
            at(head.facts.created).into(),
            at(head.updated).into(),
            details.trim_end().into(),
        ]);
    }
    table
}
