//! Starting a run, and finding it again when it was started before.

use std::collections::BTreeSet;
use std::future::{Future, IntoFuture};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use tracing::{Instrument as _, Span};

use super::drive::{DriverInput, drive};
use super::given::{EncodedExtras, StartExtras};
use super::line_up::line_up;
use super::resume::{is_left, resume};
use super::same_input::has_same_input;
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{CheckpointFrequency, CheckpointPolicy, Graph};
use crate::id::{Epoch, RunId, RunKey, TenantId};
use crate::record::body::{Event, Started};
use crate::record::parent_link::{PARENT, TAGS, TRACE, refuse_reserved, same_start};
use crate::record::{Labels, RunFacts};
use crate::runtime::driver::{FirstRecord, PendingRecords, check_input, check_transactions};
use crate::runtime::event::Event as RunEventKind;
use crate::runtime::fleet::admission::{AdmissionResult, room};
use crate::runtime::fleet::life::{self, ClaimId};
use crate::runtime::fleet::tags::label;
use crate::runtime::handle::{OutcomeSource, RunHandle};
use crate::runtime::shared::RuntimeInner;
use crate::runtime::tasks::finish;
use crate::state::State;
use crate::telemetry::{TraceParent, spans};

/// How often a start is made that meets an id in use and then no run, and how long it waits at first: a purge is under way.
const LOOKS: u32 = 4;
const FIRST_LOOK: Duration = Duration::from_millis(10);

/// A start that is being prepared; `.await` starts the run.
///
/// # Cancel safety
///
/// Cancel safe: once polled it is carried out, even if the caller drops it.
#[must_use = "a start does nothing until it is awaited"]
pub struct StartRequest<S: State> {
    pub(super) shared: Arc<RuntimeInner>,
    graph: Graph<S>,
    pub(super) input: S,
    pub(super) id: Option<Result<RunId>>,
    pub(super) tenant: Option<Result<TenantId>>,
    user: Option<String>,
    labels: Vec<(String, String)>,
    /// What says which node started it.
    parent_labels: Vec<(String, String)>,
    given: StartExtras,
    policy: CheckpointPolicy,
    trace: Option<Result<TraceParent>>,
    pub(super) tags: BTreeSet<String>,
    /// Why it is to begin paused, if it is.
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

    /// Sets the run's id: the same id with the same input, [configuration](Self::config) and [first messages](Self::message) is the same run,
    /// however often it is started.
    pub fn id(mut self, id: impl AsRef<str>) -> Self {
        self.id = Some(RunId::new(id));
        self
    }

    /// Sets whom the run belongs to.
    pub fn tenant(mut self, tenant: impl AsRef<str>) -> Self {
        self.tenant = Some(TenantId::new(tenant));
        self
    }

    /// Sets for whom the run is.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Adds a label to filter runs by.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }

    /// Configures the run: any JSON, which its nodes read with [`NodeContext::config`](crate::node::NodeContext::config) and none of them
    /// changes. It is recorded with the start, so that the run keeps it over restarts and retries, and so do its forks, unless
    /// [`ForkRequest::config`](super::ForkRequest::config) sets another. Children do not have it.
    ///
    /// It has up to [`max_body`](crate::runtime::RuntimeBuilder::max_body) bytes and stands in every base: keep it small.
    pub fn config(mut self, config: impl Serialize) -> Self {
        self.given.configure(&config);
        self
    }

    /// Starts the run with a message, for whichever node receives first; called again, with a further one behind it. Run and message
    /// are recorded together: neither is ever there without the other, and a repeated start sends nothing.
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
    ///
    /// <!-- held by: given::a_run_and_its_first_messages_are_one_record -->
    pub fn message(mut self, message: impl Serialize) -> Self {
        self.given.send(&message);
        self
    }

    /// Gives it what was collected elsewhere.
    pub(crate) fn given(mut self, given: StartExtras) -> Self {
        self.given = given;
        self
    }

    /// Says by labels which node starts it.
    pub(crate) fn parent_labels(mut self, labels: impl IntoIterator<Item = (String, String)>) -> Self {
        self.parent_labels = labels.into_iter().collect();
        self
    }

    /// Says which trace the run belongs to, as a W3C `traceparent`, and which span of it starts the run: recorded, so that the spans of the run go
    /// on in it in whatever process. Taken from the caller's current span unless set, if the runtime has a
    /// [`trace_context`](crate::runtime::RuntimeBuilder::trace_context).
    pub fn trace_parent(mut self, traceparent: impl Into<String>) -> Self {
        self.trace = Some(TraceParent::new(traceparent));
        self
    }

    /// Sets when the run writes checkpoints; after every node unless set.
    pub fn checkpoints(mut self, policy: CheckpointPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Makes the span of the start.
    pub(super) fn span(&self) -> Span {
        let parent = self.trace.as_ref().and_then(|trace| trace.as_ref().ok());
        spans::start(self.graph.name(), self.shared.trace(), parent)
    }

    /// Starts the run within a task of the caller's that carries it out to its end: awaited itself, the request has a task of its own.
    ///
    /// # Errors
    ///
    /// Those of the request.
    pub(crate) async fn carried_out(self) -> Result<RunHandle<S>> {
        let span = self.span();
        async move { self.checked()?.start().await }.instrument(span).await
    }

    /// Checks what is asked for; nothing is touched yet.
    pub(super) fn checked(self) -> Result<ValidatedStart<S>> {
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
            let message =
                "only processes with other tags take the run up; start it in one, or through a queue";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if hold.is_some() && policy.frequency == CheckpointFrequency::Disabled {
            let message = "a run without checkpoints cannot begin paused: nothing of it would be recorded";
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
        let given = given.checked(shared.limits.max_body, now).map_err(|error| error.with_run(&run))?;
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
            // A run that has as many labels as it may goes without.
            drop(kept.insert(TRACE, trace.as_str()));
        }
        let facts = facts.with_labels(kept);
        Ok(ValidatedStart { shared, graph, input, given, text: Some(text), run, facts, policy, hold })
    }
}

/// A start that may be made.
pub(super) struct ValidatedStart<S: State> {
    pub(super) shared: Arc<RuntimeInner>,
    pub(super) graph: Graph<S>,
    input: S,
    given: EncodedExtras,
    /// The input as the first record is to hold it, until it does.
    text: Option<Box<RawValue>>,
    pub(super) run: RunKey,
    pub(super) facts: RunFacts,
    pub(super) policy: CheckpointPolicy,
    /// Why it is to begin paused, if it is.
    pub(super) hold: Option<String>,
}

impl<S: State> ValidatedStart<S> {
    /// Starts the run or finds it, again if it was gone by the time it was looked for.
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
        let message = "another process starts or purges the run; try again";
        Err(Error::new(ErrorKind::Unavailable, message).with_run(&self.run))
    }

    /// Returns the input as the first record is to hold it.
    pub(super) fn text(&mut self) -> Result<Box<RawValue>> {
        match self.text.take() {
            Some(text) => Ok(text),
            None => check_input(&self.input, self.graph.schema(), self.shared.limits.max_body),
        }
    }

    /// Makes what the first record says, and the run as of it.
    pub(super) fn first(&self) -> Result<(Event, Machine)> {
        let Self { shared, graph, facts, .. } = self;
        let plan = graph.plan();
        let mut machine = Machine::new(Some(Arc::clone(plan)));
        let (graphs, effects, edges, gates) = (
            Arc::clone(&plan.prints),
            Arc::clone(&plan.effects),
            Arc::clone(&plan.targets),
            Arc::clone(&plan.gates),
        );
        let (entry, life) = (plan.node(plan.entry).name.clone(), shared.ids.next(facts.created));
        let EncodedExtras { config, messages } = self.given.clone();
        let secret = plan.secrets.clone();
        let graph = graphs;
        let event =
            Event::Start(Started { entry, graph, life, effects, edges, gates, config, secret, messages });
        machine.absorb(&event)?;
        Ok((event, machine))
    }

    /// Starts the run, or continues if another run had the id and is gone.
    async fn start_once(mut self) -> Result<ControlFlow<RunHandle<S>, Self>> {
        let text = self.text()?;
        if let Some(hold) = self.hold.take() {
            // Rare and large, so not a part of each start.
            return Box::pin(self.start_on_hold(hold, text)).await;
        }
        let Self { shared, graph, run, facts, policy, .. } = &self;
        let policy = *policy;
        let mut permit = shared.admission.try_admit(run, facts);
        if policy.frequency == CheckpointFrequency::Disabled && permit.is_none() {
            // Nothing is recorded that could wait in its place.
            let turn = match shared.driver(run) {
                None => room(shared, run, facts).await?,
                Some(_) => AdmissionResult::Left,
            };
            match turn {
                AdmissionResult::Room(room) => permit = Some(room),
                // The same start was in line here, or goes on: it is not made a second time.
                AdmissionResult::Left => return Box::pin(self.again()).await,
                AdmissionResult::Had => {
                    return match Box::pin(self.again()).await? {
                        ControlFlow::Continue(Self { run, .. }) => Err(unrecorded(&run)),
                        found => Ok(found),
                    };
                }
            }
        }
        // A run that goes on in a runtime that is closing comes to its end here, and what it starts is left to others.
        let of_node = facts.labels.get(PARENT).is_some();
        let mut registration = match permit.map(|permit| shared.enter(run, permit, false)).transpose() {
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
            // No append would meet the run that is there, before work was done a second time.
            drop(registration);
            return Box::pin(self.again()).await;
        }
        let (event, machine) = self.first()?;
        let life = machine.life();
        let mut log = shared.log_writer(run);
        log.state_version = graph.schema().version();
        let (mut durable, mut first) = (None, None);
        if policy.frequency == CheckpointFrequency::Disabled {
            first = Some(FirstRecord { event, input: text });
        } else {
            if registration.is_none() {
                // Without a claim yet: this tells it from a run that was lost.
                log.epoch = Epoch::NEVER;
            }
            let tenure = ClaimId { life, epoch: log.epoch };
            let append = log.begin(&event, &machine, text, registration.is_none(), facts.clone())?;
            let taken = match registration {
                Some(registration) => registration
                    .claim(append, tenure)
                    .await
                    .map(|(registration, head)| (Some(registration), head)),
                None => match shared.committer.append(append.clone(), None).await {
                    Ok(head) => Ok((None, head)),
                    Err(error) => Err(life::refused(shared, append, tenure, &error)),
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
            return Ok(ControlFlow::Break(handle.of_life(life)));
        };
        let Self { shared, graph, input: state, run, facts, .. } = self;
        let held = first.is_some().then(|| facts.clone());
        let outbox = PendingRecords::new(run, shared.committer.clone(), held, durable, registration.term);
        let parts = DriverInput { machine, state, log, outbox, first, facts: facts.into() };
        Ok(ControlFlow::Break(drive(shared, graph, policy, registration, parts)))
    }

    /// Finds the run that is there already: the same run if it was started alike, and claimed if it has no driver, unless the start is
    /// one on hold.
    pub(super) async fn again(self) -> Result<ControlFlow<RunHandle<S>, Self>> {
        let Self { shared, graph, run, facts, policy, .. } = &self;
        // A start or a claim of this process has its place before its record.
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
            let message = format!("the run was started before with {what}; use another id");
            return Err(Error::new(ErrorKind::AlreadyExists, message).with_run(run));
        }
        if !same_start(&head.facts, facts) {
            let message = "the run was started before by another node, or by none; use another id";
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
            // Another claimer was faster, which is all the same to the caller.
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

/// Says of a run that was started here and is nowhere to be found why it is not started again: also of one that has ended meanwhile.
fn unrecorded(run: &RunKey) -> Error {
    let message =
        "the run goes on in this process without any record, or has ended by now; start it again when it has";
    Error::new(ErrorKind::Unavailable, message).with_run(run)
}

impl<S: State> IntoFuture for StartRequest<S> {
    type Output = Result<RunHandle<S>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let span = self.span();
            // Code of the state writes and reads the input: a panic of it ends this task, and not the caller.
            async move { finish(async move { self.checked()?.start().await }).await }.instrument(span).await
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
