//! The oracle's process: it drives a run until the run is idle.

use std::collections::BTreeMap;

use ferrata_core::ErrorKind;
use ferrata_core::record::{FailureKind, RunStatus};
use serde_json::{Value, json};

use super::plan::{End, Got, Need};
use super::{Activation, Before, GRACE, KEPT, Oracle, Progress, Resolved, Run, Stand, Wait};
use crate::graphs::Bank;

/// The external world of a run.
pub(super) struct Outside<'a> {
    pub(super) now: u64,
    pub(super) steps: &'a mut u32,
    rain: bool,
    pub(super) most: u64,
    begun: &'a mut BTreeMap<String, u32>,
}

impl Oracle {
    /// Lets the owner, if there is one, do everything that is possible now.
    pub(super) fn go_on(&mut self) {
        let (now, rain, most) = (self.now, self.rain, self.most);
        let mut outside = Outside { now, steps: &mut self.steps, rain, most, begun: &mut self.begun };
        if let Some(run) = self.run.as_mut().filter(|run| run.driver.is_some()) {
            run.drive(&mut outside);
        }
    }

    pub(crate) fn set_rain(&mut self, rain: bool) {
        self.rain = rain;
    }

    pub(crate) fn set_bank(&mut self, bank: Bank) {
        if let Some(run) = &mut self.run {
            let works =
                |wait: &&mut Wait| matches!((&wait.need, &wait.progress), (Need::Work(_), Progress::Open(_)));
            let waits = run.acts.iter_mut().flat_map(|act| act.groups.iter_mut().flatten());
            waits.filter(works).for_each(|wait| wait.progress = Progress::Got(Got::Did(bank)));
        }
        self.go_on();
    }
}

impl Run {
    /// Starts an activation, which only its own requirements can delay.
    pub(super) fn activate(&mut self, node: &'static str, behind: Option<(&'static str, u32)>) {
        if self.family.takes_first(node) && !self.spent.insert(node) {
            // The activation is too late, and its successor has waited for this.
            return self.activate(self.family.behind_first(), behind);
        }
        let tokens = self.tokens.entry(node).or_default();
        *tokens += 1;
        if *tokens < self.family.branches(node) {
            return;
        }
        self.tokens.remove(node);
        let visit = self.visits.entry(node).or_default();
        *visit += 1;
        let wait = |need: Need| Wait { need, progress: Progress::Unset, until: None, said: None };
        let group = |needs: Vec<Need>| needs.into_iter().map(wait).collect();
        self.acts.push(Activation {
            node,
            visit: *visit,
            groups: self.family.needs(node).into_iter().map(group).collect(),
            chooses: self.family.chooses(node),
            failed: 0,
            retry_at: None,
            before: Before::Unasked,
            begun: false,
            doubt: false,
            resolved: None,
            behind,
            running: false,
            came: 0,
            read: 0,
        });
        let family = self.family;
        self.acts.sort_by_key(|act| (family.place(act.node), act.visit));
    }

    fn drive(&mut self, outside: &mut Outside<'_>) {
        let is_over = self.deadline.is_some_and(|deadline| deadline <= outside.now);
        if is_over && !self.is_stopping() {
            self.status = RunStatus::Failed;
            self.failure = Some(FailureKind::Deadline);
            self.drop_work();
        }
        // Each activation gets its results before any of them ends.
        let mut moved = true;
        while moved && (self.status == RunStatus::InProgress || self.is_busy()) {
            moved = (0..self.acts.len()).any(|at| self.begin(at, outside));
            if !moved {
                for at in 0..self.acts.len() {
                    moved |= self.wait(at, outside);
                }
                // Each activation gets one result and continues before the next gets one. Earlier signals come first.
                let mut turns: Vec<_> =
                    self.acts.iter().map(|act| (act.turn(), (act.node, act.visit))).collect();
                turns.sort_by_key(|(turn, _)| *turn);
                for (_, key) in &turns {
                    moved |= self.place(*key).is_some_and(|at| self.hand(at, outside));
                }
                for (_, key) in &turns {
                    if self.place(*key).is_some_and(|at| self.finish(at, outside)) {
                        moved = true;
                        if self.status != RunStatus::InProgress {
                            self.drop_work();
                        }
                    }
                }
            }
        }
        self.settle(outside.now);
    }

    fn place(&self, key: (&'static str, u32)) -> Option<usize> {
        self.acts.iter().position(|act| (act.node, act.visit) == key)
    }

    /// Whether nothing new starts, and nothing that waits continues.
    pub(super) fn is_stopping(&self) -> bool {
        self.cancel.is_some() || self.paused.is_some() || self.status != RunStatus::InProgress
    }

    /// Drops all running nodes except `External` ones, which may finish.
    fn drop_work(&mut self) {
        let family = self.family;
        self.acts.iter_mut().filter(|act| !family.is_external(act.node)).for_each(Activation::stop);
    }

    /// Starts an activation if possible. Returns whether it ended at once.
    fn begin(&mut self, at: usize, outside: &mut Outside<'_>) -> bool {
        let act = &self.acts[at];
        if !act.running {
            let behind = act.behind.is_some_and(|behind| self.holds.contains(&behind));
            let later = act.retry_at.is_some_and(|at| at > outside.now);
            if self.is_stopping() || act.doubt || behind || later {
                return false;
            }
            match &act.resolved {
                Some(Resolved::Fail) => return self.fail(at, FailureKind::Operator, None),
                Some(Resolved::Skip) => return self.end(at, vec![], self.family.behind_payment()),
                Some(Resolved::Supply) => {
                    return self.end(at, vec![("paid", json!(7))], self.family.behind_payment());
                }
                None => {}
            }
            let asks = self.family.asks_before(act.node);
            let external = self.family.is_external(act.node);
            let act = &mut self.acts[at];
            match act.before {
                Before::Unasked if asks => {
                    act.before = Before::Open;
                    return false;
                }
                Before::Open => return false,
                Before::Rejected => return self.fail(at, FailureKind::Rejected, None),
                _ => {}
            }
            (act.running, act.came, act.read, act.retry_at) = (true, 0, 0, None);
            act.begun = external;
            if external {
                *outside.begun.entry(format!("{}@{}", act.node, act.visit)).or_default() += 1;
            }
        }
        false
    }

    /// Ends an activation that has all its results. Returns whether it did.
    fn finish(&mut self, at: usize, outside: &Outside<'_>) -> bool {
        let act = &self.acts[at];
        let got: Vec<Got> = act.groups.iter().flatten().filter_map(Wait::got).collect();
        let got_all = got.len() == act.all() && act.read >= act.all();
        if !act.running || self.is_asked_to_stop(at) || !(got_all || act.is_broken_off()) {
            return false;
        }
        match self.family.end(act.node, act.visit, &got, &self.state, outside.rain) {
            End::Done { set, next } => self.end(at, set, next),
            End::Revisit { set, to } => self.go_back(at, set, to),
            End::Failed(kind) => self.fail(at, kind, Some(outside.now)),
            End::NotDone => {
                self.acts[at].begun = false;
                self.fail(at, FailureKind::Node, Some(outside.now))
            }
            End::Closed => {
                self.acts[at].begun = false;
                self.fail(at, FailureKind::Node, None)
            }
            End::Doubt => {
                let act = &mut self.acts[at];
                act.stop();
                (act.doubt, act.failed, act.retry_at) = (true, act.failed + 1, None);
                true
            }
        }
    }

    /// A cancellation ends activations that only wait, and lets the others finish.
    fn is_asked_to_stop(&self, at: usize) -> bool {
        let works = |wait: &Wait| matches!(wait.need, Need::Work(_));
        self.cancel.is_some() && !self.acts[at].groups.iter().flatten().any(works)
    }

    fn go_back(&mut self, at: usize, set: Vec<(&'static str, Value)>, to: &'static str) -> bool {
        self.replans += 1;
        if self.replans <= super::Family::REPLANS {
            return self.end(at, set, vec![to]);
        }
        self.refused = Some(to);
        self.status = RunStatus::Failed;
        self.failure = Some(FailureKind::Replan);
        self.end(at, set, vec![])
    }

    fn end(&mut self, at: usize, set: Vec<(&'static str, Value)>, next: Vec<&'static str>) -> bool {
        let act = self.acts.remove(at);
        for (channel, value) in set {
            let is_renamed = (channel, self.revision) == ("paid", "3");
            self.state.insert(if is_renamed { "settled" } else { channel }.to_owned(), value);
        }
        let key = (act.node, act.visit);
        let behind = (self.family.asks_behind(act.node) && !next.is_empty()).then_some(key);
        self.holds.extend(behind);
        for node in next {
            self.activate(node, behind);
        }
        self.complete();
        true
    }

    /// Ends the run if nothing is left to do. During a pause, it waits for the unpause.
    pub(super) fn complete(&mut self) {
        if self.acts.is_empty() && self.status == RunStatus::InProgress && self.paused.is_none() {
            self.status = RunStatus::Completed;
        }
    }

    /// Ends an activation with a failure. `again` is the time of the next attempt, if there is one.
    fn fail(&mut self, at: usize, kind: FailureKind, again: Option<u64>) -> bool {
        let act = &mut self.acts[at];
        let delay = self.family.delays(act.node).get(act.failed as usize);
        act.stop();
        if let (FailureKind::Node, Some(delay), Some(now)) = (kind, delay, again) {
            act.failed += 1;
            act.retry_at = Some(now + delay);
            return true;
        }
        let act = self.acts.remove(at);
        match self.family.catcher(act.node) {
            Some(next) => self.activate(next, None),
            None if self.cancel.is_some() => {}
            None => {
                self.stopped.push(act);
                self.status = RunStatus::Failed;
                self.failure = Some(kind);
            }
        }
        true
    }

    fn is_busy(&self) -> bool {
        let busy =
            |wait: &Wait| matches!(wait.need, Need::Work(_)) && !matches!(wait.progress, Progress::Unset);
        self.acts.iter().any(|act| act.running && act.groups.iter().flatten().any(busy))
    }

    /// Makes the run idle if nothing more can be done now.
    fn settle(&mut self, now: u64) {
        if self.status != RunStatus::InProgress {
            self.owner = None;
            if !self.is_busy() {
                self.rest(None);
            }
            return;
        }
        if self.cancel.is_some() {
            let over = *self.grace.get_or_insert(now + GRACE);
            if !self.is_busy() || over <= now {
                self.stop();
                self.rest(None);
            }
            return;
        }
        if self.is_busy() {
            return;
        }
        let receiving = self.waits().any(|wait| matches!(wait.need, Need::Hear { .. }));
        if self.paused.is_some() {
            (self.status, self.receiving) = (RunStatus::Interrupted, receiving);
            return self.rest(None);
        }
        let wake = self.next_time();
        let timed = self.acts.iter().any(|act| act.retry_at.is_some_and(|at| at > now))
            || self.waits().any(|wait| matches!(wait.need, Need::Sleep(_)));
        if timed && wake.is_some_and(|wake| wake - now <= KEPT) {
            return;
        }
        self.receiving = receiving;
        if !timed {
            let asked = !self.questions().is_empty();
            self.status = if asked { RunStatus::Interrupted } else { RunStatus::AwaitingInput };
        }
        self.rest(wake);
    }

    /// The waits of the activations in memory.
    fn waits(&self) -> impl Iterator<Item = &Wait> {
        self.acts.iter().filter(|act| act.running).flat_map(Activation::waits)
    }

    /// The next time at which the run advances.
    fn next_time(&self) -> Option<u64> {
        let until = self.waits().filter_map(|wait| match wait.progress {
            Progress::Open(until) => until,
            _ => None,
        });
        let retries = self.acts.iter().filter_map(|act| act.retry_at.filter(|_| !act.running));
        until.chain(retries).chain(self.deadline).min()
    }

    /// The driver ends, and the run is idle.
    fn rest(&mut self, wake: Option<u64>) {
        self.wake = wake;
        self.owner = None;
        let stand = self.stand();
        self.ends.insert(self.epoch, stand);
        self.leave();
    }

    /// The run leaves memory.
    pub(super) fn leave(&mut self) {
        self.driver = None;
        self.grace = None;
        self.acts.iter_mut().for_each(Activation::stop);
    }

    /// The run ends.
    pub(super) fn stop(&mut self) {
        self.status = RunStatus::Cancelled;
        (self.wake, self.receiving) = (None, false);
        self.acts.clear();
        self.stopped.clear();
        self.tokens.clear();
        self.holds.clear();
        self.refused = None;
    }

    /// The owner releases the run.
    pub(super) fn release(&mut self) {
        if self.status != RunStatus::InProgress {
            return self.rest(None);
        }
        let waiting = self.waits().any(|wait| matches!(wait.need, Need::Hear { .. }));
        if self.paused.is_some() {
            (self.status, self.receiving) = (RunStatus::Interrupted, waiting);
            return self.rest(None);
        }
        self.receiving = waiting;
        // Interrupted work continues in any process that serves the workflow, without a wake-up time.
        let wake = if self.is_busy() { None } else { self.next_time() };
        self.rest(wake);
        self.ends.insert(self.epoch, Stand::Released);
    }

    /// Another process claims the run.
    pub(super) fn fence(&mut self) {
        if self.driver.is_some() {
            self.ends.insert(self.epoch, Stand::Error(ErrorKind::Fenced));
            self.leave();
        }
    }
}
