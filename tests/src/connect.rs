//! Opening a store by its URL, also one of several stores, which has no URL but in these tests.

use std::sync::Arc;

use ferrata_core::store::{CheckpointStore, ShardedStore};

/// Opens a store as [`ferrata::connect`] does, or the stores of `sharded:URL+URL+…` as one: the first alone is the first
/// generation, and all are the second.
///
/// # Errors
///
/// As [`ferrata::connect`].
pub fn connect(url: &str) -> ferrata::Result<Arc<dyn CheckpointStore>> {
    let Some(urls) = url.strip_prefix("sharded:") else { return ferrata::connect(url) };
    let (mut builder, mut names) = (ShardedStore::builder(), Vec::new());
    for (number, url) in urls.split('+').enumerate() {
        let name = format!("shard-{number}");
        builder = builder.shard(&name, ferrata::connect(url)?);
        names.push(name);
    }
    Ok(Arc::new(builder.generation(names.first()).generation(&names).build()?))
}
