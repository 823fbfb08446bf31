//! A stored value is read back whole, in parts and as a stream. Damage is detected.

use std::sync::Arc;

use ferrata_blobs::{Blob, Blobs, ObjectStore};
use ferrata_store::{ErrorKind, TenantId};
use futures_util::TryStreamExt as _;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt as _};
use proptest::prelude::*;

use super::{keys, value};

const SEGMENT: usize = 64 << 10;

/// A space without keys and one with keys, each with its object store.
fn places() -> [(Arc<InMemory>, Blobs); 2] {
    let place = || Arc::new(InMemory::new());
    let [plain, secret] = [place(), place()];
    let with_keys = Blobs::new(Arc::<InMemory>::clone(&secret)).with_keys(keys(&[1]));
    [(Arc::clone(&plain), Blobs::new(plain)), (secret, with_keys)]
}

async fn objects(place: &InMemory, kind: &str) -> Vec<ObjectMeta> {
    let all: Vec<ObjectMeta> = place.list(None).try_collect().await.unwrap();
    all.into_iter().filter(|object| object.location.parts().nth(1).unwrap().as_ref() == kind).collect()
}

/// Guarantees: BLOB-1.
#[tokio::test]
async fn what_goes_in_comes_out() {
    for (_, blobs) in places() {
        for len in [0, 1, SEGMENT - 1, SEGMENT, SEGMENT + 1, 2 * SEGMENT, 2 * SEGMENT + 7] {
            let value = value(len, 0);
            let blob = blobs.put(value.clone()).await.unwrap();
            assert_eq!((blob.len(), blob.is_empty()), (len as u64, len == 0));
            assert_eq!(blobs.get(&blob).await.unwrap(), value, "{len}");
            let json = serde_json::to_string(&blob).unwrap();
            assert_eq!(serde_json::from_str::<Blob>(&json).unwrap(), blob);
            assert!(json.len() < 70, "{json}");
        }
    }
}

/// Guarantees: BLOB-3.
#[tokio::test]
async fn tenant_stores_equal_value_once_unshared() {
    for (place, blobs) in places() {
        let [ann, bob] = ["ann", "bob"].map(|tenant| blobs.for_tenant(&TenantId::new(tenant).unwrap()));
        let first = ann.put("a document").await.unwrap();
        assert_eq!(ann.put("a document").await.unwrap(), first);
        let foreign = bob.put("a document").await.unwrap();
        assert_ne!(foreign, first);
        assert_eq!(objects(&place, "data").await.len(), 2);
        // A tenant cannot read another tenant's value, neither by its name nor from a copy in its own folder.
        assert_eq!(bob.get(&first).await.unwrap_err().kind(), ErrorKind::NotFound);
        let stored = Path::from(format!("ann/data/{}", name(&first)));
        place.copy(&stored, &Path::from(format!("bob/data/{}", name(&first)))).await.unwrap();
        assert_eq!(bob.get(&first).await.unwrap_err().kind(), ErrorKind::Corrupt);
        // An index entry without its value does not count.
        place.delete(&stored).await.unwrap();
        let again = ann.put("a document").await.unwrap();
        assert_eq!(ann.get(&again).await.unwrap(), "a document");
    }
}

fn name(blob: &Blob) -> String {
    let text = blob.to_string();
    text.split([':', '.']).nth(1).unwrap().to_owned()
}

/// Guarantees: BLOB-1.
#[tokio::test]
async fn a_folder_keeps_values_for_the_next_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("not/yet/there");
    let blob = Blobs::in_folder(&path).unwrap().put(value(70_000, 1)).await.unwrap();
    let next = Blobs::in_folder(&path).unwrap();
    assert_eq!(next.get(&blob).await.unwrap(), value(70_000, 1));
    assert_eq!(next.put(value(70_000, 1)).await.unwrap(), blob);
    // A file is not accepted as a folder.
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let refused = Blobs::in_folder(&file).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.to_string().contains("file"), "{refused}");
    // A truncated file counts as damaged.
    let stored = path.join("default/data").join(name(&blob));
    std::fs::OpenOptions::new().write(true).open(&stored).unwrap().set_len(300).unwrap();
    assert_eq!(next.get(&blob).await.unwrap_err().kind(), ErrorKind::Corrupt);
}

/// Guarantees: BLOB-1.
#[tokio::test]
async fn a_reader_is_put_as_its_bytes_are() {
    // One byte more than a part, so that a second part is needed.
    let long = value((8 << 20) + 1, 3);
    let blobs = Blobs::in_memory();
    let blob = blobs.put_reader(long.as_slice()).await.unwrap();
    let parts: Vec<bytes::Bytes> = blobs.stream(&blob).try_collect().await.unwrap();
    assert_eq!(parts.iter().map(bytes::Bytes::len).collect::<Vec<_>>(), [8 << 20, 1]);
    assert!(parts.concat() == long);
    // A repeated put finds the value, in every way of putting it.
    assert_eq!(blobs.put_reader(long.as_slice()).await.unwrap(), blob);
    assert_eq!(blobs.put(long).await.unwrap(), blob);
    let short = blobs.put_reader(&b"short"[..]).await.unwrap();
    assert_eq!(blobs.put("short").await.unwrap(), short);
    let empty: Vec<bytes::Bytes> = blobs.stream(&blobs.put("").await.unwrap()).try_collect().await.unwrap();
    assert!(empty.is_empty());
}

#[tokio::test]
async fn a_reader_that_fails_leaves_no_value() {
    use tokio::io::AsyncReadExt as _;
    let place = Arc::new(InMemory::new());
    let blobs = Blobs::new(Arc::<InMemory>::clone(&place));
    for before in [10, (8 << 20) + 10] {
        let error = blobs.put_reader(value(before, 5).as_slice().chain(Broken)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(place.list(None).try_collect::<Vec<_>>().await.unwrap(), []);
    }
}

/// A reader whose reads all fail.
struct Broken;

impl tokio::io::AsyncRead for Broken {
    fn poll_read(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        _: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Err(std::io::Error::other("the line is cut")))
    }
}

/// Guarantees: BLOB-2.
#[tokio::test]
async fn no_bit_of_a_value_can_be_changed() {
    for (place, blobs) in places() {
        let blob = blobs.put("a small document").await.unwrap();
        let path = objects(&place, "data").await.remove(0).location;
        let stored = place.get(&path).await.unwrap().bytes().await.unwrap();
        let put = async |bytes: Vec<u8>| {
            place.put(&path, bytes.into()).await.unwrap();
        };
        for bit in 0..stored.len() * 8 {
            let mut changed = stored.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            put(changed).await;
            let kind = blobs.get(&blob).await.unwrap_err().kind();
            // The bit may be in the version or in the name of the key.
            let may_be_unsupported = matches!(bit / 8, 4..=71);
            assert!(
                kind == ErrorKind::Corrupt || may_be_unsupported && kind == ErrorKind::Unsupported,
                "bit {bit}: {kind:?}"
            );
        }
        for len in 0..stored.len() {
            put(stored[..len].to_vec()).await;
            assert_eq!(blobs.get(&blob).await.unwrap_err().kind(), ErrorKind::Corrupt, "{len}");
        }
        // Swapped segments, and the value of another name.
        let long = blobs.put(value(2 * SEGMENT, 9)).await.unwrap();
        let other = blobs.put(value(2 * SEGMENT, 8)).await.unwrap();
        let [of_long, of_other] =
            [long, other].map(|blob| Path::from(format!("default/data/{}", name(&blob))));
        let bytes = place.get(&of_long).await.unwrap().bytes().await.unwrap();
        let (head, segments) = bytes.split_at(80);
        let (first, second) = segments.split_at(SEGMENT + 16);
        place.put(&of_long, [head, second, first].concat().into()).await.unwrap();
        assert_eq!(blobs.get(&long).await.unwrap_err().kind(), ErrorKind::Corrupt);
        place.copy(&of_other, &of_long).await.unwrap();
        assert_eq!(blobs.get(&long).await.unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(blobs.get(&other).await.unwrap(), value(2 * SEGMENT, 8));
    }
}

#[tokio::test]
async fn bad_range_is_refused_forged_names_read_nothing() {
    let blobs = Blobs::in_memory();
    let blob = blobs.put("0123456789").await.unwrap();
    #[expect(clippy::reversed_empty_ranges, reason = "it is what is tried")]
    for part in [5..4, 0..11, 11..11, u64::MAX..u64::MAX, 0..u64::MAX] {
        assert_eq!(blobs.range(&blob, part).await.unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(blobs.range(&blob, 10..10).await.unwrap(), "");
    // A name of the value with a wrong length.
    for len in ["9", "11", "65536", "65537", "18446744073709551615", "9223372036854775807"] {
        let lie: Blob = blob.to_string().replace(".10", &format!(".{len}")).parse().unwrap();
        for read in [blobs.get(&lie).await, blobs.range(&lie, lie.len()..lie.len()).await] {
            let kind = read.unwrap_err().kind();
            assert!(matches!(kind, ErrorKind::Corrupt | ErrorKind::TooLarge), "{len}: {kind:?}");
        }
    }
    let nothing: Blob = "ferrata-blob:000000000000000000000000000000ab.7".parse().unwrap();
    let missing = blobs.get(&nothing).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(missing.to_string().contains(&nothing.to_string()), "{missing}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Guarantees: BLOB-1.
    #[test]
    fn any_part_is_read_as_it_was_put(
        len in 0_usize..150_000,
        from in 0_usize..=1_000,
        upto in 0_usize..=1_000,
        is_secret: bool,
    ) {
        let (from, upto) = (len * from.min(upto) / 1_000, len * from.max(upto) / 1_000);
        let [(_, plain), (_, secret)] = places();
        let blobs = if is_secret { secret } else { plain };
        let value = value(len, 7);
        let read = async {
            let blob = blobs.put(value.clone()).await?;
            blobs.range(&blob, from as u64..upto as u64).await
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        prop_assert_eq!(runtime.block_on(read).unwrap(), &value[from..upto]);
    }
}
