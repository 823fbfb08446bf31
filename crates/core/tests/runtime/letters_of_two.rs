//! Outbox messages with two delivering processes, or with an operator's decision during delivery.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::graph::{Graph, RetryPolicy};
use ferrata_core::runtime::{OutboxMessage, OutboxSink, SinkError};
use ferrata_core::state::{Context, Draft, Update};
use ferrata_core::{Clock as _, ErrorKind, RunKey, Timestamp};
use ferrata_testing::{FaultPlan, FaultStore, ManualClock};
use tokio::sync::Notify;

use super::letters::{ALL, RUN, builder, delivered, key, pass, three};
use super::world::World;

/// A sink that fails as instructed, and then accepts everything.
#[derive(Clone, Default)]
struct Gate(Arc<Gated>);

#[derive(Default)]
struct Gated {
    reached: Notify,
    open: Notify,
    failure: Mutex<Option<SinkError>>,
    is_open: Mutex<bool>,
    seen: Mutex<Vec<String>>,
}

impl Gate {
    fn fail(&self, failure: SinkError) {
        *self.0.failure.lock().unwrap() = Some(failure);
        self.0.open.notify_one();
    }
}

#[async_trait]
impl OutboxSink for Gate {
    async fn deliver(&self, batch: &[OutboxMessage]) -> Result<(), SinkError> {
        if !std::mem::replace(&mut *self.0.is_open.lock().unwrap(), true) {
            self.0.reached.notify_one();
            self.0.open.notified().await;
            return Err(self.0.failure.lock().unwrap().take().unwrap());
        }
        let texts = batch.iter().map(|letter| letter.payload::<String>().unwrap());
        self.0.seen.lock().unwrap().extend(texts);
        Ok(())
    }
}

/// One process records that a message failed and is retried while another process's sink rejects it. The rejection loses the conflict, so the second
/// process must not deliver later messages first.
///
/// Guarantees: OUTBOX-3.
#[tokio::test]
async fn failing_outbox_message_blocks_later_ones_across_processes() {
    let world = World::new();
    // The clock of the first process stands still, so its first delivery attempt never times out.
    let still = Arc::new(ManualClock::new(Timestamp::from_unix_ms(world.clock.now().unix_ms())));
    let (one, two) = (Gate::default(), Gate::default());
    let first =
        builder(Arc::new(world.store.clone()), &still).sink("mail", one.clone()).build().await.unwrap();
    first.start(&three(), Context::new()).id(RUN).await.unwrap().completed().await.unwrap();
    one.0.reached.notified().await;
    let second = builder(Arc::new(world.store.clone()), &world.clock).sink("mail", two.clone());
    let second = second.build().await.unwrap();
    second.serve(&three()).unwrap();
    pass(&world, two.0.reached.notified()).await;

    one.fail(SinkError::new("it is down"));
    while second.outbox(&key()).await.unwrap()[0].tries == 0 {
        tokio::task::yield_now().await;
    }
    two.fail(SinkError::new("no such address").refused());
    delivered(&world, &second).await;
    assert_eq!(*two.0.seen.lock().unwrap(), ALL);
}

/// A message that becomes due again, by an operator or after a crash, is claimed by one process only. The others do not deliver it, too.
///
/// Guarantees: OUTBOX-4.
#[tokio::test]
async fn one_process_takes_due_outbox_message() {
    let world = World::new();
    let store = || Arc::new(world.store.clone());
    let gates = [Gate::default(), Gate::default(), Gate::default()];
    let [refuses, one, two] = &gates;
    let first = builder(store(), &world.clock).sink("mail", refuses.clone()).build().await.unwrap();
    first.start(&three(), Context::new()).id(RUN).await.unwrap().completed().await.unwrap();
    refuses.fail(SinkError::new("no such address").refused());
    while first.outbox(&key()).await.unwrap().len() > 1 {
        tokio::task::yield_now().await;
    }
    let mut fleet = Vec::new();
    for gate in [one, two] {
        let process = builder(store(), &world.clock).sink("mail", gate.clone()).build().await.unwrap();
        process.serve(&three()).unwrap();
        fleet.push(process);
    }
    first.retry_outbox(&key(), &[]).by("ann").await.unwrap();
    let begun = || [one, two].into_iter().filter(|gate| *gate.0.is_open.lock().unwrap()).count();
    pass(&world, async {
        while begun() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // The maximum time of one delivery attempt.
    pass(&world, world.clock.sleep(Duration::from_secs(15))).await;
    assert_eq!(begun(), 1, "another process delivered the message, too");
    for gate in [one, two] {
        gate.fail(SinkError::new("it is down"));
    }
    delivered(&world, &fleet[0]).await;
    let came: Vec<String> = [one, two].iter().flat_map(|gate| gate.0.seen.lock().unwrap().clone()).collect();
    assert_eq!(came, ["1a"]);
}

/// A purge is refused if an outbox message is recorded between its check of the outbox and the removal.
///
/// Guarantees: PURGE-1.
#[tokio::test]
async fn purge_spares_concurrently_recorded_outbox_message() {
    let (world, may_end) = (World::new(), Arc::new(Notify::new()));
    let hold = Arc::clone(&may_end);
    let graph = Graph::<Context>::builder("writes")
        .node("write", move |_cx, s: Draft<Context>| {
            let hold = Arc::clone(&hold);
            async move {
                hold.notified().await;
                Ok(Update::from(s).send_out("mail", "hello"))
            }
        })
        .entry("write")
        .build()
        .unwrap();
    let owner = world.process().await;
    let run = owner.start(&graph, Context::new()).id(RUN).await.unwrap();
    let store = Arc::new(FaultStore::new(world.store.clone(), FaultPlan::new()));
    let tool = builder(Arc::clone(&store) as _, &world.clock).operator();
    store.before(store.operations(), async move {
        may_end.notify_one();
        run.completed().await.unwrap();
    });
    let refused = tool.purge(&key()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongStatus);
    assert!(refused.to_string().contains("undelivered outbox messages"), "{refused}");
    assert_eq!(tool.outbox(&key()).await.unwrap().len(), 1);
}

/// Messages after a failed message must not be delivered from memory once the log no longer contains them.
///
/// Guarantees: OUTBOX-7.
#[tokio::test]
async fn dropped_outbox_message_is_not_delivered_after_retry() {
    let (world, mail) = (World::new(), Gate::default());
    let store = || Arc::new(world.store.clone());
    let runtime = builder(store(), &world.clock).sink("mail", mail.clone()).build().await.unwrap();
    runtime.start(&three(), Context::new()).id(RUN).await.unwrap().completed().await.unwrap();
    mail.fail(SinkError::new("it is down"));
    while runtime.outbox(&key()).await.unwrap()[0].tries == 0 {
        tokio::task::yield_now().await;
    }
    runtime.drop_outbox(&key(), &[1, 2]).await.unwrap();
    builder(store(), &world.clock).operator().drop_outbox(&key(), &[4]).await.unwrap();
    delivered(&world, &runtime).await;
    assert_eq!(*mail.0.seen.lock().unwrap(), ["2a", "3a", "3b"]);
}

/// A message that an operator retries is delivered while the run is active, not only when the run becomes idle.
///
/// Guarantees: OUTBOX-7.
#[tokio::test]
async fn active_run_delivers_outbox_message_retried_by_operator() {
    let (world, mail, may_end) = (World::new(), Gate::default(), Arc::new(Notify::new()));
    let hold = Arc::clone(&may_end);
    let graph = Graph::<Context>::builder("works")
        .node("send", async |_cx, s: Draft<Context>| Ok(Update::from(s).send_out("mail", "hello")))
        .node("work", move |_cx, s: Draft<Context>| {
            let hold = Arc::clone(&hold);
            async move {
                hold.notified().await;
                Ok(s)
            }
        })
        .entry("send")
        .edge("send", "work")
        .build()
        .unwrap();
    let store = Arc::new(world.store.clone());
    let runtime = builder(store, &world.clock).sink("mail", mail.clone()).build().await.unwrap();
    let run = runtime.start(&graph, Context::new()).id(RUN).await.unwrap();
    mail.fail(SinkError::new("no such address").refused());
    while !runtime.outbox(&key()).await.unwrap().first().is_some_and(|letter| letter.is_dead) {
        tokio::task::yield_now().await;
    }
    runtime.retry_outbox(&key(), &[1]).await.unwrap();
    delivered(&world, &runtime).await;
    assert_eq!(*mail.0.seen.lock().unwrap(), ["hello"]);
    may_end.notify_one();
    run.completed().await.unwrap();
}

/// A sink that returns the given errors, one per attempt, and then accepts everything.
#[derive(Clone, Default)]
struct Failing {
    failures: Arc<Mutex<VecDeque<SinkError>>>,
    seen: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl OutboxSink for Failing {
    async fn deliver(&self, batch: &[OutboxMessage]) -> Result<(), SinkError> {
        if let Some(failure) = self.failures.lock().unwrap().pop_front() {
            return Err(failure);
        }
        self.seen.lock().unwrap().extend(batch.iter().map(|letter| letter.payload::<String>().unwrap()));
        Ok(())
    }
}

/// A message that an operator retries is delivered at once. It does not wait for the next retry of a later message.
///
/// Guarantees: OUTBOX-3.
#[tokio::test]
async fn retried_outbox_message_ignores_later_messages() {
    let (world, mail, may_end) = (World::new(), Failing::default(), Arc::new(Notify::new()));
    let failures = [SinkError::new("no such address").refused(), SinkError::new("it is down")];
    mail.failures.lock().unwrap().extend(failures);
    let hold = Arc::clone(&may_end);
    let graph = Graph::<Context>::builder("works")
        .node("send", async |_cx, s: Draft<Context>| {
            Ok(Update::from(s).send_out("mail", "first").send_out("mail", "second"))
        })
        .node("work", move |_cx, s: Draft<Context>| {
            let hold = Arc::clone(&hold);
            async move {
                hold.notified().await;
                Ok(s)
            }
        })
        .entry("send")
        .edge("send", "work")
        .build()
        .unwrap();
    let store = Arc::new(world.store.clone());
    let runtime = builder(store, &world.clock).sink("mail", mail.clone()).build().await.unwrap();
    let run = runtime.start(&graph, Context::new()).id(RUN).await.unwrap();
    while !runtime.outbox(&key()).await.unwrap().iter().any(|letter| letter.retry_at.is_some()) {
        tokio::task::yield_now().await;
    }
    runtime.retry_outbox(&key(), &[1]).await.unwrap();
    // The clock does not advance.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(*mail.seen.lock().unwrap(), ["first"]);
    delivered(&world, &runtime).await;
    assert_eq!(*mail.seen.lock().unwrap(), ["first", "second"]);
    may_end.notify_one();
    run.completed().await.unwrap();
}

/// Message numbers start at 1 in each run. The retry delays must still differ between runs, so that a receiver that was down does not get all retries
/// at once.
#[tokio::test]
async fn outbox_retries_of_many_runs_spread_out() {
    const RUNS: usize = 8;
    let (world, mail) = (World::new(), Failing::default());
    mail.failures.lock().unwrap().extend((0..RUNS).map(|_| SinkError::new("it is down")));
    let hour = Duration::from_secs(3600);
    let retry = RetryPolicy::standard().with_delay(hour).with_cap(2 * hour);
    let store = Arc::new(world.store.clone());
    let outlet = builder(store, &world.clock).sink_with("mail", mail.clone(), retry);
    let runtime = outlet.build().await.unwrap();
    let mut at = BTreeSet::new();
    for number in 0..RUNS {
        let run = RunKey::try_from(&*format!("r{number}")).unwrap();
        let started = runtime.start(&three(), Context::new()).id(run.run.as_str()).await.unwrap();
        started.completed().await.unwrap();
        let retry_at = loop {
            let letters = runtime.outbox(&run).await.unwrap();
            match letters.first().and_then(|letter| letter.retry_at) {
                Some(at) => break at,
                None => tokio::task::yield_now().await,
            }
        };
        at.insert(retry_at);
    }
    assert!(at.len() > 1, "all retries at {at:?}");
}
