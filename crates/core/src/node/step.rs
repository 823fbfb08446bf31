//! Steps, which are named parts of a node's work. The run records the result of each step.

use std::future::Future;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::Instrument as _;

use super::context::NodeContext;
use super::error::NodeError;
use super::requests::NodeRequest;
use crate::error::{Error, ErrorKind, Result};
use crate::record::memo::Memo;
use crate::state::strict;
use crate::telemetry::spans;

/// The maximum length of a name of a step or question, in bytes.
const LONGEST: usize = 128;

impl NodeContext {
    /// Does work once and records its result under a name.
    ///
    /// Whenever the activation runs again (after a crash, a failed attempt or a wait), the call returns the recorded result instead.
    ///
    /// The result is durable when the call returns, unless the node's effect is `Pure` or `Read`. A failure is not recorded, so the next attempt does
    /// the work again. A name can be used once in an activation, for a step or a question. After a step failed, the attempt may use its name again.
    ///
    /// # Errors
    ///
    /// - The error of the work.
    /// - The name was already used in this attempt, or it does not have 1 to 128 of the characters `A-Z a-z 0-9 . _ -`.
    /// - The result cannot be expressed in JSON, or the recorded result cannot be decoded as `T`.
    /// - The node has an open [transaction](Self::transaction). The step then fails before its work begins.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before the result is recorded, the step counts as not done, and the next attempt does its work again.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::Context;
    /// # use ferrata_core::store::MemoryStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let graph = Graph::<Context>::builder("order")
    ///     .node("pay", async |cx, mut s| {
    ///         let receipt: String = cx.step("charge", async || Ok::<_, std::io::Error>("r-17".to_owned())).await?;
    ///         cx.step("mail", async || Ok::<_, std::io::Error>(())).await?;
    ///         s.set("receipt", receipt)?;
    ///         Ok(s)
    ///     })
    ///     .entry("pay")
    ///     .build()?;
    /// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// # let state = runtime.start(&graph, Context::new()).await?.wait().await?.completed().unwrap();
    /// # assert_eq!(state.get::<String>("receipt")?.as_deref(), Some("r-17"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn step<T, E, F, Fut>(&self, name: impl Into<String>, work: F) -> Result<T, NodeError>
    where
        T: Serialize + DeserializeOwned,
        E: Into<NodeError>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        self.check_no_transaction()?;
        let name = self.claim(name.into())?;
        if let Some(result) = self.recalled(&name).await? {
            return Ok(result);
        }
        // The failure is not recorded, so the attempt may do the step again.
        self.work(&name, work).await.inspect_err(|_| self.scope.waits.free(&name))
    }

    /// Does the work of a step and records its result.
    async fn work<T, E, F, Fut>(&self, name: &str, work: F) -> Result<T, NodeError>
    where
        T: Serialize,
        E: Into<NodeError>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let result = {
            let _working = self.scope.waits.work();
            let work = async || work().await.map_err(Into::into).inspect_err(|_| spans::failed("step"));
            match spans::step(name) {
                None => work().await?,
                Some(span) => work().instrument(span).await?,
            }
        };
        let text = strict::to_raw_value(&result).map_err(|error| NodeError::new(error).fatal())?;
        self.request(name.to_owned(), NodeRequest::Keep(text)).await?;
        Ok(result)
    }

    /// Returns whether an earlier attempt recorded a step of this name, even if that attempt was before a retry of the run. The call does not count
    /// as a use of the name.
    #[doc(hidden)]
    pub fn has_step(&self, name: &str) -> bool {
        matches!(self.scope.memos.get(name), Some(Memo::Result(_)))
    }

    /// Returns the recorded result of a step.
    pub(super) async fn recalled<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, NodeError> {
        match self.scope.memos.get(name) {
            Some(Memo::Result(text)) => {
                if self.scope.memos.has_order() {
                    self.request(name.to_owned(), NodeRequest::Recall).await?;
                }
                serde_json::from_str(text.get()).map(Some).map_err(|source| {
                    let message = format!(
                        "the step `{name}` was recorded with a result that is not of type {}",
                        std::any::type_name::<T>()
                    );
                    let error = Error::new(ErrorKind::GraphChanged, message).with_node(self.node());
                    NodeError::new(error.with_source(source)).fatal()
                })
            }
            Some(_) => Err(NodeError::new(self.mismatch(name, "step")).fatal()),
            None => Ok(None),
        }
    }

    /// Claims a name for this attempt.
    pub(super) fn claim(&self, name: String) -> Result<String> {
        let refuse = |message: String| Err(Error::new(ErrorKind::Invalid, message).with_node(self.node()));
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || name.len() > LONGEST || !name.chars().all(fits) {
            return refuse(format!(
                "`{}` cannot name a step or question; use 1 to {LONGEST} of A-Z a-z 0-9 . _ -",
                name.escape_debug()
            ));
        }
        if matches!(name.as_str(), "before" | "after") {
            return refuse(format!(
                "the name `{name}` is reserved for declared interrupts; rename the step or question"
            ));
        }
        if !self.scope.waits.claim(&name) {
            return refuse(format!(
                "two steps or questions of one activation have the name `{name}`; give each its own name"
            ));
        }
        Ok(name)
    }

    pub(super) fn mismatch(&self, name: &str, what: &str) -> Error {
        let message = format!(
            "`{name}` is recorded, but not as a {what}; finish the run with the code that started it, or give the new {what} another name"
        );
        Error::new(ErrorKind::GraphChanged, message).with_node(self.node())
    }
}
