//! Compares the visible state of a run with the oracle.

use ferrata_core::runtime::Outcome;
use ferrata_core::state::Context;
use ferrata_core::store::CheckpointStore;
use ferrata_core::{Error, ErrorKind, Timestamp};
use serde_json::Value;

use crate::coverage;
use crate::operations::SLOTS;
use crate::oracle::Stand;
use crate::process::Often;
use crate::weather::Fault;
use crate::world::{Checked, World, now, once, same};

impl World {
    /// Compares the visible state of the run with the oracle.
    pub(crate) fn compare(&mut self) -> Checked {
        same(
            "steps done",
            &self.outside.steps.load(std::sync::atomic::Ordering::SeqCst),
            &self.oracle.steps,
        )?;
        same("begun", &*self.outside.begun.lock().unwrap(), &self.oracle.begun)?;
        same("told to stop", &self.outside.told.load(std::sync::atomic::Ordering::SeqCst), &false)?;
        // Both processes see the same store, so ask them in turn.
        self.applied += 1;
        self.compare_seen(self.applied % SLOTS)?;
        (0..SLOTS).try_for_each(|slot| self.compare_handle(slot))?;
        let Some(run) = &self.oracle.run else { return Ok(()) };
        // While a driver is active, it may hold records back.
        if run.driver.is_some() && self.setting.often != Often::EveryNode {
            return Ok(());
        }
        same("state", &serde_json::to_value(&self.seen.channels).unwrap(), &Value::Object(run.state.clone()))
    }

    /// Compares what a process reads with the oracle.
    fn compare_seen(&self, slot: usize) -> Checked {
        let (head, questions, inbox) = self.ask(slot, async |runtime| {
            let run = self.key();
            (runtime.head(&run).await, runtime.questions(&run).await, runtime.inbox(&run).await)
        });
        let (head, Some(run)) = (head.map_err(|error| error.to_string())?, &self.oracle.run) else {
            let missing = [questions.err(), inbox.err()].map(|error| error.map(|error| error.kind()));
            return same("asked about no run", &missing, &[Some(ErrorKind::NotFound); 2]);
        };
        let (questions, inbox) = (questions.map_err(|e| e.to_string())?, inbox.map_err(|e| e.to_string())?);
        let head = head.ok_or("there is no run")?;
        let ms = |time: Timestamp| u64::try_from(time.unix_ms()).unwrap();
        same("status", &head.status, &run.status)?;
        same("owner", &head.owner.map(|owner| self.generations[&owner]), &run.owner)?;
        same("owner alive", &head.owner_alive, &run.owner.is_some_and(|owner| self.oracle.is_alive(owner)))?;
        same("epoch", &u64::from(head.epoch.get()), &run.epoch)?;
        // While the run has an owner, its wake-up time is only a hint for the case that the owner dies.
        if head.owner.is_none() {
            same("wake", &head.wake_at.map(ms), &run.wake)?;
        }
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let mut asked: Vec<_> = questions
            .iter()
            .map(|q| (q.id.clone(), q.kind, q.deadline.map(ms), q.default.as_deref().map(read)))
            .collect();
        asked.sort_by(|one, other| one.0.cmp(&other.0));
        same("questions", &asked, &run.questions())?;
        let waiting: Vec<_> =
            inbox.iter().map(|m| (m.number, read(&m.body), m.by.clone(), ms(m.at))).collect();
        same("inbox", &waiting.as_slice(), &run.inbox())?;
        for done in ["head", "questions", "inbox"] {
            coverage::done(done);
        }
        Ok(())
    }

    /// Whether the run has a later record than the last one of the driver that the process's handle belongs to.
    fn has_changed_since_end(&mut self, slot: usize) -> bool {
        let Some(epoch) = self.oracle.ended_claim(slot) else { return false };
        let head = now(self.stores.near.head(&self.key())).unwrap().map(|head| head.head());
        *self.end_heads.entry((self.number, epoch)).or_insert(head) != head
    }

    /// Compares the outcome of a process's handle.
    fn compare_handle(&mut self, slot: usize) -> Checked {
        let has_changed = self.has_changed_since_end(slot);
        let process = &self.processes[slot];
        let ask = || {
            process.handle.as_ref().map(|handle| {
                let _within = process.tasks.enter();
                process.tasks.block_on(async { once(handle.wait()).await }).map(stand)
            })
        };
        if self.applied.is_multiple_of(3) && self.oracle.watches(slot) {
            // A poll that fails once is no outcome.
            process.weather.set(Some(Fault::FailsRead));
            let told = ask();
            process.weather.set(None);
            same("told after a look that failed", &matches!(told, Some(Some(Stand::Error(_)))), &false)?;
        }
        let told = ask();
        let wanted = self.oracle.told(slot, has_changed);
        if let Some(Some(Stand::Error(kind))) = told {
            coverage::met(kind);
        }
        if let Some(Some(stand)) = &wanted {
            coverage::stood(stand);
        }
        same("told by the handle", &told, &wanted)
    }
}

fn stand(outcome: Result<Outcome<Context>, Error>) -> Stand {
    let value = |state: &Context| serde_json::to_value(state).unwrap();
    let ids = |questions: Vec<ferrata_core::ask::Question>| {
        let mut ids: Vec<_> = questions.into_iter().map(|question| question.id).collect();
        ids.sort();
        ids
    };
    match outcome {
        Ok(Outcome::Completed(state)) => Stand::Completed(value(&state)),
        Ok(Outcome::Failed { failure, state }) => Stand::Failed(failure.kind, value(&state)),
        Ok(Outcome::Interrupted(questions)) => Stand::Interrupted(ids(questions)),
        Ok(Outcome::AwaitingInput) => Stand::AwaitingInput,
        Ok(Outcome::Paused { reason, questions }) => Stand::Paused(reason, ids(questions)),
        Ok(Outcome::Sleeping { until }) => Stand::Sleeping(until.unix_ms().try_into().unwrap()),
        Ok(Outcome::Cancelled { reason, .. }) => Stand::Cancelled(reason),
        Ok(Outcome::Released) => Stand::Released,
        Ok(other) => unreachable!("{other:?}"),
        Err(error) => Stand::Error(error.kind()),
    }
}
