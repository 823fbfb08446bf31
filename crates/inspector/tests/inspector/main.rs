//! The inspector over its own store: its answers, its rejections, and that reads write nothing.
#![expect(clippy::unwrap_used, reason = "all of it is a test")]

mod acts;
mod bulk;
mod hidden;
mod hostile;
mod idle;
mod lists;
mod queues;
mod refusals;
mod runs;
mod scale;
mod schedules;
mod scopes;
mod streams;
mod support;
mod whoever;
