//! The link between a run and its parent: the labels of the child, and the notes in the parent's log.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use uuid::Uuid;

use super::RunFacts;
use super::child::ParentBond;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Fingerprint, NodeName, RunId, RunKey, Visit};

/// The labels of a run that a node started: the parent's id, the start of the parent, the bond, the root of the run tree, and the depth.
pub const PARENT: &str = "ferrata.parent";
pub const CHILD: &str = "ferrata.child";
pub const BOND: &str = "ferrata.bond";
pub const ROOT: &str = "ferrata.root";
pub const DEPTH: &str = "ferrata.depth";

/// The label of a run that was started in a trace: its `traceparent`.
pub const TRACE: &str = "ferrata.trace";

/// The label that restricts a run to processes with these tags, separated by commas.
pub const TAGS: &str = "ferrata.tags";

/// Labels that applications cannot set.
pub const RESERVED: [&str; 7] = [PARENT, CHILD, BOND, ROOT, DEPTH, TRACE, TAGS];

/// The parent of a run, from the run's labels.
#[derive(Clone, Debug)]
pub struct ParentLink {
    pub parent: RunKey,
    /// The start of the parent, in the form of [`start_of`].
    pub start: Arc<str>,
    pub bond: ParentBond,
}

impl ParentLink {
    /// Returns the activation that started the run, and the run's name there, as `node@visit:name`.
    pub fn path_segment(&self) -> Option<String> {
        let (rest, name) = self.start.rsplit_once(':')?;
        let (rest, visit) = rest.rsplit_once(':')?;
        // Names of nodes may contain colons, the generation of a run cannot.
        let (_, node) = rest.split_once(':')?;
        Some(format!("{node}@{visit}:{name}"))
    }
}

/// A child as its parent's log names it: the run id and its start. Another run with that id is not the child.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChildRef {
    pub run: RunKey,
    pub parent: RunId,
    pub start: Arc<str>,
}

impl Hash for ChildRef {
    /// By the start alone: only the rounds of one child share it.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.start.hash(state);
    }
}

impl ChildRef {
    /// Returns the identity of a run with this link.
    pub fn of(run: &RunKey, link: &ParentLink) -> Self {
        Self { run: run.clone(), parent: link.parent.run.clone(), start: Arc::clone(&link.start) }
    }

    /// Returns whether a run with the child's id and these facts is the child.
    pub fn is(&self, facts: &RunFacts) -> bool {
        facts.labels.get(PARENT) == Some(self.parent.as_str())
            && facts.labels.get(CHILD) == Some(&*self.start)
    }

    /// Returns whether a run with these facts is the child of a copy of the parent: the same start, noted in the same log under another id.
    pub fn is_of_copy(&self, facts: &RunFacts) -> bool {
        facts.labels.get(PARENT) != Some(self.parent.as_str())
            && facts.labels.get(CHILD) == Some(&*self.start)
    }
}

/// Returns the parent of a run, or `None` if no node started it.
pub fn parent_link(run: &RunKey, facts: &RunFacts) -> Option<ParentLink> {
    let parent = RunId::new(facts.labels.get(PARENT)?).ok()?;
    let bond = match facts.labels.get(BOND)? {
        "cancel" => ParentBond::Cancel,
        "leave" => ParentBond::Leave,
        _ => ParentBond::Detached,
    };
    let start = facts.labels.get(CHILD)?.into();
    Some(ParentLink { parent: RunKey::new(run.tenant.clone(), parent), start, bond })
}

/// Returns the unique name of a child's start: the generation and activation of its parent, and the child's name.
pub fn start_of(life: Uuid, node: &NodeName, visit: Visit, name: &str) -> Arc<str> {
    format!("{life}:{node}:{visit}:{name}").into()
}

/// Returns whether two runs have the same start, or both have none.
pub fn same_start(one: &RunFacts, other: &RunFacts) -> bool {
    one.labels.get(PARENT) == other.labels.get(PARENT) && one.labels.get(CHILD) == other.labels.get(CHILD)
}

/// Returns the depth of a run below the root of its tree, and the root's id.
pub fn place(run: &RunKey, facts: &RunFacts) -> (u32, RunKey) {
    let depth = facts.labels.get(DEPTH).and_then(|depth| depth.parse().ok()).unwrap_or(0);
    let root = facts.labels.get(ROOT).and_then(|root| RunId::new(root).ok());
    (depth, root.map_or_else(|| run.clone(), |root| RunKey::new(run.tenant.clone(), root)))
}

/// Creates the id of a child: the same whenever the activation runs again, and different for every other start.
pub fn child_id(name: &str, start: &str) -> Result<RunId> {
    let print = Fingerprint::of(start.as_bytes()).to_string();
    RunId::new(format!("{name}-{}", print.get(..32).unwrap_or(&print)))
}

/// Checks the labels that an application sets.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] if a label is reserved.
pub fn refuse_reserved(labels: &[(String, String)]) -> Result<()> {
    match labels.iter().find(|(key, _)| RESERVED.contains(&&**key)) {
        None => Ok(()),
        Some((key, _)) => {
            let message = match key.as_str() {
                TRACE => format!("the label `{key}` is reserved for the trace of a run; use `trace_parent`"),
                TAGS => format!("the label `{key}` is reserved for the tags of processes; use `only_in`"),
                _ => format!("the label `{key}` is reserved for the parent of a run; use another key"),
            };
            Err(Error::new(ErrorKind::Invalid, message))
        }
    }
}
