//! Server-sent events, which are the text of a response for the `EventSource` of a browser.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use super::stream::Watch;
use crate::clock::within;
use crate::error::Result;

/// The longest time without a frame. Proxies close connections on which nothing is sent for half a minute or a minute.
const SILENCE: Duration = Duration::from_secs(15);

/// The last frame. Without it, an `EventSource` would reconnect forever.
const END: &str = "event: end\ndata: {}\n\n";

/// The events of a [`Watch`] as the frames of a `text/event-stream`.
///
/// Each frame has the event's [kind](crate::runtime::WatchKind) as `event` and the [JSON](crate::runtime::WatchEvent::to_json) of the event as
/// `data`. If the event is recorded, the frame also has the cursor of the watch as `id`. A browser that reconnects sends the last id as the header
/// `Last-Event-ID`. Parse this header as a [`WatchCursor`](crate::runtime::WatchCursor), and start the next watch [after](super::WatchRequest::after)
/// it. When the run has ended, the last frame is `event: end`. On this frame, the page must close its `EventSource`, because otherwise the browser
/// reconnects.
///
/// ```
/// # use ferrata_core::graph::Graph;
/// # use ferrata_core::runtime::{Runtime, WatchKind};
/// # use ferrata_core::state::Context;
/// # use ferrata_core::store::MemoryStore;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let graph = Graph::<Context>::builder("greet").node("hello", async |_cx, s| Ok(s)).entry("hello").build()?;
/// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
/// # let run = runtime.start(&graph, Context::new()).await?;
/// # let last_event_id: Option<&str> = None;
/// let mut request = runtime.watch(run.run()).kinds([WatchKind::NodeCompleted]);
/// if let Some(id) = last_event_id {
///     request = request.after(id.parse::<ferrata_core::runtime::WatchCursor>()?);
/// }
/// let mut frames = request.await?.sse();
/// let first = frames.next().await?.expect("a node completes");
/// assert!(first.starts_with("id: 1/") && first.contains("\nevent: node_completed\ndata: {"), "{first}");
/// assert_eq!(frames.next().await?.as_deref(), Some("event: end\ndata: {}\n\n"));
/// assert_eq!(frames.next().await?, None);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SseFrames {
    watch: Watch,
    /// Whether the last frame was sent.
    ended: bool,
}

impl SseFrames {
    pub(super) fn new(watch: Watch) -> Self {
        Self { watch, ended: false }
    }

    /// Waits for the next complete frame, including the empty line at its end. Returns `None` after the last frame. After 15 seconds without an
    /// event, the call returns a comment, which keeps the connection open.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Watch::next`]. After an error, end the response, so that the browser reconnects.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, the next call returns the frame.
    pub async fn next(&mut self) -> Result<Option<String>> {
        if self.ended {
            return Ok(None);
        }
        let clock = Arc::clone(&self.watch.shared().clock);
        let Some(event) = within(&*clock, SILENCE, self.watch.next()).await else {
            // The cursor also covers filtered events.
            return Ok(Some(format!(": alive\nid: {}\n\n", self.watch.cursor())));
        };
        let Some(event) = event? else {
            self.ended = true;
            return Ok(Some(END.to_owned()));
        };
        let id = event.seq.map(|_| self.watch.cursor().to_string());
        Ok(Some(frame(id.as_deref(), event.kind().as_str(), &event.to_json()?)))
    }
}

/// Formats a frame. Each line of the data becomes a field of its own, because a line break ends a field.
fn frame(id: Option<&str>, event: &str, data: &str) -> String {
    let mut text = String::with_capacity(data.len() + 64);
    // Writing to a string never fails.
    if let Some(id) = id {
        let _ = writeln!(text, "id: {id}");
    }
    let _ = writeln!(text, "event: {event}");
    for line in data.replace("\r\n", "\n").split(['\n', '\r']) {
        let _ = writeln!(text, "data: {line}");
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_break_ends_a_frame() {
        let text = frame(Some("7"), "custom", "a\nb\r\nc\rd\n");
        assert_eq!(text, "id: 7\nevent: custom\ndata: a\ndata: b\ndata: c\ndata: d\ndata: \n\n");
        assert_eq!(frame(None, "end", ""), "event: end\ndata: \n\n");
    }
}
