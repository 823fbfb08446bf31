//! Events as server-sent events: the text of a response that a browser's `EventSource` reads.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use super::runs::RunsWatch;
use super::stream::Watch;
use super::what::WatchEvent;
use crate::clock::{Clock, within};
use crate::error::Result;

/// How long nothing may be sent: proxies cut connections off that are silent for a minute, or for half of one.
const SILENCE: Duration = Duration::from_secs(15);

/// What is sent last: an `EventSource` connects again for ever unless it is told to stop.
const END: &str = "event: end\ndata: {}\n\n";

/// How long an id of a watch of many runs may be: a browser sends it back in a header, and servers refuse those of more than some kilobytes.
const LONGEST_ID: usize = 2_048;

/// The events of a [`Watch`], or of a [`RunsWatch`], as the frames of a `text/event-stream`.
///
/// Each frame has the event's [kind](super::WatchKind) as `event` and its [JSON](super::WatchEvent::to_json) as `data`; one that is recorded has
/// the watch's cursor as `id`. A browser that connects again sends the last of them as `Last-Event-ID`: read it as a
/// [`WatchCursor`](super::WatchCursor), and watch [behind](super::WatchRequest::after) it. When the run has ended, a frame `event: end` tells
/// the page to close its `EventSource`, which would otherwise connect again.
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
///
/// Of many runs, an id is a [`RunsCursor`](super::RunsCursor). While it has more than 2,048 bytes, which takes some twenty runs that did something within the
/// last minute, frames have none: a browser that connects again then is told some events once more, which it knows by their run and `seq`.
/// There is no last frame. A run that cannot be read is passed over, with a comment that names it.
#[derive(Debug)]
pub struct SseFrames {
    source: Source,
    /// Whether the last frame was sent.
    ended: bool,
}

#[derive(Debug)]
enum Source {
    Run(Box<Watch>),
    Runs(Box<RunsWatch>),
}

impl SseFrames {
    pub(super) fn new(watch: Watch) -> Self {
        Self { source: Source::Run(Box::new(watch)), ended: false }
    }

    pub(super) fn of_runs(watch: RunsWatch) -> Self {
        Self { source: Source::Runs(Box::new(watch)), ended: false }
    }

    /// Waits for the next frame, whole and with the empty line behind it; `None` after the last. After 15 seconds without an event it is a
    /// comment, which keeps the connection open.
    ///
    /// # Errors
    ///
    /// As [`Watch::next`]; of many runs, [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) alone. End the response then: the browser
    /// connects again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no event is lost by dropping the future.
    ///
    /// <!-- held by: watching::a_browser_that_connects_again_misses_nothing_and_hears_nothing_twice, watching_runs::a_browser_that_watches_many_runs_misses_nothing_and_hears_nothing_twice -->
    pub async fn next(&mut self) -> Result<Option<String>> {
        if self.ended {
            return Ok(None);
        }
        let clock = self.source.clock();
        let Some(event) = within(&*clock, SILENCE, self.source.next()).await else {
            // Also what was passed over need not be read again.
            let id = self.source.id().map(|id| format!("id: {id}\n"));
            return Ok(Some(format!(": alive\n{}\n", id.unwrap_or_default())));
        };
        let event = match (event, &self.source) {
            (Err(error), Source::Runs(_)) if !error.is_retryable() => {
                // Whoever connects again would be told of it again, and of nothing behind it.
                let Some(run) = error.run() else { return Err(error) };
                return Ok(Some(format!(": {} {run}\n\n", error.kind().code())));
            }
            (event, _) => event?,
        };
        let Some(event) = event else {
            self.ended = true;
            return Ok(Some(END.to_owned()));
        };
        let id = event.seq.and_then(|_| self.source.id());
        Ok(Some(frame(id.as_deref(), event.kind().as_str(), &event.to_json()?)))
    }
}

impl Source {
    fn clock(&self) -> Arc<dyn Clock> {
        let shared = match self {
            Self::Run(watch) => watch.shared(),
            Self::Runs(watch) => watch.shared(),
        };
        Arc::clone(&shared.clock)
    }

    async fn next(&mut self) -> Result<Option<WatchEvent>> {
        match self {
            Self::Run(watch) => watch.next().await,
            Self::Runs(watch) => watch.next().await.map(Some),
        }
    }

    /// Returns where the watch stands, if that is short enough for a header.
    fn id(&self) -> Option<String> {
        match self {
            Self::Run(watch) => Some(watch.cursor().to_string()),
            Self::Runs(watch) => Some(watch.cursor().to_string()).filter(|id| id.len() <= LONGEST_ID),
        }
    }
}

/// Writes a frame. Each line of the data is a field of its own: a line break within a field would end it.
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
