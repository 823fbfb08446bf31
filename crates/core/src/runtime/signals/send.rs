//! Sends messages to runs. A message with a key is added only once.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};
use crate::id::{Fingerprint, RunKey};
use crate::kernel::inner::RuntimeInner;
use crate::record::body::{FanOutItem, SignalKind};
use crate::record::pause::MessageKey;
use crate::runtime::input_fingerprint::in_order;
use crate::runtime::payload::{check_payload_size, encode_payload};
use crate::runtime::signals::signal::SignalRequest;

/// The maximum length of a key in bytes. It is enough for a URL or several UUIDs.
const LONGEST: usize = 256;

/// A prepared message. `.await` sends it, and returns when it is durable.
///
/// # Errors
///
/// Returns the errors of [`Runtime::send`](crate::runtime::Runtime::send), and the errors of every [`SignalRequest`].
///
/// # Cancel safety
///
/// Cancel safe: after the first poll, the send completes even if the caller drops the future. To be sure that the message was sent, set a
/// [`key`](Self::key) and send it again.
#[must_use = "a message is sent only when the future is awaited"]
pub struct SendRequest {
    shared: Arc<RuntimeInner>,
    run: RunKey,
    body: Result<FanOutItem>,
    key: Option<String>,
    by: Option<String>,
}

impl SendRequest {
    pub(crate) fn new(shared: &Arc<RuntimeInner>, run: &RunKey, message: &impl Serialize) -> Self {
        let body = check_payload_size("message", encode_payload(message), shared.limits.max_body);
        Self { shared: Arc::clone(shared), run: run.clone(), body, key: None, by: None }
    }

    /// Sets the sender of the message, which the log records.
    pub fn by(mut self, who: impl Into<String>) -> Self {
        self.by = Some(who.into());
        self
    }

    /// Sets the key that identifies this message. If the run already has a message with the same key and content, the send returns `Ok` and adds no
    /// message. This also holds if two processes send at the same time, after a crash, after a node has taken the message, and after the run has
    /// ended.
    ///
    /// The log records the key with the message. A run remembers a key while the message waits, and at least until 256 messages with other keys have
    /// followed. At each send, the run keeps the newest 256 keys and one more for each waiting message. If the run no longer remembers the key, the
    /// message counts as new.
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
    /// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// # let graph = Graph::<Context>::builder("chat")
    /// #     .node("hear", async |cx: ferrata_core::node::NodeContext, s: ferrata_core::state::Draft<Context>| {
    /// #         cx.receive::<String>().await?;
    /// #         Ok(s)
    /// #     })
    /// #     .entry("hear")
    /// #     .build()?;
    /// runtime.serve(&graph)?; // a waiting run continues by itself
    /// let run = runtime.start(&graph, Context::new()).id("chat-7").await?;
    /// // A web hook is delivered twice; its id is the key.
    /// for _ in 0..2 {
    ///     runtime.send(run.run(), "paid").key("hook-4711").await?;
    /// }
    /// run.completed().await?; // the node took one message, and no second one waits
    /// assert_eq!(runtime.inbox(run.run()).await?.len(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    fn signal(self) -> Result<SignalRequest> {
        let body = self.body?;
        let key = self.key.map(|name| message_key(name, &body)).transpose()?;
        let request =
            SignalRequest::new(&self.shared, &self.run, Ok(SignalKind::Message { body: body.0, key }));
        Ok(match self.by {
            Some(by) => request.by(by),
            None => request,
        })
    }
}

fn message_key(name: String, body: &FanOutItem) -> Result<MessageKey> {
    let problem = match name.len() {
        0 => Some("is empty; add text, or leave it out".to_owned()),
        bytes if bytes > LONGEST => Some(format!("has {bytes} bytes; use at most {LONGEST}")),
        _ => None,
    };
    if let Some(problem) = problem {
        return Err(Error::new(ErrorKind::Invalid, format!("the key of the message {problem}")));
    }
    let print = Fingerprint::of(in_order(body.0.get())?.as_bytes());
    Ok(MessageKey { name, print })
}

impl IntoFuture for SendRequest {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let run = self.run.clone();
        match self.signal() {
            Ok(request) => request.into_future(),
            Err(error) => Box::pin(async move { Err(error.with_run(&run)) }),
        }
    }
}

impl std::fmt::Debug for SendRequest {
    /// Formats the request without the content of the message.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendRequest")
            .field("run", &self.run)
            .field("key", &self.key)
            .field("by", &self.by)
            .finish_non_exhaustive()
    }
}
