//! The keys that the stored values need.

use std::sync::Arc;

use ferrata_blobs::{Blobs, ObjectStore};
use ferrata_store::{ErrorKind, TenantId};
use futures_util::TryStreamExt as _;
use object_store::ObjectStoreExt as _;
use object_store::memory::InMemory;
use object_store::path::Path;

use super::{keys, value};

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

/// The counts, as `TENANT/KEY VALUES BYTES`.
async fn counted(blobs: &Blobs, of: Option<&str>) -> Vec<String> {
    let usage = blobs.key_usage(of.map(tenant).as_ref()).await.unwrap();
    let shown = |key: Option<String>| key.unwrap_or_else(|| "-".into());
    usage
        .into_iter()
        .map(|one| format!("{}/{} {} {}", one.tenant, shown(one.key), one.values, one.bytes))
        .collect()
}

/// The bytes of a tenant's data.
async fn bytes(place: &dyn ObjectStore, tenant: &str) -> u64 {
    let folder = Path::from(format!("{tenant}/data"));
    let objects: Vec<_> = place.list(Some(&folder)).try_collect().await.unwrap();
    objects.iter().map(|object| object.size).sum()
}

/// Guarantees: AT-REST-11.
#[tokio::test]
async fn each_value_counts_once_under_its_key() {
    let place: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let plain = Blobs::new(Arc::clone(&place));
    assert_eq!(counted(&plain, None).await, Vec::<String>::new());
    let (ann, bob) = (tenant("ann"), tenant("bob"));
    let under = |names: &[u8]| plain.clone().with_keys(keys(names));
    plain.for_tenant(&ann).put("plain").await.unwrap();
    let old = bytes(&*place, "ann").await;
    for seed in 0..3 {
        under(&[1]).for_tenant(&ann).put(value(70_000, seed)).await.unwrap();
    }
    // A repeated put adds no value.
    under(&[1]).for_tenant(&ann).put(value(70_000, 0)).await.unwrap();
    let large = bytes(&*place, "ann").await - old;
    under(&[2, 1]).for_tenant(&bob).put("new").await.unwrap();
    let new = bytes(&*place, "bob").await;
    let all = [format!("ann/- 1 {old}"), format!("ann/k1 3 {large}"), format!("bob/k2 1 {new}")];
    // The count needs no keys, and covers all tenants, whatever tenant the handle has.
    assert_eq!(counted(&plain, None).await, all);
    assert_eq!(counted(&plain.for_tenant(&bob), None).await, all);
    assert_eq!(counted(&under(&[1]), Some("bob")).await, all[2..]);
    assert_eq!(counted(&plain, Some("an")).await, Vec::<String>::new());
}

#[tokio::test]
async fn value_with_unreadable_key_is_named() {
    let place: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let blobs = Blobs::new(Arc::clone(&place)).with_keys(keys(&[1]));
    let id = "0".repeat(31) + "a";
    let path = Path::from(format!("default/data/{id}"));
    let head = |begin: &[u8]| [begin, &vec![0; 80 - begin.len()][..], &[0; 16][..]].concat();
    for (stored, kind) in [
        (b"FBLB\x01\x00".to_vec(), ErrorKind::Corrupt),
        (head(b"FBLX\x01\x00"), ErrorKind::Corrupt),
        (head(b"FBLB\x01\x02\x01k"), ErrorKind::Corrupt),
        (head(b"FBLB\x01\x01\x03a\x1Bb"), ErrorKind::Corrupt),
        (head(b"FBLB\x01\x01\x00"), ErrorKind::Corrupt),
        (head(b"FBLB\x02\x00"), ErrorKind::Unsupported),
    ] {
        place.put(&path, stored.into()).await.unwrap();
        let error = blobs.key_usage(None).await.unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(&id), "{error}");
        assert!(!error.to_string().contains('\x1B'), "{error}");
    }
    // Files that are not values of this library are not counted.
    place.delete(&path).await.unwrap();
    place.put(&Path::from("default/data/readme.txt"), "by hand".into()).await.unwrap();
    assert_eq!(counted(&blobs, None).await, Vec::<String>::new());
}
