//! Nodes that wait for people: gates and conversations.

use std::future::Future;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use super::GraphBuilder;
use crate::ask::{Ask, DeclineReason};
use crate::graph::NodeNames;
use crate::graph::Route;
use crate::node::{Conversation, GateNode, GateResult, NodeContext, NodeError, TalkNode};
use crate::record::effect::Effect;
use crate::state::{Draft, IntoUpdate, State};

impl<S: State> GraphBuilder<S> {
    /// Adds a node that asks a question and writes the answer into the state.
    ///
    /// The id of the question is `name@visit:gate`. An answer may name only the node (`name`) while the node has no other open question.
    ///
    /// If the question is rejected or its deadline expires, the node fails with the comment of the rejection or the message of the expiry. An
    /// `on_failure` edge can handle the failure. To handle it in another way, use [`gate_with`](Self::gate_with).
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::ask::{Answer, Ask};
    /// use ferrata_core::graph::Graph;
    /// use ferrata_core::runtime::{Outcome, Runtime};
    /// use ferrata_core::state::Context;
    /// use ferrata_core::store::MemoryStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let graph = Graph::<Context>::builder("pay")
    ///     .gate("approve", |_s: &Context| Ask::<bool>::new("Pay 120 EUR?"), |s, yes| s.set("approved", yes))
    ///     .entry("approve")
    ///     .build()?;
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// let run = runtime.start(&graph, Context::new()).id("invoice-7").await?;
    /// let Outcome::Interrupted(questions) = run.wait().await? else { panic!("not asked") };
    /// assert_eq!(questions[0].id, "approve@1:gate");
    ///
    /// runtime.respond(run.run(), "approve", Answer::accept(true)?).by("ann").await?;
    /// let run = runtime.resume(&graph, "invoice-7").await?;
    /// let state = run.wait().await?.completed().ok_or("not completed")?;
    /// assert_eq!(state.get::<bool>("approved")?, Some(true));
    /// # Ok(())
    /// # }
    /// ```
    pub fn gate<A, Q, T, R>(self, name: impl Into<String>, ask: Q, take: T) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        Q: Fn(&S) -> Ask<A> + Send + Sync + 'static,
        T: Fn(&mut S, A) -> R + Send + Sync + 'static,
        R: GateResult + 'static,
    {
        self.gate_with(name, ask, move |state, answer: Result<A, DeclineReason>| match answer {
            Ok(answer) => take(state, answer).into_result(),
            Err(declined) => Err(NodeError::new(declined)),
        })
    }

    /// Adds a node that asks a question, like [`gate`](Self::gate). The function `take` also receives a rejection or an expired deadline. It can
    /// write the decision into the state, so that later edges depend on it.
    pub fn gate_with<A, Q, T, R>(self, name: impl Into<String>, ask: Q, take: T) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        Q: Fn(&S) -> Ask<A> + Send + Sync + 'static,
        T: Fn(&mut S, Result<A, DeclineReason>) -> R + Send + Sync + 'static,
        R: GateResult + 'static,
    {
        self.add_waiting(name, GateNode { ask, take, answer: PhantomData }).effect(Effect::Human)
    }

    /// Adds a conversation: a node that handles one message per activation and fires an edge to itself until its policy ends the conversation. Then
    /// the nodes in `next` start.
    ///
    /// The run records that it took a message before it calls `handle`. After a crash, it calls `handle` with the same message again.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::graph::Graph;
    /// use ferrata_core::node::Conversation;
    /// use ferrata_core::runtime::{Outcome, Runtime};
    /// use ferrata_core::state::{Context, Reducer};
    /// use ferrata_core::store::MemoryStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let graph = Graph::<Context>::builder("chat")
    ///     .channel("said", Reducer::Append)
    ///     .conversation("talk", ["end"], Conversation::new().exit_on("/quit"), async |_cx, _s, text: String| {
    ///         Ok(Context::update().append("said", [text]))
    ///     })
    ///     .node("end", async |_cx, _s| Ok(()))
    ///     .entry("talk")
    ///     .build()?;
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// let run = runtime.start(&graph, Context::new()).id("chat-7").await?;
    /// assert!(matches!(run.wait().await?, Outcome::AwaitingInput));
    ///
    /// runtime.send(run.run(), "hello").await?;
    /// runtime.send(run.run(), "/quit").await?;
    /// let state = runtime.resume(&graph, "chat-7").await?.wait().await?.completed().ok_or("not completed")?;
    /// assert_eq!(state.get::<Vec<String>>("said")?, Some(vec!["hello".to_owned()]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn conversation<M, F, Fut, R>(
        self,
        name: impl Into<String>,
        next: impl NodeNames,
        policy: Conversation<S>,
        handle: F,
    ) -> Self
    where
        M: DeserializeOwned + Send + 'static,
        F: Fn(NodeContext, Draft<S>, M) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, NodeError>> + Send + 'static,
        R: IntoUpdate<S>,
    {
        let (name, next) = (name.into(), next.into_names());
        let (turns, over) = (policy.turns, policy.over.clone());
        let targets: Vec<String> = std::iter::once(name.clone()).chain(next.iter().cloned()).collect();
        let itself = name.clone();
        let mut graph = self.add_waiting(name.clone(), TalkNode { policy, handle, message: PhantomData });
        if let Some(node) = graph.outline.nodes.last_mut() {
            node.converses = true;
        }
        graph.route(name, targets, move |state, cx| {
            let enough = turns.is_some_and(|most| cx.message_count() >= most);
            if cx.is_left() || enough || over.as_ref().is_some_and(|over| over(state)) {
                Route::all(next.clone())
            } else {
                Route::to(itself.clone())
            }
        })
    }
}
