//! x
mod append;
mod bucket;
mod cache;
mod client;
mod codes;
mod config;
mod crowd;
mod cursor;
mod entry;
mod error;
mod heartbeat;
mod keeper;
mod layout;
mod list;
mod mend;
mod object;
mod read;
mod remove;
mod setup;
mod store;
mod view;

pub use config::S3Options;
pub use mend::Mended;
pub use store::S3Store;
