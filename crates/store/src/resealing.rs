//! Replaces the envelopes of bodies: the same records, sealed again.

use async_trait::async_trait;

use crate::error::{Error, ErrorKind, Result};
use crate::id::RunKey;
use crate::record::{Record, RecordHeader};

/// Replaces the envelopes of records: for a wrapper that encrypts them with another key.
///
/// A record has the same meaning before and after. A reader of the store itself sees another body, and its length and checksum.
///
/// # To ensure correctness, implementors must
///
/// - replace a record whole or not at all, for readers in any process and whatever ends the process;
/// - replace only the records that [`has_place`] accepts: not a record that was made a base, pruned, purged or written by a later life meanwhile;
/// - change nothing else: neither head nor listings, and no record that the caller did not give;
/// - let appends, prunes and purges go on meanwhile, as if it were not there.
#[async_trait]
pub trait Resealing: Send + Sync {
    /// Replaces the stored records that have the same header except for the body's length and checksum, and returns their number. It skips the
    /// others, which were removed or became a base since the caller read them.
    ///
    /// Replaced records are durable when the call returns.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`]: the records are not in the order of their numbers, or not sealed. Nothing was changed.
    /// - [`ErrorKind::NotFound`]: there is no such run.
    /// - [`ErrorKind::Unavailable`], [`ErrorKind::Indeterminate`]: some may have been replaced; call it again.
    /// - [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`]: the stored records cannot be read.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a dropped future leaves some replaced. Call it again.
    async fn reseal(&self, run: &RunKey, records: &[Record]) -> Result<u64>;
}

/// Returns whether a record given to [`Resealing::reseal`] replaces the stored one: both are the same record, and either both or neither is a base.
pub fn has_place(kept: &RecordHeader, given: &RecordHeader) -> bool {
    kept.id == given.id
        && *given == RecordHeader { body_len: given.body_len, body_crc: given.body_crc, ..kept.clone() }
}

/// Checks what every store must refuse before it replaces anything: records out of order or not sealed.
///
/// # Errors
///
/// [`ErrorKind::Invalid`], naming run and record.
pub fn check_reseal(run: &RunKey, records: &[Record]) -> Result<()> {
    let refuse = |record: &Record, message: &str| {
        let error = Error::new(ErrorKind::Invalid, message).with_operation("store.reseal");
        error.with_run(run).with_seq(record.header.seq)
    };
    for pair in records.windows(2) {
        if pair[0].header.seq >= pair[1].header.seq {
            return Err(refuse(
                &pair[1],
                "the records are out of order; pass each record once, in the order of its number",
            ));
        }
    }
    for record in records {
        let unsealed =
            |source| refuse(record, "the given record is not sealed; seal it first").with_source(source);
        record.verify(run).map_err(unsealed)?;
    }
    Ok(())
}
