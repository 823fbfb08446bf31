//! Large values in tables: the suite of `object_store`, random calls compared with a store in memory, concurrent readers and writers, and leftovers.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferrata_store::CheckpointStore as _;
use ferrata_store_postgres::{PostgresObjects, PostgresStore};
use futures_util::TryStreamExt as _;
use object_store::integration;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, Error, GetRange, MultipartUpload as _, ObjectStore, ObjectStoreExt as _, PutMode,
    PutOptions,
};
use sqlx::Row as _;
use tokio::task::JoinSet;

use crate::common::Schema;

/// What a row holds at most.
const CHUNK: usize = 256 << 10;

async fn within(test: impl AsyncFnOnce(PostgresObjects, &Schema)) {
    let schema = Schema::new();
    let store = schema.store();
    store.setup().await.unwrap();
    test(store.objects(), &schema).await;
    schema.remove().await;
}

async fn rows(schema: &Schema, table: &str) -> i64 {
    let sql = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {}.{table}", schema.name));
    sqlx::query(sql).fetch_one(&mut schema.connection().await).await.unwrap().get(0)
}

/// Bytes that repeat in no chunk.
fn value(len: usize, seed: u8) -> Bytes {
    (0..len).map(|at| (at * 31 + at / 251).to_le_bytes()[0].wrapping_add(seed)).collect()
}

/// Guarantees: POSTGRES-16.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn the_suite_of_object_stores_finds_nothing() {
    within(async |objects, schema| {
        integration::put_get_delete_list(&objects).await;
        integration::get_opts(&objects).await;
        integration::put_opts(&objects, true).await;
        integration::list_uses_directories_correctly(&objects).await;
        integration::list_with_delimiter(&objects).await;
        integration::list_with_offset_exclusivity(&objects).await;
        integration::rename_and_copy(&objects).await;
        integration::copy_if_not_exists(&objects).await;
        integration::copy_rename_nonexistent_object(&objects).await;
        integration::stream_get(&objects).await;
        integration::multipart_race_condition(&objects, true).await;
        integration::multipart_out_of_order(&objects).await;
        // Nothing is left of what was replaced, refused or removed.
        let names: Vec<Path> = objects.list(None).map_ok(|meta| meta.location).try_collect().await.unwrap();
        for name in names {
            objects.delete(&name).await.unwrap();
        }
        assert_eq!((rows(schema, "objects").await, rows(schema, "chunks").await), (0, 0));
    })
    .await;
}

/// One call of a random story.
#[derive(Clone, Debug)]
enum Call {
    Put(usize, usize, bool),
    Parts(usize, Vec<usize>),
    Copy(usize, usize, bool),
    Delete(usize),
    Read(usize, GetRange),
    List(usize),
}

/// Does it, and says what came of it.
async fn done(objects: &dyn ObjectStore, call: &Call, names: &[Path]) -> String {
    let failed = |error: Error| match error {
        Error::NotFound { .. } => "missing".to_owned(),
        Error::AlreadyExists { .. } => "there".to_owned(),
        Error::Generic { .. } => "generic".to_owned(),
        other => panic!("{other:?}"),
    };
    let told = |result: Result<(), Error>| result.map_or_else(failed, |()| "done".to_owned());
    match call {
        Call::Put(name, len, is_new) => {
            let mode = if *is_new { PutMode::Create } else { PutMode::Overwrite };
            let put = objects
                .put_opts(&names[*name], value(*len, len.to_le_bytes()[0]).into(), PutOptions::from(mode))
                .await;
            told(put.map(drop))
        }
        Call::Parts(name, parts) => {
            let mut upload = objects.put_multipart(&names[*name]).await.unwrap();
            let sent: Vec<_> = parts.iter().map(|len| upload.put_part(value(*len, 3).into())).collect();
            // In another order than they are in the value.
            for part in sent.into_iter().rev() {
                part.await.unwrap();
            }
            told(upload.complete().await.map(drop))
        }
        Call::Copy(from, to, is_new) => {
            let mode = if *is_new { CopyMode::Create } else { CopyMode::Overwrite };
            let options = CopyOptions::new().with_mode(mode);
            told(objects.copy_opts(&names[*from], &names[*to], options).await)
        }
        Call::Delete(name) => match objects.delete(&names[*name]).await {
            // Whether that is said is left to a store.
            Ok(()) | Err(Error::NotFound { .. }) => "gone".to_owned(),
            Err(error) => panic!("{error:?}"),
        },
        Call::Read(name, range) => {
            let options = object_store::GetOptions { range: Some(range.clone()), ..<_>::default() };
            match objects.get_opts(&names[*name], options).await {
                Ok(found) => {
                    let (range, size) = (found.range.clone(), found.meta.size);
                    let bytes = found.bytes().await.unwrap();
                    format!(
                        "{range:?} of {size}: {}",
                        bytes.iter().fold(7_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte))
                    )
                }
                Err(error) => failed(error),
            }
        }
        Call::List(folder) => {
            let folder = Path::from(["", "a", "a/b"][*folder]);
            let mut listed: Vec<_> = objects.list(Some(&folder)).try_collect().await.unwrap();
            listed.sort_by(|a, b| a.location.cmp(&b.location));
            listed.iter().map(|meta| format!("{} {}, ", meta.location, meta.size)).collect()
        }
    }
}

fn call() -> impl proptest::strategy::Strategy<Value = Call> {
    use proptest::prelude::*;
    let name = || 0_usize..5;
    let len = || prop_oneof![Just(0), 1..9_usize, CHUNK - 2..CHUNK + 3, 2 * CHUNK - 2..2 * CHUNK + 3];
    let place = || {
        prop_oneof![0..9_u64, CHUNK as u64 - 2..CHUNK as u64 + 3, 2 * CHUNK as u64 - 2..2 * CHUNK as u64 + 3]
    };
    let range = prop_oneof![
        (place(), 1..CHUNK as u64 + 5).prop_map(|(from, len)| GetRange::Bounded(from..from + len)),
        place().prop_map(GetRange::Offset),
        (1..CHUNK as u64 + 5).prop_map(GetRange::Suffix),
    ];
    prop_oneof![
        3 => (name(), len(), any::<bool>()).prop_map(|(name, len, new)| Call::Put(name, len, new)),
        1 => (name(), prop::collection::vec(1..CHUNK + 5, 1..4)).prop_map(|(name, parts)| Call::Parts(name, parts)),
        1 => (name(), name(), any::<bool>()).prop_map(|(from, to, new)| Call::Copy(from, to, new)),
        2 => name().prop_map(Call::Delete),
        6 => (name(), range).prop_map(|(name, range)| Call::Read(name, range)),
        1 => (0..3_usize).prop_map(Call::List),
    ]
}

/// Guarantees: POSTGRES-16.
#[test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
fn random_calls_are_answered_as_in_memory() {
    use proptest::prelude::*;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let schema = Schema::new();
    let objects = runtime.block_on(async {
        let store = schema.store();
        store.setup().await.unwrap();
        store.objects()
    });
    let names = ["a", "a/b", "a/b/c", "a/bc", "ab"].map(Path::from);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) };
    proptest!(config, |(calls in prop::collection::vec(call(), 1..40))| {
        let memory = InMemory::new();
        runtime.block_on(async {
            for name in &names {
                _ = objects.delete(name).await;
            }
            for call in &calls {
                let (ours, theirs) = (done(&objects, call, &names).await, done(&memory, call, &names).await);
                assert_eq!(ours, theirs, "{call:?}");
            }
        });
    });
    runtime.block_on(schema.remove());
}

/// A value that is put again under its name while it is read is the one or the other, whole; and the last one stays.
///
/// Guarantees: POSTGRES-16.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn reader_sees_whole_old_or_new_value() {
    within(async |objects, schema| {
        let path = Path::from("a");
        objects.put(&path, value(3 * CHUNK, 0).into()).await.unwrap();
        let mut tasks = JoinSet::new();
        for writer in 0..3 {
            let (objects, path) = (objects.clone(), path.clone());
            tasks.spawn(async move {
                for seed in 0..10 {
                    objects.put(&path, value(3 * CHUNK, 10 * writer + seed).into()).await.unwrap();
                }
            });
        }
        while !tasks.is_empty() {
            let read = objects.get(&path).await.unwrap().bytes().await.unwrap();
            assert_eq!(read, value(3 * CHUNK, read[0]));
            while let Some(done) = tasks.try_join_next() {
                done.unwrap();
            }
        }
        assert_eq!((rows(schema, "objects").await, rows(schema, "chunks").await), (1, 3));
    })
    .await;
}

/// Guarantees: POSTGRES-16.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn what_an_upload_left_behind_is_swept() {
    within(async |objects, schema| {
        objects.put(&"kept".into(), value(CHUNK + 1, 1).into()).await.unwrap();
        let mut dropped = objects.put_multipart(&"dropped".into()).await.unwrap();
        dropped.put_part(value(5 * CHUNK, 2).into()).await.unwrap();
        drop(dropped);
        let mut aborted = objects.put_multipart(&"aborted".into()).await.unwrap();
        aborted.put_part(value(CHUNK, 3).into()).await.unwrap();
        aborted.abort().await.unwrap();
        assert_eq!(rows(schema, "chunks").await, 2 + 5);
        // One that goes on.
        let mut late = objects.put_multipart(&"late".into()).await.unwrap();
        late.put_part(value(CHUNK, 4).into()).await.unwrap();
        assert_eq!(objects.sweep(Duration::from_secs(3_600)).await.unwrap(), 0);
        schema.execute("UPDATE {schema}.chunks SET at = at - 7200000").await;
        assert_eq!(objects.sweep(Duration::from_secs(3_600)).await.unwrap(), 6);
        assert_eq!(rows(schema, "chunks").await, 2);
        assert_eq!(objects.get(&"kept".into()).await.unwrap().bytes().await.unwrap(), value(CHUNK + 1, 1));
        // What was swept is not named.
        let error = late.complete().await.unwrap_err();
        assert!(error.to_string().contains("upload it again"), "{error}");
        assert!(matches!(objects.head(&"late".into()).await, Err(Error::NotFound { .. })));
    })
    .await;
}

/// Errors say what to do: where the tables are missing, and where the server is away.
///
/// Guarantees: POSTGRES-16.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn what_is_missing_is_named() {
    let schema = Schema::new();
    let error = schema.store().objects().put(&"a".into(), "b".into()).await.unwrap_err();
    assert!(format!("{error:?}").contains("set"), "{error:?}");
    let nowhere = PostgresStore::from_url(
        "postgres://me@127.0.0.1:1/app",
        schema.options().with_acquire_timeout(Duration::from_millis(300)),
    );
    let objects: Arc<dyn ObjectStore> = Arc::new(nowhere.unwrap().objects());
    assert!(matches!(objects.head(&"a".into()).await, Err(Error::Generic { .. })));
}
