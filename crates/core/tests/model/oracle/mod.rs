//! A plain model of a run and its processes, written from the documentation: no log, no store, no threads.

mod drive;
mod ends;
mod fork;
mod plan;
mod say;
mod wait;

use std::collections::{BTreeMap, BTreeSet};

use ferrata_core::ErrorKind;
use ferrata_core::ask::QuestionKind;
use ferrata_core::record::{FailureKind, RunStatus};
use serde_json::{Map, Value};

use self::plan::{Got, Need};
use crate::graphs::Family;

/// Validity and interval of heartbeats, grace after a cancellation, and the longest timer that keeps a run in memory.
const ALIVE: u64 = 15_000;
const BEAT: u64 = ALIVE / 3;
const GRACE: u64 = 5_000;
const KEPT: u64 = 60_000;

/// The number of a process instance, never used again.
pub(crate) type Generation = u64;

/// A process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) generation: Generation,
    beat: u64,
    /// Whether its runtime was shut down.
    pub(crate) shut: bool,
    /// The handle of its last start or resume.
    handle: Option<Handle>,
}

#[derive(Clone, Copy, Debug)]
enum Handle {
    /// It claimed the run, with this claim and code revision.
    Drives(u64, &'static str),
    /// It claimed the run with code of this revision, and has returned the error of its driver.
    Drove(&'static str),
    /// It watches the run.
    Watches,
}

/// The outcome of a handle.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stand {
    Completed(Value),
    Failed(FailureKind, Value),
    Interrupted(Vec<String>),
    AwaitingInput,
    Paused(String, Vec<String>),
    Sleeping(u64),
    Cancelled(String),
    Released,
    Error(ErrorKind),
}

/// An open question: id, kind, deadline, default.
pub(crate) type Asked = (String, QuestionKind, Option<u64>, Option<Value>);

/// A waiting message: number, body, author, time.
pub(crate) type Waiting = (u64, Value, Option<String>, u64);

/// The result of a question.
#[derive(Clone, Debug)]
enum Closed {
    By(Option<String>),
    Expired,
}

#[derive(Clone, Debug)]
enum Progress {
    /// Not started.
    Unset,
    Open(Option<u64>),
    Got(Got),
    /// Answered after another concurrent wait had ended.
    Late {
        rejected: bool,
    },
}

#[derive(Clone, Debug)]
struct Wait {
    need: Need,
    progress: Progress,
    /// The time at which it ends, once it has started.
    until: Option<u64>,
    /// The time of the signal that it received.
    said: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Unasked,
    Open,
    Agreed,
    Rejected,
}

/// An operator's resolution of an activation with unknown outcome.
#[derive(Clone, Debug)]
enum Resolved {
    Supply,
    Skip,
    Fail,
}

#[derive(Debug)]
struct Activation {
    node: &'static str,
    visit: u32,
    /// All its waits, in groups.
    groups: Vec<Vec<Wait>>,
    /// Whether one wait of each group is enough.
    chooses: bool,
    failed: u32,
    retry_at: Option<u64>,
    before: Before,
    /// Whether unrepeatable work may be running, and whether its outcome is unknown.
    begun: bool,
    doubt: bool,
    resolved: Option<Resolved>,
    /// The activation after which a person must agree first.
    behind: Option<(&'static str, u32)>,
    /// Whether a process has it in memory.
    running: bool,
    /// Number of groups that it has reached since then.
    came: usize,
    /// Number of results that it has received since then.
    read: usize,
}

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) family: Family,
    input: i64,
    revision: &'static str,
    pub(crate) status: RunStatus,
    failure: Option<FailureKind>,
    paused: Option<String>,
    cancel: Option<String>,
    pub(crate) state: Map<String, Value>,
    pub(crate) owner: Option<Generation>,
    /// The process that has the run in memory.
    pub(crate) driver: Option<usize>,
    pub(crate) epoch: u64,
    pub(crate) wake: Option<u64>,
    receiving: bool,
    acts: Vec<Activation>,
    /// Activations that failed the run.
    stopped: Vec<Activation>,
    /// Number of branches that have reached each join.
    tokens: BTreeMap<&'static str, usize>,
    /// Joins that their first branch has started.
    spent: BTreeSet<&'static str>,
    /// Deadline of the run.
    deadline: Option<u64>,
    /// The node to which a refused replan leads.
    refused: Option<&'static str>,
    visits: BTreeMap<&'static str, u32>,
    replans: u32,
    /// Activations after which a person must agree.
    holds: Vec<(&'static str, u32)>,
    inbox: Vec<Waiting>,
    /// The keys of messages, with their bodies.
    keys: Vec<(u8, Value)>,
    sent: u64,
    closed: BTreeMap<String, Closed>,
    /// End of the grace after a cancellation.
    grace: Option<u64>,
    /// The outcome of each claim's handle after its driver has ended.
    ends: BTreeMap<u64, Stand>,
}

/// The processes, the run, the time and the external world.
#[derive(Debug)]
pub(crate) struct Oracle {
    pub(crate) now: u64,
    pub(crate) processes: Vec<Process>,
    /// The times until which crashed processes count as alive.
    dead: BTreeMap<Generation, u64>,
    pub(crate) run: Option<Run>,
    pub(crate) steps: u32,
    pub(crate) rain: bool,
    /// The largest valid `Small`.
    pub(crate) most: u64,
    /// Number of starts of `External` nodes.
    pub(crate) begun: BTreeMap<String, u32>,
}

impl Oracle {
    pub(crate) fn new(now: u64, processes: usize) -> Self {
        let process = |slot| Process { generation: slot as u64 + 1, beat: now, shut: false, handle: None };
        Self {
            now,
            processes: (0..processes).map(process).collect(),
            dead: BTreeMap::new(),
            run: None,
            steps: 0,
            rain: true,
            most: 9,
            begun: BTreeMap::new(),
        }
    }

    /// Crashes a process, and starts another one in its slot.
    pub(crate) fn crash(&mut self, slot: usize, generation: Generation) {
        let process = Process { generation, beat: self.now, shut: false, handle: None };
        let old = std::mem::replace(&mut self.processes[slot], process);
        self.dead.insert(old.generation, if old.shut { self.now } else { old.beat + ALIVE });
        if let Some(run) = self.run.as_mut().filter(|run| run.driver == Some(slot)) {
            run.leave();
        }
    }

    /// Whether a process counts as alive.
    pub(crate) fn is_alive(&self, generation: Generation) -> bool {
        self.dead.get(&generation).is_none_or(|until| self.now < *until)
    }

    pub(crate) fn advance(&mut self, by: u64) {
        self.now += by;
        for process in self.processes.iter_mut().filter(|process| self.now >= process.beat + BEAT) {
            process.beat = self.now;
        }
        self.go_on();
    }

    /// Whether a shutdown of the process would have to wait for the clock.
    pub(crate) fn is_cancelling(&self, slot: usize) -> bool {
        self.run.as_ref().is_some_and(|run| run.driver == Some(slot) && run.grace.is_some())
    }

    pub(crate) fn shutdown(&mut self, slot: usize) {
        self.processes[slot].shut = true;
        if let Some(run) = self.run.as_mut().filter(|run| run.driver == Some(slot)) {
            run.release();
        }
    }

    /// Whether the handle of the process watches a run that is not driven there.
    pub(crate) fn watches(&self, slot: usize) -> bool {
        matches!(self.processes[slot].handle, Some(Handle::Watches))
    }

    /// The claim of the driver to which the process's handle belongs, after that driver has ended.
    pub(crate) fn ended_claim(&self, slot: usize) -> Option<u64> {
        match (self.processes[slot].handle?, self.run.as_ref()?) {
            (Handle::Drives(epoch, _), run) if run.ends.contains_key(&epoch) => Some(epoch),
            _ => None,
        }
    }

    /// The outcome of the process's handle, or none while the run is active. `has_changed`: whether the run has a later record than its driver left.
    pub(crate) fn told(&mut self, slot: usize, has_changed: bool) -> Option<Option<Stand>> {
        let (handle, run) = (self.processes[slot].handle?, self.run.as_ref()?);
        let goes_on = run.status == RunStatus::InProgress && (run.owner.is_some() || run.wake.is_none());
        // Older code cannot read the state of newer code.
        let watched = |revision: &str| match run.revision == "3" && revision != "3" {
            _ if goes_on => None,
            true => Some(Stand::Error(ErrorKind::GraphChanged)),
            false => Some(run.stand()),
        };
        let (epoch, revision) = match handle {
            Handle::Watches => return Some(watched(run.revision)),
            Handle::Drove(revision) => return Some(watched(revision)),
            Handle::Drives(epoch, revision) => (epoch, revision),
        };
        Some(match run.ends.get(&epoch) {
            Some(Stand::Completed(_) | Stand::Cancelled(_)) | None => run.ends.get(&epoch).cloned(),
            // The error of a driver is returned once.
            Some(error @ Stand::Error(_)) => {
                let error = error.clone();
                self.processes[slot].handle = Some(Handle::Drove(revision));
                Some(error)
            }
            Some(_) if has_changed => watched(revision),
            Some(end) => Some(end.clone()),
        })
    }
}

impl Run {
    /// The outcome without a driver.
    fn stand(&self) -> Stand {
        let state = Value::Object(self.state.clone());
        let ids = || self.questions().into_iter().map(|(id, ..)| id).collect();
        match self.status {
            RunStatus::Completed => Stand::Completed(state),
            RunStatus::Failed => Stand::Failed(self.failure.unwrap(), state),
            RunStatus::Cancelled => Stand::Cancelled(self.cancel.clone().unwrap()),
            RunStatus::AwaitingInput => Stand::AwaitingInput,
            RunStatus::Interrupted => match &self.paused {
                Some(reason) => Stand::Paused(reason.clone(), ids()),
                None => Stand::Interrupted(ids()),
            },
            _ => self.wake.map_or(Stand::Released, Stand::Sleeping),
        }
    }

    /// The open questions by id. An ended run has none.
    pub(crate) fn questions(&self) -> Vec<Asked> {
        let mut asked = Vec::new();
        if self.status.is_finished() {
            return asked;
        }
        for act in &self.acts {
            let id = |name: &str| format!("{}@{}:{name}", act.node, act.visit);
            if act.doubt {
                asked.push((format!("{}@{}", act.node, act.visit), QuestionKind::Doubt, None, None));
            }
            if act.before == Before::Open {
                asked.push((id("before"), QuestionKind::Before, None, None));
            }
            for wait in act.groups.iter().flatten() {
                if let (Need::Ask { name, default, .. }, Progress::Open(until)) = (&wait.need, &wait.progress)
                {
                    asked.push((id(name), QuestionKind::Asked, *until, default.clone()));
                }
            }
        }
        let behind = self.holds.iter().map(|(node, visit)| format!("{node}@{visit}:after"));
        asked.extend(behind.map(|id| (id, QuestionKind::After, None, None)));
        asked.sort_by(|one, other| one.0.cmp(&other.0));
        asked
    }

    /// The unread messages.
    pub(crate) fn inbox(&self) -> &[Waiting] {
        &self.inbox
    }

    /// Whether the run cannot change any more.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.status, RunStatus::Completed | RunStatus::Cancelled)
    }

    /// The ids of the questions that were answered or have expired.
    pub(crate) fn closed(&self) -> Vec<String> {
        self.closed.keys().cloned().collect()
    }
}
