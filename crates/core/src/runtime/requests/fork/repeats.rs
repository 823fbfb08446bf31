//! Lists the activations of the source whose effects a fork may repeat.

use super::{ForkRequest, origin};
use crate::error::Result;
use crate::graph::Effect;
use crate::id::{NodeName, Visit};
use crate::past::{Position, checkpoint};
use crate::record::RunStatus;
use crate::store::At;

/// An activation of the source that changed or may have changed something outside of the run, and that the fork may repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepeatedEffect {
    /// The node of the activation.
    pub node: NodeName,
    /// The visit of the activation: the number of the node's activations in the run, counted from 1.
    pub visit: Visit,
    /// The declared effect of the node. `None` if no remaining record contains it, as in the log of a fork.
    pub effect: Option<Effect>,
}

impl ForkRequest {
    /// Lists the effects of the source that the new run may repeat under new idempotency keys: the ended activations, in order, of nodes whose
    /// effect is `Write`, `External` or unknown.
    ///
    /// The list contains activations that ended after the position of the fork, and activations that are running, between two attempts, or of unknown
    /// outcome. With [`start_at`](Self::start_at), it contains all ended activations, because the new run may reach any node. It omits activations
    /// whose outcome an inherited answer has resolved. Only `External` nodes write a record before they start. For other nodes, the log does not show
    /// whether an unfinished activation has started, so the list contains all of them if a process owns the source or the source has failed.
    ///
    /// The call reads the whole remaining log of the source.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Runtime::checkpoint`](crate::runtime::Runtime::checkpoint), and [`NotFound`](crate::ErrorKind::NotFound) if the log
    /// does not contain a node of [`start_at`](Self::start_at).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn repeated_effects(&self) -> Result<Vec<RepeatedEffect>> {
        let (store, source) = (&*self.shared.store, &self.source);
        let placed = !self.nodes.is_empty();
        let there = origin(store, source, &self.at, None, placed).await?;
        self.check_nodes(&there.machine, None)
            .map_err(|error| error.with_run(source).with_seq(there.last.seq))?;
        // For a cancelled run: the activations that ran at its cancellation.
        let last = origin(store, source, &Position::Latest, None, false).await?;
        let (now, logged) = checkpoint(store, source, At::Latest).await?;
        let repeat = |node: NodeName, visit| RepeatedEffect { effect: logged.effect(&node), node, visit };
        // A history only grows: the ends after the position are the surplus over the history there.
        let before = if placed { 0 } else { there.machine.history().len() };
        let ended = now.history.into_iter().skip(before).map(|past| repeat(past.node, past.visit));
        let changes = [None, Some(Effect::Write), Some(Effect::External)];
        let mut all: Vec<RepeatedEffect> = ended.filter(|one| changes.contains(&one.effect)).collect();
        let machine = &last.machine;
        // The run is active, or was cut off.
        let is_at_work = last.last.owner.is_some() || machine.status() == RunStatus::Failed;
        let going = machine.in_flight().iter();
        let going = going.map(|(key, activation)| (key, activation, is_at_work || activation.failed > 0));
        let stopped = machine.stopped_at().iter().map(|(key, activation)| (key, activation, false));
        for (key, activation, may_have_begun) in going.chain(stopped) {
            let mut one = repeat(machine.name(key.0).clone(), key.1);
            if activation.may_be_done() {
                one.effect = Some(Effect::External);
            } else if !(may_have_begun && matches!(one.effect, None | Some(Effect::Write))) {
                // Effects that must not repeat have an intent record if they may have started.
                continue;
            }
            // The activation that failed the run has ended, too.
            if !all.iter().any(|ended| (&ended.node, ended.visit) == (&one.node, one.visit)) {
                all.push(one);
            }
        }
        if !placed {
            // An activation that failed the run in spite of its answer is no longer in flight, and starts again.
            let answered = there.machine.in_flight().iter().filter(|(_, one)| one.resolution.is_some());
            let settled: Vec<_> = answered.map(|(key, _)| (there.machine.name(key.0), key.1)).collect();
            all.retain(|one| !settled.contains(&(&one.node, one.visit)));
        }
        Ok(all)
    }
}
