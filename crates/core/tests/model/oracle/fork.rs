//! The oracle's forks, state migrations and conflicting writers.

use ferrata_core::ErrorKind;
use serde_json::{Value, json};

use super::{Handle, Oracle, Run, Stand};

impl Oracle {
    /// The revision of the code for signals to the run: the third one if its state has that form.
    pub(crate) fn revision(&self) -> &'static str {
        if self.run.as_ref().is_some_and(|run| run.revision == "3") { "3" } else { "1" }
    }

    /// Removes the handle of a process that only watches the run. Returns whether there was one.
    pub(crate) fn forget_watch(&mut self, slot: usize) -> bool {
        self.processes[slot].handle.take_if(|handle| matches!(handle, Handle::Watches)).is_some()
    }

    /// Whether no process has the run in memory, so that nothing continues it next to its fork.
    pub(crate) fn may_fork(&self, slot: usize) -> bool {
        !self.processes[slot].shut && self.run.as_ref().is_some_and(|run| run.driver.is_none())
    }

    /// Restarts at the entry in a new run: joins count from zero, and received signals are copied.
    pub(crate) fn fork(&mut self, slot: usize) -> Result<(), ErrorKind> {
        let (revision, source) = (self.revision(), self.run.take().unwrap());
        // The fork has no input of a start.
        let mut run = Run::new(source.family, i64::MIN);
        run.revision = revision;
        run.deadline = source.family.deadline().map(|after| self.now + after);
        (run.state, run.visits, run.replans) = (source.state, source.visits, source.replans);
        (run.inbox, run.sent, run.keys) = (source.inbox, source.sent, source.keys);
        (run.owner, run.driver, run.epoch) = (Some(self.processes[slot].generation), Some(slot), 2);
        run.activate(source.family.entry(), None);
        self.run = Some(run);
        self.begun.clear();
        self.processes.iter_mut().for_each(|process| process.handle = None);
        self.processes[slot].handle = Some(Handle::Drives(2, revision));
        self.go_on();
        Ok(())
    }

    /// The last claim, if its driver has ended.
    pub(crate) fn ended(&self) -> Option<u64> {
        self.run
            .as_ref()
            .map(|run| run.epoch)
            .filter(|epoch| self.run.as_ref().unwrap().ends.contains_key(epoch))
    }

    /// Another writer edited the run just before one of its records. `ended` contains the activations that had ended before.
    pub(crate) fn meet(&mut self, number: u32, ended: Option<u64>) {
        let Some(run) = &mut self.run else { return };
        run.state.insert("met".into(), json!(number));
        if ended == Some(run.epoch) {
            return;
        }
        if let Some(Stand::Completed(state) | Stand::Failed(_, state)) = run.ends.get_mut(&run.epoch) {
            state["met"] = json!(number);
        }
    }
}

impl Run {
    /// Migrates the state to the form of newer code.
    pub(super) fn migrate(&mut self, revision: &str) {
        if revision == "3" {
            let paid: Option<Value> = self.state.remove("paid");
            self.state.extend(paid.map(|paid| ("settled".to_owned(), paid)));
        }
    }
}
