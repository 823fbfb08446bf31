//! Who started a run: what the labels of a child say of its parent, and what a parent's log says of it.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use uuid::Uuid;

use super::RunFacts;
use super::child::ParentBond;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Fingerprint, NodeName, RunId, RunKey, Visit};

/// The labels of a run that a node started: the id of its parent, which start of the parent it is of, what binds it, the first run above,
/// and how deep it is.
pub(crate) const PARENT: &str = "ferrata.parent";
pub(crate) const CHILD: &str = "ferrata.child";
pub(crate) const BOND: &str = "ferrata.bond";
pub(crate) const ROOT: &str = "ferrata.root";
pub(crate) const DEPTH: &str = "ferrata.depth";

/// The label of a run that was started in a trace: its `traceparent`.
pub(crate) const TRACE: &str = "ferrata.trace";

/// The label of a run that only some processes take up: the tags that these have, with commas.
pub(crate) const TAGS: &str = "ferrata.tags";

/// Labels that applications cannot set.
pub(crate) const RESERVED: [&str; 7] = [PARENT, CHILD, BOND, ROOT, DEPTH, TRACE, TAGS];

/// Who started a run, as its labels say.
#[derive(Clone, Debug)]
pub(crate) struct ParentLink {
    pub(crate) parent: RunKey,
    /// Which start of the parent it is of, as [`start_of`] makes it.
    pub(crate) start: Arc<str>,
    pub(crate) bond: ParentBond,
}

impl ParentLink {
    /// Returns the activation that started the run and what it calls the run, as `node@visit:name`.
    pub(crate) fn way(&self) -> Option<String> {
        let (rest, name) = self.start.rsplit_once(':')?;
        let (rest, visit) = rest.rsplit_once(':')?;
        // Names of nodes may hold colons, the life of a run does not.
        let (_, node) = rest.split_once(':')?;
        Some(format!("{node}@{visit}:{name}"))
    }
}

/// A child as its parent's log names it: the run, and the start that made it. Another run of that id is not the child.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChildRef {
    pub(crate) run: RunKey,
    pub(crate) parent: RunId,
    pub(crate) start: Arc<str>,
}

impl Hash for ChildRef {
    /// By the start alone: only the rounds of one child share it.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.start.hash(state);
    }
}

impl ChildRef {
    /// Names a run that was started by this link.
    pub(crate) fn of(run: &RunKey, link: &ParentLink) -> Self {
        Self { run: run.clone(), parent: link.parent.run.clone(), start: Arc::clone(&link.start) }
    }

    /// Whether a run of the child's id, which has these facts, is the child.
    pub(crate) fn is(&self, facts: &RunFacts) -> bool {
        facts.labels.get(PARENT) == Some(self.parent.as_str())
            && facts.labels.get(CHILD) == Some(&*self.start)
    }

    /// Whether a run with these facts is the child of a copy of the parent: the same start, noted in the same log under another id.
    pub(crate) fn is_of_copy(&self, facts: &RunFacts) -> bool {
        facts.labels.get(PARENT) != Some(self.parent.as_str())
            && facts.labels.get(CHILD) == Some(&*self.start)
    }
}

/// Returns who started a run; `None` if no node did.
pub(crate) fn parent_link(run: &RunKey, facts: &RunFacts) -> Option<ParentLink> {
    let parent = RunId::new(facts.labels.get(PARENT)?).ok()?;
    let bond = match facts.labels.get(BOND)? {
        "cancel" => ParentBond::Cancel,
        "leave" => ParentBond::Leave,
        _ => ParentBond::Detached,
    };
    let start = facts.labels.get(CHILD)?.into();
    Some(ParentLink { parent: RunKey::new(run.tenant.clone(), parent), start, bond })
}

/// Names the start of a child: the life and activation of its parent, and the child's name. No other start has that.
pub(crate) fn start_of(life: Uuid, node: &NodeName, visit: Visit, name: &str) -> Arc<str> {
    format!("{life}:{node}:{visit}:{name}").into()
}

/// Tells whether two runs are of the same start, or of none.
pub(crate) fn same_start(one: &RunFacts, other: &RunFacts) -> bool {
    one.labels.get(PARENT) == other.labels.get(PARENT) && one.labels.get(CHILD) == other.labels.get(CHILD)
}

/// Returns how deep a run is below the first one, and the id of that.
pub(crate) fn place(run: &RunKey, facts: &RunFacts) -> (u32, RunKey) {
    let depth = facts.labels.get(DEPTH).and_then(|depth| depth.parse().ok()).unwrap_or(0);
    let root = facts.labels.get(ROOT).and_then(|root| RunId::new(root).ok());
    (depth, root.map_or_else(|| run.clone(), |root| RunKey::new(run.tenant.clone(), root)))
}

/// Makes the id of a child: the same whenever the activation runs again, and no other start's.
pub(crate) fn child_id(name: &str, start: &str) -> Result<RunId> {
    let print = Fingerprint::of(start.as_bytes()).to_string();
    RunId::new(format!("{name}-{}", print.get(..32).unwrap_or(&print)))
}

/// Checks labels that an application sets.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] if one is reserved.
pub(crate) fn refuse_reserved(labels: &[(String, String)]) -> Result<()> {
    match labels.iter().find(|(key, _)| RESERVED.contains(&&**key)) {
        None => Ok(()),
        Some((key, _)) => {
            let message = match key.as_str() {
                TRACE => format!("the label `{key}` says which trace a run belongs to; use `trace_parent`"),
                TAGS => format!("the label `{key}` says which processes take a run up; use `only_in`"),
                _ => format!("the label `{key}` says which node started a run; use another key"),
            };
            Err(Error::new(ErrorKind::Invalid, message))
        }
    }
}
