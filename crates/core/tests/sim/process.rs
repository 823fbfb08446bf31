//! A process of the simulation. The scheduler polls its tasks, and a kill ends all of them at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ferrata_core::runtime::Runtime;
use ferrata_testing::SeqIds;

use super::clock::SkewedClock;
use super::net::{Net, Remote};
use super::nodes::{Mail, Seat};
use super::tasks::Tasks;
use super::workload::Workload;
use crate::support::letters::TOPIC;

/// Validity of a heartbeat.
pub(crate) const TTL: Duration = Duration::from_secs(6);

pub(crate) struct Process {
    pub(crate) number: u64,
    tasks: Tasks,
    pub(crate) clock: Arc<SkewedClock>,
    /// Set once the runtime is built.
    runtime: Arc<OnceLock<Runtime>>,
    /// End of a suspension, as by SIGSTOP.
    pub(crate) frozen_until: Option<Duration>,
    /// Whether the process was asked to shut down, and whether it has released its runs.
    pub(crate) is_leaving: bool,
    has_left: Arc<AtomicBool>,
    /// Number of outside events when the process last had nothing to do.
    pub(crate) idle_at: Option<u64>,
}

impl Process {
    pub(crate) fn start(
        number: u64,
        clock: Arc<SkewedClock>,
        net: &Arc<Net>,
        seat: Arc<Seat>,
        workload: &Arc<Workload>,
    ) -> Self {
        let process = Self {
            number,
            tasks: Tasks::new(),
            clock,
            runtime: Arc::default(),
            frozen_until: None,
            is_leaving: false,
            has_left: Arc::default(),
            idle_at: None,
        };
        let (slot, clock) = (Arc::clone(&process.runtime), Arc::clone(&process.clock));
        let (net, workload) = (Arc::clone(net), Arc::clone(workload));
        process.spawn(async move {
            let ids = Arc::new(SeqIds::new(number + 1));
            loop {
                let builder = Runtime::builder(Remote::new(&net, &seat));
                let builder = match &workload.retention {
                    Some(policy) => builder.retention(policy.clone()),
                    None => builder,
                };
                let built = builder
                    .clock(Arc::clone(&clock) as _)
                    .ids(Arc::clone(&ids) as _)
                    .resource(Arc::clone(&seat))
                    .sink(TOPIC, Mail(Arc::clone(&seat)))
                    .heartbeat_ttl(TTL)
                    .sweep_interval(Duration::from_secs(2))
                    .release_after(Duration::from_secs(5))
                    .poll_interval(Duration::from_secs(1))
                    .store_retries(3, Duration::from_millis(20))
                    .store_timeout(Duration::from_secs(3))
                    .build()
                    .await;
                match built {
                    Ok(runtime) => {
                        let graphs = workload.graphs.iter().chain([&workload.kid]);
                        graphs.for_each(|graph| runtime.serve(graph).unwrap());
                        slot.set(runtime).unwrap();
                        return;
                    }
                    Err(error) => assert!(error.is_retryable(), "{error:?}"),
                }
            }
        });
        process
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    pub(crate) fn runtime(&self) -> Option<&Runtime> {
        self.runtime.get()
    }

    /// Whether the process is neither suspended nor shutting down.
    pub(crate) fn is_up(&self) -> bool {
        self.frozen_until.is_none() && !self.is_leaving && self.runtime.get().is_some()
    }

    pub(crate) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed)
    }

    /// Starts a shutdown, as SIGTERM does.
    pub(crate) fn leave(&mut self, grace: Duration) {
        self.is_leaving = true;
        let (runtime, has_left) = (self.runtime().unwrap().clone(), Arc::clone(&self.has_left));
        self.spawn(async move {
            // Without a reply, the heartbeat expires later.
            let _ = runtime.shutdown(grace).await;
            has_left.store(true, Ordering::Relaxed);
        });
    }

    /// Polls at most `most` of the tasks.
    pub(crate) fn slice(&self, most: u32) {
        self.tasks.slice(most);
    }

    /// Polls the tasks until none is ready.
    pub(crate) fn settle(&self) {
        self.tasks.settle();
    }
}
