//! Children of a node: what it notes of them, and the wait for what comes of one. Starting them is the runtime's.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use serde_json::value::RawValue;

use super::context::{NodeContext, RunScope};
use super::end_waiters::EndWaiter;
use super::wish::{ChildWait, NodeReply, NodeRequest};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::RunKey;
use crate::record::child::{Child, ChildNote, child};
use crate::record::codec::to_raw;
use crate::record::parent_link::{ChildRef, start_of};

/// What the nodes of a run can reach of the runtime that drives it.
#[derive(Clone)]
pub(crate) struct RuntimeAccess {
    /// The runtime's own; it knows the type.
    pub(crate) runtime: Weak<dyn Any + Send + Sync>,
    /// How many runs there are above this one that wait for it.
    pub(crate) depth: u32,
    /// The first of them.
    pub(crate) root: RunKey,
    /// How many runs the nodes of the run have started.
    pub(crate) children: Arc<AtomicU64>,
}

/// The children that an attempt has started, or gone on with.
#[derive(Debug, Default)]
pub(crate) struct StartedChildren {
    /// By name; made with the first.
    all: OnceLock<Mutex<BTreeMap<String, Child>>>,
    /// How many of them no attempt before has started.
    new: AtomicUsize,
    /// How many children there were before this attempt.
    before: OnceLock<usize>,
}

impl StartedChildren {
    /// Notes a child as it was started last.
    pub(crate) fn note(&self, child: Child) {
        self.lock().insert(child.name.clone(), child);
    }

    /// Notes that the node knows what came of a child.
    fn told(&self, name: &str, end: &Arc<RawValue>) {
        if let Some(known) = self.lock().get_mut(name) {
            known.told = Some(Arc::clone(end));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Child>> {
        self.all.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whether the attempt has started no child, nor gone on with one.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.get().is_none()
    }

    /// Lists the children that end with their activation, by name: of this attempt, and of those of before that it does not know.
    pub(crate) fn open_with(&self, before: &[Child]) -> Vec<Child> {
        let started = self.lock();
        let unknown = before.iter().filter(|child| !started.contains_key(&child.name));
        let all = started.values().chain(unknown);
        let mut open: Vec<Child> = all.filter(|child| child.ends_with_parent()).cloned().collect();
        open.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        open
    }
}

/// A child that a node is about to start, or has started.
pub(crate) struct NotedChild {
    pub(crate) child: Child,
    /// Whether this attempt noted it: then no attempt can have started it before.
    pub(crate) is_new: bool,
}

impl NodeContext {
    /// Returns what is noted of the child of this name.
    pub(crate) fn known_child(&self, name: &str) -> Option<Child> {
        self.scope.memos.child(name)
    }

    /// How many children the activation has.
    pub(crate) fn count_children(&self) -> usize {
        let started = &self.scope.started;
        let before = started.before.get_or_init(|| self.scope.memos.count_children());
        before + started.new.load(Ordering::Relaxed)
    }

    /// Counts a child that no attempt before has started.
    pub(crate) fn count_child(&self) {
        self.scope.started.new.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a run that is about to be started, unless the nodes of the run have started `most` by now.
    ///
    /// # Errors
    ///
    /// How many they have started.
    pub(crate) fn count_start(&self, most: u64) -> Result<(), u64> {
        let started = &self.host().children;
        let more = |started: u64| (started < most).then(|| started + 1);
        started.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map(drop)
    }

    /// Returns what time it is.
    pub(crate) fn time(&self) -> Timestamp {
        self.scope.run.clock.now()
    }

    /// Counts the node as at work until what this returns is dropped.
    pub(crate) fn at_work(&self) -> impl Drop + '_ {
        if self.is_grouped { self.scope.waits.start() } else { self.scope.waits.work() }
    }

    /// Returns a context for the children of a group: whoever holds what [`wait_as_one`](Self::wait_as_one) returns waits for all of them.
    pub(crate) fn grouped(&self) -> Self {
        Self { is_grouped: true, ..self.clone() }
    }

    /// Counts all that the node waits for by contexts of a group as one wait until what this returns is dropped.
    pub(crate) fn wait_as_one(&self) -> impl Drop + '_ {
        self.scope.waits.wait_as_one()
    }

    /// Notes that a child is about to be started; when this returns, that is on stable storage.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) if the run is left, [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in
    /// an `External` node.
    pub(crate) async fn note_child(&self, name: &str, round: u32, note: ChildNote) -> Result<NotedChild> {
        self.wish(child(round, name), NodeRequest::Record(to_raw(&note)?)).await?;
        let child = Child::new(name, round, note);
        self.scope.started.note(child.clone());
        Ok(NotedChild { child, is_new: true })
    }

    /// Notes of many children that they are about to be started, all at once.
    ///
    /// # Errors
    ///
    /// As [`note_child`](Self::note_child).
    pub(crate) async fn note_children(&self, notes: Vec<(String, ChildNote)>) -> Result<Vec<NotedChild>> {
        let named = |(name, note): &(String, ChildNote)| Ok((child(1, name), to_raw(note)?));
        let all = notes.iter().map(named).collect::<Result<Vec<_>>>()?;
        let Some((first, _)) = all.first() else { return Ok(Vec::new()) };
        self.wish(first.clone(), NodeRequest::RecordAll(all)).await?;
        let kept = notes.into_iter().map(|(name, note)| {
            let child = Child::new(&name, 1, note);
            self.scope.started.note(child.clone());
            NotedChild { child, is_new: true }
        });
        Ok(kept.collect())
    }

    /// Finds a child again that was noted before this attempt, in its place among the waits that ended.
    ///
    /// # Errors
    ///
    /// As [`note_child`](Self::note_child).
    pub(crate) async fn find_child(&self, known: Child) -> Result<NotedChild> {
        if self.scope.memos.say_order() {
            self.wish(child(known.round, &known.name), NodeRequest::Recall).await?;
        }
        self.scope.started.note(known.clone());
        Ok(NotedChild { child: known, is_new: false })
    }

    /// Notes that a child was started, in passing.
    ///
    /// # Errors
    ///
    /// As [`note_child`](Self::note_child).
    pub(crate) async fn note_began(&self, child: &Child) -> Result<()> {
        self.wish(child.began_name(), NodeRequest::Mark).await.map(|_| ())
    }

    /// Waits for what comes of a child, now or after a restart months later, and notes in passing that it was started; `since` is a wait
    /// that was begun before the child was started.
    ///
    /// # Errors
    ///
    /// As [`note_child`](Self::note_child).
    pub(crate) async fn wait_for_child(
        &self,
        child: &Child,
        named: &ChildRef,
        since: Option<EndWaiter>,
    ) -> Result<Arc<RawValue>> {
        let began = child.begins().then(|| child.began_name());
        let wait = ChildWait { began, child: named.clone(), deadline: child.note.deadline, since };
        let wish = NodeRequest::Child(Box::new(wait));
        match self.wish(child.told_name(), wish).await? {
            NodeReply::Kept(end) => {
                self.heard(child, &end);
                Ok(end)
            }
            _ => Err(self.mismatch(&child.name, "child")),
        }
    }

    /// Notes that a child of a group was started, and has the waits of the group take in what comes of it.
    ///
    /// # Errors
    ///
    /// As [`note_child`](Self::note_child).
    pub(crate) async fn join_group(
        &self,
        group: &str,
        child: &Child,
        named: ChildRef,
        since: Option<EndWaiter>,
    ) -> Result<()> {
        let began = (!child.began).then(|| child.began_name());
        let wait = ChildWait { began, child: named, deadline: child.note.deadline, since };
        let wish = NodeRequest::Join { group: group.to_owned(), wait: Box::new(wait) };
        self.wish(child.told_name(), wish).await.map(|_| ())
    }

    /// Waits for what comes of the children of a group: of all that have ended, by the names of their waits, and of one at least.
    /// Where some of them are `enough`, the same come first whenever the node runs again.
    ///
    /// # Errors
    ///
    /// As [`note_child`](Self::note_child).
    pub(crate) async fn ends(&self, group: &str, enough: bool) -> Result<Vec<(String, Arc<RawValue>)>> {
        match self.wish(group.to_owned(), NodeRequest::Ends { enough }).await? {
            NodeReply::Ends(ends) => Ok(ends),
            _ => Err(self.mismatch(group, "group of children")),
        }
    }

    /// Says that the node knows what came of a child.
    pub(crate) fn heard(&self, child: &Child, end: &Arc<RawValue>) {
        self.scope.started.told(&child.name, end);
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
    pub(crate) fn start_of(&self, name: &str) -> Arc<str> {
        start_of(self.scope.run.life, self.node(), self.visit(), name)
    }

    pub(crate) fn scope_of_run(&self) -> Arc<RunScope> {
        Arc::clone(&self.scope.run)
    }

    pub(crate) fn host(&self) -> &RuntimeAccess {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{RunId, WorkflowName};
    use crate::record::child::ParentBond;

    fn child(name: &str, bond: ParentBond) -> Child {
        let (run, workflow) = (RunId::new(name).unwrap(), WorkflowName::new("w").unwrap());
        Child::new(name, 1, ChildNote { run, workflow, attempt: 1, bond, deadline: None })
    }

    #[test]
    fn an_activation_ends_with_the_children_of_all_its_attempts_as_the_last_one_knows_them() {
        let started = StartedChildren::default();
        for name in ["d", "b"] {
            started.note(child(name, ParentBond::Cancel));
        }
        started.note(child("c", ParentBond::Leave));
        started.told("b", &to_raw(&true).unwrap().into());
        let before = ["e", "b", "a"].map(|name| child(name, ParentBond::Cancel));
        let before: Vec<_> = before.into_iter().chain([child("f", ParentBond::Detached)]).collect();
        let open: Vec<_> = started.open_with(&before).into_iter().map(|child| child.name).collect();
        assert_eq!(open, ["a", "d", "e"], "what came of `b` is known, and `c` and `f` go on");
    }
}
