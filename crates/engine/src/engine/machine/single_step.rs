//! A fast path that applies the end of an activation in a run without branches, which is the most frequent case.
//!
//! It exists for the benchmark rows `core/disabled` and `core/every-node`. Tests with random runs compare each step with the general code.

use super::Machine;
use super::activation_ends::token;
use crate::engine::frontier::{Activation, ActivationKey};
use crate::record::body::NodeDone;

impl Machine {
    /// Applies the end of an activation in the usual case: it was the only activation of the run, it succeeded, and its token starts the next
    /// activation.
    ///
    /// The result equals that of [`end_in_general`](Self::end_in_general). Returns false, and changes nothing, if the fast path does not apply.
    pub(super) fn step_on(&mut self, key: ActivationKey, done: &NodeDone) -> bool {
        let [fired] = &*done.fired else { return false };
        let usual = fired.is_plain() && done.has_no_more_than_fired() && self.frontier.is_only(&key);
        let (true, Some(from)) = (usual, self.index(key.0)) else { return false };
        let Some(to) = self.plan().and_then(|plan| plan.find_after(from, &fired.to, 0)) else { return false };
        self.count_end(key, done);
        let mut inputs = self.frontier.take_inputs(&key);
        inputs.push(token(key.0, done, None));
        let next = self.count_start(to.get());
        self.frontier.step((from, to), next, Activation::new(self.ended_count(), None, inputs));
        self.fresh.push(next);
        true
    }
}
