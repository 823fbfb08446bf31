//! A parent and its child, killed at every write of both: on every store, and over several stores as one.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{Fault, FaultPlan, FaultStore, Page, RunQuery};
use ferrata_core::{RunKey, SystemClock};
use ferrata_test_servers::Service;
use ferrata_tests::Space;

/// How long a process may live that is to die at a write.
const PATIENCE: Duration = Duration::from_secs(20);

fn child() -> Graph<Context> {
    Graph::<Context>::builder("double")
        .node("double", async |_cx, mut s| {
            let number: u32 = s.get("number")?.unwrap_or_default();
            s.set("number", number * 2)?;
            Ok(s)
        })
        .entry("double")
        .build()
        .unwrap()
}

fn parent() -> Graph<Context> {
    let child = child();
    Graph::<Context>::builder("parent")
        .node("wait", move |cx: NodeContext, mut s: Draft<Context>| {
            let child = child.clone();
            async move {
                let mut input = Context::new();
                input.set("number", 21)?;
                let state = cx.child(&child, input).await?;
                s.set("got", state.get::<u32>("number")?)?;
                Ok(s)
            }
        })
        .entry("wait")
        .build()
        .unwrap()
}

/// A process that starts one parent and dies at one of its writes.
async fn die(space: &Space, id: String, at: u64, fault: Fault) {
    let plan = FaultPlan::new().with_fault(at, fault);
    let store = Arc::new(FaultStore::new(space.open(), plan));
    let builder = Runtime::builder_with(Arc::clone(&store) as _).heartbeat_ttl(Duration::from_secs(1));
    let Ok(runtime) = builder.store_retries(1, Duration::from_millis(1)).build().await else { return };
    if let Ok(run) = runtime.start(&parent(), Context::new()).id(&id).await {
        let clock = SystemClock::new();
        let _ended = ferrata_core::within(&clock, PATIENCE, run.wait()).await;
    }
    store.crash();
}

/// Each write of the two, and a few more, which a process without a fault makes.
const WRITES: u64 = 9;

async fn killed_at_every_write(space: &Space) {
    space.open().setup().await.unwrap();
    let faults = [Fault::CrashBefore, Fault::CrashAfter];
    let all: Vec<_> =
        (0..WRITES).flat_map(|at| faults.map(|fault| (format!("p-{at}-{fault:?}"), at, fault))).collect();
    let deaths = all.iter().map(|(id, at, fault)| die(space, id.clone(), *at, *fault));
    futures_util::future::join_all(deaths).await;
    let runtime =
        Runtime::builder_with(space.open()).heartbeat_ttl(Duration::from_secs(1)).build().await.unwrap();
    runtime.serve(&child()).unwrap();
    runtime.serve(&parent()).unwrap();
    for (id, ..) in &all {
        let run = runtime.start(&parent(), Context::new()).id(id).await.unwrap();
        let state = run.completed().await.unwrap();
        assert_eq!(state.get::<u32>("got").unwrap(), Some(42), "{id}");
        let mut query = RunQuery::default();
        query.labels.push(("ferrata.parent".to_owned(), id.clone()));
        let children = runtime.store().runs(&query, Page::default()).await.unwrap().items;
        let statuses: Vec<_> = children.iter().map(|child| child.status).collect();
        assert_eq!(statuses, [RunStatus::Completed], "{id}: {children:?}");
        assert_ne!(children[0].run, RunKey::try_from(&**id).unwrap());
    }
    runtime.shutdown(Duration::from_secs(1)).await.unwrap();
}

macro_rules! on {
    ($($store:ident: $service:expr),*) => {$(
        mod $store {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_family_is_whole_after_a_kill_at_every_write() {
                Space::within($service, killed_at_every_write).await;
            }
        }
    )*};
}

on!(files: None, postgres: Some(Service::Postgres), redis: Some(Service::Redis));
on!(redis_cluster: Some(Service::RedisCluster), s3: Some(Service::S3));

/// Parent and child mostly lie in different shards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_family_over_shards_is_whole_after_a_kill_at_every_write() {
    Space::within_shards(killed_at_every_write).await;
}
