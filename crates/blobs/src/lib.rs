//! Large values of [Ferrata](ferrata_store)'s runs, kept beside their records: in a folder, a bucket, or any other
//! [object store](object_store).
//!
//! A state that carries a document writes it again with each base, lists and loads it with its run, and must fit the store's record limit. A
//! [`Blob`] replaces the document with a name of about sixty bytes. Nodes read the document only where they need it.
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
//! - A value that was put is on stable storage before its name can be in a record, and never changes.
//! - A read returns the value that was put, or an error. Keys prevent forgery; without keys, reads detect damage.
//! - A value that a record names is not removed by [`Blobs::collect`]: also a record that a fork, a child or a message copied it to.
//! - A tenant reads its own values alone.

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
pub use rekey::BlobsRekeyed;
pub use usage::BlobUsage;
