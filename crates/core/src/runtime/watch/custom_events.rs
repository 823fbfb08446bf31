//! Custom events, which nodes send to watchers.

use std::sync::Arc;

use crate::error::Result;
use crate::kernel::event::Event;
use crate::node::NodeContext;
use crate::state::strict;

impl NodeContext {
    /// Sends a custom event to the watchers of the run in this process. The event is not stored, and the call never waits for a watcher.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the payload cannot be expressed in JSON, and
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) if the attempt has ended.
    pub fn emit(&self, name: impl Into<String>, payload: impl serde::Serialize) -> Result<()> {
        self.check_not_over()?;
        let payload = Arc::from(strict::to_raw_value(&payload)?);
        let (node, visit, name) = (self.node().clone(), self.visit(), name.into());
        // A dropped runtime has no subscribers.
        if let Some(shared) = self.host().runtime.upgrade() {
            shared.emit(self.run(), || Event::Custom { node, visit, name, payload });
        }
        Ok(())
    }
}
