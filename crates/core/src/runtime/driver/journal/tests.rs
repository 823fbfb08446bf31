//! The record buffer in isolation: times of writes and replies, and the effect of a restart.

use std::num::NonZeroU32;

use ferrata_testing::{ManualClock, SeqIds};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::*;
use crate::engine::fold::fold;
use crate::error::Result;
use crate::graph::Graph;
use crate::id::{Fingerprint, Visit, WorkflowName};
use crate::kernel::committer::{Committer, RetryBudget};
use crate::kernel::heartbeat::HeartbeatMonitor;
use crate::record::RunFacts;
use crate::record::body::Intent;
use crate::record::pause::EditRecord;
use crate::runtime::driver::journal::pending_events::PendingEventKind;
use crate::runtime::driver::test_fixture::{at, forked, graph, key, machine, name, run, started};
use crate::state::{Context, Update};
use crate::store::{At, CheckpointStore, MemoryStore};

/// A run at its start, whose buffer writes to its own store.
struct World {
    clock: ManualClock,
    store: Arc<MemoryStore>,
    graph: Graph<Context>,
    machine: Machine,
    state: Context,
    journal: RecordBuffer<Context>,
}

fn facts() -> RunFacts {
    let [graph, input] = ["graph", "input"].map(|text| Fingerprint::of(text.as_bytes()));
    RunFacts::new(WorkflowName::try_from("w").unwrap(), "1", graph, input, at(0)).unwrap()
}

impl World {
    /// The first record is held back until an event asks for a checkpoint.
    fn new(frequency: CheckpointFrequency) -> Self {
        let clock = ManualClock::new(at(1_000));
        let store = Arc::new(MemoryStore::new());
        let times = Arc::new(clock.clone());
        let times = || Arc::<ManualClock>::clone(&times) as _;
        let graph = graph();
        let heartbeat = Arc::new(HeartbeatMonitor::new(times(), Duration::from_secs(60), Duration::ZERO));
        let budget = RetryBudget { attempts: 1, first_delay: Duration::ZERO };
        let committer = Committer::new(Arc::<MemoryStore>::clone(&store), times(), heartbeat, budget);
        let executor = ExecutorId::from_uuid(Uuid::from_u128(1));
        let log = LogWriter::new(run(), executor, 1 << 20, times(), Arc::new(SeqIds::new(1)));
        let outbox = PendingRecords::new(run(), committer, Some(facts()), None, 0);
        let state = Context::new();
        let first = FirstRecord { event: started(&graph), input: state.to_channels_json().unwrap() };
        let policy = CheckpointPolicy::default().with_frequency(frequency);
        let journal = RecordBuffer::new(policy, times(), log, outbox, Some(first));
        Self { machine: machine(&graph), clock, store, graph, state, journal }
    }

    /// The same run with a durable first record.
    async fn begun(frequency: CheckpointFrequency) -> Self {
        let mut world = Self::new(frequency);
        world.flush(true);
        world.drain().await;
        world
    }

    fn flush(&mut self, whole: bool) {
        self.journal.flush(whole, &mut self.machine, &self.state).unwrap();
    }

    /// Ends the fork, and holds its end.
    fn end(&mut self) -> bool {
        let done = forked(&self.machine);
        self.machine.absorb_end(&done).unwrap();
        let what = PendingEventKind::Ended { result: Ok(Update::none()), took: Duration::ZERO };
        self.journal.remember(PendingEvent { key: key(0), what }, ActivationOrigin::default(), None);
        self.journal.hold_end(done, Patch::default(), NodeCheckpoint::default()).unwrap()
    }

    fn write(&mut self, event: &RecordEvent) -> Seq {
        self.machine.absorb(event).unwrap();
        self.journal.write(event, RecordOptions::default(), &mut self.machine, &self.state).unwrap()
    }

    fn owe(&mut self, seq: Seq) -> oneshot::Receiver<Result<()>> {
        let (reply, answer) = oneshot::channel();
        self.journal.defer_reply(seq, DurableReply::Done(reply));
        answer
    }

    /// Waits until no record is pending. Returns the expired questions.
    async fn drain(&mut self) -> Vec<ExpiredQuestion> {
        let mut expired = Vec::new();
        while self.journal.pending() > 0 {
            let head = self.journal.acknowledged().await.unwrap();
            expired.extend(self.journal.release_durable(head.seq));
        }
        expired
    }

    async fn folded(&self) -> ReplayedRun {
        let records = self.store.load(&run(), At::Latest).await.unwrap().unwrap();
        fold(&run(), &records, Some(self.graph.plan())).unwrap()
    }
}

fn edit() -> RecordEvent {
    RecordEvent::Edit(EditRecord { patch: Patch::default(), by: None })
}

#[tokio::test]
async fn the_first_record_waits_for_whatever_needs_it() {
    let mut world = World::new(CheckpointFrequency::EveryNode);
    world.flush(false);
    assert!(!world.journal.has_begun() && world.journal.on_its_way().is_none());
    world.flush(true);
    assert_eq!(world.journal.on_its_way(), Some(Seq::new(0)));
    world.drain().await;
    assert_eq!((world.journal.on_its_way(), world.folded().await.last.seq), (None, Seq::new(0)));
}

#[tokio::test]
async fn checkpoint_frequency_decides_when_held_ends_write() {
    let third = CheckpointFrequency::EveryNth(NonZeroU32::new(2).unwrap());
    let hour = CheckpointFrequency::Interval(Duration::from_secs(3_600));
    for (frequency, due) in [
        (CheckpointFrequency::EveryNode, true),
        (third, false),
        (hour, false),
        (CheckpointFrequency::StatusChangeOnly, false),
        (CheckpointFrequency::Disabled, false),
    ] {
        let mut world = World::begun(frequency).await;
        assert_eq!(world.end(), due, "{frequency:?}");
        let again = NodeDone::new(name("a"), Visit::new(1));
        world.clock.advance(Duration::from_secs(3_600));
        let later = world.journal.hold_end(again, Patch::default(), NodeCheckpoint::default()).unwrap();
        let ever =
            !matches!(frequency, CheckpointFrequency::StatusChangeOnly | CheckpointFrequency::Disabled);
        assert_eq!(later, ever, "{frequency:?}, the second, an hour later");
    }
}

#[tokio::test]
async fn what_is_held_becomes_one_record() {
    let mut world = World::begun(CheckpointFrequency::StatusChangeOnly).await;
    world.end();
    assert_eq!(world.journal.pending(), 0);
    world.flush(false);
    world.flush(false);
    world.drain().await;
    let folded = world.folded().await;
    assert_eq!((folded.last.seq, folded.machine.in_flight().len()), (Seq::new(1), 3));
}

#[tokio::test]
async fn requested_record_without_checkpoints_holds_full_state() {
    let mut world = World::begun(CheckpointFrequency::Disabled).await;
    world.end();
    world.flush(true);
    assert!(!world.journal.can_restart(), "the events before it are not kept");
    world.drain().await;
    assert!(world.folded().await.last.base && world.journal.can_restart());
}

#[tokio::test]
async fn reply_waits_for_durable_record() {
    let mut world = World::begun(CheckpointFrequency::EveryNode).await;
    let (first, second) = (world.write(&edit()), world.write(&edit()));
    let (mut one, mut two) = (world.owe(first), world.owe(second));
    let expiry = ExpiredQuestion { key: key(1), name: "q".into() };
    world.journal.defer_reply(second, DurableReply::Expiry(expiry.clone()));
    assert!(world.journal.release_durable(first).is_empty());
    assert!(one.try_recv().unwrap().is_ok() && two.try_recv().is_err());
    assert_eq!(world.drain().await, [expiry], "the driver records it");
    assert!(two.try_recv().unwrap().is_ok() && world.journal.has_no_deferred_reply());
}

#[tokio::test]
async fn replies_that_stay_owed_are_refused() {
    let mut world = World::begun(CheckpointFrequency::EveryNode).await;
    let seq = world.write(&edit());
    let mut reply = world.owe(seq);
    world.journal.refuse_all(&Error::new(ErrorKind::Closed, "over"));
    assert_eq!(reply.try_recv().unwrap().unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn restart_returns_unacknowledged_events() {
    let mut world = World::begun(CheckpointFrequency::EveryNode).await;
    world.end();
    world.flush(false);
    let before = world.folded().await;
    let mut reply = world.owe(Seq::new(1));
    assert!(world.journal.can_restart());
    let facts: Vec<_> = world.journal.restart(&before).map(|(_, fact)| fact).collect();
    assert!(
        matches!(&*facts, [PendingEvent { what: PendingEventKind::Ended { .. }, .. }])
            && facts[0].key == key(0)
    );
    assert_eq!(world.journal.pending(), 0, "records in flight are dropped");
    world.journal.defer_again();
    assert!(reply.try_recv().unwrap().is_ok(), "all recorded events are durable");
    assert!(world.journal.has_no_deferred_reply());
}

#[tokio::test]
async fn a_restart_forgets_facts_that_are_on_record() {
    let mut world = World::begun(CheckpointFrequency::EveryNode).await;
    world.end();
    world.flush(false);
    world.drain().await;
    let now = world.folded().await;
    assert_eq!(world.journal.restart(&now).count(), 0);
}

#[tokio::test]
async fn replies_follow_records_renumbered_after_restart() {
    let mut world = World::begun(CheckpointFrequency::EveryNode).await;
    let before = world.folded().await;
    world.write(&edit());
    let late = world.write(&edit());
    let mut reply = world.owe(late);
    world.journal.defer_reply(late, DurableReply::Expiry(ExpiredQuestion { key: key(1), name: "q".into() }));
    world.journal.restart(&before).for_each(drop);
    world.machine = before.machine;
    world.write(&edit());
    world.journal.defer_again();
    assert!(reply.try_recv().is_err(), "the record is in flight");
    assert!(world.journal.release_durable(Seq::new(1)).is_empty(), "the expiry is no longer pending");
    assert!(reply.try_recv().unwrap().is_ok(), "one record replaces the two");
}

#[tokio::test]
async fn unbounded_held_ends_prevent_restart() {
    let mut world = World::begun(CheckpointFrequency::StatusChangeOnly).await;
    let intent = RecordEvent::Intent(Intent { node: name("fork"), visit: Visit::new(1) });
    world.write(&intent);
    assert!(world.journal.can_restart(), "the intent is requested again");
    world.end();
    assert!(!world.journal.can_restart(), "the end is not kept");
}

#[test]
fn old_records_are_pruned_once_for_each_stride() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _entered = runtime.enter();
    let mut world = World::new(CheckpointFrequency::EveryNode);
    let due: Vec<u64> = (0..10).filter(|&seq| world.journal.is_time_to_prune(Seq::new(seq), 4)).collect();
    assert_eq!(due, [4, 8]);
}
