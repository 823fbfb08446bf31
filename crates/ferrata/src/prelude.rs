//! What most programs name: `use ferrata::prelude::*;`.

pub use crate::{
    Answer, AnswerShape, Ask, CheckpointPolicy, Context, Conversation, Draft, Effect, Fatal, Graph,
    GraphError, Join, Lens, Node, NodeContext, NodeError, NodeResult, Outcome, RetryPolicy, Route, RunHandle,
    Runtime, State, Update,
};
