//! Watching all runs that a query selects.
//!
//! A [`RunsWatch`] reads one log at a time. `ear.rs` collects changed runs and live events in this process, `look.rs` polls the store for
//! changed runs, `places.rs` holds positions, `stream.rs` is the caller's stream, and `cursor.rs` its position.

mod cursor;
mod ear;
mod look;
mod places;
mod request;
mod stream;

pub use cursor::RunsCursor;
pub(super) use ear::RunsSubscription;
pub use request::RunsWatchRequest;
pub use stream::RunsWatch;
