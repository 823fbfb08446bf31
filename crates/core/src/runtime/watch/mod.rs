//! Watches of runs, which yield recorded events from the log and live events. The run may be active in any process.
//!
//! Only `record_events.rs` converts records into events, so a watch yields the same events whichever process drives the run. A
//! [`RunFeed`](run_feed::RunFeed) reads the log once for all watchers of a run. `watched_run.rs` tracks one run of a watched run tree. `stream.rs`
//! has the stream of the caller, `cursor.rs` its position, and `sse.rs` its text for browsers. Nodes write streams with `chunks.rs`, and send single
//! events with `custom_events.rs`.

mod chunks;
mod cursor;
mod custom_events;
mod record_events;
mod relay;
mod request;
mod run_feed;
mod sse;
mod stream;
mod watch_event;
mod watched_run;

pub use chunks::StreamWriter;
pub use cursor::WatchCursor;
pub(crate) use relay::StreamRelay;
pub use request::WatchRequest;
pub(crate) use run_feed::RunFeeds;
pub use sse::SseFrames;
pub use stream::Watch;
pub use watch_event::{Chunk, LiveEvent, RecordedEvent, WatchEvent, WatchEventKind, WatchKind};
