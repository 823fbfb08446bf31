//! Reads all headers of a run, for tests that check the written records.

use ferrata_store::{CheckpointStore, HeaderRange, RecordHeader, Result, RunKey};

/// Reads all stored headers of a run, in the order of their numbers.
///
/// # Errors
///
/// The errors of [`CheckpointStore::headers`].
///
/// # Cancel safety
///
/// Cancel safe: the call changes nothing.
#[doc(hidden)]
pub async fn every_header(store: &dyn CheckpointStore, run: &RunKey) -> Result<Vec<RecordHeader>> {
    let (mut all, mut range) = (Vec::new(), Some(HeaderRange::oldest(HeaderRange::MAX)));
    while let Some(asked) = range {
        let answer = store.headers(run, asked).await?;
        range = asked.after(&answer);
        all.extend(answer.items);
    }
    Ok(all)
}
