//! The command as a shell runs it: exit codes, stdout, stderr, and its effects on the runs of a service.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod browser;
mod control;
mod demo;
mod doubts;
mod envelope;
mod every_store;
mod failures;
mod families;
mod first_hour;
mod help;
mod hostile;
mod nobody;
mod outbox;
mod pipelines;
mod purges;
mod queues;
mod read_outputs;
mod redacted;
mod schedules;
mod secrets;
mod sentences;
mod service;
mod stores;
mod support;
mod unreadable;
mod wide;
