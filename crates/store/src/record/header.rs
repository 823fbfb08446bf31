//! What stores may read and index of a record: its header; and the record itself, a header with an opaque body.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Epoch, ExecutorId, HeadRef, NodeName, RecordId, RunKey, Seq, Visit};

/// The version of the record format that this library writes, and the newest it reads.
pub const FORMAT: u16 = 1;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RecordKind {
    /// The run was started with this input.
    Start,
    /// Activations completed or failed.
    Node,
    /// One try of an activation failed and another will follow.
    Attempt,
    /// A step inside an activation has a result.
    Step,
    /// An activation that must not be repeated is about to start.
    Intent,
    /// The run's status changed, or questions were asked.
    Status,
    /// Somebody said something to the run: an answer, a message, cancel, pause, resume, retry.
    Signal,
    /// An executor took the run.
    Claim,
    /// Its owner let the run go, so that others may go on at once.
    Release,
    /// An operator changed the state.
    Edit,
    /// Nothing happened; the record holds the full state.
    Base,
}

impl RecordKind {
    /// Every kind, in the order of declaration.
    pub const ALL: [Self; 11] = [
        Self::Start,
        Self::Node,
        Self::Attempt,
        Self::Step,
        Self::Intent,
        Self::Status,
        Self::Signal,
        Self::Claim,
        Self::Release,
        Self::Edit,
        Self::Base,
    ];
}

/// How a run stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunStatus {
    /// Work is under way, or could be.
    #[default]
    InProgress,
    /// Every branch has ended; the state is final.
    Completed,
    /// The run stopped on a failure; it can be retried from its frontier.
    Failed,
    /// Only answers or an operator can move it.
    Interrupted,
    /// Only a message can move it.
    AwaitingInput,
    /// It was cancelled; the state is final.
    Cancelled,
}

impl RunStatus {
    /// Every status, in the order of declaration.
    pub const ALL: [Self; 6] = [
        Self::InProgress,
        Self::Completed,
        Self::Failed,
        Self::Interrupted,
        Self::AwaitingInput,
        Self::Cancelled,
    ];

    /// Tells whether nothing is left to do: the run is completed, failed or cancelled.
    pub const fn is_finished(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// Returns the name as it is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::AwaitingInput => "awaiting_input",
            Self::Cancelled => "cancelled",
        }
    }
}

impl std::fmt::Display for RunStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a store may read and index of a record.
///
/// Serialised with short names in a fixed order; `docs/format.md` lists them byte by byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordHeader {
    /// The format version of header and body.
    #[serde(rename = "v")]
    pub format: u16,
    /// The position in the run's log, dense from 0.
    pub seq: Seq,
    /// The record's id, made by its writer.
    pub id: RecordId,
    /// The id of the record before it; absent on the first of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev: Option<RecordId>,
    /// What the record says.
    pub kind: RecordKind,
    /// The run's status after it.
    pub status: RunStatus,
    /// The node it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// The visit of that node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visit: Option<Visit>,
    /// How often the run has been claimed, this record included.
    pub epoch: Epoch,
    /// Who owns the run after it; absent if nobody does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<ExecutorId>,
    /// When the run is to be woken although nobody says anything; absent if never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
    /// When the writer made it: information, never order.
    pub at: Timestamp,
    /// Whether the body also holds the full state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub base: bool,
    /// The length of the body in bytes.
    #[serde(rename = "len")]
    pub body_len: u32,
    /// The CRC-32C (Castagnoli) of the body.
    #[serde(rename = "crc")]
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
    /// What stores may read.
    pub header: RecordHeader,
    /// What stores never look into.
    pub body: Bytes,
}

impl Record {
    /// Joins a header and a body, filling in the body's length and checksum.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] if the body has 4 GiB or more.
    ///
    /// <!-- held by: content::bodies_are_kept_byte_for_byte -->
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
    /// - [`ErrorKind::Unsupported`]: the record was written by a newer version.
    /// - [`ErrorKind::Corrupt`]: length or checksum differ.
    ///
    /// <!-- held by: damage::a_changed_body_is_corrupt -->
    pub fn verify(&self, run: &RunKey) -> Result<()> {
        let RecordHeader { format, seq, body_len, body_crc, .. } = self.header;
        let fault = |kind, message: String| Err(Error::new(kind, message).with_run(run).with_seq(seq));
        if format > FORMAT {
            return fault(
                ErrorKind::Unsupported,
                format!(
                    "the record has format {format}, this version reads up to {FORMAT}; upgrade this process"
                ),
            );
        }
        if u64::from(body_len) != self.body.len() as u64 {
            return fault(
                ErrorKind::Corrupt,
                format!(
                    "the body has {} bytes, its header says {body_len}; restore the run from a backup",
                    self.body.len()
                ),
            );
        }
        let found = crc32c::crc32c(&self.body);
        if found != body_crc {
            return fault(
                ErrorKind::Corrupt,
                format!(
                    "the body's checksum is {found:08x}, its header says {body_crc:08x}; restore the run from a backup"
                ),
            );
        }
        Ok(())
    }
}
