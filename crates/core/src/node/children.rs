//! Children of a node: the records that an activation makes about its children, and the waits for their results. The runtime starts the children.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use serde_json::value::RawValue;

use super::context::{NodeContext, RunScope};
use super::requests::{ChildWait, NodeReply, NodeRequest};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::RunKey;
use crate::kernel::end_waiters::EndWaiter;
use crate::kernel::inner::RuntimeInner;
use crate::record::child::{ActivationChild, ChildNote, child};
use crate::record::codec::to_raw;
use crate::record::parent_link::{ChildRef, start_of};

/// The parts of the runtime that the nodes of a run need to start children.
#[derive(Clone)]
pub(crate) struct RuntimeAccess {
    /// The data of the runtime.
    pub(crate) runtime: Weak<RuntimeInner>,
    /// The number of ancestors of the run in its run tree.
    pub(crate) depth: u32,
    /// The root of the run tree.
    pub(crate) root: RunKey,
    /// The number of runs that the nodes of this run have started.
    pub(crate) children: Arc<AtomicU64>,
}

/// The children that an attempt has started or resumed.
#[derive(Debug, Default)]
pub(crate) struct StartedChildren {
    /// Children by name, created with the first child.
    all: OnceLock<Mutex<BTreeMap<String, ActivationChild>>>,
    /// The number of children that no earlier attempt has started.
    new: AtomicUsize,
    /// The number of children that the activation had before this attempt.
    before: OnceLock<usize>,
}

impl StartedChildren {
    /// Records the start of a child, in place of an earlier start with the same name.
    pub(crate) fn record_start(&self, child: ActivationChild) {
        self.lock().insert(child.name.clone(), child);
    }

    /// Marks the result of a child as delivered to the node.
    fn mark_delivered(&self, name: &str, end: &Arc<RawValue>) {
        if let Some(known) = self.lock().get_mut(name) {
            known.told = Some(Arc::clone(end));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ActivationChild>> {
        self.all.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the attempt has neither started nor resumed a child.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.get().is_none()
    }

    /// Lists the children that are cancelled when their activation ends, by name. The list contains the children of this attempt, and the children of
    /// earlier attempts that this attempt has not found again.
    pub(crate) fn open_with(&self, before: &[ActivationChild]) -> Vec<ActivationChild> {
        let started = self.lock();
        let unknown = before.iter().filter(|child| !started.contains_key(&child.name));
        let all = started.values().chain(unknown);
        let mut open: Vec<ActivationChild> = all.filter(|child| child.ends_with_parent()).cloned().collect();
        open.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        open
    }
}

/// A recorded child that a node starts or has started.
pub(crate) struct NotedChild {
    pub(crate) child: ActivationChild,
    /// Whether this attempt recorded the child. If so, no earlier attempt can have started it.
    pub(crate) is_new: bool,
}

impl NodeContext {
    /// Returns the recorded child with this name.
    pub(crate) fn known_child(&self, name: &str) -> Option<ActivationChild> {
        self.scope.memos.child(name)
    }

    /// Returns the number of children of the activation.
    pub(crate) fn count_children(&self) -> usize {
        let started = &self.scope.started_children;
        let before = started.before.get_or_init(|| self.scope.memos.count_children());
        before + started.new.load(Ordering::Relaxed)
    }

    /// Counts a child that no earlier attempt has started.
    pub(crate) fn count_child(&self) {
        self.scope.started_children.new.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the start of a run, unless the nodes of this run have already started `most` runs.
    ///
    /// # Errors
    ///
    /// Returns the number of runs that the nodes have started, if the limit is reached.
    pub(crate) fn count_start(&self, most: u64) -> Result<(), u64> {
        let started = &self.host().children;
        let more = |started: u64| (started < most).then(|| started + 1);
        started.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map(drop)
    }

    /// Returns the current time.
    pub(crate) fn time(&self) -> Timestamp {
        self.scope.run.clock.now()
    }

    /// Counts the node as running until the returned guard is dropped.
    pub(crate) fn at_work(&self) -> impl Drop + '_ {
        if self.is_grouped { self.scope.waits.start() } else { self.scope.waits.work() }
    }

    /// Returns a context for the children of a group. The guard of [`wait_as_one`](Self::wait_as_one) waits for all of them.
    pub(crate) fn grouped(&self) -> Self {
        Self { is_grouped: true, ..self.clone() }
    }

    /// Counts all waits through contexts of a group as one wait until the returned guard is dropped.
    pub(crate) fn wait_as_one(&self) -> impl Drop + '_ {
        self.scope.waits.wait_as_one()
    }

    /// Records that a child is about to be started, and returns once the record is durable.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Closed`](crate::ErrorKind::Closed) if this process no longer drives the run,
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in an `External` node.
    pub(crate) async fn record_child(&self, name: &str, round: u32, note: ChildNote) -> Result<NotedChild> {
        self.request(child(round, name), NodeRequest::Record(to_raw(&note)?)).await?;
        let child = ActivationChild::new(name, round, note);
        self.scope.started_children.record_start(child.clone());
        Ok(NotedChild { child, is_new: true })
    }

    /// Records in one batch that many children are about to be started.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`record_child`](Self::record_child).
    pub(crate) async fn record_children(&self, notes: Vec<(String, ChildNote)>) -> Result<Vec<NotedChild>> {
        let named = |(name, note): &(String, ChildNote)| Ok((child(1, name), to_raw(note)?));
        let all = notes.iter().map(named).collect::<Result<Vec<_>>>()?;
        let Some((first, _)) = all.first() else { return Ok(Vec::new()) };
        self.request(first.clone(), NodeRequest::RecordAll(all)).await?;
        let kept = notes.into_iter().map(|(name, note)| {
            let child = ActivationChild::new(&name, 1, note);
            self.scope.started_children.record_start(child.clone());
            NotedChild { child, is_new: true }
        });
        Ok(kept.collect())
    }

    /// Finds a child that an earlier attempt recorded. The call returns in the recorded order of ended waits.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`record_child`](Self::record_child).
    pub(crate) async fn find_child(&self, known: ActivationChild) -> Result<NotedChild> {
        if self.scope.memos.has_order() {
            self.request(child(known.round, &known.name), NodeRequest::Recall).await?;
        }
        self.scope.started_children.record_start(known.clone());
        Ok(NotedChild { child: known, is_new: false })
    }

    /// Records that a child was started, without waiting for the record.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`record_child`](Self::record_child).
    pub(crate) async fn record_child_start(&self, child: &ActivationChild) -> Result<()> {
        self.request(child.began_name(), NodeRequest::Mark).await.map(|_| ())
    }

    /// Waits for the result of a child, even for months and across restarts. It also records that the child was started, without waiting for this
    /// record. `since` is a wait that began before the start.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`record_child`](Self::record_child).
    pub(crate) async fn wait_for_child(
        &self,
        child: &ActivationChild,
        named: &ChildRef,
        since: Option<EndWaiter>,
    ) -> Result<Arc<RawValue>> {
        let began = child.begins().then(|| child.began_name());
        let wait = ChildWait { began, child: named.clone(), deadline: child.note.deadline, since };
        let wish = NodeRequest::Child(Box::new(wait));
        match self.request(child.end_note_name(), wish).await? {
            NodeReply::Kept(end) => {
                self.mark_end_known(child, &end);
                Ok(end)
            }
            _ => Err(self.mismatch(&child.name, "child")),
        }
    }

    /// Records that a child of a group was started, and adds it to the waits of the group.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`record_child`](Self::record_child).
    pub(crate) async fn join_group(
        &self,
        group: &str,
        child: &ActivationChild,
        named: ChildRef,
        since: Option<EndWaiter>,
    ) -> Result<()> {
        let began = (!child.began).then(|| child.began_name());
        let wait = ChildWait { began, child: named, deadline: child.note.deadline, since };
        let wish = NodeRequest::Join { group: group.to_owned(), wait: Box::new(wait) };
        self.request(child.end_note_name(), wish).await.map(|_| ())
    }

    /// Waits for at least one child of a group to end. Returns the results of all children that have ended, by the names of their waits. If `enough`
    /// is set, later attempts of the node receive the same results first.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`record_child`](Self::record_child).
    pub(crate) async fn wait_group_ends(
        &self,
        group: &str,
        enough: bool,
    ) -> Result<Vec<(String, Arc<RawValue>)>> {
        match self.request(group.to_owned(), NodeRequest::Ends { enough }).await? {
            NodeReply::Ends(ends) => Ok(ends),
            _ => Err(self.mismatch(group, "group of children")),
        }
    }

    /// Marks the result of a child as known to the node.
    pub(crate) fn mark_end_known(&self, child: &ActivationChild, end: &Arc<RawValue>) {
        self.scope.started_children.mark_delivered(&child.name, end);
    }

    /// Returns the reference of a child of this activation.
    pub(crate) fn child_ref(&self, child: &ActivationChild) -> ChildRef {
        let parent = self.run();
        ChildRef {
            run: RunKey::new(parent.tenant.clone(), child.note.run.clone()),
            parent: parent.run.clone(),
            start: self.start_of(&child.name),
        }
    }

    /// Returns the name of the record of a child's start.
    pub(crate) fn start_of(&self, name: &str) -> Arc<str> {
        start_of(self.scope.run.claim.start_id, self.node(), self.visit(), name)
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
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the name is in use or is not valid.
    pub(crate) fn claim_child(&self, name: &str) -> Result<()> {
        self.claim(name.to_owned()).map(|_| ())
    }

    /// Returns the error of a run that this process no longer drives.
    pub(crate) fn not_driven_error(&self) -> crate::error::Error {
        self.driver_gone_error()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{RunId, WorkflowName};
    use crate::record::child::ParentBond;

    fn child(name: &str, bond: ParentBond) -> ActivationChild {
        let (run, workflow) = (RunId::new(name).unwrap(), WorkflowName::new("w").unwrap());
        ActivationChild::new(name, 1, ChildNote { run, workflow, attempt: 1, bond, deadline: None })
    }

    #[test]
    fn activation_end_includes_children_of_all_attempts() {
        let started = StartedChildren::default();
        for name in ["d", "b"] {
            started.record_start(child(name, ParentBond::Cancel));
        }
        started.record_start(child("c", ParentBond::Leave));
        started.mark_delivered("b", &to_raw(&true).unwrap().into());
        let before = ["e", "b", "a"].map(|name| child(name, ParentBond::Cancel));
        let before: Vec<_> = before.into_iter().chain([child("f", ParentBond::Detached)]).collect();
        let open: Vec<_> = started.open_with(&before).into_iter().map(|child| child.name).collect();
        assert_eq!(open, ["a", "d", "e"], "the result of `b` is known, and `c` and `f` stay active");
    }
}
