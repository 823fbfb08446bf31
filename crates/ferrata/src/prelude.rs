//! Names that most programs use: `use ferrata::prelude::*;`.

pub use crate::flow::{Flow, FlowContext, FlowError, GraphFlowExt, RuntimeFlowExt, flow};
#[cfg(feature = "queue")]
pub use crate::queue::{ChildQueueExt, GraphQueueExt, NodeQueueExt, RuntimeQueueExt, StartQueueExt};
#[cfg(feature = "schedule")]
pub use crate::schedule::{CatchUp, Overlap, RuntimeScheduleExt};
pub use crate::state::IntoUpdate as _;
pub use crate::{
    Answer, AnswerShape, Ask, CheckpointPolicy, Context, Conversation, Draft, Effect, FatalExt, Graph,
    GraphError, Join, Lens, Node, NodeContext, NodeError, NodeResult, Outcome, RetryPolicy, Route, RunHandle,
    Runtime, State, Update,
};
