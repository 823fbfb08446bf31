//! Watching all runs that a query selects.
//!
//! A [`RunsWatch`] reads one log at a time. `ear.rs` collects which runs may have changed and what nodes say in this process, `look.rs` asks
//! the store which runs changed, `places.rs` holds where they stand, `stream.rs` is what a caller polls, and `cursor.rs` where it goes on.

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
