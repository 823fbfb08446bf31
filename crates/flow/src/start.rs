//! Starts flows and waits for their results.

use std::error::Error as StdError;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;

use ferrata_core::record::Failure;
use ferrata_core::runtime::{Outcome, RunHandle, Runtime, StartRequest};
use ferrata_core::state::Context;
use ferrata_core::{Error, ErrorKind, Result, RunKey};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::change;
use crate::flow::{Flow, read_output};
use crate::sealed::SealedType;

/// Calls of flows by a [`Runtime`].
pub trait RuntimeFlowExt: SealedType {
    /// Calls a flow: `.await` starts a run and waits for its result.
    ///
    /// If an [`id`](FlowCall::id) is set, a call with the same input joins the existing run of that id, in any process, while it is active or after
    /// it has completed. The call also waits while the run is idle. [Serve](Runtime::serve) the flow, so that this process continues the run after a
    /// long wait.
    ///
    /// # Examples
    ///
    /// See [`flow`](crate::flow()).
    fn call<I, O>(&self, flow: &Flow<I, O>, input: I) -> FlowCall<O>
    where
        I: Serialize + DeserializeOwned + Send + 'static,
        O: Serialize + DeserializeOwned + Send + 'static;
}

impl RuntimeFlowExt for Runtime {
    fn call<I, O>(&self, flow: &Flow<I, O>, input: I) -> FlowCall<O>
    where
        I: Serialize + DeserializeOwned + Send + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
    {
        let start =
            flow.graph().map_err(Error::from).and_then(|graph| Ok(self.start(graph, flow.input(&input)?)));
        FlowCall { start: Box::new(start), output: PhantomData }
    }
}

/// A request to call a flow. `.await` starts the flow and waits for its result; [`start`](Self::start) only starts it.
///
/// # Cancel safety
///
/// If the future is dropped after its first poll, the run continues. A call with the same id joins the run.
#[must_use = "a flow is not called before the call is awaited"]
pub struct FlowCall<O> {
    start: Box<Result<StartRequest<Context>>>,
    output: PhantomData<fn() -> O>,
}

impl<O: DeserializeOwned + Send + 'static> FlowCall<O> {
    /// Sets the id of the run. All calls with the same id and the same input belong to the same run.
    pub fn id(self, id: impl AsRef<str>) -> Self {
        self.with(|start| start.id(id))
    }

    /// Sets the tenant of the run.
    pub fn tenant(self, tenant: impl AsRef<str>) -> Self {
        self.with(|start| start.tenant(tenant))
    }

    /// Sets the user for whom the run is started.
    pub fn user(self, user: impl Into<String>) -> Self {
        self.with(|start| start.user(user))
    }

    /// Adds a label to the run. Listings can filter runs by label.
    pub fn label(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|start| start.label(key, value))
    }

    /// Sets the configuration of the run, like [`StartRequest::config`].
    pub fn config(self, config: impl Serialize) -> Self {
        self.with(|start| start.config(config))
    }

    /// Changes the start request of the run. Use it for options that this type does not have.
    pub fn with(self, set: impl FnOnce(StartRequest<Context>) -> StartRequest<Context>) -> Self {
        Self { start: Box::new(self.start.map(set)), output: PhantomData }
    }

    /// Starts the run, or finds it if it exists. Does not wait for its result.
    ///
    /// # Errors
    ///
    /// The errors of [`StartRequest`], for example [`ErrorKind::AlreadyExists`] if a run with this id has another input.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: after the first poll, the start is carried out even if the caller drops the future.
    pub async fn start(self) -> Result<FlowHandle<O>> {
        let handle = (*self.start)?.await?;
        Ok(FlowHandle::new(handle))
    }
}

impl<O: DeserializeOwned + Send + 'static> IntoFuture for FlowCall<O> {
    type Output = Result<O, FlowCallError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.start().await?.result().await })
    }
}

impl<O> fmt::Debug for FlowCall<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowCall").finish_non_exhaustive()
    }
}

/// A handle to a run of a flow, with its typed result. Dropping it changes nothing.
pub struct FlowHandle<O> {
    handle: RunHandle<Context>,
    output: PhantomData<fn() -> O>,
}

impl<O: DeserializeOwned> FlowHandle<O> {
    /// Creates a handle from a handle to a run of the flow's [graph](Flow::graph), for example after a resume, a fork, or a start through a queue.
    pub fn new(handle: RunHandle<Context>) -> Self {
        Self { handle, output: PhantomData }
    }

    /// Returns the key of the run.
    pub fn run(&self) -> &RunKey {
        self.handle.run()
    }

    /// Returns the untyped handle to the run.
    pub fn handle(&self) -> &RunHandle<Context> {
        &self.handle
    }

    /// Waits for the result. During the wait, the run may become idle and continue any number of times, in this process or in another.
    ///
    /// # Errors
    ///
    /// [`FlowCallError`] gives the reason: the run ended without a result, or this process cannot wait for it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the run continues, and the caller can wait for it again.
    pub async fn result(&self) -> Result<O, FlowCallError> {
        let error = match self.handle.completed().await {
            Ok(state) => return Ok(read_output(&state)?),
            Err(error) if error.kind() == ErrorKind::WrongStatus => error,
            Err(error) => return Err(FlowCallError::Runtime(error)),
        };
        match self.handle.wait().await? {
            Outcome::Completed(state) => Ok(read_output(&state)?),
            Outcome::Failed { failure, .. } if failure.message.starts_with(change::PREFIX) => {
                Err(FlowCallError::CodeChanged(failure))
            }
            Outcome::Failed { failure, .. } => Err(FlowCallError::Failed(failure)),
            Outcome::Cancelled { reason, .. } => Err(FlowCallError::Cancelled { reason }),
            _ => Err(FlowCallError::Runtime(error)),
        }
    }
}

impl<O> Clone for FlowHandle<O> {
    fn clone(&self) -> Self {
        Self { handle: self.handle.clone(), output: PhantomData }
    }
}

impl<O> fmt::Debug for FlowHandle<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowHandle").field("run", self.handle.run()).finish_non_exhaustive()
    }
}

/// The reason why a call of a flow has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum FlowCallError {
    /// The flow failed. `Runtime::retry` calls the function again, and recorded steps return their recorded results.
    Failed(Failure),
    /// The flow stopped, because the code of the function does not fit the records of the run. See [`CodeChange`](crate::CodeChange).
    CodeChanged(Failure),
    /// The run was cancelled.
    Cancelled {
        /// The reason that the caller of the cancellation gave.
        reason: String,
    },
    /// The run could not be started or waited for, or its result is not of the expected type.
    Runtime(Error),
}

impl fmt::Display for FlowCallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => write!(f, "the flow failed: {failure}"),
            Self::CodeChanged(failure) => failure.fmt(f),
            Self::Cancelled { reason } => write!(f, "the flow was cancelled: {reason}"),
            Self::Runtime(error) => error.fmt(f),
        }
    }
}

impl StdError for FlowCallError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Runtime(error) => error.source(),
            _ => None,
        }
    }
}

impl From<Error> for FlowCallError {
    fn from(error: Error) -> Self {
        Self::Runtime(error)
    }
}
