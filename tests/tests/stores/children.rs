//! A parent and its children, with crashes at every write of both, and kills at random moments: on every store, and over a sharded store.

#![expect(clippy::print_stdout, reason = "a failed test is repeated with its seed")]

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{Page, RunQuery};
use ferrata_core::{RunKey, SystemClock};
use ferrata_test_servers::Service;
use ferrata_testing::{Fault, FaultPlan, FaultStore};
use ferrata_tests::{Space, StoreKind};

/// Maximum lifetime of a process that crashes at a write.
const PATIENCE: Duration = Duration::from_secs(20);

/// Heartbeat validity of the process that does not crash: longer than any delay on a busy machine.
const LONG: Duration = Duration::from_secs(600);

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

/// A process that starts one parent and crashes at one of its writes.
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

/// The number of writes of the two runs, plus a few that a process without a fault makes.
const WRITES: u64 = 9;

async fn killed_at_every_write(space: &Space) {
    space.open().setup().await.unwrap();
    let faults = [Fault::CrashBefore, Fault::CrashAfter];
    let all: Vec<_> =
        (0..WRITES).flat_map(|at| faults.map(|fault| (format!("p-{at}-{fault:?}"), at, fault))).collect();
    let deaths = all.iter().map(|(id, at, fault)| die(space, id.clone(), *at, *fault));
    futures_util::future::join_all(deaths).await;
    let runtime = Runtime::builder_with(space.open()).heartbeat_ttl(LONG).build().await.unwrap();
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

/// Number of kills of the two processes.
const KILLS: u32 = 6;

/// The environment variable for a seed to repeat.
const SEED: &str = "FERRATA_KILL_SEED";

/// Starts one of the two processes.
fn spawn(space: &Space, role: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_family"));
    command.arg(space.url()).arg(space.folder().join("ledger")).args(["p", "1000", role]);
    command.envs(space.environment());
    command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// One process drives the parent, and starts its children. Another one claims the children that the first leaves. Either is killed with SIGKILL at
/// random moments.
async fn killed_by_the_kernel(space: &Space) {
    space.open().setup().await.unwrap();
    let seed = std::env::var(SEED).ok().and_then(|text| text.parse().ok());
    let mut random: u64 = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("seed {random}; repeat with {SEED}={random} cargo test -p ferrata-tests --test stores children");
    let (mut parent, mut children) = (spawn(space, "parent"), spawn(space, "children"));
    for _ in 0..KILLS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (moment, who) = ((random >> 33) % 700, (random >> 32) & 1);
        std::thread::park_timeout(Duration::from_millis(moment));
        if who == 0 {
            kill(parent);
            parent = spawn(space, "parent");
        } else {
            kill(children);
            children = spawn(space, "children");
        }
    }
    let told = tokio::task::spawn_blocking(move || parent.wait_with_output()).await.unwrap().unwrap();
    kill(children);
    assert_eq!(String::from_utf8_lossy(&told.stdout).trim(), "completed [2, 4, 6]");
    let all = space.open().runs(&RunQuery::default(), Page::first(100)).await.unwrap().items;
    assert_eq!(all.len(), 4, "the parent and three children: {all:?}");
    assert!(all.iter().all(|run| run.status == RunStatus::Completed), "{all:?}");
    let ledger = std::fs::read_to_string(space.folder().join("ledger")).unwrap();
    let mut keys: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in ledger.lines() {
        let (place, key) = line.rsplit_once(' ').unwrap();
        keys.entry(place).or_default().insert(key);
    }
    assert_eq!(
        keys.len(),
        1 + 3 * 2,
        "one node of the parent, and two nodes of each of three children: {ledger}"
    );
    assert!(keys.values().all(|keys| keys.len() == 1), "each activation must have one key: {ledger}");
}

macro_rules! on {
    ($($store:ident: $service:expr),*) => {$(
        mod $store {
            use super::*;

            /// Guarantees: CHILD-1.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn run_tree_recovers_from_kill_at_every_write() {
                Space::within($service, killed_at_every_write).await;
            }

            /// Guarantees: CHILD-1.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn run_tree_of_two_processes_recovers_from_kills() {
                Space::within($service, killed_by_the_kernel).await;
            }
        }
    )*};
}

on!(files: None, sqlite: StoreKind::Sqlite, postgres: Some(Service::Postgres), nats: Some(Service::Nats), redis: Some(Service::Redis));
on!(redis_cluster: Some(Service::RedisCluster), s3: Some(Service::S3));

/// The parent and a child are usually in different shards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sharded_run_tree_recovers_from_every_kill() {
    Space::within_shards(killed_at_every_write).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sharded_run_tree_of_two_processes_recovers() {
    Space::within_shards(killed_by_the_kernel).await;
}
