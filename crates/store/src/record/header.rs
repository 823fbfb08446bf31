//! The record of a run: a header, which stores may read and index, and an opaque body.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::words::words;
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Epoch, ExecutorId, HeadRef, NodeName, RecordId, RunKey, Seq, Visit};

/// The version of the record format that this library writes. It is also the newest version that the library reads.
pub const FORMAT: u16 = 1;

words! {
    /// The kind of a record.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[non_exhaustive]
    pub enum RecordKind {
        /// The run was started with this input.
        Start = "start", 's';
        /// Activations completed or failed.
        Node = "node", 'n';
        /// One attempt of an activation failed, and another attempt will follow.
        Attempt = "attempt", 'a';
        /// A step inside an activation has a result.
        Step = "step", 't';
        /// An activation that must not be repeated is about to start.
        Intent = "intent", 'i';
        /// The run's status changed, or its nodes asked questions.
        Status = "status", 'u';
        /// A caller sent a signal to the run: an answer, a message, a cancel, a pause, a resume or a retry.
        Signal = "signal", 'g';
        /// An executor claimed the run.
        Claim = "claim", 'c';
        /// The owner released the run, so that other executors may claim it at once.
        Release = "release", 'r';
        /// An operator changed the state.
        Edit = "edit", 'e';
        /// No change; the record holds the full state.
        Base = "base", 'b';
    }
}

words! {
    /// The status of a run.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[non_exhaustive]
    pub enum RunStatus {
        /// Nodes run, or could run.
        #[default]
        InProgress = "in_progress", 'p';
        /// Every branch has ended. The state is final.
        Completed = "completed", 'c';
        /// The run stopped because of a failure. It can be retried from its frontier.
        Failed = "failed", 'f';
        /// The run waits. Only answers or an operator can move it.
        Interrupted = "interrupted", 'i';
        /// The run waits for a message. Only a message can move it.
        AwaitingInput = "awaiting_input", 'w';
        /// The run was cancelled. The state is final.
        Cancelled = "cancelled", 'x';
    }
}

impl RunStatus {
    /// Returns whether the run is completed, failed or cancelled.
    pub const fn is_finished(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// The part of a record that a store may read and index.
///
/// The table in [`codec`](crate::codec) lists these fields again for all layouts of all stores: add a new field there, too. In JSON, the fields
/// have short names in a fixed order; `docs/reference/format.md` lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
// Large: the stored header of a record; its fields are a format.
pub struct RecordHeader {
    /// The format version of header and body.
    pub format: u16,
    /// The position in the run's log. Positions are dense and start at 0.
    pub seq: Seq,
    /// The record's id. The writer creates it.
    pub id: RecordId,
    /// The id of the previous record; `None` in the first record of a run.
    pub prev: Option<RecordId>,
    /// Kind of the record.
    pub kind: RecordKind,
    /// The status of the run after the record.
    pub status: RunStatus,
    /// The node that the record is about, if any.
    pub node: Option<NodeName>,
    /// The visit of that node.
    pub visit: Option<Visit>,
    /// The number of times that executors have claimed the run, including this record.
    pub epoch: Epoch,
    /// The owner of the run after the record; `None` if the run has no owner.
    pub owner: Option<ExecutorId>,
    /// The time at which the run is to be woken if no signal comes; `None` if it has no such time.
    pub wake_at: Option<Timestamp>,
    /// The time at which the writer made the record. It is informative and never decides an order.
    pub at: Timestamp,
    /// Whether the body also holds the full state.
    pub base: bool,
    /// The length of the body in bytes.
    pub body_len: u32,
    /// The CRC-32C (Castagnoli) of the body.
    pub body_crc: u32,
}

impl RecordHeader {
    /// Returns the position and the id of the record, which the next append must expect.
    pub fn head(&self) -> HeadRef {
        HeadRef { seq: self.seq, id: self.id }
    }
}

/// One entry of a run's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The part that stores may read.
    pub header: RecordHeader,
    /// The part that is opaque to stores.
    pub body: Bytes,
}

impl Record {
    /// Creates a record from a header and a body. Sets the body's length and checksum in the header.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] if the body has 4 GiB or more.
    pub fn seal(mut header: RecordHeader, body: Bytes) -> Result<Self> {
        header.body_len = u32::try_from(body.len()).map_err(|_| {
            Error::new(
                ErrorKind::TooLarge,
                format!("the record's body has {} bytes; make it smaller than 4 GiB", body.len()),
            )
            .with_seq(header.seq)
        })?;
        header.body_crc = crc32c::crc32c(&body);
        Ok(Self { header, body })
    }

    /// Checks that the body matches its header, and that this library can read the format.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Unsupported`]: a newer version wrote the record.
    /// - [`ErrorKind::Corrupt`]: the length or the checksum does not match.
    pub fn verify(&self, run: &RunKey) -> Result<()> {
        self.verify_up_to(run, FORMAT)
    }

    /// Checks that the body matches its header, and that the format is at most `newest`.
    #[doc(hidden)]
    pub fn verify_up_to(&self, run: &RunKey, newest: u16) -> Result<()> {
        let RecordHeader { format, seq, body_len, body_crc, .. } = self.header;
        let fault = |kind, message: String| Err(Error::new(kind, message).with_run(run).with_seq(seq));
        if format > newest {
            return fault(
                ErrorKind::Unsupported,
                format!(
                    "the record has format {format}, and this version reads up to {newest}; upgrade this process"
                ),
            );
        }
        if u64::from(body_len) != self.body.len() as u64 {
            return fault(
                ErrorKind::Corrupt,
                format!(
                    "the body has {} bytes, but its header has {body_len}; restore the run from a backup",
                    self.body.len()
                ),
            );
        }
        let found = crc32c::crc32c(&self.body);
        if found != body_crc {
            return fault(
                ErrorKind::Corrupt,
                format!(
                    "the body's checksum is {found:08x}, but its header has {body_crc:08x}; restore the run from a backup"
                ),
            );
        }
        Ok(())
    }
}
