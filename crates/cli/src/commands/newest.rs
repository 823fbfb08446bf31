//! Looking into the newest runs, one after the other.

use ferrata::store::{Page, RunHead, RunQuery};
use ferrata::{ErrorKind, Runtime};

use crate::context::Context;
use crate::failure::Failure;

/// Collects what `look` finds in the newest runs that a query finds, of the tenant that is asked about, and says if `limit` runs were not all.
pub(super) async fn of_newest<T>(
    context: &Context,
    runtime: &Runtime,
    mut query: RunQuery,
    limit: usize,
    look: impl AsyncFn(&RunHead) -> ferrata::Result<Vec<T>>,
) -> Result<Vec<T>, Failure> {
    query.tenant.clone_from(&context.global.tenant);
    let (mut all, mut seen, mut cursor) = (Vec::new(), 0, None);
    loop {
        let wanted = limit.saturating_sub(seen).min(Page::MAX as usize);
        if wanted == 0 {
            context.out.note(&format!("looked at the newest {seen} runs; more with --limit"));
            return Ok(all);
        }
        let mut page = Page::first(u32::try_from(wanted).unwrap_or(Page::MAX));
        if let Some(cursor) = cursor.take() {
            page = page.with_cursor(cursor);
        }
        let found = runtime.store().runs(&query, page).await?;
        seen += found.items.len();
        for head in &found.items {
            match look(head).await {
                Ok(some) => all.extend(some),
                // Purged since it was listed.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                // One run that cannot be read hides no other.
                Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) => {
                    context.out.failure(&error.into(), &context.global);
                }
                Err(error) => return Err(error.into()),
            }
        }
        cursor = found.next;
        if cursor.is_none() {
            return Ok(all);
        }
    }
}
