//! Starts a child run: it records the child in the parent's log, starts the child once, and finds the child again after a crash.

use std::sync::Arc;
use std::time::Duration;

use super::names::{ChildName, id_of_round};
use super::request::ChildHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{CheckpointPolicy, Graph};
use crate::id::{RunId, RunKey};
use crate::kernel::end_waiters::EndWaiter;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::tasks::finish;
use crate::node::{NodeContext, NotedChild};
use crate::record::RunFacts;
use crate::record::child::{ActivationChild, ChildEnd, ChildNote, ParentBond};
use crate::record::parent_link::{BOND, CHILD, ChildRef, DEPTH, PARENT, ParentLink, ROOT, child_id};
use crate::runtime::child_control::await_end::read_end_with_retries;
use crate::runtime::child_control::child_backoff::ChildBackoff;
use crate::runtime::child_control::orphan::check_parent_after_start;
use crate::runtime::requests::resume::{ClaimOptions, resume};
use crate::runtime::requests::start::StartRequest;
use crate::runtime::requests::start_extras::StartExtras;
use crate::runtime::writes::system_runs::{QUEUE_NAME, QUEUE_START, new_queue_start, queue_pause_reason};
use crate::state::State;
use crate::store::RunHead;

/// The description of a run that a node starts, with or without waiting for its result.
pub(super) struct ChildSpec<S: State> {
    pub(super) cx: NodeContext,
    pub(super) graph: Graph<S>,
    input: S,
    pub(super) name: Option<String>,
    pub(super) id: Option<Result<RunId>>,
    pub(super) labels: Vec<(String, String)>,
    pub(super) given: StartExtras,
    pub(super) bond: ParentBond,
    pub(super) deadline: Option<Duration>,
    /// The queue through which the run starts, if any.
    pub(super) queue: Option<String>,
}

impl<S: State> ChildSpec<S> {
    pub(super) fn new(cx: &NodeContext, graph: &Graph<S>, input: S, bond: ParentBond) -> Self {
        let (cx, graph) = (cx.clone(), graph.clone());
        let (labels, given) = (Vec::new(), StartExtras::default());
        Self { cx, graph, input, name: None, id: None, labels, given, bond, deadline: None, queue: None }
    }

    /// Starts the run once, even across crashes.
    pub(super) async fn start(self) -> Result<ChildHandle<S>> {
        let mut started = self.begin_alone().await?;
        if started.child.begins() {
            started.cx.record_child_start(&started.child).await?;
            started.child.began = true;
        }
        Ok(started)
    }

    /// Starts the run once, like [`start`](Self::start), but does not record that the child was started. The wait for the child's end records this.
    pub(super) async fn begin_alone(self) -> Result<ChildHandle<S>> {
        let (name, shared) = self.claim()?;
        let kept = match self.fresh(&shared, &name)? {
            Some(note) => self.cx.record_child(&name, 1, note).await?,
            None => self.find_or_note(&shared, &name).await?,
        };
        self.start_noted(&shared, kept).await
    }

    /// Starts the run once as a child of a group. `kept` is the record of the child, if the group has already made it.
    pub(super) async fn start_in(
        self,
        group: String,
        name: String,
        kept: Option<NotedChild>,
    ) -> Result<ChildHandle<S>> {
        let cx = self.cx.clone();
        let shared = self.shared()?;
        let kept = match kept {
            Some(kept) => kept,
            None => self.find_or_note(&shared, &name).await?,
        };
        // Must not be earlier: the lookup of an older note requires that nothing else runs.
        let _starting = cx.at_work();
        let started = self.start_noted(&shared, kept).await?;
        cx.join_group(&group, &started.child, started.named.clone(), started.since.clone()).await?;
        Ok(started)
    }

    /// Claims the name of the run for this attempt.
    pub(super) fn claim(&self) -> Result<(String, Arc<RuntimeInner>)> {
        let name = ChildName::of(self.name.as_deref(), self.graph.name());
        name.check().map_err(|error| error.with_node(self.cx.node()))?;
        let name = name.text;
        self.cx.claim_child(&name)?;
        Ok((name, self.shared()?))
    }

    /// Returns the memo for a child that no earlier attempt has recorded.
    pub(super) fn fresh(&self, shared: &RuntimeInner, name: &str) -> Result<Option<ChildNote>> {
        if self.cx.known_child(name).is_some() {
            return Ok(None);
        }
        self.check_limits(shared)?;
        let note = self.build_note(name, 1)?;
        self.count_start(shared)?;
        self.cx.count_child();
        Ok(Some(note))
    }

    /// Starts a recorded child, unless its result is already recorded.
    async fn start_noted(self, shared: &Arc<RuntimeInner>, mut kept: NotedChild) -> Result<ChildHandle<S>> {
        let mut named = self.cx.child_ref(&kept.child);
        let mut since = None;
        if kept.child.told.is_none() {
            let _working = self.cx.at_work();
            since = loop {
                match self.begin_until_known(shared, &kept, &named).await? {
                    ChildStartResult::Here(waiter) => break Some(waiter),
                    ChildStartResult::Known => break None,
                    ChildStartResult::OfCopy => {
                        kept = self.restart(shared, &kept.child).await?;
                        named = self.cx.child_ref(&kept.child);
                    }
                }
            };
        }
        Ok(ChildHandle { cx: self.cx, graph: self.graph, child: kept.child, named, since })
    }

    /// Starts the run, like [`begin`](Self::begin), and retries after errors of the store.
    async fn begin_until_known(
        &self,
        shared: &Arc<RuntimeInner>,
        kept: &NotedChild,
        named: &ChildRef,
    ) -> Result<ChildStartResult> {
        let mut tries = ChildBackoff::of(shared, &named.run);
        loop {
            match self.begin(shared, kept, named).await {
                Ok(begun) => return Ok(begun),
                Err(error) => tries.failed(error).await?,
            }
        }
    }

    /// Records the next start of a child, with another run id.
    async fn restart(&self, shared: &RuntimeInner, known: &ActivationChild) -> Result<NotedChild> {
        let round = known.round + 1;
        self.count_start(shared)?;
        self.cx.record_child(&known.name, round, self.build_note(&known.name, round)?).await
    }

    fn shared(&self) -> Result<Arc<RuntimeInner>> {
        self.cx.shared()
    }

    /// Finds the child that an earlier attempt has recorded, or records a new start.
    async fn find_or_note(&self, shared: &Arc<RuntimeInner>, name: &str) -> Result<NotedChild> {
        let (cx, attempt) = (&self.cx, self.cx.attempt());
        let Some(known) = cx.known_child(name) else {
            // No other attempt can drop the note, so this attempt was left.
            return Err(self.cx.not_driven_error());
        };
        if known.note.workflow != *self.graph.name()
            || (known.note.bond == ParentBond::Detached) != self.is_detached()
        {
            let message = format!(
                "`{name}` is already a run of the workflow `{}`; finish the run with the code that started it, or give the new child \
                 another name",
                known.note.workflow
            );
            return Err(Error::new(ErrorKind::GraphChanged, message).with_node(cx.node()));
        }
        if self.is_detached() || known.is_completed() || !known.is_of_before(attempt) {
            return cx.find_child(known).await;
        }
        // An earlier attempt started the child. If it failed, the next round starts.
        let is_over = match &known.told {
            Some(_) => true,
            None => match self.read_end_of(shared, &known).await? {
                None | Some(ChildEnd::Completed { .. }) => false,
                Some(ChildEnd::Gone) => known.began,
                Some(_) => true,
            },
        };
        if is_over {
            return self.restart(shared, &known).await;
        }
        let note = ChildNote { attempt, ..known.note };
        let kept = cx.record_child(name, known.round + 1, note).await?;
        Ok(NotedChild { is_new: false, ..kept })
    }

    /// Reads the end of a child that an earlier attempt started. During the read, the attempt counts as running, because an idle run would miss the
    /// child's notification.
    async fn read_end_of(
        &self,
        shared: &Arc<RuntimeInner>,
        known: &ActivationChild,
    ) -> Result<Option<ChildEnd>> {
        let _working = self.cx.at_work();
        read_end_with_retries(shared, &self.cx.child_ref(known)).await
    }

    fn is_detached(&self) -> bool {
        self.bond == ParentBond::Detached
    }

    fn build_note(&self, name: &str, round: u32) -> Result<ChildNote> {
        let run = match &self.id {
            // Includes the parent's id, because a copy of the parent under another id has the same start id.
            None => child_id(name, &format!("{}:{}:{round}", self.cx.run().run, self.cx.start_of(name)))?,
            Some(Ok(id)) if self.is_detached() => id.clone(),
            Some(Ok(id)) => id_of_round(id, round).map_err(|error| error.with_node(self.cx.node()))?,
            Some(Err(error)) => return Err(error.clone()),
        };
        let (workflow, attempt) = (self.graph.name().clone(), self.cx.attempt());
        let deadline = self.deadline.map(|after| self.cx.time().plus(after));
        Ok(ChildNote { run, workflow, attempt, bond: self.bond, deadline })
    }

    /// Returns the depth of the new run. A detached run has no waiting parent, so it is the root of its own tree.
    pub(super) fn depth(&self) -> u32 {
        if self.is_detached() { 0 } else { self.cx.host().depth + 1 }
    }

    /// Starts the run. If the run already exists, the call makes sure that a process drives it.
    async fn begin(
        &self,
        shared: &Arc<RuntimeInner>,
        kept: &NotedChild,
        named: &ChildRef,
    ) -> Result<ChildStartResult> {
        let (NotedChild { child, is_new }, run) = (kept, &named.run);
        if !is_new && let Some(head) = shared.store.head(run).await? {
            if named.is(&head.facts) {
                // Rare and large, so boxed outside of each start.
                return Box::pin(claim_child(shared, &self.graph, head))
                    .await
                    .map(|()| ChildStartResult::Known);
            }
            return self.resolve_other_run(child, named, &head.facts);
        }
        if child.began {
            // The run existed and was purged. Its waiter reports that.
            return Ok(ChildStartResult::Known);
        }
        let depth = self.depth();
        let (parent, host) = (self.cx.run().clone(), self.cx.host());
        let root = if self.is_detached() { run.run.clone() } else { host.root.run.clone() };
        let labels = [
            (PARENT, parent.run.to_string()),
            (CHILD, named.start.to_string()),
            (BOND, self.bond.as_str().to_owned()),
            (ROOT, root.to_string()),
            (DEPTH, depth.to_string()),
        ];
        let mut request = StartRequest::new(Arc::clone(shared), self.graph.clone(), self.input.clone())
            .id(&run.run)
            .tenant(&run.tenant)
            .with_extras(self.given.clone())
            .parent_labels(labels.map(|(key, value)| (key.to_owned(), value)));
        for (key, value) in &self.labels {
            request = request.label(key, value);
        }
        if let Some(queue) = &self.queue {
            let start = new_queue_start(shared, shared.clock.now());
            request =
                request.label(QUEUE_NAME, queue).label(QUEUE_START, start).on_hold(queue_pause_reason(queue));
        }
        let (at, run) = (Arc::clone(shared), run.clone());
        let starting = at.registry.starts.begin(&run);
        let link = ParentLink { parent, start: Arc::clone(&named.start), bond: self.bond };
        let since = at.registry.end_waiters.wait_for(named);
        let started = finish(async move {
            let (shared, _starting) = (at, starting);
            // Boxed like the body of a task: otherwise every waiter's future would contain it.
            let is_here = Box::pin(request.execute()).await?.is_driven_here();
            // Until this point, the end of the activation in this process finds the child or waits for its start. If this process loses the parent,
            // its driver makes sure that the child is checked. Without a driver, start the check here.
            if shared.driver(&link.parent).is_none() {
                check_parent_after_start(&shared, &run, link);
            }
            Ok(if is_here { ChildStartResult::Here(since) } else { ChildStartResult::Known })
        });
        match started.await {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                match shared.store.head(&named.run).await? {
                    Some(head) => self.resolve_other_run(child, named, &head.facts),
                    None => Err(id_taken_error(&named.run)),
                }
            }
            started => started,
        }
    }

    /// Decides what to do if another run has the child's id.
    fn resolve_other_run(
        &self,
        child: &ActivationChild,
        named: &ChildRef,
        facts: &RunFacts,
    ) -> Result<ChildStartResult> {
        // A detached run of a fork's source stays started. If a started child's id belongs to another run, the child was purged, and its waiter
        // reports that.
        let is_settled = child.began && self.is_detached();
        if !is_settled && self.id.is_none() && named.is_of_copy(facts) {
            return Ok(ChildStartResult::OfCopy);
        }
        if child.began { Ok(ChildStartResult::Known) } else { Err(id_taken_error(&named.run)) }
    }
}

/// The result of a start.
enum ChildStartResult {
    /// This process started the run and drives it. The value waits for the end of the run. It was registered before the start.
    Here(EndWaiter),
    /// The run was started. To learn its status, the caller reads its log, which may be missing because the run was purged.
    Known,
    /// Another run started the run with the recorded id. This parent is a copy of that other run under another id.
    OfCopy,
}

/// Returns the error for a child id that belongs to another run.
fn id_taken_error(run: &RunKey) -> Error {
    let message =
        "another run, which this activation did not start, has this id; give the child another id, or none";
    Error::new(ErrorKind::AlreadyExists, message).with_run(run)
}

/// Claims a child that no process drives.
async fn claim_child<S: State>(shared: &Arc<RuntimeInner>, graph: &Graph<S>, head: RunHead) -> Result<()> {
    let run = head.run.clone();
    if head.status.is_finished() || shared.driver(&run).is_some() || shared.admission.is_waiting(&run) {
        return Ok(());
    }
    let (policy, terms) = (CheckpointPolicy::default(), ClaimOptions::default());
    let (shared, graph) = (Arc::clone(shared), graph.clone());
    let taken = finish(async move {
        resume(&shared, &graph, &head.run.clone(), policy, &terms, Some(head.into()), None).await
    });
    match taken.await {
        Ok(_) => Ok(()),
        Err(error) if error.is_retryable() => Err(error),
        // Another process drives the child, the child ended, or this closing runtime leaves it to others. The process that serves its workflow
        // reports other errors.
        Err(error) => {
            tracing::debug!(%run, %error, "this process does not claim the child");
            Ok(())
        }
    }
}
