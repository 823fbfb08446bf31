//! Watching a run from anywhere: what is recorded of it, read from its log, and what is only heard while it happens.
//!
//! `derive.rs` is the one place where a record becomes events, so a run that this process drives is told as one that another does. A
//! [`RunFeed`](feed::RunFeed) reads the log once for all watchers of a run; `member.rs` is one run of a watched family, `stream.rs` what a caller
//! polls, `cursor.rs` where it goes on, and `sse.rs` the same as text for a browser. `chunks.rs` is the writing end of a stream, `say.rs` of
//! single events. `runs` watches all runs that a query selects, with the same parts.

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
pub(crate) use feed::Feeds;
pub(crate) use relay::StreamRelay;
pub use request::WatchRequest;
pub use runs::{RunsCursor, RunsWatch, RunsWatchRequest};
pub use sse::SseFrames;
pub use stream::Watch;
pub use what::{Chunk, Live, Recorded, WatchEvent, WatchEventKind, WatchKind};
