//! The contract of a store: [`CheckpointStore`], the types of its arguments and results, and the checks that all stores share.
//!
//! Authors of stores depend only on this crate, and on `ferrata-store-conformance` in their tests. The crate contains no graph, engine or runtime,
//! and opens no socket and no file. Applications use the same names through the facade crate `ferrata`.
//!
//! # Helpers by method
//!
//! | Method | Helpers |
//! |---|---|
//! | `append` | [`check_batch`] with [`check_append`], then [`is_repeat`] if the head is not the expected one, then [`refusal::conflict`] |
//! | `load` | [`Record::verify`], [`check_loaded`], and [`check_asked`] if an index found the record; [`refusal::no_record`], [`refusal::gone`] |
//! | `load_since` | [`check_news`] |
//! | `headers` | [`HeaderRange::within`], then [`Headers::whole`] or, if the answer may be short, [`Headers::checked`] |
//! | `head` | [`RunHead::after`] |
//! | `runs` | [`page`] for heads in any order; [`RunQuery::matches`], [`Listing::after`] and [`Listing::cut`] for an index that has the order |
//! | `prune` | [`check_prune`] |
//! | `purge` | [`refusal::conflict`], with `.with_operation("store.purge")` |

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
