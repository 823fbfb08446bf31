//! How far a long attempt has come: said by the attempt, read by the next one and by people.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::context::{NodeContext, read};
use crate::error::{Error, ErrorKind, Result};
use crate::record::memo::{Memo, PROGRESS};
use crate::state::strict;

/// How many bytes it may have: it stays in memory and in each full record of the run until the activation ends.
const LONGEST: usize = 64 * 1024;

impl NodeContext {
    /// Records how far this attempt has come, in the place of what it said before: the next attempt of the activation
    /// [reads](Self::last_progress) it, also in another process, and the command `ferrata show` and watchers tell it. It is gone when the
    /// activation has ended.
    ///
    /// It returns once the record is on its way to the store, before everything that follows it; [`checkpoint`](Self::checkpoint)
    /// waits until it is there. Each call writes a record, so say it every few seconds and not for every row. What must not be done twice is a
    /// [`step`](Self::step).
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`]: the value cannot be expressed in JSON.
    /// - [`ErrorKind::TooLarge`]: it has more than 64 KiB.
    /// - [`ErrorKind::Closed`]: the run is no longer driven here, or the attempt has ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it is recorded or not.
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
    ///
    /// <!-- held by: progress::the_next_attempt_reads_how_far_the_one_before_came, progress::what_was_said_is_found_after_a_crash_at_any_write -->
    pub async fn progress(&self, value: impl Serialize) -> Result<()> {
        let text = strict::to_raw_value(&value)?;
        let bytes = text.get().len();
        if bytes > LONGEST {
            let message = format!(
                "the progress has {bytes} bytes, allowed are {LONGEST}: keep it elsewhere, and say where"
            );
            return Err(Error::new(ErrorKind::TooLarge, message).with_node(self.node()));
        }
        let way = Arc::new(Semaphore::new(1));
        let taken = Arc::clone(&way).acquire_owned().await.map_err(|_| self.left())?;
        self.hand_over(PROGRESS.to_owned(), text, taken)?;
        // The driver gives it back once the record is in the log's order.
        way.acquire().await.map(drop).map_err(|_| self.left())
    }

    /// Reads what the attempts before this one said last with [`progress`](Self::progress); `None` if they said nothing. What this attempt
    /// says itself is not read.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it is not of this type.
    ///
    /// <!-- held by: progress::the_next_attempt_reads_how_far_the_one_before_came -->
    pub fn last_progress<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        match self.scope.memos.get(PROGRESS) {
            Some(Memo::Result(text)) => {
                read(text, "progress").map(Some).map_err(|error| error.with_node(self.node()))
            }
            _ => Ok(None),
        }
    }
}
