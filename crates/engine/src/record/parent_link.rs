//! The link between a run and its parent, which is stored in the labels of the child and in memos in the parent's log.

use crate::claim::StartId;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::RunFacts;
use super::child::ParentBond;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Fingerprint, NodeName, RunId, RunKey, Visit};

/// The labels of a run that a node started. They contain the id of the parent, the identity of the start, the bond, the root of the run tree, and the
/// depth.
pub const PARENT: &str = "ferrata.parent";
pub const CHILD: &str = "ferrata.child";
pub const BOND: &str = "ferrata.bond";
pub const ROOT: &str = "ferrata.root";
pub const DEPTH: &str = "ferrata.depth";

/// The label that contains the `traceparent` of a run that was started within a trace.
pub const TRACE: &str = "ferrata.trace";

/// The label that restricts a run to processes with these tags, separated by commas.
pub const TAGS: &str = "ferrata.tags";

/// Labels that applications cannot set.
pub const RESERVED: [&str; 7] = [PARENT, CHILD, BOND, ROOT, DEPTH, TRACE, TAGS];

/// The parent of a run, as the labels of the run describe it.
#[derive(Clone, Debug)]
pub struct ParentLink {
    pub parent: RunKey,
    /// The identity of the start, in the form of [`start_of`].
    pub start: Arc<str>,
    pub bond: ParentBond,
}

impl ParentLink {
    /// Returns `node@visit:name` with the activation that started the run and the name of the run in this activation.
    pub fn path_segment(&self) -> Option<String> {
        let (rest, name) = self.start.rsplit_once(':')?;
        let (rest, visit) = rest.rsplit_once(':')?;
        // Names of nodes may contain colons, a start id cannot.
        let (_, node) = rest.split_once(':')?;
        Some(format!("{node}@{visit}:{name}"))
    }
}

/// The identity of a child, as its parent's log contains it: the run id and the identity of the start. A run with the same id and another start is
/// not the child.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChildRef {
    pub run: RunKey,
    pub parent: RunId,
    pub start: Arc<str>,
}

impl Hash for ChildRef {
    /// Hashes only the identity of the start. Only repeated starts of the same child have the same identity.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.start.hash(state);
    }
}

impl ChildRef {
    /// Returns the identity of a run with this link.
    pub fn of(run: &RunKey, link: &ParentLink) -> Self {
        Self { run: run.clone(), parent: link.parent.run.clone(), start: Arc::clone(&link.start) }
    }

    /// Returns whether a run is the child. The run has the child's id and these facts.
    pub fn is(&self, facts: &RunFacts) -> bool {
        facts.labels.get(PARENT) == Some(self.parent.as_str())
            && facts.labels.get(CHILD) == Some(&*self.start)
    }

    /// Returns whether a run is the child of a copy of the parent. The run then has the same start, but its parent has another run id.
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

/// Returns the unique identity of the start of a child. It contains the start id and the activation of the parent, and the name of the child.
pub fn start_of(start_id: StartId, node: &NodeName, visit: Visit, name: &str) -> Arc<str> {
    format!("{start_id}:{node}:{visit}:{name}").into()
}

/// Returns whether the same activation started two runs under the same name, or whether no node started either of them.
pub fn same_start(one: &RunFacts, other: &RunFacts) -> bool {
    one.labels.get(PARENT) == other.labels.get(PARENT) && one.labels.get(CHILD) == other.labels.get(CHILD)
}

/// Returns the depth of a run below the root of its tree, and the root's id.
pub fn place(run: &RunKey, facts: &RunFacts) -> (u32, RunKey) {
    let depth = facts.labels.get(DEPTH).and_then(|depth| depth.parse().ok()).unwrap_or(0);
    let root = facts.labels.get(ROOT).and_then(|root| RunId::new(root).ok());
    (depth, root.map_or_else(|| run.clone(), |root| RunKey::new(run.tenant.clone(), root)))
}

/// Computes the run id of a child. The id is the same whenever the activation runs again, and differs for every other start.
pub fn child_id(name: &str, start: &str) -> Result<RunId> {
    let print = Fingerprint::of(start.as_bytes()).to_string();
    RunId::new(format!("{name}-{}", print.get(..32).unwrap_or(&print)))
}

/// Checks the labels that an application sets.
///
/// # Errors
///
/// Returns [`ErrorKind::Invalid`] if a label is reserved.
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
