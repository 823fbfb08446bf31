//! Tests that need a real server: its conditional writes are correct. In a versioned bucket, a purge removes every version of the run, and nothing of
//! a later run with the same id.

use aws_sdk_s3::types::{BucketVersioningStatus, VersioningConfiguration};
use ferrata_store::{CheckpointStore as _, PruneCut, Seq};
use ferrata_store_s3::{S3Options, S3Store};

use crate::author::{is_kept, log_of, written};
use crate::memory::{Habit, Memory};
use crate::raw::Raw;
use crate::spaces::server_client;

/// Guarantees: S3-4.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(store_test_s3), ignore = "set STORE_TEST_S3_URL to the address of a server of S3")]
async fn the_server_keeps_conditional_writes_apart() {
    let raw = Raw::on_server().await;
    let store =
        S3Store::with_client(raw.client.clone(), raw.bucket, &raw.prefix, S3Options::default()).unwrap();
    for _ in 0..5 {
        store.setup().await.unwrap();
    }
    raw.clear().await;
}

/// Guarantees: S3-15.
#[tokio::test]
#[cfg_attr(not(store_test_s3), ignore = "set STORE_TEST_S3_URL to the address of a server of S3")]
async fn a_purge_leaves_no_version_of_a_run() {
    let raw = Raw {
        client: server_client(),
        bucket: "ferrata-tests-versions",
        prefix: Raw::on_server().await.prefix,
    };
    // The bucket exists, unless this test is the first.
    let _made = raw.client.create_bucket().bucket(raw.bucket).send().await;
    let versioning = VersioningConfiguration::builder().status(BucketVersioningStatus::Enabled).build();
    let request = raw.client.put_bucket_versioning().bucket(raw.bucket);
    request.versioning_configuration(versioning).send().await.unwrap();

    let store = raw.store();
    store.setup().await.unwrap();
    let mut log = written(&store, "r", &[1, 2, 4, 2]).await;
    let other = written(&store, "other", &[1, 1]).await;
    store.prune(&log.key, PruneCut { at: Seq::new(4), base: None }).await.unwrap();
    log.note_pruned(4, None);
    is_kept(&log, &store, "in a bucket with versions").await;
    assert_eq!(store.purge(&log.key, None).await.unwrap().records, 5);
    log.records.clear();
    is_kept(&log, &store, "after the purge").await;
    is_kept(&other, &store, "after the purge of another").await;

    let prefix = format!("{}/log/default/r/", raw.prefix);
    let listed = raw.client.list_object_versions().bucket(raw.bucket).prefix(prefix).send().await.unwrap();
    assert!(listed.delete_markers().is_empty(), "no delete marker may remain");
    for version in listed.versions() {
        assert_eq!(
            version.size(),
            Some(18),
            "only markers may remain, which contain nothing of the run: {version:?}"
        );
    }
    log.write(&store, 2).await;
    is_kept(&log, &store, "in its new generation").await;
    store.purge(&log.key, None).await.unwrap();
    store.purge(&other.key, None).await.unwrap();
    raw.clear().await;
}

/// A purge that removes versions meets the first records of the run's next generation, and keeps them.
///
/// Guarantees: S3-15.
#[tokio::test]
async fn purge_removes_no_version_of_next_generation() {
    let memory = Memory::start_as(Habit::KeepsVersions).await;
    let (store, other) = (Raw::on(&memory).store(), Raw::on(&memory).store());
    store.setup().await.unwrap();
    let old = written(&store, "r", &[1, 2, 1]).await;
    let mut log = log_of("r", 9);
    let look = memory.hold_next(|asked| asked.path.contains("versions"));
    let meanwhile = async {
        look.arrived().await;
        log.write(&other, 2).await;
        log.write(&other, 1).await;
        look.open();
    };
    let (purged, ()) = tokio::join!(store.purge(&old.key, None), meanwhile);
    assert_eq!(purged.unwrap().records, 4);
    is_kept(&log, &Raw::on(&memory).store(), "the next generation").await;
}
