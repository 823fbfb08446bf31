//! Watches of all runs that a query selects.
//!
//! A [`RunsWatch`] reads one log at a time. `subscription.rs` collects changed runs and live events in this process. `store_poll.rs` polls the store
//! for changed runs. `positions.rs` stores the position in each run. `stream.rs` has the stream of the caller, and `cursor.rs` its position.

mod cursor;
mod positions;
mod request;
mod store_poll;
mod stream;
mod subscription;

pub use cursor::RunsCursor;
pub use request::RunsWatchRequest;
pub use stream::RunsWatch;
pub(super) use subscription::RunsSubscription;
