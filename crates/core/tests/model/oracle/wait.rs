//! The waits of an activation and their results.

use serde_json::json;

use super::drive::Outside;
use super::plan::{Fits, Got, Need};
use super::{Activation, Closed, Progress, Run, Wait, Waiting};

impl Run {
    /// Lets an activation wait for its next group. Returns whether it got its results, or a message to set aside.
    pub(super) fn wait(&mut self, at: usize, outside: &mut Outside<'_>) -> bool {
        let is_held = self.is_stopping();
        let Self { acts, inbox, closed, .. } = self;
        let act = &mut acts[at];
        if act.running {
            act.come(outside);
        }
        let Some(next) = act.next_group() else { return false };
        let (messages, chooses) = (inbox.len(), act.chooses);
        let id = |name: &str| format!("{}@{}:{name}", act.node, act.visit);
        // Signals come before expired times.
        for is_time in [false, true] {
            for wait in act.groups[next].iter_mut().filter(|wait| wait.is_of_time() == is_time) {
                if !(is_held && wait.is_held()) {
                    wait.go_on(outside, inbox, |name, what| drop(closed.insert(id(name), what)));
                }
                if chooses && matches!(wait.progress, Progress::Got(_)) {
                    return true;
                }
            }
        }
        messages > inbox.len() || act.is_over(&act.groups[next])
    }

    /// Gives an activation its next result. Returns whether there was one.
    pub(super) fn hand(&mut self, at: usize, outside: &Outside<'_>) -> bool {
        let is_held = self.is_stopping();
        let act = &mut self.acts[at];
        if !act.running || act.read >= act.got() || is_held && !act.works() {
            return false;
        }
        let read = act.read;
        let mut got =
            act.groups.iter_mut().flatten().filter(|wait| matches!(wait.progress, Progress::Got(_)));
        let next = got.nth(read).unwrap();
        if next.is_too_large(outside.most) {
            // The type rejects the value, so the question is asked again within its deadline.
            next.progress = Progress::Open(next.until);
            return true;
        }
        act.read += 1;
        true
    }
}

impl Activation {
    /// The priority among results that are ready: recorded results, then signals, then expired times.
    pub(super) fn turn(&self) -> (u8, u64) {
        let mut got = self.groups.iter().flatten().filter(|wait| matches!(wait.progress, Progress::Got(_)));
        match got.nth(self.read) {
            Some(Wait { said: Some(at), .. }) => (1, *at),
            Some(Wait { need: Need::Sleep(_) | Need::Ask { .. }, until: Some(until), .. }) => (2, *until),
            _ => (0, 0),
        }
    }

    /// Number of results that have arrived.
    pub(super) fn got(&self) -> usize {
        self.groups.iter().flatten().filter(|wait| matches!(wait.progress, Progress::Got(_))).count()
    }

    /// Number of required results.
    pub(super) fn all(&self) -> usize {
        self.groups.iter().map(|group| if self.chooses { 1 } else { group.len() }).sum()
    }

    /// Whether the activation has the required results of a group.
    pub(super) fn is_over(&self, group: &[Wait]) -> bool {
        let mut got = group.iter().map(|wait| matches!(wait.progress, Progress::Got(_)));
        if self.chooses { got.any(|got| got) } else { got.all(|got| got) }
    }

    /// Advances through the groups.
    fn come(&mut self, outside: &Outside<'_>) {
        while self.came < self.groups.len() {
            let before = self.groups[..self.came].iter().flatten().filter_map(Wait::got).count();
            if self.read < before || !self.groups[..self.came].iter().all(|group| self.is_over(group)) {
                return;
            }
            for wait in &mut self.groups[self.came] {
                wait.begin(outside);
            }
            self.came += 1;
        }
    }

    /// The current group: the first one after all groups with received results.
    fn next_group(&self) -> Option<usize> {
        let next = self.groups.iter().position(|group| !self.is_over(group)).filter(|_| self.running)?;
        let before = self.groups[..next].iter().flatten().filter_map(Wait::got).count();
        (self.read >= before && !self.is_broken_off()).then_some(next)
    }

    /// Whether a group that is complete ended badly, so that no other group follows.
    pub(super) fn is_broken_off(&self) -> bool {
        let mut handed = 0;
        let over = |group: &&Vec<Wait>| self.is_over(group);
        self.groups.iter().take_while(over).any(|group| {
            let got: Vec<Got> = group.iter().filter_map(Wait::got).collect();
            handed += got.len();
            got.iter().any(Got::is_bad) && self.read >= handed
        })
    }

    /// Its waits without abandoned ones and without work.
    pub(super) fn waits(&self) -> impl Iterator<Item = &Wait> {
        let open = |wait: &&Wait| matches!(wait.progress, Progress::Open(_));
        let groups = self.groups[..self.came].iter().filter(|group| !self.is_over(group));
        groups.flatten().filter(open).filter(|wait| !matches!(wait.need, Need::Work(_)))
    }

    fn works(&self) -> bool {
        self.groups.iter().flatten().any(|wait| matches!(wait.need, Need::Work(_) | Need::Step))
    }

    /// No process has the run in memory any more. Its work restarts, and everything else is read from the log.
    pub(super) fn stop(&mut self) {
        self.running = false;
        for wait in self.groups.iter_mut().flatten() {
            match wait.need {
                Need::Work(_) => wait.progress = Progress::Unset,
                // The receipt of the message is recorded.
                Need::Hear { .. } => wait.said = None,
                _ => {}
            }
        }
    }
}

impl Wait {
    pub(super) fn got(&self) -> Option<Got> {
        match &self.progress {
            Progress::Got(got) => Some(got.clone()),
            _ => None,
        }
    }

    fn is_of_time(&self) -> bool {
        matches!(self.need, Need::Sleep(_))
    }

    /// Whether a pause delays it: this holds for all waits, and not for work.
    fn is_held(&self) -> bool {
        !matches!(self.need, Need::Work(_) | Need::Step)
    }

    fn is_too_large(&self, most: u64) -> bool {
        let is_small = matches!(self.need, Need::Ask { fits: Fits::Small, .. });
        is_small
            && matches!(&self.progress, Progress::Got(Got::Value(value)) if value.as_u64().is_some_and(|n| n > most))
    }

    fn begin(&mut self, outside: &Outside<'_>) {
        let Progress::Unset = self.progress else { return };
        let within = match &self.need {
            Need::Ask { within, .. } | Need::Hear { within, .. } | Need::Work(within) => *within,
            Need::Sleep(time) => Some(*time),
            Need::Step => None,
        };
        self.until = within.map(|within| outside.now + within);
        self.progress = Progress::Open(self.until);
    }

    fn go_on(
        &mut self,
        outside: &mut Outside<'_>,
        inbox: &mut Vec<Waiting>,
        mut close: impl FnMut(&str, Closed),
    ) {
        let now = outside.now;
        let Progress::Open(until) = self.progress else { return };
        let over = until.is_some_and(|until| until <= now);
        let got = match &self.need {
            Need::Ask { name, default, fits, .. } if over => {
                let (got, what) = match default {
                    Some(value) if matches!(fits, Fits::Small) && value.as_u64() > Some(outside.most) => {
                        (Got::Unreadable, Closed::By(Some("deadline".into())))
                    }
                    Some(value) => (Got::Value(value.clone()), Closed::By(Some("deadline".into()))),
                    None => (Got::Expired, Closed::Expired),
                };
                close(name, what);
                got
            }
            Need::Ask { .. } => return,
            Need::Hear { fits, within } => {
                if !inbox.is_empty() {
                    let (_, body, _, at) = inbox.remove(0);
                    if fits.takes(&body) {
                        self.said = Some(at);
                        self.progress = Progress::Got(Got::Value(body));
                        return;
                    }
                    // The message is set aside, the timeout starts again, and the next message is handled separately.
                    self.progress = Progress::Open(within.map(|within| now + within));
                    return;
                }
                if !over {
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
            Need::Work(_) if over => Got::TimedOut,
            Need::Work(_) => return,
        };
        self.progress = Progress::Got(got);
    }
}
