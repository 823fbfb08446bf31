//! The type [`Runtime`]. Each part of the runtime adds its own methods.

use std::fmt;
use std::sync::Arc;

use crate::kernel::inner::RuntimeInner;

/// A runtime, which starts, resumes and controls runs in a store. It is cheap to clone, and all clones share one runtime.
///
/// # Examples
///
/// ```
/// use ferrata_core::graph::Graph;
/// use ferrata_core::runtime::{Outcome, Runtime};
/// use ferrata_core::state::Context;
/// use ferrata_core::store::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let graph = Graph::<Context>::builder("greet")
///     .node("hello", async |_cx, mut s| {
///         s.set("text", "hello")?;
///         Ok(s)
///     })
///     .entry("hello")
///     .build()?;
/// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
/// let run = runtime.start(&graph, Context::new()).id("first").await?;
/// let Outcome::Completed(state) = run.wait().await? else { panic!("not completed") };
/// assert_eq!(state.get::<String>("text")?.as_deref(), Some("hello"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
// Large: the API of a runtime; each method is in the file of its feature.
pub struct Runtime {
    shared: Arc<RuntimeInner>,
}

impl Runtime {
    pub(in crate::runtime) fn new(shared: Arc<RuntimeInner>) -> Self {
        Self { shared }
    }

    pub(in crate::runtime) fn shared(&self) -> &Arc<RuntimeInner> {
        &self.shared
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("executor", &self.shared.executor)
            .field("store", &self.shared.store)
            .finish_non_exhaustive()
    }
}
