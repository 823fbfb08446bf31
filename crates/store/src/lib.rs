//! The contract of a store: [`CheckpointStore`], what goes in and comes out, and what every store decides alike.
//!
//! Authors of stores depend on this crate alone, and on `ferrata-store-conformance` in their tests. It knows no graph, no
//! engine and no runtime, and opens no socket and no file. Applications find the same names in the facade crate `ferrata`.

mod check;
mod clock;
pub mod codec;
mod contract;
mod delegate;
mod error;
mod headers;
mod id;
pub mod index;
mod listing;
mod memory;
mod query;
mod record;
mod record_pages;
pub mod refusal;
mod relay;
mod resealing;
mod shared;
mod text;
mod transaction;
pub mod url;

pub use check::{check_asked, check_batch, check_loaded, check_news, check_prune, is_repeat};
pub use clock::{Clock, SystemClock, Timestamp, within};
pub use contract::{
    Capabilities, CheckpointStore, Notice, Notices, PruneCut, Removed, RunAppend, SHARD_MAP, check_append,
    is_news,
};
pub use error::{Error, ErrorKind, Result};
pub use headers::{Anchor, HeaderRange, Headers};
pub use id::{
    Epoch, ExecutorId, Fingerprint, HeadRef, IdSource, NodeName, RandomIds, RecordId, RunId, RunKey, Seq,
    TenantId, Visit, WorkflowName,
};
pub use listing::{Listing, RunPlace, page};
pub use memory::MemoryStore;
pub use query::{At, Cursor, Order, Page, Paged, RunFilter, RunHead, RunQuery};
pub use record::{FORMAT, Labels, Parent, Record, RecordHeader, RecordKind, RunFacts, RunStatus};
pub use record_pages::for_each_record;
pub use relay::{MAX_TEXT_BYTES, Relay, RelayTexts, check_texts};
pub use resealing::{Resealing, check_reseal, has_place};
pub use transaction::{AnyTransaction, Database, Transactions, causes};
