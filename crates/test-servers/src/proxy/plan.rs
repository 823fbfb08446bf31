//! The armed faults, the counts, and the faults that have happened. The test and the connections share them.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::fault::{FaultTrigger, FiredFault, ProxyFault};
use super::lock;

#[derive(Debug, Default)]
pub(super) struct ProxyPlan {
    state: Mutex<PlanState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PlanState {
    connections: u64,
    requests: u64,
    /// The armed faults. Their triggers count from the start of the proxy.
    armed: Vec<(FaultTrigger, ProxyFault)>,
    done: Vec<FiredFault>,
}

impl ProxyPlan {
    pub(super) fn arm(&self, trigger: FaultTrigger, fault: ProxyFault) {
        let mut state = lock(&self.state);
        let trigger = match trigger {
            FaultTrigger::Request(n) => FaultTrigger::Request(state.requests.saturating_add(n)),
            FaultTrigger::Connection(n) => FaultTrigger::Connection(state.connections.saturating_add(n)),
            FaultTrigger::Containing(bytes) => FaultTrigger::Containing(bytes),
        };
        state.armed.push((trigger, fault));
    }

    pub(super) fn disarm(&self) -> usize {
        std::mem::take(&mut lock(&self.state).armed).len()
    }

    pub(super) fn requests(&self) -> u64 {
        lock(&self.state).requests
    }

    pub(super) fn connections(&self) -> u64 {
        lock(&self.state).connections
    }

    /// Counts a new connection and returns its number.
    pub(super) fn connection(&self) -> u64 {
        let mut state = lock(&self.state);
        state.connections += 1;
        state.connections
    }

    /// Counts a request that begins on `connection`, and returns its number.
    pub(super) fn request(&self) -> u64 {
        let mut state = lock(&self.state);
        state.requests += 1;
        state.requests
    }

    /// Returns the fault for a request that contains `piece`, and disarms it.
    pub(super) fn fault(
        &self,
        connection: u64,
        request: u64,
        begins: bool,
        piece: &[u8],
    ) -> Option<ProxyFault> {
        let mut state = lock(&self.state);
        let index = state.armed.iter().position(|(trigger, _)| match trigger {
            FaultTrigger::Request(n) => begins && *n == request,
            FaultTrigger::Connection(n) => begins && *n == connection,
            FaultTrigger::Containing(bytes) => contains(piece, bytes),
        })?;
        Some(state.armed.remove(index).1)
    }

    pub(super) fn record_fired(&self, done: FiredFault) {
        lock(&self.state).done.push(done);
        self.changed.notify_all();
    }

    pub(super) fn wait(&self, count: usize, time: Duration) -> Vec<FiredFault> {
        let state = lock(&self.state);
        let too_few = |state: &mut PlanState| state.done.len() < count;
        let waited = self.changed.wait_timeout_while(state, time, too_few);
        waited.unwrap_or_else(PoisonError::into_inner).0.done.clone()
    }
}

fn contains(piece: &[u8], bytes: &[u8]) -> bool {
    bytes.is_empty() || piece.windows(bytes.len()).any(|window| window == bytes)
}

#[cfg(test)]
mod tests {
    use super::super::{FaultEffect, FaultPosition};
    use super::*;

    const FAULT: ProxyFault = ProxyFault { place: FaultPosition::HalfReply, act: FaultEffect::Close };

    #[test]
    fn triggers_count_from_arming_and_fire_once() {
        let plan = ProxyPlan::default();
        assert_eq!((plan.connection(), plan.request(), plan.request()), (1, 1, 2));
        plan.arm(FaultTrigger::Request(2), FAULT);
        plan.arm(FaultTrigger::Connection(1), FAULT);
        plan.arm(FaultTrigger::containing("SET"), FAULT);
        assert_eq!(plan.fault(1, plan.request(), true, b"GET"), None);
        let fourth = plan.request();
        assert_eq!(
            plan.fault(1, fourth, false, b"GET"),
            None,
            "this continues a request and does not start one"
        );
        assert_eq!(plan.fault(1, fourth, true, b"GET"), Some(FAULT));
        assert_eq!(plan.fault(1, fourth, true, b"GET"), None, "happened already");
        assert_eq!(plan.fault(1, 9, false, b"a SET b"), Some(FAULT));
        assert_eq!(plan.fault(2, 9, true, b"GET"), Some(FAULT));
        plan.arm(FaultTrigger::Request(1), FAULT);
        assert_eq!((plan.disarm(), plan.disarm()), (1, 0));
    }
}
