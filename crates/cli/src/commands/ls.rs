//! `ls`: runs, from their heads alone, so that no log is read.

use ferrata::runtime::is_system;
use ferrata::store::{Page, RunFilter, RunHead, RunQuery};
use ferrata::{CheckpointStore, Timestamp};

use crate::args::{Filter, LsArgs};
use crate::context::Context;
use crate::driven::is_idle;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::family;
use crate::find::shown;
use crate::output::Format;
use crate::table::{Cell, Table, of_status};
use crate::watch::Seen;

pub(super) async fn run(context: &Context, args: &LsArgs) -> Result<Exit, Failure> {
    let store = context.store()?;
    let once = async || list(context, &*store, args).await.map(|()| Seen::MayChange);
    args.watch.run(context, once).await
}

async fn list(context: &Context, store: &dyn CheckpointStore, args: &LsArgs) -> Result<(), Failure> {
    let roots = args.filter.roots;
    let limit = if args.all { usize::MAX } else { args.limit };
    let query = query(context, store, &args.filter).await?;
    let stream = matches!(context.out.format, Format::Jsonl | Format::Ids);
    let (mut heads, mut listed) = (Vec::new(), 0);
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
        if stream {
            context.out.all(&found.items, |head| shown(&head.run), |_| Table::new([]))?;
        } else {
            heads.extend(found.items);
        }
        cursor = found.next;
        if cursor.is_none() {
            break;
        }
    }
    if !stream {
        let (now, time) = (context.now(), context.out.time);
        let at = |at: Timestamp| time.write(at, now);
        context.out.all(&heads, |head| shown(&head.run), |heads| table(heads, at))?;
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

/// Makes a table of runs.
pub(crate) fn table(heads: &[RunHead], at: impl Fn(Timestamp) -> String) -> Table {
    let mut table = Table::new(["RUN", "STATUS", "WORKFLOW", "RECORDS", "STARTED", "UPDATED", "DETAILS"])
        .sparing(["STARTED", "RECORDS", "UPDATED"]);
    for head in heads {
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
