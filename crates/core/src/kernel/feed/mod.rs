//! The events of a run for its watchers: the feed of each watched run, and the relay to other processes.

pub(crate) mod cursor;
pub(crate) mod record_events;
pub(crate) mod relay;
pub(crate) mod run_feed;
pub(crate) mod watch_event;
