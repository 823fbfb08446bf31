//! A process of the simulation, which declares the queues and serves the workflow.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::Context;
use ferrata_core::store::CheckpointStore;
use ferrata_core::{Clock, Error, ErrorKind};
use ferrata_queue::{RateLimit, RuntimeQueueExt as _};
use ferrata_store_sharded::ShardedStore;
use ferrata_testing::SeqIds;

use super::clock::SkewedClock;
use super::net::{Net, Remote};
use super::nodes::{Seat, graph};
use super::tasks::Tasks;

/// Validity of a heartbeat.
pub(crate) const TTL: Duration = Duration::from_secs(6);

/// The limits.
pub(crate) const MAILS: u32 = 3;
pub(crate) const MAILS_PER_KEY: u32 = 2;
pub(crate) const GPUS: u32 = 2;
pub(crate) const CALLS: u32 = 4;
pub(crate) const PERIOD: Duration = Duration::from_secs(10);
pub(crate) const BURST: u32 = 2;

/// The limit of `mail` in the next version of the application. Only processes of that version serve it.
pub(crate) const NEXT_MAILS: u32 = 2;
pub(crate) const NEXT_TAG: &str = "next";

/// The version of the application that a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edition {
    /// It has another definition of `mail`, and lacks the workflow and the tag of the next version.
    This,
    Next,
}

pub(crate) struct Process {
    pub(crate) number: u64,
    pub(crate) edition: Edition,
    pub(crate) tasks: Tasks,
    pub(crate) clock: Arc<SkewedClock>,
    /// Set once the runtime is built and the queues are declared.
    runtime: Arc<OnceLock<(Runtime, [Graph<Context>; 2])>>,
    /// End of a suspension, as by SIGSTOP.
    pub(crate) frozen_until: Option<Duration>,
    /// Number of outside events when the process last had nothing to do.
    pub(crate) idle_at: Option<u64>,
}

fn is_passing(error: &Error) -> bool {
    error.is_retryable() || matches!(error.kind(), ErrorKind::Indeterminate | ErrorKind::Unavailable)
}

/// The store as one process sees it: through one network, or one network per shard.
fn store(nets: &[Arc<Net>], clock: &Arc<SkewedClock>, seat: &Arc<Seat>) -> Arc<dyn CheckpointStore> {
    let mut remotes = nets.iter().map(|net| Remote::new(net, seat));
    match nets {
        [_] => Arc::new(remotes.next().unwrap()),
        _ => Arc::new(sharded(remotes, Arc::clone(clock) as _)),
    }
}

/// Joins stores as shards of one store.
pub(crate) fn sharded<S: CheckpointStore>(
    shards: impl IntoIterator<Item = S>,
    clock: Arc<dyn Clock>,
) -> ShardedStore {
    let mut builder = ShardedStore::builder().clock(clock);
    let mut names = Vec::new();
    for (n, shard) in shards.into_iter().enumerate() {
        names.push(format!("shard-{n}"));
        builder = builder.shard(names[n].as_str(), shard);
    }
    builder.generation(names).build().unwrap()
}

impl Process {
    pub(crate) fn start(
        number: u64,
        clock: Arc<SkewedClock>,
        nets: &[Arc<Net>],
        seat: Seat,
        edition: Edition,
    ) -> Self {
        let process = Self {
            number,
            edition,
            tasks: Tasks::new(),
            clock,
            runtime: Arc::default(),
            frozen_until: None,
            idle_at: None,
        };
        let (slot, clock, nets) = (Arc::clone(&process.runtime), Arc::clone(&process.clock), nets.to_vec());
        let seat = Arc::new(seat);
        process.tasks.spawn(async move {
            let ids = Arc::new(SeqIds::new(number + 1));
            let runtime = loop {
                let built = Runtime::builder_with(store(&nets, &clock, &seat))
                    .clock(Arc::clone(&clock) as _)
                    .ids(Arc::clone(&ids) as _)
                    .resource(Arc::clone(&seat))
                    .tags((edition == Edition::Next).then_some(NEXT_TAG))
                    .heartbeat_ttl(TTL)
                    .sweep_interval(Duration::from_secs(2))
                    .release_after(Duration::from_secs(5))
                    .poll_interval(Duration::from_secs(1))
                    .store_retries(3, Duration::from_millis(20))
                    .store_timeout(Duration::from_secs(3))
                    .build()
                    .await;
                match built {
                    Ok(runtime) => break runtime,
                    Err(error) => assert!(is_passing(&error), "{error:?}"),
                }
            };
            let graphs = [graph("job"), graph("next_job")];
            runtime.serve(&graphs[0]).unwrap();
            if edition == Edition::Next {
                runtime.serve(&graphs[1]).unwrap();
            }
            loop {
                let rate = RateLimit::new(CALLS, PERIOD).burst(BURST);
                let declared = async {
                    let mail = runtime.queue("mail").aging(Duration::from_secs(20));
                    let mail = match edition {
                        Edition::This => mail.at_once(MAILS).at_once_per_key(MAILS_PER_KEY),
                        Edition::Next => {
                            mail.version(2).at_once(NEXT_MAILS).at_once_per_key(1).tags([NEXT_TAG])
                        }
                    };
                    mail.declare().await?;
                    runtime.queue("gpu").at_once(GPUS).declare().await?;
                    runtime.queue("api").at_once(1).rate_limit(rate).declare().await
                };
                match declared.await {
                    Ok(_) => break,
                    Err(error) => assert!(is_passing(&error), "{error:?}"),
                }
            }
            assert!(slot.set((runtime, graphs)).is_ok());
        });
        process
    }

    pub(crate) fn runtime(&self) -> Option<&(Runtime, [Graph<Context>; 2])> {
        self.runtime.get()
    }

    /// Whether it is neither suspended nor shutting down.
    pub(crate) fn is_up(&self) -> bool {
        self.frozen_until.is_none() && self.runtime.get().is_some()
    }
}
