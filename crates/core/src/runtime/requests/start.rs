//! Starts runs. If a start is repeated, it finds the existing run.

use crate::runtime::writes::registration::DriverRegistration;
use crate::runtime::writes::release::claim_error;
use std::collections::BTreeSet;
use std::future::{Future, IntoFuture};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use tracing::{Instrument as _, Span};

use super::drive::drive;
use super::resume::{is_left, resume};
use super::same_input::has_same_input;
use super::start_extras::{EncodedExtras, StartExtras};
use super::waiting_runs::line_up;
use crate::claim::{ClaimId, StartId};
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{CheckpointFrequency, CheckpointPolicy, Graph};
use crate::id::{Epoch, RunId, RunKey, TenantId};
use crate::kernel::admission::{AdmissionResult, room};
use crate::kernel::event::Event as RunEventKind;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::tags::label;
use crate::kernel::tasks::finish;
use crate::record::body::{RecordEvent, StartRecord};
use crate::record::parent_link::{PARENT, TAGS, TRACE, refuse_reserved, same_start};
use crate::record::{Labels, RunFacts};
use crate::runtime::driver::DriverInput;
use crate::runtime::driver::{FirstRecord, PendingRecords, check_input, check_transactions};
use crate::runtime::handle::{OutcomeSource, RunHandle};
use crate::state::State;
use crate::telemetry::{TraceParent, spans};

/// The number of attempts, and the first delay, for a start whose id is in use although no run exists. This happens while a purge is in progress.
const LOOKS: u32 = 4;
const FIRST_LOOK: Duration = Duration::from_millis(10);

/// A prepared start of a run. `.await` starts the run and returns a handle.
///
/// # Cancel safety
///
/// Cancel safe: after the first poll, the request completes even if the caller drops the future.
#[must_use = "a run starts only when the future is awaited"]
pub struct StartRequest<S: State> {
    pub(super) shared: Arc<RuntimeInner>,
    graph: Graph<S>,
    pub(super) input: S,
    pub(super) id: Option<Result<RunId>>,
    pub(super) tenant: Option<Result<TenantId>>,
    user: Option<String>,
    labels: Vec<(String, String)>,
    /// The labels that name the node which starts the run.
    parent_labels: Vec<(String, String)>,
    given: StartExtras,
    policy: CheckpointPolicy,
    trace: Option<Result<TraceParent>>,
    pub(super) tags: BTreeSet<String>,
    /// The reason to start paused, if any.
    pub(super) hold: Option<String>,
}

impl<S: State> StartRequest<S> {
    pub(crate) fn new(shared: Arc<RuntimeInner>, graph: Graph<S>, input: S) -> Self {
        Self {
            shared,
            graph,
            input,
            id: None,
            tenant: None,
            user: None,
            labels: Vec::new(),
            parent_labels: Vec::new(),
            given: StartExtras::default(),
            policy: CheckpointPolicy::default(),
            trace: None,
            tags: BTreeSet::new(),
            hold: None,
        }
    }

    /// Sets the id of the run. If you repeat the start with the same id, input, [configuration](Self::config) and [first messages](Self::message), it
    /// returns the existing run.
    pub fn id(mut self, id: impl AsRef<str>) -> Self {
        self.id = Some(RunId::new(id));
        self
    }

    /// Sets the tenant that owns the run.
    pub fn tenant(mut self, tenant: impl AsRef<str>) -> Self {
        self.tenant = Some(TenantId::new(tenant));
        self
    }

    /// Sets the user for whom the run is started.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Adds a label to the run. [Listings](super::RunsRequest::label) can select runs by their labels.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }

    /// Sets the configuration of the run. It can be any JSON value. Nodes read it with [`NodeContext::config`](crate::node::NodeContext::config) and
    /// cannot change it. The log records the configuration with the start, so it is the same after restarts and retries. Forks inherit it, unless
    /// [`ForkRequest::config`](super::ForkRequest::config) sets another. Children do not inherit it.
    ///
    /// The configuration may have at most [`max_body`](crate::runtime::RuntimeBuilder::max_body) bytes. Every record with the full state contains it,
    /// so keep it small.
    pub fn config(mut self, config: impl Serialize) -> Self {
        self.given.configure(&config);
        self
    }

    /// Starts the run with a message that already waits for the first node that receives. Further calls add messages after it. The run and its
    /// messages are recorded atomically. A repeated start adds no messages.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::node::{Conversation, NodeContext};
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::{Context, Draft};
    /// # use ferrata_core::store::MemoryStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let graph = Graph::<Context>::builder("chat")
    ///     .node("greet", async |cx: NodeContext, mut s: Draft<Context>| {
    ///         s.set("heard", cx.receive::<String>().await?)?;
    ///         Ok(s)
    ///     })
    ///     .entry("greet")
    ///     .build()?;
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// let state = runtime.start(&graph, Context::new()).message("hello").await?.completed().await?;
    /// assert_eq!(state.get::<String>("heard")?.as_deref(), Some("hello"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn message(mut self, message: impl Serialize) -> Self {
        self.given.send(&message);
        self
    }

    /// Sets the optional inputs.
    pub(crate) fn with_extras(mut self, given: StartExtras) -> Self {
        self.given = given;
        self
    }

    /// Sets the labels that name the node which starts the run.
    pub(crate) fn parent_labels(mut self, labels: impl IntoIterator<Item = (String, String)>) -> Self {
        self.parent_labels = labels.into_iter().collect();
        self
    }

    /// Sets the trace and the parent span of the run, in the format of the W3C header `traceparent`. The log records the value, so that the run's
    /// spans continue the trace in any process. By default the caller's current span is the parent, if the runtime has a
    /// [`trace_context`](crate::runtime::RuntimeBuilder::trace_context).
    pub fn trace_parent(mut self, traceparent: impl Into<String>) -> Self {
        self.trace = Some(TraceParent::new(traceparent));
        self
    }

    /// Sets when the run writes checkpoints. By default it writes a checkpoint after every node.
    pub fn checkpoints(mut self, policy: CheckpointPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Creates the span of the start.
    pub(super) fn span(&self) -> Span {
        let parent = self.trace.as_ref().and_then(|trace| trace.as_ref().ok());
        spans::start(self.graph.name(), self.shared.trace(), parent)
    }

    /// Starts the run in the task of the caller. The caller must not drop this future. If the request itself is awaited, it uses a task of its own.
    ///
    /// # Errors
    ///
    /// Returns the errors of the request.
    pub(crate) async fn execute(self) -> Result<RunHandle<S>> {
        let span = self.span();
        async move { self.validate()?.start().await }.instrument(span).await
    }

    /// Validates the request without touching the store.
    pub(super) fn validate(self) -> Result<ValidatedStart<S>> {
        let Self {
            shared,
            graph,
            mut input,
            id,
            tenant,
            user,
            labels,
            parent_labels,
            given,
            policy,
            trace,
            tags,
            hold,
        } = self;
        if hold.is_none() && !shared.services.tags.has_all(tags.iter().map(String::as_str)) {
            let message = "this process lacks tags of the run and cannot claim it; start it in a process with these tags, or through a queue";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if hold.is_some() && policy.frequency == CheckpointFrequency::Disabled {
            let message = "a run without checkpoints cannot start paused, because it has no record; set another policy, or start it unpaused";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        check_transactions(&shared, &graph)?;
        let now = shared.clock.now();
        let id = match id {
            Some(id) => id?,
            None => RunId::new(shared.ids.next(now).to_string())?,
        };
        let run = RunKey::new(tenant.transpose()?.unwrap_or_default(), id);
        input.bind(graph.schema());
        input.forget_ephemeral();
        let text = check_input(&input, graph.schema(), shared.limits.max_body)
            .map_err(|error| error.with_run(&run))?;
        let given = given.encode(shared.limits.max_body, now).map_err(|error| error.with_run(&run))?;
        let mut facts = RunFacts::new(
            graph.name().clone(),
            graph.version(),
            graph.fingerprint(),
            given.print(&text)?,
            now,
        )?;
        if let Some(user) = user {
            facts = facts.with_user(user)?;
        }
        let mut kept = Labels::default();
        refuse_reserved(&labels).map_err(|error| error.with_run(&run))?;
        labels.into_iter().chain(parent_labels).try_for_each(|(key, value)| kept.insert(key, value))?;
        if !tags.is_empty() {
            kept.insert(TAGS, label(&tags)?)?;
        }
        let said = trace.transpose().map_err(|error| error.with_run(&run))?;
        let here = shared.trace().and_then(|context| context.trace_parent(&Span::current()));
        if let Some(trace) = here.or(said) {
            // A run at the label limit has no trace label.
            drop(kept.insert(TRACE, trace.as_str()));
        }
        let facts = facts.with_labels(kept);
        Ok(ValidatedStart { shared, graph, input, given, text: Some(text), run, facts, policy, hold })
    }
}

/// A validated start.
pub(super) struct ValidatedStart<S: State> {
    pub(super) shared: Arc<RuntimeInner>,
    pub(super) graph: Graph<S>,
    input: S,
    given: EncodedExtras,
    /// The encoded input, until the first record takes it.
    text: Option<Box<RawValue>>,
    pub(super) run: RunKey,
    pub(super) facts: RunFacts,
    pub(super) policy: CheckpointPolicy,
    /// The reason to start paused, if any.
    pub(super) hold: Option<String>,
}

impl<S: State> ValidatedStart<S> {
    /// Starts the run, or finds the existing run. If the existing run is purged before it is loaded, the start is tried again.
    async fn start(mut self) -> Result<RunHandle<S>> {
        let mut pause = FIRST_LOOK;
        for _ in 0..LOOKS {
            self = match self.start_once().await? {
                ControlFlow::Break(handle) => return Ok(handle),
                ControlFlow::Continue(again) => again,
            };
            self.shared.clock.sleep(pause).await;
            pause *= 4;
        }
        let message = "another process is starting or purging the run; retry";
        Err(Error::new(ErrorKind::Unavailable, message).with_run(&self.run))
    }

    /// Returns the encoded input.
    pub(super) fn text(&mut self) -> Result<Box<RawValue>> {
        match self.text.take() {
            Some(text) => Ok(text),
            None => check_input(&self.input, self.graph.schema(), self.shared.limits.max_body),
        }
    }

    /// Builds the first event, and the machine after it.
    pub(super) fn first(&self) -> Result<(RecordEvent, Machine)> {
        let Self { shared, graph, facts, .. } = self;
        let plan = graph.plan();
        let mut machine = Machine::new(Some(Arc::clone(plan)));
        let (graphs, effects, edges, gates) = (
            Arc::clone(&plan.prints),
            Arc::clone(&plan.effects),
            Arc::clone(&plan.targets),
            Arc::clone(&plan.gates),
        );
        let (entry, start_id) =
            (plan.node(plan.entry).name.clone(), StartId::from_uuid(shared.ids.next(facts.created)));
        let EncodedExtras { config, messages } = self.given.clone();
        let secret = plan.secrets.clone();
        let graph = graphs;
        let event = RecordEvent::Start(StartRecord {
            entry,
            graph,
            start_id,
            effects,
            edges,
            gates,
            config,
            secret,
            messages,
        });
        machine.absorb(&event)?;
        Ok((event, machine))
    }

    /// Starts the run. If another run had the id and was purged during the call, the caller must try again.
    async fn start_once(mut self) -> Result<ControlFlow<RunHandle<S>, Self>> {
        let text = self.text()?;
        if let Some(hold) = self.hold.take() {
            // Boxed: rare and large.
            return Box::pin(self.start_on_hold(hold, text)).await;
        }
        let Self { shared, graph, run, facts, policy, .. } = &self;
        let policy = *policy;
        let mut permit = shared.admission.try_admit(run, facts);
        if policy.frequency == CheckpointFrequency::Disabled && permit.is_none() {
            // Without checkpoints, no record could wait in its place.
            let turn = match shared.driver(run) {
                None => room(&shared.admission, run, facts).await?,
                Some(_) => AdmissionResult::Left,
            };
            match turn {
                AdmissionResult::Room(room) => permit = Some(room),
                // The same start was in line here, or is active: do not repeat it.
                AdmissionResult::Left => return Box::pin(self.again()).await,
                AdmissionResult::Had => {
                    return match Box::pin(self.again()).await? {
                        ControlFlow::Continue(Self { run, .. }) => Err(unrecorded(&run)),
                        found => Ok(found),
                    };
                }
            }
        }
        // A run that is active in a closing runtime may finish, and its starts are left to other processes.
        let of_node = facts.labels.get(PARENT).is_some();
        let mut registration =
            match permit.map(|permit| DriverRegistration::enter(shared, run, permit, false)).transpose() {
                Ok(registration) => registration,
                Err(error) if error.kind() == ErrorKind::Conflict => return Box::pin(self.again()).await,
                Err(error) if error.kind() == ErrorKind::Closed && of_node => None,
                Err(error) => return Err(error),
            };
        if registration.is_none() {
            if of_node {
                shared.may_start(run)?
            } else {
                shared.takes(run)?
            };
        }
        if policy.frequency == CheckpointFrequency::Disabled && shared.store.head(run).await?.is_some() {
            // Without checkpoints no append would detect the existing run before its work ran twice.
            drop(registration);
            return Box::pin(self.again()).await;
        }
        let (event, machine) = self.first()?;
        let start_id = machine.start_id();
        let mut log = shared.log_writer(run);
        log.state_version = graph.schema().version();
        let (mut durable, mut first) = (None, None);
        if policy.frequency == CheckpointFrequency::Disabled {
            first = Some(FirstRecord { event, input: text });
        } else {
            if registration.is_none() {
                // No claim yet: this distinguishes it from a lost run.
                log.epoch = Epoch::NEVER;
            }
            let claim = ClaimId { start_id, epoch: log.epoch };
            let append = log.begin(&event, &machine, text, registration.is_none(), facts.clone())?;
            let taken = match registration {
                Some(registration) => registration
                    .claim(append, claim)
                    .await
                    .map(|(registration, head)| (Some(registration), head)),
                None => match shared.committer.append(append.clone(), None).await {
                    Ok(head) => Ok((None, head)),
                    Err(error) => Err(claim_error(shared, append, claim, &error)),
                },
            };
            match taken {
                Ok((still, head)) => (registration, durable) = (still, Some(head)),
                Err(error) if error.kind() == ErrorKind::Conflict => return Box::pin(self.again()).await,
                Err(error) => return Err(error),
            }
        }
        shared.telemetry().of(Some(&facts.workflow)).started();
        shared.emit(run, || RunEventKind::Started);
        let Some(registration) = registration else {
            let handle = line_up(shared, graph, run, facts, policy);
            return Ok(ControlFlow::Break(handle.of_start_id(start_id)));
        };
        let Self { shared, graph, input: state, run, facts, .. } = self;
        let held = first.is_some().then(|| facts.clone());
        let outbox = PendingRecords::new(run, shared.committer.clone(), held, durable, registration.term);
        let parts = DriverInput { machine, state, log, outbox, first, facts: facts.into() };
        Ok(ControlFlow::Break(drive(shared, graph, policy, registration, parts)))
    }

    /// Finds the existing run with this id. If its start was equal to this start, it is the same run. It is then claimed if no process drives it,
    /// unless this start is on hold.
    pub(super) async fn again(self) -> Result<ControlFlow<RunHandle<S>, Self>> {
        let Self { shared, graph, run, facts, policy, .. } = &self;
        // A start or claim of this process registers before it appends.
        let has_begun = shared.has_begun(run).await;
        let Some(head) = shared.store.head(run).await? else {
            return if has_begun { Err(unrecorded(run)) } else { Ok(ControlFlow::Continue(self)) };
        };
        let is_same_workflow = head.facts.workflow == facts.workflow;
        let is_same = is_same_workflow
            && (head.facts.input == facts.input
                || Box::pin(has_same_input(shared, graph, run, facts.input)).await?);
        if !is_same {
            let what = if is_same_workflow { "another input" } else { "another workflow" };
            let message = format!("the run was already started with {what}; use another id");
            return Err(Error::new(ErrorKind::AlreadyExists, message).with_run(run));
        }
        if !same_start(&head.facts, facts) {
            let message = "the run was already started by another node, or without one; use another id";
            return Err(Error::new(ErrorKind::AlreadyExists, message).with_run(run));
        }
        let watching =
            RunHandle::new(Arc::clone(shared), graph.clone(), run.clone(), OutcomeSource::Elsewhere)
                .of_start(&head.facts);
        let elsewhere = head.owner_alive && head.owner != Some(shared.executor);
        let is_ours = shared.driver(run).is_some() || shared.admission.is_waiting(run);
        let is_others = shared.services.tags.lacking(&head.facts).is_some();
        let is_on_hold = self.hold.is_some();
        if is_on_hold || is_left(&head, shared.clock.now()) || elsewhere || is_ours || is_others {
            return Ok(ControlFlow::Break(watching));
        }
        let Some(permit) = shared.admission.try_admit(run, &head.facts) else {
            return Ok(ControlFlow::Break(line_up(shared, graph, run, &head.facts, *policy)));
        };
        let terms = super::resume::ClaimOptions::default();
        match resume(shared, graph, run, *policy, &terms, Some(head.into()), Some(permit)).await {
            // Another claimer was faster, which does not matter to the caller.
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::WrongStatus) => {
                Ok(ControlFlow::Break(watching))
            }
            Err(error) if error.kind() == ErrorKind::Closed && facts.labels.get(PARENT).is_some() => {
                Ok(ControlFlow::Break(watching))
            }
            result => result.map(ControlFlow::Break),
        }
    }
}

/// Returns the error for a run that was started in this process and cannot be found. The run may have ended and been purged, so it is not started
/// again.
fn unrecorded(run: &RunKey) -> Error {
    let message =
        "this process drives the run without a record, or the run just ended; start it again after its end";
    Error::new(ErrorKind::Unavailable, message).with_run(run)
}

impl<S: State> IntoFuture for StartRequest<S> {
    type Output = Result<RunHandle<S>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let span = self.span();
            // State code serializes the input: its panic ends this task, and not the caller.
            async move { finish(async move { self.validate()?.start().await }).await }.instrument(span).await
        })
    }
}

impl<S: State> std::fmt::Debug for StartRequest<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StartRequest")
            .field("workflow", self.graph.name())
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
