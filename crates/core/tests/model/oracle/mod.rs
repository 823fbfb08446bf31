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

/// How long a process counts as alive after a heartbeat, how often it gives one, how long nodes have after a cancellation, and
/// how near the time must be that alone moves a run for its process to keep it.
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
    /// What the handle of its last start or resume tells.
    handle: Option<Handle>,
}

#[derive(Clone, Copy, Debug)]
enum Handle {
    /// It took the run with this claim, and with code of this revision.
    Drives(u64, &'static str),
    /// It took the run with code of this revision, and has told the error with which its driver ended.
    Drove(&'static str),
    /// It watches the run.
    Watches,
}

/// How a run stands, as a handle tells it.
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

/// A question that is open: id, kind, deadline, default.
pub(crate) type Asked = (String, QuestionKind, Option<u64>, Option<Value>);

/// A message that waits: number, body, author, time.
pub(crate) type Waiting = (u64, Value, Option<String>, u64);

/// The result of a question.
#[derive(Clone, Debug)]
enum Closed {
    By(Option<String>),
    Expired,
}

#[derive(Clone, Debug)]
enum Progress {
    /// Not begun.
    Unset,
    Open(Option<u64>),
    Got(Got),
    /// Answered when another wait beside it had ended first.
    Late {
        rejected: bool,
    },
}

#[derive(Clone, Debug)]
struct Wait {
    need: Need,
    progress: Progress,
    /// When it is over, once it has begun.
    until: Option<u64>,
    /// When somebody said what has come.
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
    /// All that it waits for, in groups.
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
    /// Behind which activation somebody must agree first.
    behind: Option<(&'static str, u32)>,
    /// Whether a process has it in memory.
    running: bool,
    /// How many of the groups it has come to since.
    came: usize,
    /// How many of the things that have come for it it was handed since.
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
    /// The process that has it in memory.
    pub(crate) driver: Option<usize>,
    pub(crate) epoch: u64,
    pub(crate) wake: Option<u64>,
    receiving: bool,
    acts: Vec<Activation>,
    /// Activations that failed the run.
    stopped: Vec<Activation>,
    /// How many branches have come to a node where several meet.
    tokens: BTreeMap<&'static str, usize>,
    /// Nodes that the first of several branches has started.
    spent: BTreeSet<&'static str>,
    /// When it must have ended.
    deadline: Option<u64>,
    /// A node that a replan over the limit was to go back to.
    refused: Option<&'static str>,
    visits: BTreeMap<&'static str, u32>,
    replans: u32,
    /// Activations behind which somebody must agree.
    holds: Vec<(&'static str, u32)>,
    inbox: Vec<Waiting>,
    /// The keys of messages, with what was sent.
    keys: Vec<(u8, Value)>,
    sent: u64,
    closed: BTreeMap<String, Closed>,
    /// When the nodes' time after a cancellation is over.
    grace: Option<u64>,
    /// What the handle of each claim tells once its driver has ended.
    ends: BTreeMap<u64, Stand>,
}

/// The processes, the run, the time and the world outside.
#[derive(Debug)]
pub(crate) struct Oracle {
    pub(crate) now: u64,
    pub(crate) processes: Vec<Process>,
    /// Until when those count as alive that ended without a word.
    dead: BTreeMap<Generation, u64>,
    pub(crate) run: Option<Run>,
    pub(crate) steps: u32,
    pub(crate) rain: bool,
    /// The largest number that is small.
    pub(crate) most: u64,
    /// How often what must not be repeated was begun.
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

    /// Ends a process without a word, and begins another in its place.
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

    /// Whether the shutdown of a process would have to wait for the time.
    pub(crate) fn is_cancelling(&self, slot: usize) -> bool {
        self.run.as_ref().is_some_and(|run| run.driver == Some(slot) && run.grace.is_some())
    }

    pub(crate) fn shutdown(&mut self, slot: usize) {
        self.processes[slot].shut = true;
        if let Some(run) = self.run.as_mut().filter(|run| run.driver == Some(slot)) {
            run.release();
        }
    }

    /// Whether the handle of the process looks at a run that is not driven there.
    pub(crate) fn watches(&self, slot: usize) -> bool {
        matches!(self.processes[slot].handle, Some(Handle::Watches))
    }

    /// The claim whose driver gave the process its handle, once that driver has ended.
    pub(crate) fn ended_claim(&self, slot: usize) -> Option<u64> {
        match (self.processes[slot].handle?, self.run.as_ref()?) {
            (Handle::Drives(epoch, _), run) if run.ends.contains_key(&epoch) => Some(epoch),
            _ => None,
        }
    }

    /// What the handle of the process tells; nothing while the run goes on. `has_changed` says whether the run has a later record than its driver
    /// left.
    pub(crate) fn told(&mut self, slot: usize, has_changed: bool) -> Option<Option<Stand>> {
        let (handle, run) = (self.processes[slot].handle?, self.run.as_ref()?);
        let goes_on = run.status == RunStatus::InProgress && (run.owner.is_some() || run.wake.is_none());
        // Older code does not read the state of newer code.
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
            // An error of the driver is told once.
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
    /// How it stands while nobody drives it.
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

    /// The open questions, by their ids. A run that has ended waits for none.
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

    /// The messages that nobody has taken.
    pub(crate) fn inbox(&self) -> &[Waiting] {
        &self.inbox
    }

    /// Whether nothing can be done to it any more.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.status, RunStatus::Completed | RunStatus::Cancelled)
    }

    /// The ids of the questions that were answered or have expired.
    pub(crate) fn closed(&self) -> Vec<String> {
        self.closed.keys().cloned().collect()
    }
}
