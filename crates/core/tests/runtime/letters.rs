//! Outbox messages are delivered after their record, in order, at least once, by any process.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::graph::{CheckpointFrequency, CheckpointPolicy, Effect, Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{OutboxMessage, OutboxSink, Position, Runtime, RuntimeBuilder, SinkError};
use ferrata_core::state::{Context, Draft, Update};
use ferrata_core::store::{CheckpointStore, HeaderRange};
use ferrata_core::{ErrorKind, RunKey, Timestamp, Visit};
use ferrata_testing::{Fault, FaultPlan, FaultStore, LedgerDatabase, LedgerStore, ManualClock};
use tokio::sync::Notify;

use super::world::World;

pub(crate) const RUN: &str = "r";

pub(crate) fn key() -> RunKey {
    RunKey::try_from(RUN).unwrap()
}

/// A receiver of messages: it records each message, and fails on request.
#[derive(Clone, Default)]
struct Receiver {
    seen: Arc<Mutex<Vec<(String, String)>>>,
    /// The number of messages that it accepts before it fails once for each further message.
    fails: Arc<AtomicU32>,
    is_down: Arc<AtomicBool>,
    /// A payload that it rejects permanently.
    refuses: Option<&'static str>,
    hangs: Arc<AtomicBool>,
}

#[async_trait]
impl OutboxSink for Receiver {
    async fn deliver(&self, batch: &[OutboxMessage]) -> Result<(), SinkError> {
        if self.is_down.load(Ordering::Relaxed) {
            return Err(SinkError::new("it is down"));
        }
        for (at, letter) in batch.iter().enumerate() {
            let text: String = letter.payload()?;
            if self.refuses.is_some_and(|refused| text == refused) {
                return Err(SinkError::new("no such address").after(at).refused());
            }
            self.seen.lock().unwrap().push((letter.key(), text));
            if self.fails.load(Ordering::Relaxed) > 0 {
                self.fails.fetch_sub(1, Ordering::Relaxed);
                // The message has arrived, and the reply is lost.
                return Err(SinkError::new("the reply was lost").after(at));
            }
        }
        if self.hangs.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

impl Receiver {
    /// The received messages without duplicates, in order of first arrival.
    fn once(&self) -> Vec<String> {
        let mut known = BTreeMap::new();
        let mut texts = Vec::new();
        for (key, text) in self.seen.lock().unwrap().iter() {
            if known.insert(key.clone(), text.clone()).is_none() {
                texts.push(text.clone());
            } else {
                assert_eq!(known[key], *text, "a key must belong to one message");
            }
        }
        texts
    }

    fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

pub(crate) fn builder(store: Arc<dyn CheckpointStore>, clock: &Arc<ManualClock>) -> RuntimeBuilder {
    Runtime::builder_with(store).clock(Arc::clone(clock) as _)
}

async fn process(world: &World, store: Arc<dyn CheckpointStore>, mail: &Receiver) -> Runtime {
    builder(store, &world.clock).sink("mail", mail.clone()).build().await.unwrap()
}

/// Three nodes, each with two messages.
pub(crate) fn three() -> Graph<Context> {
    async fn send(cx: NodeContext, s: Draft<Context>) -> Result<Update<Context>, NodeError> {
        cx.send_out("mail", format!("{}a", cx.node()))?;
        Ok(Update::from(s).send_out("mail", format!("{}b", cx.node())))
    }
    Graph::<Context>::builder("three")
        .node("1", send)
        .node("2", send)
        .node("3", send)
        .entry("1")
        .edge("1", "2")
        .edge("2", "3")
        .build()
        .unwrap()
}

pub(crate) const ALL: [&str; 6] = ["1a", "1b", "2a", "2b", "3a", "3b"];

/// Advances the clock in steps of 250 ms until `done` is ready. A lease lasts 30 s.
pub(crate) async fn pass<T>(world: &World, done: impl Future<Output = T>) -> T {
    let mut done = std::pin::pin!(done);
    for turn in 0..100_000 {
        tokio::select! {
            biased;
            result = &mut done => return result,
            () = tokio::task::yield_now() => {
                if turn % 4 == 0 {
                    world.clock.advance(Duration::from_millis(250));
                }
            }
        }
    }
    panic!("the future is not ready after the time limit")
}

/// Advances the clock until no message of the run waits for delivery.
pub(crate) async fn delivered(world: &World, runtime: &Runtime) {
    let empty = async {
        while !runtime.outbox(&key()).await.unwrap().is_empty() {
            for _ in 0..16 {
                tokio::task::yield_now().await;
            }
        }
    };
    pass(world, empty).await;
}

/// Guarantees: OUTBOX-1.
#[tokio::test]
async fn outbox_message_is_delivered_after_its_record() {
    let (world, mail) = (World::new(), Receiver::default());
    let runtime = process(&world, Arc::new(world.store.clone()), &mail).await;
    let run = runtime.start(&three(), Context::new()).id(RUN).await.unwrap();
    world.pass(run.completed()).await.unwrap();
    delivered(&world, &runtime).await;
    assert_eq!(mail.once(), ALL);
    assert_eq!(mail.count(), ALL.len(), "each message arrives once, because nothing fails");
    let headers = world.store.headers(&key(), HeaderRange::oldest(100)).await.unwrap().items;
    let nodes = headers.iter().filter(|header| header.kind.as_str() == "node").count();
    let others: Vec<_> =
        headers.iter().map(|header| header.kind.as_str()).filter(|kind| *kind != "node").collect();
    assert_eq!(nodes, 3, "a message needs no record of its own");
    assert!(others.iter().all(|kind| ["start", "signal"].contains(kind)), "{others:?}");
    let head = world.store.head(&key()).await.unwrap().unwrap();
    assert!(head.status == RunStatus::Completed && !head.is_delivering() && head.wake_at.is_none());
    // The next base contains no delivered message, so the outbox is empty.
    assert!(runtime.outbox(&key()).await.unwrap().is_empty());
}

/// Guarantees: OUTBOX-2.
#[tokio::test]
async fn successful_attempt_sends_outbox_messages() {
    let (world, mail) = (World::new(), Receiver::default());
    let runtime = process(&world, Arc::new(world.store.clone()), &mail).await;
    let graph = Graph::<Context>::builder("w")
        .node("n", async |cx: NodeContext, s: Draft<Context>| {
            cx.send_out("mail", cx.attempt().to_string())?;
            if cx.attempt() < 3 {
                return Err(NodeError::from(std::io::Error::other("not yet")));
            }
            Ok(Update::from(s))
        })
        .retry(RetryPolicy::standard())
        .entry("n")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id(RUN).await.unwrap();
    world.pass(run.completed()).await.unwrap();
    delivered(&world, &runtime).await;
    assert_eq!(mail.once(), ["3"]);
    // An invalid message fails the node that sends it.
    for bad in ["", "a\nb", &"t".repeat(129)] {
        let topic = bad.to_owned();
        let graph = Graph::<Context>::builder("bad")
            .node("n", move |_cx: NodeContext, s: Draft<Context>| {
                let update = Update::from(s).with_output(1).send_out(&topic, 1);
                async move { Ok::<_, NodeError>(update) }
            })
            .entry("n")
            .build()
            .unwrap();
        let run = runtime.start(&graph, Context::new()).await.unwrap();
        let error = world.pass(run.completed()).await.unwrap_err();
        assert!(error.to_string().contains("a topic has 1 to 128 bytes"), "{error}");
    }
}

/// A crash before and after every write: another process continues, and delivers the remaining messages under the same keys.
///
/// Guarantees: OUTBOX-1.
#[tokio::test]
async fn crash_at_every_write_preserves_outbox_order() {
    async fn life(faults: FaultPlan) -> u64 {
        let (world, mail) = (World::new(), Receiver::default());
        mail.fails.store(2, Ordering::Relaxed);
        let faulty = Arc::new(FaultStore::new(world.store.clone(), faults));
        let first = process(&world, Arc::clone(&faulty) as _, &mail).await;
        let started = pass(&world, first.start(&three(), Context::new()).id(RUN).into_future()).await;
        if let Ok(run) = &started {
            let _ = pass(&world, run.wait()).await;
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        }
        faulty.crash();
        drop((started, first));
        let operations = faulty.operations();
        let second = process(&world, Arc::new(world.store.clone()), &mail).await;
        second.serve(&three()).unwrap();
        if world.store.head(&key()).await.unwrap().is_none() {
            second.start(&three(), Context::new()).id(RUN).await.unwrap();
        }
        let done = async {
            while world.store.head(&key()).await.unwrap().unwrap().status != RunStatus::Completed {
                tokio::task::yield_now().await;
            }
        };
        pass(&world, done).await;
        delivered(&world, &second).await;
        assert_eq!(mail.once(), ALL);
        let head = world.store.head(&key()).await.unwrap().unwrap();
        assert!(!head.is_delivering(), "{head:?}");
        operations
    }
    let writes = life(FaultPlan::new()).await;
    for at in 0..writes {
        // Faults without a crash are tried at every other write only, because the process spends time on its retries.
        for fault in Fault::ALL.into_iter().filter(|fault| fault.is_crash() || at % 2 == 0) {
            life(FaultPlan::new().with_fault(at, fault)).await;
        }
    }
}

/// Guarantees: OUTBOX-3.
#[tokio::test]
async fn failing_sink_blocks_only_its_topic() {
    let (world, mail, log) = (World::new(), Receiver::default(), Receiver::default());
    mail.is_down.store(true, Ordering::Relaxed);
    let builder = builder(Arc::new(world.store.clone()), &world.clock);
    let runtime = builder.sink("mail", mail.clone()).sink("log", log.clone()).build().await.unwrap();
    let graph = Graph::<Context>::builder("w")
        .node("n", async |_cx: NodeContext, s: Draft<Context>| {
            let all = (0..250).map(|number| number.to_string());
            let update = all
                .fold(Update::from(s), |update, text| update.send_out("mail", &text).send_out("log", text));
            Ok(update.send_out("nowhere", "x"))
        })
        .entry("n")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id(RUN).await.unwrap();
    world.pass(run.completed()).await.unwrap();
    world
        .pass(async {
            while log.count() < 250 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    assert_eq!(mail.count(), 0);
    let expected: Vec<_> = (0..250).map(|number| number.to_string()).collect();
    assert_eq!(log.once(), expected);
    mail.is_down.store(false, Ordering::Relaxed);
    world
        .pass(async {
            while runtime.outbox(&key()).await.unwrap().len() > 1 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    assert_eq!(mail.once(), expected);
    // No process here delivers the last message. The run reports this and cannot be purged.
    assert!(world.store.head(&key()).await.unwrap().unwrap().is_delivering());
    let refused = runtime.purge(&key()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongStatus, "{refused}");
}

/// Guarantees: OUTBOX-7.
#[tokio::test]
async fn operator_retries_or_drops_rejected_outbox_message() {
    let world = World::new();
    let mail = Receiver { refuses: Some("2a"), ..Receiver::default() };
    let first = process(&world, Arc::new(world.store.clone()), &mail).await;
    let run = first.start(&three(), Context::new()).id(RUN).await.unwrap();
    world.pass(run.completed()).await.unwrap();
    world
        .pass(async {
            while first.outbox(&key()).await.unwrap().len() > 1 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    assert_eq!(mail.once(), ["1a", "1b", "2b", "3a", "3b"]);
    let [left] = &first.outbox(&key()).await.unwrap()[..] else { panic!("one message is left") };
    assert!(left.is_dead && left.number == 3 && &*left.topic == "mail" && left.node.as_str() == "2");
    assert_eq!((left.why.as_deref(), left.tries), (Some("no such address"), 1));
    let dead = left.key();
    // A retention policy keeps the run, too.
    let head = world.store.head(&key()).await.unwrap().unwrap();
    assert!(head.status == RunStatus::Completed && head.is_delivering());
    let policy =
        ferrata_core::runtime::RetentionPolicy::keep_all().purge_after(RunStatus::Completed, Duration::ZERO);
    let report = first.sweep(&policy, Default::default(), false).await.unwrap();
    assert_eq!((report.purged, report.failed.len()), (0, 0));
    assert_eq!(first.retry_outbox(&key(), &[1]).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(first.drop_outbox(&key(), &[9]).await.unwrap_err().kind(), ErrorKind::NotFound);
    // A process with another sink delivers the message after an operator retries it.
    let other = Receiver::default();
    let second = process(&world, Arc::new(world.store.clone()), &other).await;
    second.serve(&three()).unwrap();
    let tool = builder(Arc::new(world.store.clone()), &world.clock).operator();
    tool.retry_outbox(&key(), &[]).by("ann").await.unwrap();
    delivered(&world, &second).await;
    assert_eq!(*other.seen.lock().unwrap(), [(dead, "2a".to_owned())]);
    assert_eq!(tool.retry_outbox(&key(), &[]).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(first.sweep(&policy, Default::default(), false).await.unwrap().purged, 1);
    // A dropped message is gone for good, and the run can be purged.
    let run = first.start(&three(), Context::new()).id("s").await.unwrap();
    world.pass(run.completed()).await.unwrap();
    let other = RunKey::try_from("s").unwrap();
    world
        .pass(async {
            while first.outbox(&other).await.unwrap().len() > 1 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    assert_eq!(first.purge(&other).await.unwrap_err().kind(), ErrorKind::WrongStatus);
    tool.drop_outbox(&other, &[]).await.unwrap();
    assert!(!world.store.head(&other).await.unwrap().unwrap().is_delivering());
    first.purge(&other).await.unwrap();
}

/// Delivery attempts are counted across processes. A message that no process can deliver is finally set aside.
///
/// Guarantees: OUTBOX-4.
#[tokio::test]
async fn tries_are_counted_over_processes() {
    let (world, mail) = (World::new(), Receiver::default());
    mail.is_down.store(true, Ordering::Relaxed);
    let retry = RetryPolicy::standard().with_attempts(4).with_delay(Duration::from_secs(1)).with_jitter(0.0);
    let mut last = None;
    for number in 1..=4 {
        let faulty = Arc::new(FaultStore::new(world.store.clone(), FaultPlan::new()));
        let builder = builder(Arc::clone(&faulty) as _, &world.clock);
        let runtime = builder.sink_with("mail", mail.clone(), retry).build().await.unwrap();
        runtime.serve(&three()).unwrap();
        if number == 1 {
            let run = runtime.start(&three(), Context::new()).id(RUN).await.unwrap();
            world.pass(run.completed()).await.unwrap();
        }
        world
            .pass(async {
                while runtime.outbox(&key()).await.unwrap()[0].tries < number {
                    tokio::task::yield_now().await;
                }
            })
            .await;
        last = Some(runtime.outbox(&key()).await.unwrap().remove(0));
        if number < 4 {
            faulty.crash();
        }
    }
    let last = last.unwrap();
    assert!(last.is_dead && last.tries == 4 && last.why.as_deref() == Some("it is down"), "{last:?}");
}

/// Guarantees: OUTBOX-5.
#[tokio::test]
async fn fork_delivers_only_its_own_outbox_messages() {
    let (world, mail) = (World::new(), Receiver::default());
    mail.is_down.store(true, Ordering::Relaxed);
    let runtime = process(&world, Arc::new(world.store.clone()), &mail).await;
    let run = runtime.start(&three(), Context::new()).id(RUN).await.unwrap();
    world.pass(run.completed()).await.unwrap();
    let forked = runtime
        .fork(&key(), Position::Visit("1".parse().unwrap(), Visit::new(1)))
        .id("f")
        .drive(&three())
        .await
        .unwrap();
    world.pass(forked.completed()).await.unwrap();
    let fork = RunKey::try_from("f").unwrap();
    let texts: Vec<String> =
        runtime.outbox(&fork).await.unwrap().iter().map(|letter| letter.payload().unwrap()).collect();
    assert_eq!(texts, ALL[2..], "the fork must not send the messages of the source's first node");
    mail.is_down.store(false, Ordering::Relaxed);
    delivered(&world, &runtime).await;
    world
        .pass(async {
            while !runtime.outbox(&fork).await.unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    assert_eq!(mail.once().len(), ALL.len() + 4, "a fork must use its own message keys");
}

/// An idle run is not claimed for the delivery of its messages, so its nodes do not run again.
///
/// Guarantees: OUTBOX-6.
#[tokio::test]
async fn idle_run_delivers_outbox_without_waking() {
    let (world, mail) = (World::new(), Receiver::default());
    let ran = Arc::new(AtomicU32::new(0));
    let graph = {
        let ran = Arc::clone(&ran);
        Graph::<Context>::builder("asks")
            .node("send", async |_cx: NodeContext, s: Draft<Context>| {
                Ok(Update::from(s).send_out("mail", "hello"))
            })
            .node("ask", move |cx: NodeContext, s: Draft<Context>| {
                ran.fetch_add(1, Ordering::Relaxed);
                async move {
                    let _: bool = cx.ask("go", "on?").await?;
                    Ok::<_, NodeError>(s)
                }
            })
            .entry("send")
            .edge("send", "ask")
            .build()
            .unwrap()
    };
    let (store, first) = world.mortal().await;
    let run = first.start(&graph, Context::new()).id(RUN).await.unwrap();
    world.pass(run.wait()).await.unwrap();
    store.crash();
    let head = world.store.head(&key()).await.unwrap().unwrap();
    assert!(head.status == RunStatus::Interrupted && head.wake_at.is_some());
    let second = process(&world, Arc::new(world.store.clone()), &mail).await;
    second.serve(&graph).unwrap();
    delivered(&world, &second).await;
    assert_eq!(mail.once(), ["hello"]);
    let after = world.store.head(&key()).await.unwrap().unwrap();
    assert_eq!((after.status, after.epoch, after.wake_at), (RunStatus::Interrupted, head.epoch, None));
    assert_eq!(ran.load(Ordering::Relaxed), 1, "the run was not claimed");
}

/// The result of a message waits for the open transaction and does not interrupt it.
///
/// Guarantees: OUTBOX-6.
#[tokio::test]
async fn a_delivery_breaks_no_transaction_off() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_000_000)));
    let (ledger, mail) = (LedgerStore::with_connections(1), Receiver::default());
    let (begun, ran) = (Arc::new(Notify::new()), Arc::new(AtomicU32::new(0)));
    let graph = {
        let (begun, ran) = (Arc::clone(&begun), Arc::clone(&ran));
        Graph::<Context>::builder("pays")
            .node("send", async |_cx: NodeContext, s: Draft<Context>| {
                Ok(Update::from(s).send_out("mail", "begun"))
            })
            .node("pay", move |cx: NodeContext, s: Draft<Context>| {
                ran.fetch_add(1, Ordering::Relaxed);
                let begun = Arc::clone(&begun);
                async move {
                    let mut tx = cx.transaction::<LedgerDatabase>().await?;
                    tx.add("paid", 1);
                    cx.send_out("mail", "paid")?;
                    begun.notified().await;
                    s.commit_with(tx)
                }
            })
            .effect(Effect::Transactional)
            .entry("send")
            .edge("send", "pay")
            .build()
            .unwrap()
    };
    let runtime = builder(Arc::new(ledger.clone()), &clock).sink("mail", mail.clone()).build().await.unwrap();
    let run = runtime.start(&graph, Context::new()).id(RUN).await.unwrap();
    while mail.count() == 0 || ran.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        (mail.count(), ledger.row("paid").await),
        (1, 0),
        "no record of the node is visible before its commit"
    );
    begun.notify_one();
    run.completed().await.unwrap();
    while !runtime.outbox(&key()).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(mail.once(), ["begun", "paid"]);
    assert_eq!((ran.load(Ordering::Relaxed), ledger.row("paid").await), (1, 1));
}

/// A sink that hangs fails after a time limit. If its process is gone, another process delivers the message.
#[tokio::test]
async fn an_outlet_that_hangs_keeps_no_letter() {
    let (world, mail) = (World::new(), Receiver::default());
    mail.hangs.store(true, Ordering::Relaxed);
    let runtime = process(&world, Arc::new(world.store.clone()), &mail).await;
    let run = runtime.start(&three(), Context::new()).id(RUN).await.unwrap();
    world.pass(run.completed()).await.unwrap();
    world
        .pass(async {
            while runtime.outbox(&key()).await.unwrap()[0].tries == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    mail.hangs.store(false, Ordering::Relaxed);
    delivered(&world, &runtime).await;
    assert_eq!(mail.once(), ALL);
}

/// A sent message is recorded under every checkpoint policy.
///
/// Guarantees: OUTBOX-1.
#[tokio::test]
async fn letters_go_out_under_every_policy() {
    for frequency in [
        CheckpointFrequency::EveryNode,
        CheckpointFrequency::EveryNth(2.try_into().unwrap()),
        CheckpointFrequency::Interval(Duration::from_secs(3_600)),
        CheckpointFrequency::StatusChangeOnly,
        CheckpointFrequency::Disabled,
    ] {
        let (world, mail) = (World::new(), Receiver::default());
        let runtime = process(&world, Arc::new(world.store.clone()), &mail).await;
        let policy = CheckpointPolicy::default().with_frequency(frequency);
        let run = runtime.start(&three(), Context::new()).id(RUN).checkpoints(policy).await.unwrap();
        world.pass(run.completed()).await.unwrap();
        delivered(&world, &runtime).await;
        assert_eq!(mail.once(), ALL, "{frequency:?}");
        // The shutdown waits until the delivery is recorded.
        runtime.shutdown(Duration::from_secs(1)).await.unwrap();
    }
}
