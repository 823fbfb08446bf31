//! The durable operations that a function can request.

use std::fmt;
use std::future::{Future, pending};
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::Labels;
use ferrata_core::runtime::StreamWriter;
use ferrata_core::{Clock, Error, Fingerprint, RunKey, Timestamp, WorkflowName};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::change::CodeChange;
use crate::entry::{FlowEntry, OperationKind};
use crate::error::FlowError;
use crate::gate::{OperationInfo, ReplayGate};
use crate::recorded::{FAILED, RecordedEntry};
use crate::saga::PendingUndo;
use crate::ticket::GateTicket;

/// The durable operations of a function. Cheap to clone; pass a clone to helper functions.
///
/// Each operation has a name. A replay finds the operation by its name and by its number among the operations of the same name, in the order of the
/// calls. A name has 1 to 50 letters, digits, `_`, `-` and spaces. All operations of one name must be of the same kind.
///
/// The runtime may call the function again after a crash, a long wait or a failed attempt. Then each recorded operation returns its recorded result,
/// in the recorded order. The rest of the function must be repeatable, so that it takes the same path again. It must await only operations. It must
/// get time, randomness and data from outside only with [`now`](Self::now), [`random`](Self::random), [`uuid`](Self::uuid) or a step.
#[derive(Clone)]
// Large: the API of a function; each method is in the file of its feature.
pub struct FlowContext {
    pub(crate) inner: Arc<FlowInner>,
}

pub(crate) struct FlowInner {
    pub(crate) node: NodeContext,
    pub(crate) gate: Arc<ReplayGate>,
    compensations: Mutex<Vec<PendingUndo>>,
}

/// The key of an operation, with the line of code that requested it.
#[derive(Clone, Debug)]
pub(crate) struct OperationKey {
    /// The number of the operation in the order of the calls.
    pub(crate) id: u64,
    /// `None` if the name is invalid; the attempt then ends.
    pub(crate) key: Option<Arc<str>>,
    pub(crate) kind: OperationKind,
    pub(crate) location: &'static Location<'static>,
}

impl FlowContext {
    pub(crate) fn new(node: NodeContext, gate: Arc<ReplayGate>) -> Self {
        Self { inner: Arc::new(FlowInner { node, gate, compensations: Mutex::default() }) }
    }

    pub(crate) fn node(&self) -> &NodeContext {
        &self.inner.node
    }

    pub(crate) fn gate(&self) -> &Arc<ReplayGate> {
        &self.inner.gate
    }

    pub(crate) fn compensations(&self) -> MutexGuard<'_, Vec<PendingUndo>> {
        self.inner.compensations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the key of the run.
    pub fn run(&self) -> &RunKey {
        self.node().run()
    }

    /// Returns the name of the workflow.
    pub fn workflow(&self) -> &WorkflowName {
        self.node().workflow()
    }

    /// Returns the labels of the run.
    pub fn labels(&self) -> &Labels {
        self.node().labels()
    }

    /// Returns the user for whom the run was started, if the start set a user.
    pub fn user(&self) -> Option<&str> {
        self.node().user()
    }

    /// Reads the configuration of the run, like [`NodeContext::config`].
    ///
    /// # Errors
    ///
    /// The errors of [`NodeContext::config`].
    pub fn config<T: DeserializeOwned>(&self) -> Result<T, FlowError> {
        Ok(self.node().config()?)
    }

    /// Returns the resource of this type.
    ///
    /// # Panics
    ///
    /// If the runtime has no resource of this type, like [`NodeContext::resource`].
    #[track_caller]
    pub fn resource<T: Send + Sync + 'static>(&self) -> &T {
        self.node().resource()
    }

    /// Returns the resource of this type; `None` if the runtime has none.
    pub fn try_resource<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.node().try_resource()
    }

    /// Returns a key for an operation of this run. `name` may be the name of a step. The key is the same each time the function runs again, and
    /// differs from the keys of all other runs. Send the key with each request whose effect must not happen twice.
    pub fn idempotency_key(&self, name: &str) -> String {
        format!("{}:{name}", self.node().idempotency_key())
    }

    /// Returns the clock of the runtime. Use it within the work of a step, for pauses that need no record.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        self.node().clock()
    }

    /// Waits until the run is cancelled or this process releases it. Use this method within the work of a step, to stop early.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future changes nothing.
    pub async fn cancelled(&self) {
        self.node().cancelled().await;
    }

    /// Sends an outbox message. The messages of a run are sent when the function has returned `Ok`. A flow that fails sends none.
    ///
    /// # Errors
    ///
    /// The errors of [`NodeContext::send_out`].
    pub fn send_out(&self, topic: impl AsRef<str>, payload: impl Serialize) -> Result<(), FlowError> {
        Ok(self.node().send_out(topic, payload)?)
    }

    /// Sends an event to watchers of the run, like [`NodeContext::emit`]. The event is not recorded, and a replay sends it again.
    ///
    /// # Errors
    ///
    /// The errors of [`NodeContext::emit`].
    pub fn emit(&self, name: impl Into<String>, payload: impl Serialize) -> Result<(), FlowError> {
        Ok(self.node().emit(name, payload)?)
    }

    /// Opens a durable stream of chunks for watchers of the run, like [`NodeContext::stream`]. Call it within the work of a step. Outside of a step,
    /// each replay would open the stream again.
    ///
    /// # Errors
    ///
    /// The errors of [`NodeContext::stream`].
    pub fn stream(&self, name: impl Into<String>) -> Result<StreamWriter, FlowError> {
        Ok(self.node().stream(name)?)
    }

    /// Returns the current time. The first call with this name records the time, so a replay gets the same time.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future changes nothing for the run.
    #[track_caller]
    pub fn now(&self, name: &str) -> impl Future<Output = Timestamp> + Send + use<> {
        self.value(name, |cx, _| cx.node().now())
    }

    /// Returns a random number. A replay gets the same number. Do not use it for secrets.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future changes nothing for the run.
    #[track_caller]
    pub fn random(&self, name: &str) -> impl Future<Output = u64> + Send + use<> {
        self.value(name, |cx, key| cx.entropy(key))
    }

    /// Returns a random UUID. A replay gets the same UUID. Do not use it for secrets.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future changes nothing for the run.
    #[track_caller]
    pub fn uuid(&self, name: &str) -> impl Future<Output = Uuid> + Send + use<> {
        self.value(name, |cx, key| {
            let (high, low) = (cx.entropy(key), cx.entropy(&format!("{key}:low")));
            uuid::Builder::from_u128(Uuid::from_u64_pair(high, low).as_u128())
                .with_variant(uuid::Variant::RFC4122)
                .with_version(uuid::Version::Custom)
                .into_uuid()
        })
    }

    /// Returns whether this run uses a change of the code. Returns true if the run reaches this point for the first time with the new code, and false
    /// if the run recorded operations after this point with the old code. The answer stays the same for the rest of the run.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future changes nothing for the run.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_flow::{FlowContext, FlowError};
    ///
    /// async fn ship(cx: FlowContext, _order: u64) -> Result<(), FlowError> {
    ///     if cx.patched("weigh first").await {
    ///         cx.step("weigh", async || Ok::<_, FlowError>(())).await?;
    ///     }
    ///     cx.step("ship", async || Ok::<_, FlowError>(())).await
    /// }
    /// # let _ = ship;
    /// ```
    #[track_caller]
    pub fn patched(&self, name: &str) -> impl Future<Output = bool> + Send + use<> {
        // A patch may have the name of the step that it adds.
        let own = self.key(&format!("patch-{name}"), OperationKind::Patch);
        let cx = self.clone();
        async move {
            let ticket = cx.enter(&own, true).await;
            ticket.released().await;
            if ticket.entry.is_none() && ticket.patch() == Some(false) {
                return false;
            }
            match cx.recall_or_record(&own, &ticket, FlowEntry::<()>::Patch(true)).await {
                FlowEntry::Patch(has_patch) => has_patch,
                _ => cx.stop(cx.changed(&own, "it was recorded as another kind")).await,
            }
        }
    }

    /// Declares that this code may omit the recorded operations of this name. Without this declaration, a run that recorded such an operation fails
    /// with a [`CodeChange`] if the function does not request the operation. Call this method at the start of the function.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_flow::{FlowContext, FlowError};
    ///
    /// async fn ship(cx: FlowContext, _order: u64) -> Result<(), FlowError> {
    ///     cx.retired("notify by fax");
    ///     cx.step("ship", async || Ok::<_, FlowError>(())).await
    /// }
    /// # let _ = ship;
    /// ```
    pub fn retired(&self, name: &str) {
        self.gate().retire(name);
    }

    /// Returns the key of the next operation with this name.
    #[track_caller]
    pub(crate) fn key(&self, name: &str, kind: OperationKind) -> OperationKey {
        self.key_at(name, kind, Location::caller())
    }

    pub(crate) fn key_at(
        &self,
        name: &str,
        kind: OperationKind,
        location: &'static Location<'static>,
    ) -> OperationKey {
        let key = self.gate().next_key(name, kind, location);
        self.key_or_stop(key, self.gate().next_id(), kind, location)
    }

    /// Creates the key of an operation. An invalid name ends the attempt.
    pub(crate) fn key_or_stop(
        &self,
        key: Result<Arc<str>, Error>,
        id: u64,
        kind: OperationKind,
        location: &'static Location<'static>,
    ) -> OperationKey {
        let refused = |error: Error| {
            self.gate().abort(NodeError::new(error.with_node(self.node().node())).fatal());
        };
        OperationKey { id, key: key.map_err(refused).ok(), kind, location }
    }

    /// Registers an operation at the gate.
    pub(crate) async fn enter(&self, own: &OperationKey, is_safe: bool) -> GateTicket {
        match &own.key {
            Some(key) => {
                let (id, kind, location) = (own.id, own.kind, own.location);
                self.gate().ask(OperationInfo { id, key, kind, location, is_safe })
            }
            None => pending().await,
        }
    }

    /// Registers the wait for the end of a child at the gate.
    pub(crate) async fn enter_end(&self, own: &OperationKey, entry: Option<RecordedEntry>) -> GateTicket {
        match &own.key {
            Some(key) => {
                let (id, kind, location) = (own.id, own.kind, own.location);
                self.gate().ask_end(OperationInfo { id, key, kind, location, is_safe: false }, entry)
            }
            None => pending().await,
        }
    }

    /// Ends the attempt with this error. The runner does not poll the function again.
    pub(crate) async fn stop<T>(&self, error: impl Into<NodeError>) -> T {
        self.gate().abort(error);
        pending().await
    }

    pub(crate) fn changed(&self, own: &OperationKey, detail: impl Into<String>) -> NodeError {
        let operation = own.key.as_deref().map(|key| (own.kind, key));
        NodeError::new(CodeChange::new(operation, operation).at(own.location).with_detail(detail)).fatal()
    }

    /// Returns the recorded entry of an operation. If there is none, records `entry` and returns it.
    async fn recall_or_record<T>(
        &self,
        own: &OperationKey,
        ticket: &GateTicket,
        entry: FlowEntry<T>,
    ) -> FlowEntry<T>
    where
        T: Serialize + DeserializeOwned + Send,
    {
        match ticket.entry.as_ref().and_then(|entry| entry.text.as_ref()) {
            Some(_) => self.recall(own, ticket).await,
            None => self.record(own, entry).await,
        }
    }

    /// Records an entry under the key of an operation.
    pub(crate) async fn record<T>(&self, own: &OperationKey, entry: FlowEntry<T>) -> FlowEntry<T>
    where
        T: Serialize + DeserializeOwned + Send,
    {
        let Some(key) = &own.key else { return pending().await };
        match self.node().step(&**key, || std::future::ready(Ok::<_, NodeError>(entry))).await {
            Ok(entry) => entry,
            Err(error) => self.stop(error).await,
        }
    }

    /// Returns the recorded entry of an operation, at its position among the waits of the function.
    pub(crate) async fn recall<T: DeserializeOwned>(
        &self,
        own: &OperationKey,
        ticket: &GateTicket,
    ) -> FlowEntry<T> {
        self.recorded_end(own.key.as_deref(), ticket).await;
        let text = ticket.entry.as_ref().and_then(|entry| entry.text.as_deref());
        match text.map(|text| FlowEntry::of_text(text.get())) {
            Some(Ok(entry)) => entry,
            _ => {
                let detail = format!("its result is not of type {}", std::any::type_name::<T>());
                self.stop(self.changed(own, detail)).await
            }
        }
    }

    /// Waits for the recorded failure of an operation.
    pub(crate) async fn recall_failure(&self, own: &OperationKey, ticket: &GateTicket) {
        self.recorded_end(own.part(FAILED).as_deref(), ticket).await;
    }

    /// Waits until a released operation may end as recorded, by the record of this name. The driver decides, unless the gate has decided already.
    pub(crate) async fn recorded_end(&self, name: Option<&str>, ticket: &GateTicket) {
        if ticket.is_next() {
            return;
        }
        let Some(name) = name else { return pending().await };
        let missing = || {
            let message = format!("the record of `{name}` is gone");
            std::future::ready(Err::<Box<RawValue>, _>(NodeError::new(message)))
        };
        if let Err(error) = self.node().step(name, missing).await {
            self.stop(error).await
        }
    }

    /// Records an error that the function is about to see. Returns it as a replay will see it.
    pub(crate) async fn fail(&self, own: &OperationKey, error: FlowError) -> FlowError {
        if let Some(key) = &own.key {
            self.gate().note_failure(&format!("{key}.{FAILED}"), own.kind, &error).await;
        }
        FlowError::of_record(error.record())
    }

    #[track_caller]
    fn value<T, M>(&self, name: &str, make: M) -> impl Future<Output = T> + Send + use<T, M>
    where
        T: Serialize + DeserializeOwned + Send,
        M: FnOnce(&Self, &str) -> T + Send,
    {
        let (cx, own) = (self.clone(), self.key(name, OperationKind::Value));
        async move {
            let ticket = cx.enter(&own, true).await;
            ticket.released().await;
            let value = make(&cx, own.key.as_deref().unwrap_or_default());
            match cx.recall_or_record(&own, &ticket, FlowEntry::Value(value)).await {
                FlowEntry::Value(value) => value,
                _ => cx.stop(cx.changed(&own, "it was recorded as another kind")).await,
            }
        }
    }

    /// Returns a number that depends only on the run and this key.
    pub(crate) fn entropy(&self, key: &str) -> u64 {
        let text = Fingerprint::of(self.idempotency_key(key).as_bytes()).to_string();
        text.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default()
    }
}

impl fmt::Debug for FlowContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlowContext({} of {})", self.run(), self.workflow())
    }
}
