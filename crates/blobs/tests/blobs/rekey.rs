//! `rekey` encrypts values under old keys again and does not change their content.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferrata_blobs::{Blob, Blobs, ObjectStore};
use ferrata_store::{ErrorKind, TenantId};

use super::world::Failing;
use super::{keys, value};

/// Longer than one part of an upload.
const LONG: usize = (8 << 20) + 70_000;

/// A space with values under an old key, one value of another tenant, and their names.
async fn filled(lengths: &[usize]) -> (Arc<Failing>, Vec<(Blob, Vec<u8>)>, Blob) {
    let place = Arc::new(Failing::default());
    let blobs = over(&place).with_keys(keys(&[1]));
    let mut named = Vec::new();
    for &len in lengths {
        let content = value(len, 3);
        named.push((blobs.put(content.clone()).await.unwrap(), content));
    }
    let acme = blobs.for_tenant(&TenantId::new("acme").unwrap()).put("acme").await.unwrap();
    (place, named, acme)
}

fn over(place: &Arc<Failing>) -> Blobs {
    Blobs::new(Arc::clone(place) as Arc<dyn ObjectStore>)
}

/// The required keys, as `TENANT/KEY VALUES`.
async fn keys_of(place: &Arc<Failing>) -> Vec<String> {
    let usage = over(place).key_usage(None).await.unwrap();
    let shown = |key: Option<String>| key.unwrap_or_else(|| "-".into());
    usage.into_iter().map(|one| format!("{}/{} {}", one.tenant, shown(one.key), one.values)).collect()
}

/// Guarantees: BLOB-11.
#[tokio::test]
async fn rekey_moves_every_value_to_current_key() {
    let (place, named, acme) = filled(&[0, 5, 70_000, LONG]).await;
    let plain = over(&place).put("plain").await.unwrap();
    let before = ["acme/k1 1", "default/- 1", "default/k1 4"];
    assert_eq!(keys_of(&place).await, before);
    let both = over(&place).with_keys(keys(&[2, 1]));
    let said = both.clone().accept_plain(true).rekey(None, true, |_| {}).await.unwrap();
    assert_eq!((said.values, said.rekeyed, said.failed.len()), (6, 6, 0));
    assert_eq!(keys_of(&place).await, before, "a dry run must change nothing");
    // Rekey one tenant. An unencrypted value is rejected, and only this value fails.
    let done = both.rekey(Some(&TenantId::new("acme").unwrap()), false, |_| {}).await.unwrap();
    assert_eq!((done.values, done.rekeyed), (1, 1));
    let mut heard = Vec::new();
    let done = both.rekey(None, false, |done| heard.push(done.values)).await.unwrap();
    assert_eq!(heard, [1, 2, 3, 4, 5, 6]);
    assert_eq!((done.rekeyed, done.failed.len()), (4, 1));
    assert!(done.bytes > LONG as u64 && done.failed[0].1.kind() == ErrorKind::Corrupt);
    both.clone().accept_plain(true).rekey(None, false, |_| {}).await.unwrap();
    assert_eq!(keys_of(&place).await, ["acme/k2 1", "default/k2 5"]);
    // Without the old key, the names are unchanged, and a repeated put finds its value.
    let only = over(&place).with_keys(keys(&[2]));
    for (blob, content) in &named {
        assert_eq!(only.get(blob).await.unwrap(), *content);
        assert_eq!(only.put(content.clone()).await.unwrap(), *blob);
    }
    assert_eq!(only.get(&plain).await.unwrap(), "plain");
    assert_eq!(only.for_tenant(&TenantId::new("acme").unwrap()).get(&acme).await.unwrap(), "acme");
    let again = only.rekey(None, false, |_| {}).await.unwrap();
    assert_eq!((again.values, again.rekeyed), (6, 0));
    let without = over(&place).rekey(None, false, |_| {}).await.unwrap_err();
    assert_eq!(without.kind(), ErrorKind::Invalid);
}

/// Guarantees: AT-REST-8, BLOB-11.
#[tokio::test]
async fn interrupted_rekey_can_be_repeated() {
    // For each value, three writes: its bytes, its new index entry, and the removal of the old entry.
    for luck in 0..=12 {
        let (place, named, _) = filled(&[0, 5, 70_000]).await;
        let both = over(&place).with_keys(keys(&[2, 1]));
        place.luck.store(luck, Ordering::Relaxed);
        let done = both.rekey(None, false, |_| {}).await.unwrap();
        assert_eq!(done.failed.is_empty(), luck == 12, "{luck}: {done:?}");
        place.luck.store(u64::MAX, Ordering::Relaxed);
        for (blob, content) in &named {
            assert_eq!(both.get(blob).await.unwrap(), *content, "{luck}");
        }
        both.rekey(None, false, |_| {}).await.unwrap();
        assert_eq!(keys_of(&place).await, ["acme/k2 1", "default/k2 3"], "{luck}");
        let only = over(&place).with_keys(keys(&[2]));
        for (blob, content) in &named {
            assert_eq!(only.get(blob).await.unwrap(), *content, "{luck}");
        }
    }
}

/// A reader gets the head of a value, and `rekey` encrypts the value before the reader gets its segments. The mismatch is not reported as damage. A
/// bucket returns the two in separate answers.
///
/// Guarantees: BLOB-11.
#[tokio::test]
async fn reading_value_during_rekey_succeeds() {
    let (place, named, _) = filled(&[70_000]).await;
    let both = over(&place).with_keys(keys(&[2, 1]));
    let (blob, content) = &named[0];
    let rekeys = both.clone();
    place.between.set(async move {
        assert_eq!(rekeys.rekey(None, false, |_| {}).await.unwrap().rekeyed, 2);
    });
    assert_eq!(both.get(blob).await.unwrap(), *content);
    assert!(place.between.take().is_none(), "the rekey must come in between");
    assert_eq!(keys_of(&place).await, ["acme/k2 1", "default/k2 1"]);
}
