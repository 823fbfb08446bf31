//! Reads the newest runs of a query, one after the other.

use ferrata::store::{Page, RunHead, RunQuery};
use ferrata::{ErrorKind, Runtime};
use ferrata_core::wording::count;

use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::unreadable::{UnreadableRuns, is_unreadable};

/// Calls `look` for the newest runs of a query in the selected tenant, and collects the results and the unreadable runs. If there are more than
/// `limit` runs, prints a note.
pub(super) async fn of_newest<T>(
    context: &CommandContext,
    runtime: &Runtime,
    mut query: RunQuery,
    limit: usize,
    look: impl AsyncFn(&RunHead) -> ferrata::Result<Vec<T>>,
) -> Result<(Vec<T>, UnreadableRuns), CommandFailure> {
    query.tenant.clone_from(&context.global.tenant);
    let (mut all, mut seen, mut cursor) = (Vec::new(), 0, None);
    let mut unreadable = UnreadableRuns::default();
    loop {
        let wanted = limit.saturating_sub(seen).min(Page::MAX as usize);
        if wanted == 0 {
            context.out.note(&format!("checked the newest {}; add --limit for more", count(seen, "run")));
            return Ok((all, unreadable));
        }
        let mut page = Page::first(u32::try_from(wanted).unwrap_or(Page::MAX));
        if let Some(cursor) = cursor.take() {
            page = page.with_cursor(cursor);
        }
        let found = unreadable.page(&**runtime.store(), &query, page).await?;
        seen += found.items.len();
        for head in &found.items {
            match look(head).await {
                Ok(some) => all.extend(some),
                // The run was purged after it was listed.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                // An unreadable run does not prevent the others from being shown.
                Err(error) if is_unreadable(&error) => unreadable.add(&head.run, error),
                Err(error) => return Err(error.into()),
            }
        }
        cursor = found.next;
        if cursor.is_none() {
            return Ok((all, unreadable));
        }
    }
}
