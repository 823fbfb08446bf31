//! One activation that ended, as its record says it: what nearly all have, and in a box of its own what few have.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::body::{End, Fired, Settled, present};
use super::letter::Sent;
use crate::compact::few::Few;
use crate::failure::Failure;
use crate::id::{NodeName, Visit};
use crate::state::{Artifact, MemoryRead, NodeNotes};

/// One activation that ended.
///
/// One is made for each, also where nothing is written, and moved several times. So what is rare does not lie in it: it is
/// read and changed as if it did, and its box is made with the first change.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Stored")]
pub(crate) struct NodeDone {
    pub(crate) node: NodeName,
    pub(crate) visit: Visit,
    /// How many attempts it took.
    pub(crate) attempts: u32,
    /// How long the last attempt took, in milliseconds.
    pub(crate) took_ms: u64,
    /// What travels along the fired edges.
    pub(crate) output: Option<Arc<RawValue>>,
    /// Which edges fired.
    pub(crate) fired: Few<Fired>,
    rare: Option<Box<Rare>>,
}

/// What few activations have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rare {
    /// Why it failed; absent if it succeeded.
    pub(crate) failure: Option<Failure>,
    /// What the node says to people.
    pub(crate) notes: Option<String>,
    /// The targets of the edges that did not fire.
    pub(crate) bypassed: Vec<NodeName>,
    /// The nodes that will now never run, transitively.
    pub(crate) skipped: Vec<NodeName>,
    /// The targets at which the token came too late and was dropped.
    pub(crate) dropped: Vec<NodeName>,
    /// Which tokens start beyond what is usual.
    pub(crate) settled: Settled,
    /// The channels it overwrote while others were in flight: what a concurrent writer is told apart by.
    pub(crate) wrote: Vec<String>,
    /// Whether what it leads to starts only once an answer agrees.
    pub(crate) hold: bool,
    /// What it sends out of the run.
    pub(crate) letters: Vec<Sent>,
    /// What it noted beside the state.
    pub(crate) noted: NodeNotes,
    /// How the run ended with it; absent if it did not.
    pub(crate) end: Option<End>,
}

/// What an activation without anything rare has of it.
static NOTHING: Rare = Rare {
    failure: None,
    notes: None,
    bypassed: Vec::new(),
    skipped: Vec::new(),
    dropped: Vec::new(),
    settled: Settled { start: None, spent: Vec::new(), fresh: Vec::new() },
    wrote: Vec::new(),
    hold: false,
    letters: Vec::new(),
    noted: NodeNotes { artifacts: Vec::new(), reads: Vec::new() },
    end: None,
};

impl NodeDone {
    /// One that succeeded at once and led to nothing.
    pub(crate) fn new(node: NodeName, visit: Visit) -> Self {
        Self { node, visit, attempts: 1, took_ms: 0, output: None, fired: Few::new(), rare: None }
    }

    /// Whether it succeeded and led to what it fired, and nothing else is to be said for what follows.
    pub(crate) fn has_no_more_than_fired(&self) -> bool {
        let Some(rare) = &self.rare else { return true };
        let Rare { failure, skipped, dropped, settled, wrote, hold, letters, end, .. } = &**rare;
        failure.is_none()
            && letters.is_empty()
            && dropped.is_empty()
            && skipped.is_empty()
            && wrote.is_empty()
            && !hold
            && end.is_none()
            && *settled == NOTHING.settled
    }

    /// Whether there is nothing rare about it.
    pub(super) fn is_usual(&self) -> bool {
        self.rare.is_none()
    }
}

impl Deref for NodeDone {
    type Target = Rare;

    fn deref(&self) -> &Rare {
        self.rare.as_deref().unwrap_or(&NOTHING)
    }
}

impl DerefMut for NodeDone {
    fn deref_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_with(|| Box::new(NOTHING.clone()))
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
            && self.end == other.end
    }
}

/// How it is stored; fields at their default are left out. [`write`](super::write) has the other direction.
#[derive(Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
pub(super) struct Stored {
    node: NodeName,
    visit: Visit,
    #[serde(default = "one")]
    #[cfg_attr(test, serde(skip_serializing_if = "is_one"))]
    attempts: u32,
    #[serde(default)]
    #[cfg_attr(test, serde(skip_serializing_if = "is_default"))]
    took_ms: u64,
    #[serde(default)]
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    failure: Option<Failure>,
    #[serde(default, deserialize_with = "present")]
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    output: Option<Arc<RawValue>>,
    #[serde(default)]
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    notes: Option<String>,
    #[serde(default)]
    #[cfg_attr(test, serde(skip_serializing_if = "Vec::is_empty"))]
    fired: Vec<Fired>,
    #[serde(default)]
    #[cfg_attr(test, serde(skip_serializing_if = "Vec::is_empty"))]
    bypassed: Vec<NodeName>,
    #[serde(default)]
    #[cfg_attr(test, serde(skip_serializing_if = "Vec::is_empty"))]
    skipped: Vec<NodeName>,
    #[serde(default)]
    #[cfg_attr(test, serde(skip_serializing_if = "Vec::is_empty"))]
    dropped: Vec<NodeName>,
    #[serde(default)]
    #[cfg_attr(test, serde(skip_serializing_if = "is_default"))]
    settled: Settled,
    #[serde(default)]
    #[cfg_attr(test, serde(skip_serializing_if = "Vec::is_empty"))]
    wrote: Vec<String>,
    #[serde(default)]
    #[cfg_attr(test, serde(skip_serializing_if = "is_default"))]
    hold: bool,
    #[serde(default)]
    #[cfg_attr(test, serde(skip_serializing_if = "Vec::is_empty"))]
    letters: Vec<Sent>,
    #[serde(default)]
    #[cfg_attr(test, serde(skip_serializing_if = "Vec::is_empty"))]
    artifacts: Vec<Artifact>,
    #[serde(default)]
    #[cfg_attr(test, serde(skip_serializing_if = "Vec::is_empty"))]
    reads: Vec<MemoryRead>,
    #[serde(default)]
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    end: Option<End>,
}

fn one() -> u32 {
    1
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

impl From<Stored> for NodeDone {
    fn from(stored: Stored) -> Self {
        let Stored { node, visit, attempts, took_ms, output, fired, failure, notes, .. } = stored;
        let Stored {
            bypassed, skipped, dropped, settled, wrote, hold, letters, artifacts, reads, end, ..
        } = stored;
        let noted = NodeNotes { artifacts, reads };
        let rare =
            Rare { failure, notes, bypassed, skipped, dropped, settled, wrote, hold, letters, noted, end };
        let rare = (rare != NOTHING).then(|| Box::new(rare));
        Self { node, visit, attempts, took_ms, output, fired: fired.into_iter().collect(), rare }
    }
}

#[cfg(test)]
impl From<&NodeDone> for Stored {
    fn from(done: &NodeDone) -> Self {
        let Rare { failure, notes, bypassed, skipped, dropped, settled, wrote, hold, letters, noted, end } =
            (**done).clone();
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
            letters,
            artifacts: noted.artifacts,
            reads: noted.reads,
            end,
        }
    }
}
