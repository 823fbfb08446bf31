//! The command `history` lists the records of a run's log, without their contents.

use ferrata::record::RecordHeader;
use ferrata::store::{Order, Page};
use ferrata_core::wording::count;

use crate::args::HistoryArgs;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::output::OutputFormat;
use crate::table::{Table, TableCell, of_status, word};

pub(super) async fn run(context: &CommandContext, args: &HistoryArgs) -> Result<ExitReason, CommandFailure> {
    let runtime = context.runtime()?;
    let run = context.find(&**runtime.store(), &args.run).await?.run;
    let limit = if args.all { usize::MAX } else { args.limit };
    let (mut headers, mut cursor) = (Vec::new(), None);
    // Read the last records backward from the end, and print them in the order of the log.
    while headers.len() < limit {
        let wanted = (limit - headers.len()).min(Page::MAX as usize);
        let mut page = Page::first(u32::try_from(wanted).unwrap_or(Page::MAX)).with_order(Order::NewestFirst);
        if let Some(cursor) = cursor.take() {
            page = page.with_cursor(cursor);
        }
        let found = runtime.history(&run, page).await?;
        headers.extend(found.items);
        cursor = found.next;
        if cursor.is_none() {
            break;
        }
    }
    headers.reverse();
    let now = context.now();
    context.out.all(
        &headers,
        |header| header.seq.to_string(),
        |headers| table(headers, |at| context.out.time.write(at, now)),
    )?;
    if cursor.is_some() && context.out.format == OutputFormat::Table {
        context.out.note(&format!(
            "listed the last {}; add --limit or --all for more",
            count(headers.len(), "record")
        ));
    }
    Ok(ExitReason::Done)
}

fn table(headers: &[RecordHeader], at: impl Fn(ferrata::Timestamp) -> String) -> Table {
    let mut table = Table::new(["SEQ", "KIND", "NODE", "STATUS AFTER", "AT", "BYTES", "BASE", "CLAIM"])
        .omit_first(["CLAIM", "BASE", "BYTES", "AT", "STATUS AFTER"]);
    for header in headers {
        let node = match (&header.node, header.visit) {
            (Some(node), Some(visit)) => format!("{node}@{visit}"),
            (Some(node), None) => node.to_string(),
            _ => String::new(),
        };
        table.row([
            header.seq.to_string().into(),
            word(&header.kind).into(),
            node.into(),
            TableCell::styled(header.status.to_string(), of_status(header.status)),
            at(header.at).into(),
            header.body_len.to_string().into(),
            if header.base { "base" } else { "" }.into(),
            header.epoch.to_string().into(),
        ]);
    }
    table
}
