//! Replaces the envelopes of stored records, for example after a change of the encryption key.

use async_trait::async_trait;

use crate::error::{Error, ErrorKind, Result};
use crate::id::RunKey;
use crate::record::{Record, RecordHeader};

/// Replaces the envelopes of stored records. A wrapper that encrypts records uses it to encrypt them with another key.
///
/// A record has the same meaning before and after. A reader of the inner store sees another body, and another length and checksum of the body.
///
/// # To ensure correctness, implementors must
///
/// - replace a record completely or not at all, for readers in any process, even if the process ends in the middle;
/// - replace only the records that [`has_place`] accepts. Skip a record that meanwhile was made a base, pruned, purged, or written by a later run
///   of the same id;
/// - change nothing else: not the head, not the listings, and no record that the caller did not give;
/// - allow appends, prunes and purges at the same time.
#[async_trait]
pub trait Resealing: Send + Sync {
    /// Replaces each stored record that has the same header, except for the body's length and checksum. Returns the number of replaced records. It
    /// skips records that were removed or became a base after the caller read them.
    ///
    /// Replaced records are durable when the call returns.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`]: the records are not in the order of their numbers, or are not sealed. The store changed nothing.
    /// - [`ErrorKind::NotFound`]: the run does not exist.
    /// - [`ErrorKind::Unavailable`], [`ErrorKind::Indeterminate`]: some records may have been replaced; call it again.
    /// - [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`]: the stored records cannot be read.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a dropped future may leave some records replaced. Call it again.
    async fn reseal(&self, run: &RunKey, records: &[Record]) -> Result<u64>;
}

/// Returns whether a record given to [`Resealing::reseal`] may replace the stored record. Both must be the same record, and either both or neither
/// must be a base.
pub fn has_place(kept: &RecordHeader, given: &RecordHeader) -> bool {
    kept.id == given.id
        && *given == RecordHeader { body_len: given.body_len, body_crc: given.body_crc, ..kept.clone() }
}

/// Makes the checks that every store must make before it replaces anything: the records must be in order and sealed.
///
/// # Errors
///
/// [`ErrorKind::Invalid`], with run and record.
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
