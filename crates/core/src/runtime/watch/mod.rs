//! Watches runs in any process: recorded events, which come from the log, and live events.
//!
//! `record_events.rs` alone converts records into events, so a watch does not depend on the driving process. A [`RunFeed`](feed::RunFeed) reads the log
//! once for all watchers of a run. `watched_run.rs` is one run of a watched run tree, `stream.rs` the caller's stream, `cursor.rs` its position, and
//! `sse.rs` its text form for browsers. `chunks.rs` is the writing end of a stream, `custom_events.rs` of single events.

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
