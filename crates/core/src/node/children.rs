//! Children of a node: what it notes of them, and the wait for what comes of one. Starting them is the runtime's.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde_json::value::RawValue;

use super::context::NodeContext;
use super::wish::{Given, Wish};
use crate::error::Result;
use crate::id::RunKey;
use crate::record::child::{Child, ChildNote, child};
use crate::record::codec::to_raw;
use crate::record::parent_link::{ChildRef, start_of};

/// What the nodes of a run can reach of the runtime that drives it.
#[derive(Clone)]
pub(crate) struct Host {
    /// The runtime's own; it knows the type.
    pub(crate) runtime: Weak<dyn Any + Send + Sync>,
    /// How many runs there are above this one that wait for it.
    pub(crate) depth: u32,
    /// The first of them.
    pub(crate) root: RunKey,
}

/// The children that an attempt has started, or gone on with.
#[derive(Debug, Default)]
pub(crate) struct StartedChildren(Mutex<Vec<Child>>);

impl StartedChildren {
    /// Notes a child as it was started last.
    pub(crate) fn note(&self, child: Child) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.name != child.name);
        all.push(child);
    }

    /// Notes that the node knows what came of a child.
    fn told(&self, name: &str, end: &Arc<RawValue>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter_mut()
            .filter(|known| known.name == name)
            .for_each(|known| known.told = Some(Arc::clone(end)));
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Lists the children of an activation: those of this attempt, and what is noted of those of before.
    pub(crate) fn with(&self, before: Vec<Child>) -> Vec<Child> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let known = |name: &str| all.iter().any(|child| child.name == name);
        let rest: Vec<_> = before.into_iter().filter(|child| !known(&child.name)).collect();
        all.extend(rest);
        all
    }
}

/// A child that a node is about to start, or has started.
pub(crate) struct Kept {
    pub(crate) child: Child,
    /// Whether this attempt noted it: then nobody can have started it before.
    pub(crate) is_new: bool,
}

impl NodeContext {
    /// Returns what is noted of the child of this name.
    pub(crate) fn known_child(&self, name: &str) -> Option<Child> {
        self.scope.memos.child(name)
    }

    /// How many children the activation has.
    pub(crate) fn count_children(&self) -> usize {
        let before = self.scope.memos.children();
        if before.is_empty() { self.scope.started.len() } else { self.scope.started.with(before).len() }
    }

    /// Counts the node as at work until what this returns is dropped.
    pub(crate) fn at_work(&self) -> impl Drop + '_ {
        self.scope.waits.work()
    }

    /// Notes that a child is about to be started; when this returns, that is on stable storage.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) if the run is left, [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in
    /// an `External` node.
    pub(crate) async fn note_child(&self, name: &str, round: u32, note: ChildNote) -> Result<Kept> {
        self.wish(child(round, name), Wish::Record(to_raw(&note)?)).await?;
        let child = Child::new(name, round, note);
        self.scope.started.note(child.clone());
        Ok(Kept { child, is_new: true })
    }

    /// Finds a child again that was noted before this attempt, in its place among the waits that ended.
    ///
    /// # Errors
    ///
    /// As [`note_child`](Self::note_child).
    pub(crate) async fn find_child(&self, known: Child) -> Result<Kept> {
        if self.scope.memos.say_order() {
            self.wish(child(known.round, &known.name), Wish::Recall).await?;
        }
        self.scope.started.note(known.clone());
        Ok(Kept { child: known, is_new: false })
    }

    /// Notes that a child was started, in passing.
    ///
    /// # Errors
    ///
    /// As [`note_child`](Self::note_child).
    pub(crate) async fn note_began(&self, child: &Child) -> Result<()> {
        self.wish(child.began_name(), Wish::Mark).await.map(|_| ())
    }

    /// Waits for what comes of a child, now or after a restart months later.
    ///
    /// # Errors
    ///
    /// As [`note_child`](Self::note_child).
    pub(crate) async fn wait_for_child(&self, child: &Child) -> Result<Arc<RawValue>> {
        match self.wish(child.told_name(), Wish::Child(self.child_ref(child))).await? {
            Given::Kept(end) => {
                self.scope.started.told(&child.name, &end);
                Ok(end)
            }
            _ => Err(self.mismatch(&child.name, "child")),
        }
    }

    /// Names a child of this activation.
    pub(crate) fn child_ref(&self, child: &Child) -> ChildRef {
        let parent = self.run();
        ChildRef {
            run: RunKey::new(parent.tenant.clone(), child.note.run.clone()),
            parent: parent.run.clone(),
            start: self.start_of(&child.name),
        }
    }

    /// Names the start of a child of this activation.
    pub(crate) fn start_of(&self, name: &str) -> String {
        start_of(self.scope.run.life, self.node(), self.visit(), name)
    }

    pub(crate) fn host(&self) -> &Host {
        &self.scope.run.host
    }

    /// Claims the name of a child for this attempt.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if it is taken, or is no name.
    pub(crate) fn claim_child(&self, name: &str) -> Result<()> {
        self.claim(name.to_owned()).map(|_| ())
    }

    /// Says that the run is left.
    pub(crate) fn left(&self) -> crate::error::Error {
        self.gone()
    }
}
