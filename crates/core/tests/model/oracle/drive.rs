//! What a process does with a run that it has: all that can be done now, and then rest.

use ferrata_core::ErrorKind;
use ferrata_core::record::{FailureKind, RunStatus};
use serde_json::json;

use super::plan::{End, Got, Need};
use super::{Activation, Before, Closed, GRACE, KEPT, Oracle, Progress, Resolved, Run, Stand, Wait};

/// What a run finds outside.
struct Outside<'a> {
    now: u64,
    steps: &'a mut u32,
    rain: bool,
    bank: bool,
}

impl Oracle {
    /// Lets the process that has the run, if one has, do what can be done now.
    pub(super) fn go_on(&mut self) {
        let mut outside = Outside { now: self.now, steps: &mut self.steps, rain: self.rain, bank: self.bank };
        if let Some(run) = self.run.as_mut().filter(|run| run.driver.is_some()) {
            run.drive(&mut outside);
        }
    }

    pub(crate) fn set_rain(&mut self, rain: bool) {
        self.rain = rain;
    }

    pub(crate) fn set_bank(&mut self, open: bool) {
        self.bank = open;
        self.go_on();
    }
}

impl Run {
    /// Begins an activation that nothing holds back but what it asks for itself.
    pub(super) fn activate(&mut self, node: &'static str, behind: Option<(&'static str, u32)>) {
        let tokens = self.tokens.entry(node).or_default();
        *tokens += 1;
        if *tokens < self.family.branches(node) {
            return;
        }
        self.tokens.remove(node);
        let visit = self.visits.entry(node).or_default();
        *visit += 1;
        let wait = |need: Need| Wait { need, progress: Progress::Unset };
        let group = |needs: Vec<Need>| needs.into_iter().map(wait).collect();
        self.acts.push(Activation {
            node,
            visit: *visit,
            groups: self.family.needs(node).into_iter().map(group).collect(),
            failed: 0,
            retry_at: None,
            before: Before::Unasked,
            begun: false,
            doubt: false,
            resolved: None,
            behind,
            running: false,
            read: 0,
        });
        let family = self.family;
        self.acts.sort_by_key(|act| (family.place(act.node), act.visit));
    }

    fn drive(&mut self, outside: &mut Outside<'_>) {
        // All get what is there for them before any of them ends.
        let mut moved = true;
        while moved && self.status == RunStatus::InProgress {
            moved = (0..self.acts.len()).any(|at| self.begin(at, outside));
            if !moved {
                for at in 0..self.acts.len() {
                    moved |= self.wait(at, outside);
                }
                // Each is handed one thing, and goes on with it, before any is handed the next.
                for act in self.acts.iter_mut().filter(|act| act.running && act.read < act.got()) {
                    act.read += 1;
                    moved = true;
                }
                while self.status == RunStatus::InProgress
                    && (0..self.acts.len()).any(|at| self.finish(at, outside))
                {
                    moved = true;
                }
            }
        }
        self.settle(outside.now);
    }

    /// Has an activation begin if it may. Returns whether it ended at once.
    fn begin(&mut self, at: usize, outside: &mut Outside<'_>) -> bool {
        let act = &self.acts[at];
        if !act.running {
            let behind = act.behind.is_some_and(|behind| self.holds.contains(&behind));
            let later = act.retry_at.is_some_and(|at| at > outside.now);
            let stopping = self.cancel.is_some() || self.paused.is_some();
            if stopping || act.doubt || behind || later {
                return false;
            }
            match &act.resolved {
                Some(Resolved::Fail) => return self.fail(at, FailureKind::Operator, outside.now),
                Some(Resolved::Skip) => return self.end(at, End::Done { set: vec![], next: vec!["thank"] }),
                Some(Resolved::Supply) => {
                    return self.end(at, End::Done { set: vec![("paid", json!(7))], next: vec!["thank"] });
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
                Before::Rejected => return self.fail(at, FailureKind::Rejected, outside.now),
                _ => {}
            }
            (act.running, act.read) = (true, 0);
            act.begun = external;
        }
        false
    }

    /// Ends an activation that got all it waits for. Returns whether it did.
    fn finish(&mut self, at: usize, outside: &Outside<'_>) -> bool {
        let act = &self.acts[at];
        let all = act.groups.iter().flatten().count();
        let got_all = act.got() == all && act.read >= all;
        if !act.running || self.is_asked_to_stop(at) || !got_all {
            return false;
        }
        let got: Vec<Got> = act.groups.iter().flatten().filter_map(Wait::got).collect();
        match self.family.end(act.node, act.visit, &got, &self.state, outside.rain) {
            End::Failed(kind) => self.fail(at, kind, outside.now),
            end => self.end(at, end),
        }
    }

    /// A cancellation ends what only waits, and lets the rest finish.
    fn is_asked_to_stop(&self, at: usize) -> bool {
        let works = |wait: &Wait| matches!(wait.need, Need::Bank);
        self.cancel.is_some() && !self.acts[at].groups.iter().flatten().any(works)
    }

    /// Lets an activation wait for its next group. Returns whether it got all of that, or a message to set aside.
    fn wait(&mut self, at: usize, outside: &mut Outside<'_>) -> bool {
        let act = &mut self.acts[at];
        let open =
            |group: &&mut Vec<Wait>| !group.iter().all(|wait| matches!(wait.progress, Progress::Got(_)));
        let Some(group) = act.groups.iter_mut().find(open).filter(|_| act.running) else { return false };
        let messages = self.inbox.len();
        for wait in group.iter_mut() {
            let id = |name: &str| format!("{}@{}:{name}", act.node, act.visit);
            wait.go_on(outside, &mut self.inbox, |name, what| {
                self.closed.insert(id(name), what);
            });
        }
        messages > self.inbox.len() || group.iter().all(|wait| matches!(wait.progress, Progress::Got(_)))
    }

    fn end(&mut self, at: usize, end: End) -> bool {
        let act = self.acts.remove(at);
        let (set, next) = match end {
            End::Done { set, next } => (set, next),
            End::Revisit { set, to } => {
                self.replans += 1;
                if self.replans > super::Family::REPLANS {
                    self.refused = Some(to);
                    self.status = RunStatus::Failed;
                    self.failure = Some(FailureKind::Replan);
                    (set, vec![])
                } else {
                    (set, vec![to])
                }
            }
            End::Failed(_) => unreachable!("failures have their own way"),
        };
        for (channel, value) in set {
            self.state.insert(channel.to_owned(), value);
        }
        let key = (act.node, act.visit);
        let behind = (self.family.asks_behind(act.node) && !next.is_empty()).then_some(key);
        self.holds.extend(behind);
        for node in next {
            self.activate(node, behind);
        }
        if self.acts.is_empty() && self.status == RunStatus::InProgress {
            self.status = RunStatus::Completed;
        }
        true
    }

    fn fail(&mut self, at: usize, kind: FailureKind, now: u64) -> bool {
        let act = &mut self.acts[at];
        let delays = self.family.delays(act.node);
        if let (FailureKind::Node, Some(delay)) = (kind, delays.get(act.failed as usize)) {
            act.failed += 1;
            act.retry_at = Some(now + delay);
            act.running = false;
            return true;
        }
        let act = self.acts.remove(at);
        match self.family.catcher(act.node) {
            Some(next) => self.activate(next, None),
            None => {
                self.stopped.push(act);
                self.status = RunStatus::Failed;
                self.failure = Some(kind);
            }
        }
        true
    }

    fn is_busy(&self) -> bool {
        let busy = |wait: &Wait| matches!((&wait.need, &wait.progress), (Need::Bank, Progress::Open(_)));
        self.acts.iter().any(|act| act.running && act.groups.iter().flatten().any(busy))
    }

    /// Rests if nothing more can be done now.
    fn settle(&mut self, now: u64) {
        if self.status != RunStatus::InProgress {
            return self.rest(None);
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

    /// What the activations in memory wait for.
    fn waits(&self) -> impl Iterator<Item = &Wait> {
        let running = self.acts.iter().filter(|act| act.running);
        running
            .flat_map(|act| act.groups.iter().flatten())
            .filter(|wait| matches!(wait.progress, Progress::Open(_)))
    }

    /// When time moves the run.
    fn next_time(&self) -> Option<u64> {
        let until = self.waits().filter_map(|wait| match wait.progress {
            Progress::Open(until) => until,
            _ => None,
        });
        until.chain(self.acts.iter().filter_map(|act| act.retry_at.filter(|_| !act.running))).min()
    }

    /// The driver ends, with the run at rest.
    fn rest(&mut self, wake: Option<u64>) {
        self.wake = wake;
        self.owner = None;
        let stand = self.stand();
        self.ends.insert(self.epoch, stand);
        self.leave();
    }

    /// Nobody has the run in memory any more.
    pub(super) fn leave(&mut self) {
        self.driver = None;
        self.grace = None;
        self.acts.iter_mut().for_each(|act| act.running = false);
    }

    /// It ends for good.
    pub(super) fn stop(&mut self) {
        self.status = RunStatus::Cancelled;
        (self.wake, self.receiving) = (None, false);
        self.acts.clear();
        self.stopped.clear();
        self.tokens.clear();
        self.holds.clear();
        self.refused = None;
    }

    /// The process that has it ends, and says so.
    pub(super) fn release(&mut self) {
        let waiting = self.waits().any(|wait| matches!(wait.need, Need::Hear { .. }));
        if self.paused.is_some() {
            (self.status, self.receiving) = (RunStatus::Interrupted, waiting);
            return self.rest(None);
        }
        self.receiving = waiting;
        let wake = self.next_time();
        self.rest(wake);
        self.ends.insert(self.epoch, Stand::Released);
    }

    /// Another process takes it.
    pub(super) fn fence(&mut self) {
        if self.driver.is_some() {
            self.ends.insert(self.epoch, Stand::Error(ErrorKind::Fenced));
            self.leave();
        }
    }
}

impl Activation {
    /// How much of what it waits for has come.
    fn got(&self) -> usize {
        self.groups.iter().flatten().filter(|wait| matches!(wait.progress, Progress::Got(_))).count()
    }
}

impl Wait {
    fn got(&self) -> Option<Got> {
        match &self.progress {
            Progress::Got(got) => Some(got.clone()),
            _ => None,
        }
    }

    fn go_on(
        &mut self,
        outside: &mut Outside<'_>,
        inbox: &mut Vec<super::Waiting>,
        mut close: impl FnMut(&str, Closed),
    ) {
        let now = outside.now;
        if let Progress::Unset = self.progress {
            let within = match self.need {
                Need::Ask { within, .. } | Need::Hear { within, .. } => within,
                Need::Sleep(time) => Some(time),
                Need::Step | Need::Bank => None,
            };
            self.progress = Progress::Open(within.map(|within| now + within));
        }
        let Progress::Open(until) = self.progress else { return };
        let over = until.is_some_and(|until| until <= now);
        let got = match &self.need {
            Need::Ask { name, default, .. } if over => {
                let (got, what) = match default {
                    Some(value) => (Got::Value(value.clone()), Closed::By(Some("deadline".into()))),
                    None => (Got::Expired, Closed::Expired),
                };
                close(name, what);
                got
            }
            Need::Ask { .. } => return,
            Need::Hear { fits, within } => {
                if !inbox.is_empty() {
                    let (_, body, ..) = inbox.remove(0);
                    if fits.takes(&body) {
                        self.progress = Progress::Got(Got::Value(body));
                        return;
                    }
                    // Set aside; the patience begins anew, and the next message is another turn.
                    self.progress = Progress::Open(within.map(|within| now + within));
                    return;
                }
                let Progress::Open(until) = self.progress else { return };
                if until.is_none_or(|until| until > now) {
                    return;
                }
                Got::Idle
            }
            Need::Sleep(_) if over => Got::Done,
            Need::Sleep(_) => return,
            Need::Step => {
                *outside.steps += 1;
                Got::Value(json!(*outside.steps))
            }
            Need::Bank if outside.bank => Got::Done,
            Need::Bank => return,
        };
        self.progress = Progress::Got(got);
    }
}
