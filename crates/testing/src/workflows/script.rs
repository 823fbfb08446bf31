//! Scripted answers to questions.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ferrata_core::ask::{Answer, Answerer, AnswererQuestion};

/// Answers the questions of each node in the scripted order. A question without a scripted answer stays open.
///
/// Clones share the remaining answers. Messages need no script: [`Runtime::send`](ferrata_core::runtime::Runtime::send) stores them until a node receives
/// them.
///
/// # Examples
///
/// ```
/// use ferrata_core::ask::{Answer, Ask};
/// use ferrata_core::graph::Graph;
/// use ferrata_core::state::Context;
/// use ferrata_testing::{ScriptedAnswers, World};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let graph = Graph::<Context>::builder("pay")
///     .gate("approve", |_s: &Context| Ask::<bool>::new("Pay?"), |s, yes| s.set("paid", yes))
///     .entry("approve")
///     .build()?;
/// let script = ScriptedAnswers::new().answer("approve", Answer::accept(true)?);
/// let world = World::new();
/// let process = world.process_with(|builder| builder.answerer(script.clone())).await?;
/// let run = process.start(&graph, Context::new()).await?;
/// let state = world.pass(run.completed()).await?;
/// assert_eq!(state.get::<bool>("paid")?, Some(true));
/// assert!(script.is_over());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ScriptedAnswers {
    left: Arc<Mutex<BTreeMap<String, VecDeque<Answer>>>>,
}

impl ScriptedAnswers {
    /// Creates a script without answers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the answer to the next question of a node.
    #[must_use]
    pub fn answer(self, node: impl Into<String>, answer: Answer) -> Self {
        self.lock_answers().entry(node.into()).or_default().push_back(answer);
        self
    }

    /// Returns whether the script has given every answer.
    pub fn is_over(&self) -> bool {
        self.lock_answers().values().all(VecDeque::is_empty)
    }

    fn lock_answers(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, VecDeque<Answer>>> {
        // No code panics while it owns this lock.
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Answerer for ScriptedAnswers {
    async fn answer(&self, asking: &AnswererQuestion) -> Option<Answer> {
        self.lock_answers().get_mut(asking.question.node.as_str())?.pop_front()
    }

    fn name(&self) -> String {
        "script".into()
    }
}
