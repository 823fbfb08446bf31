//! Re-exports the contract of a store from `ferrata-store`, and limits the time of each call of a store.

mod bounded;

pub(crate) use bounded::TimeLimitedStore;
pub(crate) use ferrata_store::is_news;
pub use ferrata_store::{
    Anchor, AnyTransaction, At, Capabilities, CheckpointStore, Cursor, Database, HeaderRange, Headers,
    MAX_TEXT_BYTES, MemoryStore, Notice, Notices, Order, Page, Paged, PruneCut, Relay, RelayTexts, Removed,
    Resealing, RunAppend, RunFilter, RunHead, RunQuery, Transactions, delegate,
};
