//! Watches of runs, which yield recorded events from the log and live events. The run may be active in any process.
//!
//! A [`RunFeed`](crate::kernel::feed::run_feed::RunFeed) of the kernel reads the log once for all watchers of a run, and converts records into
//! events. So a watch yields the same events whichever process drives the run. `watched_run.rs` tracks one run of a watched run tree. `stream.rs` has
//! the stream of the caller, and `sse.rs` its text for browsers. Nodes write streams through `chunks.rs`, and send single events through
//! `custom_events.rs`.

mod chunks;
mod custom_events;
mod relay;
mod request;
mod sse;
mod stream;
mod watched_run;

pub use chunks::StreamWriter;
pub use request::WatchRequest;
pub use sse::SseFrames;
pub use stream::Watch;
