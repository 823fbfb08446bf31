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

/// How long a process counts as alive after a heartbeat.
pub(crate) const TTL: Duration = Duration::from_secs(6);

pub(crate) struct Process {
    pub(crate) number: u64,
    tasks: Tasks,
    pub(crate) clock: Arc<SkewedClock>,
    /// Set once the runtime has come up.
    runtime: Arc<OnceLock<Runtime>>,
    /// Until when it is stopped, as by SIGSTOP.
    pub(crate) frozen_until: Option<Duration>,
    /// Whether it was asked to end, and whether it has let its runs go.
    pub(crate) is_leaving: bool,
    has_left: Arc<AtomicBool>,
    /// What happened elsewhere when it last had nothing to do.
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

    /// Whether it takes part: neither stopped nor about to end.
    pub(crate) fn is_up(&self) -> bool {
        self.frozen_until.is_none() && !self.is_leaving && self.runtime.get().is_some()
    }

    pub(crate) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed)
    }

    /// Asks it to end, as SIGTERM does.
    pub(crate) fn leave(&mut self, grace: Duration) {
        self.is_leaving = true;
        let (runtime, has_left) = (self.runtime().unwrap().clone(), Arc::clone(&self.has_left));
        self.spawn(async move {
            // Without a reply its heart is forgotten when it expires.
            let _ = runtime.shutdown(grace).await;
            has_left.store(true, Ordering::Relaxed);
        });
    }

    /// Lets so many of its tasks move, or fewer if no more of them can.
    pub(crate) fn slice(&self, most: u32) {
        self.tasks.slice(most);
    }

    /// Lets its tasks move until none of them can.
    pub(crate) fn settle(&self) {
        self.tasks.settle();
    }
}
