//! Watches runs in any process: recorded events, which come from the log, and live events.
//!
//! `derive.rs` alone converts records into events, so a watch does not depend on the driving process. A [`RunFeed`](feed::RunFeed) reads the log
//! once for all watchers of a run. `member.rs` is one run of a watched run tree, `stream.rs` the caller's stream, `cursor.rs` its position, and
//! `sse.rs` its text form for browsers. `chunks.rs` is the writing end of a stream, `say.rs` of single events. `runs` watches all runs that a
//! query selects, with the same parts.

mod chunks;
mod cursor;
mod derive;
mod feed;
mod member;
mod relay;
mod request;
mod runs;
mod say;
mod sse;
mod stream;
mod what;

pub use chunks::StreamWriter;
pub use cursor::WatchCursor;
pub(crate) use feed::RunFeeds;
pub(crate) use relay::StreamRelay;
pub use request::WatchRequest;
pub use runs::{RunsCursor, RunsWatch, RunsWatchRequest};
pub use sse::SseFrames;
pub use stream::Watch;
pub use what::{Chunk, LiveEvent, RecordedEvent, WatchEvent, WatchEventKind, WatchKind};
