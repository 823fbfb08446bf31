//! Large values of [Ferrata](ferrata_store)'s runs. Large values are stored outside the records: in a folder, a bucket, or any other [object
//! store](object_store).
//!
//! Without blobs, a state that contains a large document writes the document again with each base record, and each load reads it. The state must also
//! fit the store's record limit. With a [`Blob`], the state contains only a name of about sixty bytes, and nodes read the document where they need
//! it.
//!
//! ```
//! use ferrata_blobs::{Blob, Blobs};
//! use ferrata_core::graph::Graph;
//! use ferrata_core::runtime::{Outcome, Runtime};
//! use ferrata_core::state::Context;
//! use ferrata_core::store::MemoryStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let blobs = Blobs::in_memory(); // `Blobs::in_folder("/var/lib/app/blobs")?`, or a bucket
//! let graph = Graph::<Context>::builder("letter")
//!     .node("write", async |cx, mut s| {
//!         let letter = cx.resource::<Blobs>().put("Dear all, …").await?;
//!         s.set("letter", letter)?;
//!         Ok(s)
//!     })
//!     .entry("write")
//!     .build()?;
//! let runtime = Runtime::builder(MemoryStore::new()).resource(blobs.clone()).build().await?;
//! let run = runtime.start(&graph, Context::new()).await?;
//! let Outcome::Completed(state) = run.wait().await? else { panic!("not completed") };
//! let letter: Blob = state.get("letter")?.expect("it was written");
//! assert_eq!(blobs.get(&letter).await?, "Dear all, …");
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - A value is durable before [`Blobs::put`] returns its name, so before any record can contain the name. A value never changes.
//! - A read returns the value that was put, or an error. With keys, a read detects forged values. Without keys, it detects damage only.
//! - [`Blobs::collect`] removes no value that a record names. The guarantee includes records to which a fork, a child or a message copied the name.
//! - A tenant can read only its own values.

mod blob;
mod blobs;
mod collect;
mod keys;
mod place;
#[cfg(feature = "envelope")]
mod rekey;
mod seal;
mod upload;
mod usage;

pub use blob::Blob;
pub use blobs::Blobs;
pub use collect::{CollectOptions, CollectionReport};
pub use object_store::ObjectStore;
#[cfg(feature = "envelope")]
pub use rekey::BlobRekeyReport;
pub use usage::BlobUsage;
