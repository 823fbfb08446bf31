//! Reads all stored records of a run.

use crate::{At, CheckpointStore, ErrorKind, Record, Result, RunHead, Seq};

/// Passes each stored record of a run to `take`, in pieces from the newest base backward. Only one piece is in memory at a time, as much as for a
/// load of the run.
///
/// Returns whether it found all records up to the head. Returns false if some records were pruned, or if the run was purged meanwhile, even if its
/// id was started again.
///
/// `take` also gets records that were appended before the first piece was read.
///
/// # Errors
///
/// The errors of [`CheckpointStore::load`], with the run; and any error of `take`. `take` may have received records before the error.
///
/// # Cancel safety
///
/// Cancel safe: the call changes nothing.
///
/// # Examples
///
/// ```
/// use ferrata_testing::Log;
/// use ferrata_store::{CheckpointStore as _, MemoryStore, RunId, for_each_record};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> ferrata_store::Result<()> {
/// let store = MemoryStore::new();
/// let mut log = Log::new(RunId::new("r")?);
/// log.write(&store, 10).await;
/// let head = store.head(&log.key).await?.expect("it was written");
/// let mut bytes = 0;
/// let all = for_each_record(&store, &head, |record| {
///     bytes += record.body.len();
///     Ok(())
/// });
/// assert!(all.await?);
/// assert_eq!(bytes, log.records.iter().map(|record| record.body.len()).sum::<usize>());
/// # Ok(())
/// # }
/// ```
#[doc(hidden)]
pub async fn for_each_record(
    store: &dyn CheckpointStore,
    head: &RunHead,
    mut take: impl FnMut(&Record) -> Result<()> + Send,
) -> Result<bool> {
    let (mut at, mut prev, mut is_seen) = (At::Latest, None, false);
    loop {
        let records = match store.load(&head.run, at).await {
            Ok(Some(records)) => records,
            Ok(None) => return Ok(false),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error.with_run(&head.run)),
        };
        // If the run was purged and started again, other records have these numbers.
        let last = records.last().map(|record| record.header.id);
        if at != At::Latest && last != prev {
            return Ok(false);
        }
        for record in &records {
            is_seen |= record.header.head() == head.head();
            take(record)?;
        }
        match records.first().map(|record| &record.header) {
            Some(first) if first.seq > head.first => {
                (at, prev) = (At::Seq(Seq::new(first.seq.get() - 1)), first.prev);
            }
            _ => return Ok(is_seen),
        }
    }
}
