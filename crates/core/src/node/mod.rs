//! The API for the code of nodes: the context, the results and errors, and the trait [`Node`].

// The methods of `NodeContext` appear in the documentation in the order of these groups.
mod context;

mod step;

mod question;
mod wait;

mod transaction;

mod children;
mod cleanup;
mod conversation;
mod error;
mod gate;
mod keep_awake;
mod ownership;
mod progress;
mod recorded;
mod requests;
mod stream_batches;
mod timeout_pause;
mod work;

use async_trait::async_trait;

use crate::state::{Draft, State, Update};

pub use crate::kernel::resources::Resources;
pub(crate) use children::{NotedChild, RuntimeAccess, StartedChildren};
pub(crate) use cleanup::AttemptCleanup;
pub(crate) use context::{AttemptKey, DriverRequest, Inputs, NodeScope, RunScope};
pub use context::{Input, NodeContext};
pub use conversation::Conversation;
pub(crate) use conversation::TalkNode;
pub use error::{FatalExt, NodeError};
pub(crate) use gate::GateNode;
pub use gate::GateResult;
pub use keep_awake::KeepAwakeGuard;
pub(crate) use ownership::Ownership;
pub use recorded::{RecordedKind, RecordedOperation};
pub(crate) use requests::{AttemptWaits, ChildWait, NodeReply, NodeRequest, ReplySender};
pub use timeout_pause::TimeoutPause;
pub use transaction::Transaction;
pub(crate) use transaction::{AttemptTransactions, HandedIn, TransactionGrant, TransactionLease};
pub(crate) use work::{FnNode, StartWork, TypedNode, Work};

/// The result of a node: an update of the state, or an error.
///
/// # Examples
///
/// ```
/// use ferrata_core::graph::Graph;
/// use ferrata_core::node::{NodeContext, NodeResult};
/// use ferrata_core::state::{Context, Draft, IntoUpdate as _};
///
/// async fn greet(_cx: NodeContext, mut s: Draft<Context>) -> NodeResult<Context> {
///     s.set("text", "hello")?;
///     Ok(s.into_update())
/// }
///
/// let graph = Graph::<Context>::builder("greet").node("greet", greet).entry("greet").build()?;
/// # Ok::<(), ferrata_core::graph::GraphError>(())
/// ```
pub type NodeResult<S> = Result<Update<S>, NodeError>;

/// The work of a node, for a type with fields of its own.
///
/// Most nodes are `async fn`s or closures; see [`GraphBuilder::node`](crate::graph::GraphBuilder::node).
///
/// # Cancel safety
///
/// The runtime may drop the future at any await: when the run is cancelled or fails elsewhere, when an attempt exceeds its timeout, or when another
/// process claims the run. The node's [`Effect`](crate::graph::Effect) decides whether the runtime then runs the node again or asks for the outcome.
#[async_trait]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a node over the state `{S}`",
    label = "not a node",
    note = "implement `Node<{S}>`, or pass an `async fn(NodeContext, Draft<{S}>)` to `.node(..)` instead of `.add(..)`"
)]
pub trait Node<S: State>: Send + Sync + 'static {
    /// Does the work of one attempt.
    ///
    /// # Errors
    ///
    /// If the node returns an error, this attempt fails. The retry policy of the node decides whether another attempt follows, unless the error is
    /// marked [fatal](NodeError::fatal). After an error of an [`External`](crate::graph::Effect::External) node, the run asks for the outcome, unless
    /// the error is marked [not done](NodeError::not_done).
    async fn run(&self, cx: NodeContext, state: Draft<S>) -> NodeResult<S>;
}
