//! The contract of a store, from `ferrata-store`, and the time limit of each call.

mod bounded;

pub(crate) use bounded::Bounded;
pub use ferrata_store::{
    Anchor, AnyTransaction, At, Capabilities, CheckpointStore, Cursor, Database, HeaderRange, Headers,
    Listing, MOST_SAID, MemoryStore, Notice, Notices, Order, Page, Paged, PruneCut, Relay, Removed,
    Resealing, RunAppend, RunFilter, RunHead, RunPlace, RunQuery, Texts, Transactions, check_append,
    check_prune, check_said, delegate, is_news, is_repeat,
};
