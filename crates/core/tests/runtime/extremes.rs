//! Extreme settings: no duration and no number causes a panic.
//!
//! Values such as `Duration::MAX` for "never" or `u64::MAX` for "unlimited" must not overflow in an addition.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::cell::Cell;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::Once;
use std::time::Duration;

use ferrata_core::ask::Ask;
use ferrata_core::graph::{
    CheckpointFrequency, CheckpointPolicy, Graph, GraphBuilder, Join, RetryPolicy, Route,
};
use ferrata_core::node::{Conversation, NodeError};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{RetentionPolicy, RunLimits, Runtime, RuntimeBuilder, SweepLimits};
use ferrata_core::state::Context;
use ferrata_core::store::MemoryStore;
use ferrata_core::{RunKey, Timestamp};
use ferrata_testing::{FaultPlan, FaultStore, ManualClock};

thread_local! {
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

/// Counts the panics of this thread, including those that the runtime catches. All tasks of a test run on its thread.
fn panics() -> u32 {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.set(PANICS.get() + 1);
            before(panic);
        }));
    });
    PANICS.get()
}

const TIMES: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::from_millis(1),
    Duration::from_millis(i64::MAX as u64),
    Duration::from_secs(u64::MAX),
    Duration::MAX,
];
const COUNTS: [u32; 4] = [0, 1, 2, u32::MAX];
const WIDE: [u64; 4] = [0, 1, 2, u64::MAX];
const SIZES: [usize; 4] = [0, 1, 2, usize::MAX];
const MOMENTS: [i64; 5] = [i64::MIN, -1, 0, 1, i64::MAX];

/// Settings for one small run. All other settings keep their defaults.
struct Story {
    what: String,
    now: i64,
    runtime: Box<dyn Fn(RuntimeBuilder) -> RuntimeBuilder>,
    graph: Box<dyn Fn(GraphBuilder<Context>) -> GraphBuilder<Context>>,
    policy: CheckpointPolicy,
    /// Duration of each wait of a node: sleep, question, message, and retry delay.
    waits: Duration,
    until: Option<i64>,
    shutdown: Duration,
    sweep: RetentionPolicy,
    looks: SweepLimits,
}

impl Story {
    fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            now: 1_000_000,
            runtime: Box::new(|builder| builder),
            graph: Box::new(|builder| builder),
            policy: CheckpointPolicy::default(),
            waits: Duration::from_millis(200),
            until: None,
            shutdown: Duration::from_secs(1),
            sweep: RetentionPolicy::keep_all(),
            looks: SweepLimits::default(),
        }
    }

    fn runtime(what: impl Into<String>, set: impl Fn(RuntimeBuilder) -> RuntimeBuilder + 'static) -> Self {
        Self { runtime: Box::new(set), ..Self::new(what) }
    }

    fn graph(
        what: impl Into<String>,
        set: impl Fn(GraphBuilder<Context>) -> GraphBuilder<Context> + 'static,
    ) -> Self {
        Self { graph: Box::new(set), ..Self::new(what) }
    }

    /// A graph with a node that fails once, sleeps, fans out, asks, receives, loops and talks.
    fn built(&self) -> Option<Graph<Context>> {
        let (waits, until) = (self.waits, self.until.map(Timestamp::from_unix_ms));
        let builder = Graph::<Context>::builder("extremes")
            .node("flaky", move |cx, _s| async move {
                match cx.attempt() {
                    1 => Err(NodeError::new("once").retry_after(waits)),
                    _ => Ok(()),
                }
            })
            .retry(RetryPolicy::standard())
            .node("sleep", move |cx, _s| async move {
                match until {
                    Some(moment) => cx.sleep_until(moment).await?,
                    None => cx.sleep(waits).await?,
                }
                Ok(())
            })
            .node("wide", async |cx, _s| {
                let _: u8 = cx.item()?;
                Ok(())
            })
            .join(Join::Any)
            .node("round", async |_cx, _s| Ok(()))
            .node("ask", move |cx, _s| async move {
                cx.ask_with("more", Ask::<bool>::new("more?").deadline(waits).or_default(true)).await?;
                let _: Option<u8> = cx.receive_within(waits).await?;
                Ok(())
            })
            .conversation(
                "talk",
                "end",
                Conversation::new().max_messages(1).idle_timeout(waits),
                async |_cx, s, _m: String| Ok(s),
            )
            .node("end", async |_cx, _s| Ok(()))
            .entry("flaky")
            .edge("flaky", "sleep")
            .route("sleep", ["wide"], |_s, _cx| Route::each("wide", [1u8, 2]))
            .edge("wide", "round")
            .route("round", ["round", "ask"], |_s, cx| if cx.visit().get() < 2 { "round" } else { "ask" })
            .edge("ask", "talk");
        (self.graph)(builder).build().ok()
    }

    /// Advances the clock in small steps, for at most 120 steps, until `done` is ready.
    async fn pass<T>(clock: &ManualClock, done: impl IntoFuture<Output = T>) -> Option<T> {
        let mut done = std::pin::pin!(done.into_future());
        for _ in 0..120 {
            tokio::select! {
                biased;
                result = &mut done => return Some(result),
                () = tokio::task::yield_now() => clock.advance(Duration::from_millis(100)),
            }
        }
        None
    }

    async fn play(self) {
        let before = panics();
        let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(self.now)));
        let store = MemoryStore::with_clock(Arc::clone(&clock) as _);
        // Some store calls fail, so that the retry settings are used.
        let faults = FaultPlan::new();
        let store = Arc::new(FaultStore::new(store, faults));
        let Some(graph) = self.built() else { return };
        let builder = Runtime::builder_with(Arc::clone(&store) as _).clock(Arc::clone(&clock) as _);
        let Ok(runtime) = (self.runtime)(builder).build().await else { return };
        let serving = runtime.serve(&graph);
        let start = |id: &'static str| runtime.start(&graph, Context::new()).id(id).checkpoints(self.policy);
        let key = |id: &str| RunKey::try_from(id).unwrap();
        // A setting may refuse the start, and the run need not end.
        if let Some(Ok(run)) = Self::pass(&clock, start("goes")).await {
            Self::pass(&clock, run.wait()).await;
            let _ = Self::pass(&clock, runtime.send(&key("goes"), "more")).await;
            Self::pass(&clock, run.wait()).await;
        }
        if let Some(Ok(run)) = Self::pass(&clock, start("cancelled")).await {
            let _ = Self::pass(&clock, runtime.cancel(&key("cancelled"), "no longer")).await;
            Self::pass(&clock, run.wait()).await;
        }
        let _ = Self::pass(&clock, runtime.sweep(&self.sweep, self.looks.clone(), false)).await;
        let _ = Self::pass(&clock, start("left")).await;
        let _ = Self::pass(&clock, runtime.shutdown(self.shutdown)).await;
        drop((serving, runtime));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert_eq!(panics(), before, "{} panicked", self.what);
    }
}

/// One story for each public setting of a runtime.
fn runtimes() -> Vec<Story> {
    let mut all = Vec::new();
    for time in TIMES {
        let of = |what: &str, set: fn(RuntimeBuilder, Duration) -> RuntimeBuilder| {
            Story::runtime(format!("{what}({time:?})"), move |builder| set(builder, time))
        };
        all.extend([
            of("heartbeat_ttl", RuntimeBuilder::heartbeat_ttl),
            of("poll_interval", RuntimeBuilder::poll_interval),
            of("cancel_grace", RuntimeBuilder::cancel_grace),
            of("release_after", RuntimeBuilder::release_after),
            of("sweep_interval", RuntimeBuilder::sweep_interval),
            of("store_timeout", RuntimeBuilder::store_timeout),
            of("store_retries", |builder, time| builder.store_retries(u32::MAX, time)),
            of("retention", |builder, time| {
                builder.retention(RetentionPolicy::keep_all().keep_for(time).keep_last(1))
            }),
            Story { shutdown: time, ..Story::new(format!("shutdown({time:?})")) },
            Story {
                sweep: RetentionPolicy::keep_all().keep_for(time).purge_after(RunStatus::Cancelled, time),
                ..Story::new(format!("purge_after({time:?})"))
            },
        ]);
    }
    for count in COUNTS {
        all.extend([
            Story::runtime(format!("max_claims({count})"), move |builder| builder.max_claims(count)),
            Story::runtime(format!("recover_at_once({count})"), move |b| {
                b.recover_at_once(count, count.into())
            }),
            Story::runtime(format!("store_retries({count})"), move |b| {
                b.store_retries(count, Duration::ZERO)
            }),
            Story {
                sweep: RetentionPolicy::keep_all().keep_last(count),
                ..Story::new(format!("keep_last({count})"))
            },
            Story {
                looks: SweepLimits::default().with_runs(count),
                ..Story::new(format!("with_runs({count})"))
            },
        ]);
    }
    for count in WIDE {
        all.extend([
            Story::runtime(format!("recover_at_once({count})"), move |b| b.recover_at_once(1, count)),
            Story {
                sweep: RetentionPolicy::keep_all().keep_bytes(count),
                ..Story::new(format!("keep_bytes({count})"))
            },
        ]);
    }
    for size in SIZES {
        let caps = move |set: fn(RunLimits, usize) -> RunLimits| {
            Story::runtime(format!("caps({size})"), move |builder| {
                builder.run_limits(set(RunLimits::new(), size))
            })
        };
        all.extend([
            Story::runtime(format!("max_body({size})"), move |builder| builder.max_body(size)),
            Story::runtime(format!("max_waiting_messages({size})"), move |builder| {
                builder.max_waiting_messages(size)
            }),
            Story::runtime(format!("max_recovered({size})"), move |builder| builder.max_recovered(size)),
            caps(RunLimits::with_runs),
            caps(RunLimits::with_runs_per_tenant),
            caps(|caps, size| caps.with_runs_of("extremes", size)),
            caps(|caps, size| caps.with_runs_per_label("label", size)),
        ]);
    }
    all
}

/// One story for each public setting of a graph or of its last node, and for each wait of a node.
fn graphs() -> Vec<Story> {
    let mut all = Vec::new();
    for time in TIMES {
        let retry = move |policy: RetryPolicy| {
            Story::graph(format!("{policy:?}"), move |builder| {
                builder
                    .node("more", async |_cx, _s| Err::<(), _>(NodeError::new("again")))
                    .retry(policy)
                    .edge("flaky", "more")
            })
        };
        all.extend([
            Story::graph(format!("deadline({time:?})"), move |builder| builder.deadline(time)),
            Story::graph(format!("timeout({time:?})"), move |builder| {
                builder.node("more", async |_cx, _s| Ok(())).timeout(time).edge("flaky", "more")
            }),
            retry(RetryPolicy::standard().with_delay(time).with_cap(time).with_attempts(u32::MAX)),
            retry(RetryPolicy::standard().with_delay(time).with_factor(f64::MAX)),
            Story { waits: time, ..Story::new(format!("waits of {time:?}")) },
            Story {
                policy: CheckpointPolicy::default().with_frequency(CheckpointFrequency::Interval(time)),
                ..Story::new(format!("Interval({time:?})"))
            },
        ]);
    }
    for count in COUNTS {
        all.extend([
            Story::graph(format!("concurrency({count})"), move |builder| builder.concurrency(count)),
            Story::graph(format!("max_visits({count})"), move |builder| {
                builder
                    .node("more", async |_cx, _s| Ok(()))
                    .max_visits(count)
                    .join(Join::AtLeast(count))
                    .edge("flaky", "more")
            }),
            Story::graph(format!("max_replans({count})"), move |b| {
                b.max_replans(count).max_replans_total(count)
            }),
            Story {
                policy: CheckpointPolicy::default().with_frequency(CheckpointFrequency::EveryNth(
                    NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN),
                )),
                ..Story::new(format!("EveryNth({count})"))
            },
        ]);
    }
    for count in WIDE {
        all.push(Story::graph(format!("max_steps({count})"), move |builder| builder.max_steps(count)));
    }
    for moment in MOMENTS {
        all.push(Story { until: Some(moment), ..Story::new(format!("sleep_until({moment})")) });
        all.push(Story { now: moment, ..Story::new(format!("a clock at {moment}")) });
        all.push(Story { now: moment, waits: Duration::MAX, ..Story::new(format!("all waits at {moment}")) });
    }
    all
}

#[tokio::test]
async fn no_setting_of_a_runtime_panics() {
    for story in runtimes() {
        story.play().await;
    }
}

#[tokio::test]
async fn extreme_settings_and_waits_never_panic() {
    for story in graphs() {
        story.play().await;
    }
}
