//! The header of a record, which stores may read and index; and the record itself, a header with an opaque body.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::words::words;
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Epoch, ExecutorId, HeadRef, NodeName, RecordId, RunKey, Seq, Visit};

/// The version of the record format that this library writes, and the newest it reads.
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
        /// One try of an activation failed and another will follow.
        Attempt = "attempt", 'a';
        /// A step inside an activation has a result.
        Step = "step", 't';
        /// An activation that must not be repeated is about to start.
        Intent = "intent", 'i';
        /// The run's status changed, or its nodes asked questions.
        Status = "status", 'u';
        /// A signaller said something to the run: an answer, a message, cancel, pause, resume, retry.
        Signal = "signal", 'g';
        /// An executor took the run.
        Claim = "claim", 'c';
        /// Its owner let the run go, so that others may go on at once.
        Release = "release", 'r';
        /// An operator changed the state.
        Edit = "edit", 'e';
        /// No change; the record holds the full state.
        Base = "base", 'b';
    }
}

words! {
    /// How a run stands.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[non_exhaustive]
    pub enum RunStatus {
        /// Work is under way, or could be.
        #[default]
        InProgress = "in_progress", 'p';
        /// Every branch has ended; the state is final.
        Completed = "completed", 'c';
        /// The run stopped on a failure; it can be retried from its frontier.
        Failed = "failed", 'f';
        /// Only answers or an operator can move it.
        Interrupted = "interrupted", 'i';
        /// Only a message can move it.
        AwaitingInput = "awaiting_input", 'w';
        /// It was cancelled; the state is final.
        Cancelled = "cancelled", 'x';
    }
}

impl RunStatus {
    /// Returns whether nothing is left to do: the run is completed, failed or cancelled.
    pub const fn is_finished(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// The part of a record that a store may read and index.
///
/// Its fields are listed once more in [`codec`](crate::codec), which every layout of every store walks: a field that is new gets a
/// line there. In JSON it has short names in a fixed order; `docs/reference/format.md` lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// The format version of header and body.
    pub format: u16,
    /// The position in the run's log, dense from 0.
    pub seq: Seq,
    /// The record's id, made by its writer.
    pub id: RecordId,
    /// The id of the record before it; absent on the first of a run.
    pub prev: Option<RecordId>,
    /// Kind of the record.
    pub kind: RecordKind,
    /// The run's status after it.
    pub status: RunStatus,
    /// The node it is about, if it is about one.
    pub node: Option<NodeName>,
    /// The visit of that node.
    pub visit: Option<Visit>,
    /// How often the run has been claimed, this record included.
    pub epoch: Epoch,
    /// Owner of the run after the record; absent if the run has no owner.
    pub owner: Option<ExecutorId>,
    /// When the run is to be woken although no signal comes; absent if never.
    pub wake_at: Option<Timestamp>,
    /// When the writer made it: information, never order.
    pub at: Timestamp,
    /// Whether the body also holds the full state.
    pub base: bool,
    /// The length of the body in bytes.
    pub body_len: u32,
    /// The CRC-32C (Castagnoli) of the body.
    pub body_crc: u32,
}

impl RecordHeader {
    /// Returns position and id, as the next append must expect them.
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
    /// Joins a header and a body, filling in the body's length and checksum.
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

    /// Checks the body against its header, and that this library can read the format.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Unsupported`]: a newer version wrote the record.
    /// - [`ErrorKind::Corrupt`]: length or checksum differ.
    pub fn verify(&self, run: &RunKey) -> Result<()> {
        self.verify_up_to(run, FORMAT)
    }

    /// Checks the body against its header, and that the format is not after this one.
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
