//! Encrypted values: they are unreadable without their key, and an error names a missing key.

use std::sync::Arc;

use ferrata_blobs::{Blobs, ObjectStore};
use ferrata_store::ErrorKind;
use futures_util::TryStreamExt as _;
use object_store::ObjectStoreExt as _;
use object_store::memory::InMemory;

use super::keys;

const MARKER: &str = "the patient's name is Ann Fowler";

/// Guarantees: BLOB-10.
#[tokio::test]
async fn nothing_of_a_value_is_at_the_place() {
    for (is_secret, is_there) in [(true, false), (false, true)] {
        let place = Arc::new(InMemory::new());
        let mut blobs = Blobs::new(Arc::<InMemory>::clone(&place));
        if is_secret {
            blobs = blobs.with_keys(keys(&[1]));
        }
        let blob = blobs.put(MARKER).await.unwrap();
        // The plain hash must not be visible either, because it would confirm a guessed value.
        let hash = blake3::hash(MARKER.as_bytes()).to_hex().to_string();
        let mut seen = format!("{blobs:?} {blob}").into_bytes();
        let objects: Vec<_> = place.list(None).try_collect().await.unwrap();
        for object in objects {
            seen.extend(object.location.to_string().into_bytes());
            seen.extend(place.get(&object.location).await.unwrap().bytes().await.unwrap());
        }
        // Without encryption, the search finds both.
        for sought in [MARKER, &hash] {
            let is_found = seen.windows(sought.len()).any(|seen| seen == sought.as_bytes());
            assert_eq!(is_found, is_there, "{sought}");
        }
    }
}

/// Guarantees: BLOB-10.
#[tokio::test]
async fn any_ring_key_reads_value_missing_is_named() {
    let place: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let with = |names: &[u8]| Blobs::new(Arc::clone(&place)).with_keys(keys(names));
    let old = with(&[1]).put("old").await.unwrap();
    let new = with(&[2, 1]).put("new").await.unwrap();
    let plain = Blobs::new(Arc::clone(&place)).put("plain").await.unwrap();
    assert_eq!(with(&[2, 1]).get(&old).await.unwrap(), "old");
    assert_eq!(with(&[1, 2]).get(&new).await.unwrap(), "new");
    for lacking in [with(&[2]), Blobs::new(Arc::clone(&place))] {
        let error = lacking.get(&old).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("`k1`"), "{error}");
    }
    assert_eq!(with(&[1]).get(&plain).await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(with(&[1]).accept_plain(true).get(&plain).await.unwrap(), "plain");
    // The same value with another key has another name, so names tell nothing about equality.
    assert_ne!(with(&[2, 1]).put("old").await.unwrap(), old);
}
