//! What a fork may do again though its source has done it, or may have.

use super::{ForkRequest, origin};
use crate::error::Result;
use crate::graph::Effect;
use crate::id::{NodeName, Visit};
use crate::past::{Position, checkpoint};
use crate::record::RunStatus;
use crate::store::At;

/// An activation that changed the world, or may have, and that a fork may do again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepeatedEffect {
    /// The node.
    pub node: NodeName,
    /// Which visit.
    pub visit: Visit,
    /// What repeating it means; absent where no record that is kept says so, as in the log of a fork.
    pub effect: Option<Effect>,
}

impl ForkRequest {
    /// Lists what the source did, or may have done, and the new run may do again under new idempotency keys: each end
    /// of an activation in order, of nodes whose effect is `Write`, `External` or not known.
    ///
    /// Those are the ends behind the place, and what is in doubt, at work or between two tries. With [`start_at`](Self::start_at), all
    /// ends are listed, wherever they are: nothing tells which of the nodes the new run comes to. What an answer that comes
    /// along has settled is left out. Only of an `External` node a record tells that it was to begin: of others, all that is in flight is
    /// listed while a process owns the run, and if the run has failed.
    ///
    /// Reads the whole log that is kept, as it is now.
    ///
    /// # Errors
    ///
    /// As [`Runtime::checkpoint`](crate::runtime::Runtime::checkpoint), and
    /// [`NotFound`](crate::ErrorKind::NotFound) for a node to start at that the log does not name.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// <!-- held by: nobody::a_fork_takes_a_yes_for_whatever_it_may_do_again -->
    /// <!-- held by: runs::what_a_fork_may_do_again_is_told_as_of_the_newest_record -->
    /// <!-- held by: sentences::an_answer_to_a_doubt_comes_along_with_a_fork -->
    /// <!-- held by: sentences::an_answer_to_a_doubt_whose_route_fails_fails_the_run -->
    /// <!-- held by: forks::a_fork_of_a_run_without_checkpoints_tells_what_it_does_again -->
    /// <!-- held by: forks::a_fork_tells_what_is_at_work_or_between_two_tries -->
    pub async fn repeats(&self) -> Result<Vec<RepeatedEffect>> {
        let (store, source) = (&*self.shared.store, &self.source);
        let placed = !self.nodes.is_empty();
        let there = origin(store, source, &self.at, None, placed).await?;
        self.check_nodes(&there.machine, None)
            .map_err(|error| error.with_run(source).with_seq(there.last.seq))?;
        // Of a cancelled run, what was at work when it was cancelled.
        let last = origin(store, source, &Position::Latest, None, false).await?;
        let (now, logged) = checkpoint(store, source, At::Latest).await?;
        let repeat = |node: NodeName, visit| RepeatedEffect { effect: logged.effect(&node), node, visit };
        // A history only grows: what ended behind the place is what it did not hold there.
        let before = if placed { 0 } else { there.machine.history().len() };
        let ended = now.history.into_iter().skip(before).map(|past| repeat(past.node, past.visit));
        let changes = [None, Some(Effect::Write), Some(Effect::External)];
        let mut all: Vec<RepeatedEffect> = ended.filter(|one| changes.contains(&one.effect)).collect();
        let machine = &last.machine;
        // The run goes on somewhere, or was cut off.
        let is_at_work = last.last.owner.is_some() || machine.status() == RunStatus::Failed;
        let going = machine.in_flight().iter();
        let going = going.map(|(key, activation)| (key, activation, is_at_work || activation.failed > 0));
        let stopped = machine.stopped_at().iter().map(|(key, activation)| (key, activation, false));
        for (key, activation, may_have_begun) in going.chain(stopped) {
            let mut one = repeat(machine.name(key.0).clone(), key.1);
            if activation.may_be_done() {
                one.effect = Some(Effect::External);
            } else if !(may_have_begun && matches!(one.effect, None | Some(Effect::Write))) {
                // Of what must not be repeated, an intent tells that it may have begun.
                continue;
            }
            // One that failed the run has ended, too.
            if !all.iter().any(|ended| (&ended.node, ended.visit) == (&one.node, one.visit)) {
                all.push(one);
            }
        }
        if !placed {
            // What failed the run in spite of its answer is in flight no more, and begins anew.
            let answered = there.machine.in_flight().iter().filter(|(_, one)| one.resolution.is_some());
            let settled: Vec<_> = answered.map(|(key, _)| (there.machine.name(key.0), key.1)).collect();
            all.retain(|one| !settled.contains(&(&one.node, one.visit)));
        }
        Ok(all)
    }
}
