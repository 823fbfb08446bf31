//! Large values in a bucket and in a database: they are read whole, in part and as a stream, uploaded in parts, and removed when no record names
//! them.

use std::sync::Arc;
use std::time::Duration;

use ferrata::blobs::{Blobs, CollectOptions};
use ferrata::{ErrorKind, Key, Keyring};
use ferrata_core::TenantId;
use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Context, Draft};
use ferrata_test_servers::Service;
use ferrata_tests::{Space, ring};
use futures_util::TryStreamExt as _;

/// Bytes without repeated segments.
fn value(len: u32, seed: u32) -> Vec<u8> {
    (0..len).flat_map(|at| (at ^ seed).wrapping_mul(0x9E37_79B9).to_le_bytes()).take(len as usize).collect()
}

async fn are_put_and_read(service: Service) {
    Space::within(Some(service), async |space| {
        space.open().setup().await.unwrap();
        for blobs in [space.bucket("plain"), space.bucket("secret").with_keys(ring().unwrap())] {
            for len in [0, 1, 65_536, 70_000] {
                let put = blobs.put(value(len, 1)).await.unwrap();
                assert_eq!(blobs.get(&put).await.unwrap(), value(len, 1), "{len}");
                assert_eq!(blobs.put(value(len, 1)).await.unwrap(), put, "kept once");
            }
            // One part of an upload, plus a byte.
            let long = value((8 << 20) + 1, 2);
            let put = blobs.put_reader(long.as_slice()).await.unwrap();
            assert_eq!(blobs.put_reader(long.as_slice()).await.unwrap(), put);
            let part = blobs.range(&put, 8_388_600..8_388_609).await.unwrap();
            assert_eq!(part, long[8_388_600..8_388_609]);
            let parts: Vec<_> = blobs.stream(&put).try_collect().await.unwrap();
            assert!(parts.concat() == long);
            let other = blobs.for_tenant(&TenantId::new("other").unwrap());
            assert_eq!(other.get(&put).await.unwrap_err().kind(), ErrorKind::NotFound);
        }
    })
    .await;
}

async fn what_is_named_stays(service: Service) {
    Space::within(Some(service), async |space| {
        let blobs = space.bucket("values");
        let graph = Graph::<Context>::builder("scan")
            .node("scan", async |cx: NodeContext, mut s: Draft<Context>| {
                s.set("scan", cx.resource::<Blobs>().put(value(70_000, 3)).await?)?;
                Ok(s)
            })
            .entry("scan")
            .build()
            .unwrap();
        let store = space.open();
        let runtime = Runtime::builder(Arc::clone(&store)).resource(blobs.clone()).build().await.unwrap();
        let run = runtime.start(&graph, Context::new()).await.unwrap();
        let state = run.wait().await.unwrap().completed().unwrap();
        let unnamed = blobs.put(value(70_000, 4)).await.unwrap();
        let stores: [&dyn ferrata::CheckpointStore; 1] = [&*store];
        // The first collection marks, and the second one removes, because a bucket's clock has whole seconds.
        let mut removed = 0;
        for _ in 0..2 {
            let now = CollectOptions::default().with_grace(Duration::ZERO);
            removed += blobs.collect(&stores, now).await.unwrap().removed;
        }
        assert_eq!(removed, 1);
        assert_eq!(blobs.get(&unnamed).await.unwrap_err().kind(), ErrorKind::NotFound);
        let named = state.get("scan").unwrap().unwrap();
        assert_eq!(blobs.get(&named).await.unwrap(), value(70_000, 3));
        runtime.shutdown(Duration::from_secs(60)).await.unwrap();
    })
    .await;
}

async fn come_under_the_current_key(service: Service) {
    Space::within(Some(service), async |space| {
        space.open().setup().await.unwrap();
        let (old, new) = (Key::from_bytes([1; 32]), Key::from_bytes([2; 32]));
        let before = space.bucket("values").with_keys(Keyring::new("old", &old).unwrap());
        let put = before.put_reader(value(70_000, 5).as_slice()).await.unwrap();
        let both = Keyring::new("new", &new).unwrap().with_old("old", &old).unwrap();
        let rekeyed = space.bucket("values").with_keys(both).rekey(None, false, |_| {}).await.unwrap();
        assert!(rekeyed.failed.is_empty(), "{rekeyed:?}");
        let after = space.bucket("values").with_keys(Keyring::new("new", &new).unwrap());
        assert!(after.get(&put).await.unwrap() == value(70_000, 5));
        assert_eq!(before.get(&put).await.unwrap_err().kind(), ErrorKind::Unsupported);
    })
    .await;
}

macro_rules! on {
    ($($place:ident: $service:expr;)*) => {
        $(mod $place {
            use super::*;

            /// Guarantees: BLOB-1.
            #[tokio::test]
            async fn values_round_trip_with_and_without_keys() {
                are_put_and_read($service).await;
            }

            /// Guarantees: BLOB-5.
            #[tokio::test]
            async fn collection_removes_only_unnamed_values() {
                what_is_named_stays($service).await;
            }

            /// Guarantees: BLOB-11.
            #[tokio::test]
            async fn values_come_under_the_current_key() {
                come_under_the_current_key($service).await;
            }
        })*
    };
}

on! {
    s3: Service::S3;
    postgres: Service::Postgres;
}
