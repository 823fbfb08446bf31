//! The progress of a long attempt, for the next attempt and for observers.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::context::{NodeContext, read};
use crate::error::{Error, ErrorKind, Result};
use crate::record::memo::{Memo, PROGRESS};
use crate::state::strict;

/// The maximum size of a progress value in bytes. The value stays in memory, and in each record with the full state, until the activation ends.
const LONGEST: usize = 64 * 1024;

impl NodeContext {
    /// Records `value` as the progress of this attempt. It replaces the previous value.
    ///
    /// The next attempt of the activation can [read](Self::last_progress) the value, even in another process. The command `ferrata show` and watchers
    /// of the run show the value. It is removed when the activation ends.
    ///
    /// The call returns before the record is durable. The run appends this record before all later records. To wait until it is durable, call
    /// [`checkpoint`](Self::checkpoint). Each call writes a record, so call this method every few seconds and not for every row. Use a
    /// [`step`](Self::step) for work that must not be repeated.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`]: the value cannot be expressed in JSON.
    /// - [`ErrorKind::TooLarge`]: the value has more than 64 KiB.
    /// - [`ErrorKind::Closed`]: this process no longer drives the run, or the attempt has ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the value is either recorded or not.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::{Graph, RetryPolicy};
    /// # use ferrata_core::node::{NodeContext, NodeError};
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::{Context, Draft};
    /// # use ferrata_core::store::MemoryStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let graph = Graph::<Context>::builder("copy")
    ///     .node("rows", async |cx: NodeContext, mut s: Draft<Context>| {
    ///         let from: u32 = cx.last_progress()?.unwrap_or(0);
    ///         for row in from..100 {
    ///             // Rows are copied here; copying one again does no harm.
    ///             if row % 10 == 9 {
    ///                 cx.progress(row + 1).await?;
    ///             }
    ///             if cx.attempt() == 1 && row == 57 {
    ///                 return Err(NodeError::new("the line broke"));
    ///             }
    ///         }
    ///         s.set("second_attempt_from", from)?;
    ///         Ok(s)
    ///     })
    ///     .retry(RetryPolicy::none().with_attempts(2))
    ///     .entry("rows")
    ///     .build()?;
    /// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// let state = runtime.start(&graph, Context::new()).await?.completed().await?;
    /// assert_eq!(state.get::<u32>("second_attempt_from")?, Some(50));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn progress(&self, value: impl Serialize) -> Result<()> {
        let text = strict::to_raw_value(&value)?;
        let bytes = text.get().len();
        if bytes > LONGEST {
            let message = format!(
                "the progress has {bytes} bytes, and at most {LONGEST} are allowed; store it elsewhere, and report a reference"
            );
            return Err(Error::new(ErrorKind::TooLarge, message).with_node(self.node()));
        }
        let way = Arc::new(Semaphore::new(1));
        let taken = Arc::clone(&way).acquire_owned().await.map_err(|_| self.not_driven_error())?;
        self.send_batch(PROGRESS.to_owned(), text, taken)?;
        // The driver returns the permit once the record has its position in the log.
        way.acquire().await.map(drop).map_err(|_| self.not_driven_error())
    }

    /// Returns the last [`progress`](Self::progress) value that an earlier attempt recorded, or `None` if there is none. Values of this attempt are
    /// ignored.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the value is not of type `T`.
    pub fn last_progress<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        match self.scope.memos.get(PROGRESS) {
            Some(Memo::Result(text)) => {
                read(text, "progress").map(Some).map_err(|error| error.with_node(self.node()))
            }
            _ => Ok(None),
        }
    }
}
