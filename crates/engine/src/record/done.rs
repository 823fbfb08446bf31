//! An ended activation, as its record contains it. Fields that are rarely set are in a box.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::body::{FiredEdge, RunEnd, TokenChanges};
use super::outbox::OutboxRecord;
use crate::compact::small_vec::SmallVec;
use crate::failure::Failure;
use crate::id::{NodeName, Visit};
use crate::state::NodeNotes;
#[cfg(test)]
use crate::state::{Artifact, MemoryRead};

/// An ended activation.
///
/// The driver creates this value for each end, even if no record is written, and moves it several times. To keep it small, fields that are rarely set
/// are in a box, which is allocated when one of them is first changed. The box is reached by dereferencing, so its fields can be used like fields of
/// this type.
#[derive(Clone, Debug)]
pub struct NodeDone {
    pub node: NodeName,
    pub visit: Visit,
    /// Number of attempts.
    pub attempts: u32,
    /// Duration of the last attempt in milliseconds.
    pub took_ms: u64,
    /// The output that the fired edges carry to their targets.
    pub output: Option<Arc<RawValue>>,
    /// The fired edges.
    pub fired: SmallVec<FiredEdge>,
    rare: Option<Box<RareFields>>,
}

/// The rare fields of an ended activation.
#[derive(Clone, Debug, PartialEq)]
// Large: the stored form of a result; its fields are a format.
pub struct RareFields {
    /// The failure of the activation. `None` if it succeeded.
    pub failure: Option<Failure>,
    /// The node's notes for people.
    pub notes: Option<String>,
    /// The targets of the edges that did not fire.
    pub bypassed: Vec<NodeName>,
    /// The nodes that can no longer run because of this end, including nodes that can run only after such nodes.
    pub skipped: Vec<NodeName>,
    /// The targets that dropped the token because they had already run in this round.
    pub dropped: Vec<NodeName>,
    /// How tokens start activations, if this differs from the usual case.
    pub settled: TokenChanges,
    /// The channels that the activation overwrote while other activations were running. They are recorded to detect concurrent writers.
    pub wrote: Vec<String>,
    /// Whether the next nodes wait for an answer to the question after this node.
    pub hold: bool,
    /// Whether the activation ended a conversation without a message.
    pub left: bool,
    /// Whether the failed activation was a cleanup after the cancellation of the run.
    pub cleanup: bool,
    /// The outbox messages of the activation.
    pub letters: Vec<OutboxRecord>,
    /// The artifacts and memory reads of the activation, which are not part of the state.
    pub noted: NodeNotes,
    /// The outcome of the run, if the run ended with this activation.
    pub end: Option<RunEnd>,
}

/// The values that rare fields have by default.
static NOTHING: RareFields = RareFields {
    failure: None,
    notes: None,
    bypassed: Vec::new(),
    skipped: Vec::new(),
    dropped: Vec::new(),
    settled: TokenChanges { start: None, spent: Vec::new(), fresh: Vec::new() },
    wrote: Vec::new(),
    hold: false,
    left: false,
    cleanup: false,
    letters: Vec::new(),
    noted: NodeNotes { artifacts: Vec::new(), reads: Vec::new() },
    end: None,
};

impl NodeDone {
    /// Creates an activation that succeeded at the first attempt and fired no edge.
    pub fn new(node: NodeName, visit: Visit) -> Self {
        Self { node, visit, attempts: 1, took_ms: 0, output: None, fired: SmallVec::new(), rare: None }
    }

    /// Returns whether the activation succeeded and only its fired edges decide what follows.
    pub fn has_no_more_than_fired(&self) -> bool {
        let Some(rare) = &self.rare else { return true };
        let RareFields { failure, skipped, dropped, settled, wrote, hold, letters, end, .. } = &**rare;
        failure.is_none()
            && letters.is_empty()
            && dropped.is_empty()
            && skipped.is_empty()
            && wrote.is_empty()
            && !hold
            && end.is_none()
            && *settled == NOTHING.settled
    }

    /// Returns whether all rare fields have their default values.
    pub(super) fn is_usual(&self) -> bool {
        self.rare.is_none()
    }
}

impl Deref for NodeDone {
    type Target = RareFields;

    fn deref(&self) -> &RareFields {
        self.rare.as_deref().unwrap_or(&NOTHING)
    }
}

impl DerefMut for NodeDone {
    fn deref_mut(&mut self) -> &mut RareFields {
        rare(&mut self.rare)
    }
}

impl PartialEq for NodeDone {
    fn eq(&self, other: &Self) -> bool {
        let text = |output: &Option<Arc<RawValue>>| output.as_ref().map(|output| output.get().to_owned());
        self.node == other.node
            && self.visit == other.visit
            && self.attempts == other.attempts
            && self.failure == other.failure
            && text(&self.output) == text(&other.output)
            && self.fired == other.fired
            && self.settled == other.settled
            && self.letters == other.letters
            && self.left == other.left
            && self.cleanup == other.cleanup
            && self.end == other.end
    }
}

/// The stored form: an object with these fields, without defaults. [`write`](super::write) is the opposite direction.
#[derive(Clone, Copy, Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Field {
    Node,
    Visit,
    Attempts,
    TookMs,
    Failure,
    Output,
    Notes,
    Fired,
    Bypassed,
    Skipped,
    Dropped,
    Settled,
    Wrote,
    Hold,
    Left,
    Cleanup,
    Letters,
    Artifacts,
    Reads,
    End,
    #[serde(other)]
    Other,
}

fn rare(of: &mut Option<Box<RareFields>>) -> &mut RareFields {
    of.get_or_insert_with(|| Box::new(NOTHING.clone()))
}

impl<'de> Deserialize<'de> for NodeDone {
    // By hand, because nearly all have three of the fields: the others need no memory and no check.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(StoredDone)
    }
}

struct StoredDone;

impl<'de> Visitor<'de> for StoredDone {
    type Value = NodeDone;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an ended activation")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NodeDone, A::Error> {
        let (mut node, mut visit, mut seen) = (None, None, 0_u32);
        let (mut attempts, mut took_ms, mut output, mut fired) = (1, 0, None, SmallVec::new());
        let mut more = None;
        while let Some(field) = map.next_key()? {
            let bit = 1 << field as u32;
            if seen & bit != 0 && !matches!(field, Field::Other) {
                return Err(A::Error::custom("an ended activation has a field twice"));
            }
            seen |= bit;
            match field {
                Field::Node => node = Some(map.next_value()?),
                Field::Visit => visit = Some(map.next_value()?),
                Field::Attempts => attempts = map.next_value()?,
                Field::TookMs => took_ms = map.next_value()?,
                // A `null` is a value, not an absence.
                Field::Output => output = Some(map.next_value()?),
                Field::Fired => fired = map.next_value()?,
                Field::Failure => rare(&mut more).failure = map.next_value()?,
                Field::Notes => rare(&mut more).notes = map.next_value()?,
                Field::Bypassed => rare(&mut more).bypassed = map.next_value()?,
                Field::Skipped => rare(&mut more).skipped = map.next_value()?,
                Field::Dropped => rare(&mut more).dropped = map.next_value()?,
                Field::Settled => rare(&mut more).settled = map.next_value()?,
                Field::Wrote => rare(&mut more).wrote = map.next_value()?,
                Field::Hold => rare(&mut more).hold = map.next_value()?,
                Field::Left => rare(&mut more).left = map.next_value()?,
                Field::Cleanup => rare(&mut more).cleanup = map.next_value()?,
                Field::Letters => rare(&mut more).letters = map.next_value()?,
                Field::Artifacts => rare(&mut more).noted.artifacts = map.next_value()?,
                Field::Reads => rare(&mut more).noted.reads = map.next_value()?,
                Field::End => rare(&mut more).end = map.next_value()?,
                Field::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(NodeDone {
            node: node.ok_or_else(|| A::Error::missing_field("node"))?,
            visit: visit.ok_or_else(|| A::Error::missing_field("visit"))?,
            attempts,
            took_ms,
            output,
            fired,
            rare: more.filter(|rare| **rare != NOTHING),
        })
    }
}

/// The fields of an ended activation in the form that serde writes.
#[cfg(test)]
#[derive(serde::Serialize)]
pub(super) struct Fields {
    node: NodeName,
    visit: Visit,
    #[serde(skip_serializing_if = "is_one")]
    attempts: u32,
    #[serde(skip_serializing_if = "is_default")]
    took_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Arc<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notes: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fired: Vec<FiredEdge>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bypassed: Vec<NodeName>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<NodeName>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dropped: Vec<NodeName>,
    #[serde(skip_serializing_if = "is_default")]
    settled: TokenChanges,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    wrote: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    hold: bool,
    #[serde(skip_serializing_if = "is_default")]
    left: bool,
    #[serde(skip_serializing_if = "is_default")]
    cleanup: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    letters: Vec<OutboxRecord>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    artifacts: Vec<Artifact>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reads: Vec<MemoryRead>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<RunEnd>,
}

#[cfg(test)]
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_one(value: &u32) -> bool {
    *value == 1
}

#[cfg(test)]
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
impl From<&NodeDone> for Fields {
    fn from(done: &NodeDone) -> Self {
        let rare = (**done).clone();
        let RareFields { failure, notes, bypassed, skipped, dropped, settled, wrote, hold, left, .. } = rare;
        let RareFields { cleanup, letters, noted, end, .. } = (**done).clone();
        let NodeDone { node, visit, attempts, took_ms, output, fired, .. } = done.clone();
        let fired = fired.into();
        Self {
            node,
            visit,
            attempts,
            took_ms,
            failure,
            output,
            notes,
            fired,
            bypassed,
            skipped,
            dropped,
            settled,
            wrote,
            hold,
            left,
            cleanup,
            letters,
            artifacts: noted.artifacts,
            reads: noted.reads,
            end,
        }
    }
}
