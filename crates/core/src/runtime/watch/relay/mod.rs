//! Relays chunks of streams to watchers in other processes, if the store can pass messages between processes.
//!
//! A process announces the runs that it watches at once, and again every few seconds. Other processes send only the chunks of these runs, so a stream
//! without watchers in other processes causes no traffic. In each process, one task sends the chunks of all nodes, and another task receives chunks.
//! The chunks of a stream are numbered, so a watcher detects each lost chunk.

mod tasks;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::claim::ClaimId;
use crate::clock::within;
use crate::kernel::feed::relay::text::RelayStream;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::tasks::spawn;
use crate::node::NodeContext;

/// The maximum time for which a new watch waits until other processes know it, and for which the end of a stream waits until its chunks are sent. It
/// is limited because the store may be slow.
const PATIENCE: Duration = Duration::from_millis(500);

/// Starts the relay tasks, if the store can pass messages between processes.
pub(super) fn begin(shared: &Arc<RuntimeInner>) {
    let has_begun = &shared.relayed().has_begun;
    if !has_begun.load(Ordering::Acquire)
        && shared.store.relay().is_some()
        && !has_begun.swap(true, Ordering::AcqRel)
    {
        spawn(tasks::send_messages(Arc::downgrade(shared)));
        spawn(tasks::receive_messages(Arc::downgrade(shared)));
    }
}

/// Waits until other processes know the watches of this process, at most for a short time.
pub(super) async fn announced(shared: &RuntimeInner) {
    let relayed = shared.relayed();
    let all = relayed.state().all.wants;
    let mut said = relayed.said.subscribe();
    // Cannot fail: `shared` owns the sender.
    let _ = within(&*shared.clock, PATIENCE, said.wait_for(|said| said.wants >= all)).await;
}

/// The relay of one stream to other processes.
#[derive(Clone, Debug)]
pub(super) struct StreamOutput(Arc<RelayStream>);

impl StreamOutput {
    /// Creates the relay of a stream, if the store can pass messages between processes.
    pub(super) fn of(cx: &NodeContext, name: &Arc<str>, shared: &Arc<RuntimeInner>) -> Option<Self> {
        shared.store.relay()?;
        begin(shared);
        let (is_first, round) = {
            let mut state = shared.relayed().state();
            (state.ask(), state.next_round())
        };
        if is_first {
            shared.relayed().bell.notify_one();
        }
        let ClaimId { start_id, epoch } = cx.claim_id();
        let (run, node) = (cx.run().clone(), cx.node().clone());
        let (visit, attempt, name) = (cx.visit(), cx.attempt(), Arc::clone(name));
        Some(Self(Arc::new(RelayStream { run, start_id, epoch, node, visit, attempt, name, round })))
    }

    /// Returns whether another process may want the stream.
    pub(super) fn is_wanted(&self, shared: &RuntimeInner) -> bool {
        shared.relayed().state().is_wanted(&self.0.run, || shared.clock.monotonic())
    }

    /// Queues a chunk that will be sent soon. The call never waits.
    pub(super) fn queue_chunk(&self, shared: &RuntimeInner, number: u64, data: &Arc<RawValue>) {
        let relayed = shared.relayed();
        relayed.state().push((Arc::clone(&self.0), number, Arc::clone(data)));
        relayed.bell.notify_one();
    }

    /// Waits a short time until the wanted chunks are sent or dropped.
    pub(super) async fn flush(&self, shared: &RuntimeInner) {
        let relayed = shared.relayed();
        let due = relayed.state().due(shared.clock.monotonic());
        let mut said = relayed.said.subscribe();
        let is_said = said.borrow().chunks >= due;
        if !is_said {
            relayed.hurry.notify_one();
            // Cannot fail: `shared` owns the sender.
            let _ = within(&*shared.clock, PATIENCE, said.wait_for(|said| said.chunks >= due)).await;
        }
    }
}
