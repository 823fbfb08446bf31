//! Detects that two concurrent activations overwrote the same channel.

use super::frontier::ActivationKey;
use super::machine::Machine;
use crate::failure::{Failure, FailureKind};

impl Machine {
    /// Returns a failure if another activation overwrote one of these channels after this activation had started.
    pub fn find_clash(&self, key: ActivationKey, overwrites: &[&str]) -> Option<Failure> {
        let since = self.in_flight().get(&key)?.since;
        let (channel, other) = overwrites.iter().find_map(|channel| {
            self.frontier()
                .overwrites()
                .get(*channel)
                .filter(|write| write.tick > since)
                .map(|write| (channel, write))
        })?;
        let message = format!(
            "`{}@{}` and `{}@{}` ran concurrently and both overwrote the channel `{channel}`; give the channel a reducer, or \
             put an edge between the nodes",
            self.name(other.node),
            other.visit,
            self.name(key.0),
            key.1,
        );
        Some(Failure::new(FailureKind::ConcurrentWrite, message).with_node(self.name(key.0)))
    }
}
