//! Gates: nodes that ask a question and write the answer into the state.

use std::future::Future;
use std::marker::PhantomData;

use async_trait::async_trait;
use serde::de::DeserializeOwned;

use super::{Node, NodeContext, NodeError, NodeResult};
use crate::ask::{Ask, AskError, DeclineReason};
use crate::state::{Draft, State};

/// The name of a gate's question. The id of the question is `node@visit:gate`.
const NAME: &str = "gate";

/// The result of a gate's function: it accepted the answer, or it returns the reason why it rejects the answer.
#[diagnostic::on_unimplemented(
    message = "the function of a gate cannot return `{Self}`",
    label = "expected `()`, or a `Result` of `()`",
    note = "end the function with `;`, `Ok(())`, or a call such as `s.set(..)` that returns `Result<(), _>`"
)]
pub trait GateResult: sealed::SealedReturn {
    /// Converts the return value of the gate's function to a result.
    ///
    /// # Errors
    ///
    /// Returns the error of the function, which is the reason to reject the answer.
    #[doc(hidden)]
    fn into_result(self) -> Result<(), NodeError>;
}

mod sealed {
    pub trait SealedReturn {}
    impl SealedReturn for () {}
    impl<E> SealedReturn for Result<(), E> {}
}

impl GateResult for () {
    fn into_result(self) -> Result<(), NodeError> {
        Ok(())
    }
}

impl<E: Into<NodeError>> GateResult for Result<(), E> {
    fn into_result(self) -> Result<(), NodeError> {
        self.map_err(Into::into)
    }
}

/// A node that asks a question.
pub(crate) struct GateNode<A, Q, T> {
    pub(crate) ask: Q,
    pub(crate) take: T,
    pub(crate) answer: PhantomData<fn() -> A>,
}

#[async_trait]
impl<S, A, Q, T, R> Node<S> for GateNode<A, Q, T>
where
    S: State,
    A: DeserializeOwned + Send + 'static,
    Q: Fn(&S) -> Ask<A> + Send + Sync + 'static,
    T: Fn(&mut S, Result<A, DeclineReason>) -> R + Send + Sync + 'static,
    R: GateResult,
{
    async fn run(&self, cx: NodeContext, mut state: Draft<S>) -> NodeResult<S> {
        let ask = (self.ask)(&state);
        let answer = await_answer(cx.ask_with(NAME, ask)).await?;
        (self.take)(&mut state, answer).into_result()?;
        Ok(state.into())
    }
}

async fn await_answer<A>(
    asked: impl Future<Output = Result<A, AskError>>,
) -> Result<Result<A, DeclineReason>, NodeError> {
    match asked.await {
        Ok(answer) => Ok(Ok(answer)),
        Err(AskError::Rejected { comment, by, .. }) => Ok(Err(DeclineReason::Rejected { comment, by })),
        Err(AskError::Expired { deadline, .. }) => Ok(Err(DeclineReason::Expired { deadline })),
        Err(error) => Err(error.into()),
    }
}
