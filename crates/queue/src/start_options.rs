//! The options of a start that do not depend on the queue. They have the names of [`StartRequest`], so they may stand before or after `.queue(..)`.

use ferrata_core::graph::CheckpointPolicy;
use ferrata_core::runtime::StartRequest;
use ferrata_core::state::State;
use serde::Serialize;

use crate::start::QueuedStart;

impl<S: State> QueuedStart<S> {
    /// Sets the run id, like [`StartRequest::id`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::Context;
    /// # use ferrata_core::store::MemoryStore;
    /// # use ferrata_queue::{StartQueueExt, RuntimeQueueExt};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let graph = Graph::<Context>::builder("mail").node("send", async |_cx, s| Ok(s)).entry("send").build()?;
    /// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// # runtime.serve(&graph)?;
    /// runtime.queue("mail").at_once(50).declare().await?;
    /// let mail = runtime.start(&graph, Context::new()).queue("mail").id("mail-7").priority(5).await?;
    /// let state: Context = mail.completed().await?;
    /// # let _ = state;
    /// # Ok(())
    /// # }
    /// ```
    pub fn id(self, id: impl AsRef<str>) -> Self {
        self.change(|request| request.id(id))
    }

    /// Sets the tenant, like [`StartRequest::tenant`].
    pub fn tenant(self, tenant: impl AsRef<str>) -> Self {
        self.change(|request| request.tenant(tenant))
    }

    /// Sets the user, like [`StartRequest::user`].
    pub fn user(self, user: impl Into<String>) -> Self {
        self.change(|request| request.user(user))
    }

    /// Adds a label, like [`StartRequest::label`].
    pub fn label(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.change(|request| request.label(key, value))
    }

    /// Sets the configuration, like [`StartRequest::config`].
    pub fn config(self, config: impl Serialize) -> Self {
        self.change(|request| request.config(config))
    }

    /// Sends a first message, like [`StartRequest::message`].
    pub fn message(self, message: impl Serialize) -> Self {
        self.change(|request| request.message(message))
    }

    /// Sets when the run writes checkpoints, like [`StartRequest::checkpoints`].
    pub fn checkpoints(self, policy: CheckpointPolicy) -> Self {
        self.change(|request| request.checkpoints(policy))
    }

    fn change(mut self, change: impl FnOnce(StartRequest<S>) -> StartRequest<S>) -> Self {
        self.request = change(self.request);
        self
    }
}
