//! Signals to a run and their effect: either an error without effect, or the whole effect.

use ferrata_core::ErrorKind;
use ferrata_core::record::{FailureKind, RunStatus};
use serde_json::{Map, Value};

use super::plan::{Got, Need};
use super::{Activation, Before, Closed, Handle, Oracle, Process, Progress, Resolved, Run};
use crate::graphs::Family;
use crate::operations::{Answering, Choice, Outcome, Resolving};

type Said = Result<(), ErrorKind>;

/// A question that was found by a caller's id.
enum Found {
    Doubt(usize),
    Before(usize),
    Asked(usize, &'static str),
    Behind(usize),
}

impl Oracle {
    /// Starts the run, or finds the existing one.
    pub(crate) fn start(&mut self, slot: usize, family: Family, input: i64) -> Said {
        if self.processes[slot].shut {
            return Err(ErrorKind::Closed);
        }
        let Some(run) = &self.run else {
            let mut run = Run::new(family, input);
            run.deadline = family.deadline().map(|after| self.now + after);
            run.owner = Some(self.processes[slot].generation);
            run.driver = Some(slot);
            run.activate(family.entry(), None);
            self.processes[slot].handle = Some(Handle::Drives(1, run.revision));
            self.run = Some(run);
            self.go_on();
            return Ok(());
        };
        if (run.family, run.input) != (family, input) {
            return Err(ErrorKind::AlreadyExists);
        }
        let elsewhere =
            run.owner.is_some_and(|owner| owner != self.processes[slot].generation && self.is_alive(owner));
        if run.status.is_finished() || elsewhere {
            self.processes[slot].handle = Some(Handle::Watches);
            return Ok(());
        }
        let choice = Choice { take_over: false, revision: self.revision(), allow: false, family };
        match self.resume(slot, &choice) {
            Err(ErrorKind::Conflict | ErrorKind::WrongStatus) => {
                self.processes[slot].handle = Some(Handle::Watches);
                Ok(())
            }
            said => said,
        }
    }

    pub(crate) fn resume(&mut self, slot: usize, choice: &Choice) -> Said {
        let Process { generation, shut, .. } = self.processes[slot];
        let run = self.run.as_ref().ok_or(ErrorKind::NotFound)?;
        if run.status.is_finished() {
            return Err(ErrorKind::WrongStatus);
        }
        if run.owner.is_some_and(|owner| owner != generation && self.is_alive(owner)) && !choice.take_over {
            return Err(ErrorKind::Conflict);
        }
        if run.family != choice.family {
            return Err(ErrorKind::Invalid);
        }
        let due = run.wake.is_some_and(|wake| wake <= self.now);
        let asleep = run.owner.is_none() && run.wake.is_some();
        if (run.status != RunStatus::InProgress || asleep) && !due {
            self.processes[slot].handle = Some(Handle::Watches);
            return Ok(());
        }
        if shut {
            return Err(ErrorKind::Closed);
        }
        if run.driver == Some(slot) {
            return Err(ErrorKind::Conflict);
        }
        let is_older = run.revision == "3" && choice.revision != "3";
        if is_older || run.revision != choice.revision && !choice.allow {
            return Err(ErrorKind::GraphChanged);
        }
        let run = self.run.as_mut().unwrap();
        run.fence();
        run.migrate(choice.revision);
        run.epoch += 1;
        (run.owner, run.driver, run.revision) = (Some(generation), Some(slot), choice.revision);
        for act in run.acts.iter_mut().filter(|act| act.begun && act.resolved.is_none()) {
            act.doubt = true;
        }
        run.wake_up();
        if let Some(node) = run.refused.take() {
            run.activate(node, None);
        }
        self.processes[slot].handle = Some(Handle::Drives(run.epoch, choice.revision));
        self.go_on();
        Ok(())
    }

    /// Answers a question. `by` is the author of an earlier answer.
    pub(crate) fn respond(&mut self, id: &str, answer: &Answering, by: Option<&str>) -> Outcome {
        let now = self.now;
        let run = self.run.as_mut().ok_or(ErrorKind::NotFound)?;
        if run.status.is_finished() {
            return Err(ErrorKind::WrongStatus.into());
        }
        let (found, full) = run.find(id)?;
        let resolves = matches!(answer, Answering::Resolve(_));
        if resolves != matches!(found, Found::Doubt(_)) {
            return Err(ErrorKind::Invalid.into());
        }
        if let Found::Asked(at, name) = found {
            let wait = run.acts[at].question(name);
            let Progress::Open(until) = &wait.progress else { unreachable!("the question is open") };
            if until.is_some_and(|until| until <= now) {
                return Err(ErrorKind::WrongStatus.into());
            }
            if let (Need::Ask { fits, .. }, Answering::Accept(value)) = (&wait.need, answer)
                && !fits.takes(value)
            {
                return Err(ErrorKind::Invalid.into());
            }
        }
        if matches!(answer, Answering::Cancel(_)) && run.cancel.is_some() {
            return Err(ErrorKind::WrongStatus.into());
        }
        run.closed.insert(full.clone(), Closed::By(by.map(str::to_owned)));
        run.take(&found, answer, now);
        if let Answering::Cancel(reason) = answer {
            run.cancel = Some(format!("the question `{full}` was cancelled: {reason}"));
        }
        run.wake_up();
        if run.owner.is_none() && run.cancel.is_some() {
            run.stop();
        }
        self.go_on();
        Ok(())
    }

    pub(crate) fn send(&mut self, body: &Value, key: Option<u8>, by: Option<&str>) -> Said {
        let now = self.now;
        let run = self.run.as_mut().ok_or(ErrorKind::NotFound)?;
        if let Some((_, sent)) = run.keys.iter().find(|(known, _)| Some(*known) == key) {
            return if sent == body { Ok(()) } else { Err(ErrorKind::AlreadyExists) };
        }
        if run.status.is_finished() {
            return Err(ErrorKind::WrongStatus);
        }
        run.inbox.push((run.sent, body.clone(), by.map(str::to_owned), now));
        run.sent += 1;
        run.keys.extend(key.map(|key| (key, body.clone())));
        if run.receiving {
            run.wake_up();
        }
        self.go_on();
        Ok(())
    }

    pub(crate) fn cancel(&mut self, reason: &str) -> Said {
        let run = self.run.as_mut().ok_or(ErrorKind::NotFound)?;
        if run.status.is_finished() || run.cancel.is_some() {
            return Err(ErrorKind::WrongStatus);
        }
        run.cancel = Some(reason.to_owned());
        if run.owner.is_none() {
            run.stop();
        }
        self.go_on();
        Ok(())
    }

    pub(crate) fn pause(&mut self, reason: &str) -> Said {
        let run = self.run.as_mut().ok_or(ErrorKind::NotFound)?;
        if run.status.is_finished() || run.paused.is_some() {
            return Err(ErrorKind::WrongStatus);
        }
        run.paused = Some(reason.to_owned());
        if run.owner.is_none() {
            (run.status, run.wake) = (RunStatus::Interrupted, None);
        }
        self.go_on();
        Ok(())
    }

    pub(crate) fn unpause(&mut self) -> Said {
        let run = self.run.as_mut().ok_or(ErrorKind::NotFound)?;
        let ended = matches!(run.status, RunStatus::Completed | RunStatus::Cancelled);
        if ended || run.paused.is_none() {
            return Err(ErrorKind::WrongStatus);
        }
        run.paused = None;
        run.wake_up();
        run.complete();
        self.go_on();
        Ok(())
    }

    pub(crate) fn retry(&mut self) -> Said {
        let run = self.run.as_mut().ok_or(ErrorKind::NotFound)?;
        if run.status != RunStatus::Failed {
            return Err(ErrorKind::WrongStatus);
        }
        (run.status, run.failure) = (RunStatus::InProgress, None);
        run.acts.iter_mut().for_each(Activation::ask_anew);
        for mut act in std::mem::take(&mut run.stopped) {
            act.ask_anew();
            act.forget();
            run.acts.push(act);
        }
        let family = run.family;
        run.acts.sort_by_key(|act| (family.place(act.node), act.visit));
        // An `External` node may still be running, so its process continues.
        run.owner = run.driver.map(|slot| self.processes[slot].generation);
        self.go_on();
        Ok(())
    }

    /// Sets a channel.
    pub(crate) fn edit(&mut self, channel: &str, value: &Value, fits: bool) -> Said {
        let run = self.run.as_mut().ok_or(ErrorKind::NotFound)?;
        if matches!(run.status, RunStatus::Completed | RunStatus::Cancelled) {
            return Err(ErrorKind::WrongStatus);
        }
        if !fits {
            return Err(ErrorKind::Invalid);
        }
        run.state.insert(channel.to_owned(), value.clone());
        Ok(())
    }
}

impl Run {
    pub(super) fn new(family: Family, input: i64) -> Self {
        Self {
            family,
            input,
            revision: "1",
            status: RunStatus::InProgress,
            failure: None,
            paused: None,
            cancel: None,
            state: Map::from_iter([("n".to_owned(), input.into())]),
            owner: None,
            driver: None,
            epoch: 1,
            wake: None,
            receiving: false,
            acts: Vec::new(),
            stopped: Vec::new(),
            tokens: std::collections::BTreeMap::new(),
            spent: std::collections::BTreeSet::new(),
            deadline: None,
            refused: None,
            visits: std::collections::BTreeMap::new(),
            replans: 0,
            holds: Vec::new(),
            inbox: Vec::new(),
            keys: Vec::new(),
            sent: 0,
            closed: std::collections::BTreeMap::new(),
            grace: None,
            ends: std::collections::BTreeMap::new(),
        }
    }

    /// The run can continue unless it is paused or has ended.
    fn wake_up(&mut self) {
        if !self.status.is_finished() && self.paused.is_none() {
            (self.status, self.wake, self.receiving) = (RunStatus::InProgress, None, false);
        }
    }

    /// Finds an open question by its id, or by a unique prefix of it.
    fn find(&self, id: &str) -> Result<(Found, String), crate::operations::Refused> {
        let open: Vec<String> = self.questions().into_iter().map(|(id, ..)| id).collect();
        let begins = |full: &&String| {
            full.strip_prefix(id).is_some_and(|rest| rest.starts_with('@') || rest.starts_with(':'))
        };
        let named: Vec<&String> = open.iter().filter(begins).collect();
        let full = match (open.iter().find(|full| *full == id), &*named) {
            (Some(full), _) => full,
            (None, [only]) => only,
            (None, [_, ..]) => return Err(ErrorKind::Invalid.into()),
            (None, []) => {
                return Err(match self.closed.get(id) {
                    Some(Closed::By(by)) => crate::operations::Refused::answered(by.as_deref()),
                    Some(Closed::Expired) => ErrorKind::WrongStatus.into(),
                    None => ErrorKind::NotFound.into(),
                });
            }
        };
        let (activation, name) = full.split_once(':').unwrap_or((full, ""));
        let is = |node: &str, visit: u32| format!("{node}@{visit}") == activation;
        if name == "after" {
            let at = self.holds.iter().position(|(node, visit)| is(node, *visit)).unwrap();
            return Ok((Found::Behind(at), full.clone()));
        }
        let at = self.acts.iter().position(|act| is(act.node, act.visit)).unwrap();
        let found = match name {
            "" => Found::Doubt(at),
            "before" => Found::Before(at),
            _ => Found::Asked(at, self.acts[at].name(name)),
        };
        Ok((found, full.clone()))
    }

    /// Applies a valid answer.
    fn take(&mut self, found: &Found, answer: &Answering, now: u64) {
        match *found {
            Found::Doubt(at) => {
                let act = &mut self.acts[at];
                (act.doubt, act.begun) = (false, false);
                act.resolved = match answer {
                    Answering::Resolve(Resolving::Supply) => Some(Resolved::Supply),
                    Answering::Resolve(Resolving::Skip) => Some(Resolved::Skip),
                    Answering::Resolve(Resolving::Fail) => Some(Resolved::Fail),
                    _ => None,
                };
            }
            Found::Before(at) => {
                self.acts[at].before = match answer {
                    Answering::Reject(_) => Before::Rejected,
                    _ => Before::Agreed,
                };
            }
            Found::Asked(at, name) => {
                let got = match answer {
                    Answering::Accept(value) => Got::Value(value.clone()),
                    _ => Got::Rejected,
                };
                let is_late = self.acts[at].is_decided(name);
                let wait = self.acts[at].question_mut(name);
                wait.progress = if is_late {
                    Progress::Late { rejected: got == Got::Rejected }
                } else {
                    Progress::Got(got)
                };
                wait.said = Some(now);
            }
            Found::Behind(at) => {
                self.holds.remove(at);
                if matches!(answer, Answering::Reject(_)) {
                    (self.status, self.failure) = (RunStatus::Failed, Some(FailureKind::Rejected));
                    (self.wake, self.receiving) = (None, false);
                }
            }
        }
    }
}

impl Activation {
    /// Clears the parts of a retried activation.
    fn forget(&mut self) {
        (self.failed, self.retry_at, self.begun) = (0, None, false);
        // An `External` node is repeated only by an operator's resolution.
        self.doubt = self.resolved.take().is_some();
    }

    /// A retry asks again every question that was answered without a value.
    fn ask_anew(&mut self) {
        if self.before == Before::Rejected {
            self.before = Before::Unasked;
        }
        for wait in self.groups.iter_mut().flatten() {
            if let Progress::Got(Got::Rejected | Got::Expired | Got::Unreadable)
            | Progress::Late { rejected: true } = wait.progress
            {
                wait.progress = Progress::Unset;
            }
        }
    }

    /// Whether another wait next to this question has ended first.
    fn is_decided(&self, called: &str) -> bool {
        let is = |wait: &super::Wait| matches!(wait.need, Need::Ask { name, .. } if name == called);
        self.chooses && self.groups.iter().any(|group| group.iter().any(is) && self.is_over(group))
    }

    fn question(&self, called: &str) -> &super::Wait {
        let is = |wait: &&super::Wait| matches!(wait.need, Need::Ask { name, .. } if name == called);
        self.groups.iter().flatten().find(is).unwrap()
    }

    fn question_mut(&mut self, called: &str) -> &mut super::Wait {
        let is = |wait: &&mut super::Wait| matches!(wait.need, Need::Ask { name, .. } if name == called);
        self.groups.iter_mut().flatten().find(is).unwrap()
    }

    fn name(&self, called: &str) -> &'static str {
        match self.question(called).need {
            Need::Ask { name, .. } => name,
            _ => unreachable!("only questions are looked for"),
        }
    }
}
