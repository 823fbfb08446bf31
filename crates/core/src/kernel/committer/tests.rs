//! An append that is sent alone: it completes without its waiter, and is held back like all others.

use ferrata_testing::{Fault, FaultPlan, FaultStore, Log, ManualClock};
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::*;
use crate::clock::Timestamp;
use crate::id::{ExecutorId, RunId, Seq};
use crate::store::{MemoryStore, PruneCut};

const TTL: Duration = Duration::from_secs(60);

struct World {
    clock: ManualClock,
    store: Arc<FaultStore<MemoryStore>>,
    heartbeat: Arc<HeartbeatMonitor>,
    committer: Committer,
    gate: Arc<Semaphore>,
}

impl World {
    /// The first append waits at the gate.
    fn new() -> Self {
        let clock = ManualClock::new(Timestamp::from_unix_ms(1_000));
        let store = Arc::new(FaultStore::new(MemoryStore::new(), FaultPlan::new()));
        let heartbeat = Arc::new(HeartbeatMonitor::new(Arc::new(clock.clone()), TTL, Duration::ZERO));
        let budget = RetryBudget { attempts: 3, first_delay: Duration::ZERO };
        let committer = Committer::new(
            Arc::<FaultStore<MemoryStore>>::clone(&store),
            Arc::new(clock.clone()),
            Arc::clone(&heartbeat),
            budget,
        );
        let gate = Arc::new(Semaphore::new(0));
        let waits = Arc::clone(&gate);
        store.before(0, async move { waits.acquire().await.unwrap().forget() });
        Self { clock, store, heartbeat, committer, gate }
    }

    async fn has(&self, run: &str) -> bool {
        turns().await;
        self.store.inner().head(&key(run)).await.unwrap().is_some()
    }
}

fn key(run: &str) -> RunKey {
    RunKey::try_from(run).unwrap()
}

fn first(run: &str) -> RunAppend {
    Log::new(RunId::new(run).unwrap()).next(1)
}

async fn turns() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// A store need not finish a dropped future, and its lane would stay occupied.
#[tokio::test]
async fn dropped_append_still_completes() {
    let world = World::new();
    let mut sending = world.committer.begin(first("a"), None);
    assert!(sending.try_here().is_none(), "the append waits at the gate");
    drop(sending);
    assert!(!world.has("a").await);
    world.gate.add_permits(1);
    assert!(world.has("a").await, "the append was dropped midway");
    let mut next = world.committer.begin(first("b"), None);
    assert!(next.try_here().is_some(), "the lane is free again, because no append is in flight");
}

/// The caller received the append for execution and never started.
#[tokio::test]
async fn what_was_never_waited_for_is_carried_out() {
    let world = World::new();
    world.gate.add_permits(1);
    drop(world.committer.begin(first("a"), None));
    assert!(world.has("a").await);
}

#[tokio::test]
async fn task_finishes_append_of_busy_caller() {
    let world = World::new();
    let mut sending = world.committer.begin(first("a"), None);
    assert!(sending.try_here().is_none());
    sending.detach();
    world.gate.add_permits(1);
    assert!(world.has("a").await, "nothing of the caller was polled");
    assert!(sending.answer().await.is_ok());
}

/// Another process would claim the run of a late process, so its appends as an owner wait for a heartbeat.
#[tokio::test]
async fn append_waits_for_heartbeat_of_late_process() {
    let world = World::new();
    world.gate.add_permits(1);
    world.clock.advance(TTL);
    let mut owner = world.committer.begin(first("a"), Some(0));
    assert!(owner.try_here().is_none());
    turns().await;
    assert_eq!((world.store.operations(), owner.try_here().is_none()), (0, true));
    let mut signaller = world.committer.begin(first("b"), None);
    assert!(signaller.try_here().is_some_and(|answer| answer.is_ok()), "this append needs no heartbeat");
    let executor = ExecutorId::from_uuid(Uuid::from_u128(1));
    world.heartbeat.try_once(world.store.inner(), &executor).await;
    assert!(owner.answer().await.is_ok());
    assert!(world.has("a").await);
}

/// The outcome is unknown, so the same records go the usual way.
#[tokio::test]
async fn a_lost_reply_is_asked_for_again() {
    let world = World::new();
    world.gate.add_permits(1);
    world.store.plan(0, Fault::After);
    assert!(world.committer.begin(first("a"), None).answer().await.is_ok());
    assert_eq!(world.store.operations(), 2);
}

/// Writes an append with a lost reply, and then another writer's record; then the run is pruned at record `cut`.
async fn overtaken(cut: Option<u64>) -> Result<HeadRef> {
    let world = World::new();
    world.gate.add_permits(1);
    let mut log = Log::new(RunId::new("a").unwrap());
    let start = log.next(1);
    assert!(world.committer.begin(start.clone(), None).answer().await.is_ok());
    log.note_append(&start);
    let append = log.next(1);
    world.store.plan(1, Fault::After);
    let mut later = log.clone();
    later.note_append(&append);
    let store = Arc::clone(&world.store);
    world.store.before(2, async move {
        later.write(store.inner(), 1).await;
        if let Some(at) = cut {
            let base = (at > 0).then(|| later.as_base(at));
            store.inner().prune(&key("a"), PruneCut { at: Seq::new(at), base }).await.unwrap();
        }
    });
    world.committer.begin(append, None).answer().await
}

/// A signaller that sees a refusal repeats its signal.
///
/// Guarantees: DURABLE-9.
#[tokio::test]
async fn pruned_append_with_lost_reply_is_indeterminate() {
    assert_eq!(overtaken(None).await.unwrap().seq, Seq::new(1));
    assert_eq!(overtaken(Some(1)).await.unwrap().seq, Seq::new(1));
    let error = overtaken(Some(2)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    assert!(error.message().contains("its position was pruned"), "{error}");
}
