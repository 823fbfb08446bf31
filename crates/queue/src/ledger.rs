//! Who holds a place of a queue and who waits for one. No I/O and no clock: each operation is told the time, and what it changed is a patch
//! of the run that the queue is.

mod choose;
mod debounce;
mod store;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ferrata_core::runtime::Runtime;
use ferrata_core::{ExecutorId, RunKey, Timestamp};
use serde::{Deserialize, Serialize};

pub(crate) use self::choose::LONGEST_CLOSED;
pub use self::debounce::Debounced;
pub(crate) use self::debounce::{Debounce, Replaced};
use crate::settings::{Overrides, Settings};

/// How many keys are remembered for which nothing may start again.
const MOST_SEEN: usize = 10_000;

/// What a place is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// A stretch of a node: it is given back when the node gives it back, or no process is in the node any more.
    Node,
    /// A whole run: it is given back when the run has ended.
    Run,
}

/// One who waits for a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Waiting {
    /// The run.
    pub run: RunKey,
    /// What the place is for.
    pub kind: Kind,
    /// How many places it takes.
    pub places: u32,
    /// For whom: keys take turns.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// How urgent it is: the higher, the sooner.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Since when it waits.
    pub since: Timestamp,
    /// Which process asked for it.
    pub executor: ExecutorId,
    /// The question by whose answer it is woken, if it rests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// When its turn may come at the earliest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// When it is too late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// What others may come by that take its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debounced: Option<Debounced>,
}

/// One who holds a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Held {
    /// The run.
    pub run: RunKey,
    /// What the place is for.
    pub kind: Kind,
    /// How many places it has.
    pub places: u32,
    /// For whom.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// In which process.
    pub executor: ExecutorId,
    /// Since when.
    pub at: Timestamp,
    /// The question by whose answer it is woken, as long as it has not come for its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// When that question was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub woken: Option<Timestamp>,
    /// Whether a run that began on hold is still to be let go.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_hold: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(priority: &i32) -> bool {
    *priority == 0
}

/// What is remembered of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyNote {
    /// The turn at which it had a place last, or at which it came.
    turn: u64,
    /// When a place may be given to it at its rate, in microseconds.
    #[serde(default)]
    next: i64,
}

/// What was started for a key, until when nothing else is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    run: RunKey,
    until: Timestamp,
}

/// How far the queue has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pulse {
    /// How many places were given.
    turn: u64,
    /// When a place may be given at the rate, in microseconds.
    next: i64,
    /// Until when nobody is let in, because whom the limit protects said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    closed_until: Option<Timestamp>,
}

/// A request for a place.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) id: String,
    pub(crate) waiting: Waiting,
    /// What is not to be started twice, and for how many milliseconds.
    pub(crate) once: Option<(String, u64)>,
    /// For what others it waits.
    pub(crate) debounce: Option<Debounce>,
}

/// What is done to a queue.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Ask(Box<Ask>),
    /// The one who waits rests from now on, and is woken by the answer of this question. Who is not in the line any more stands in it again: his
    /// run may have been seen at rest before this was recorded, and his place been given back.
    Rest {
        id: String,
        waiting: Box<Waiting>,
        question: String,
    },
    /// A place is given back, or nobody waits for it any more.
    Leave(String),
    /// As `Leave`, if it is still as it was seen.
    Gone {
        id: String,
        executor: ExecutorId,
        at: Timestamp,
    },
    /// A run that was to begin at once begins on hold: its starter died before it was recorded, and this process takes no runs.
    Hold(String),
    /// A run on hold was let go.
    Begun(String),
    /// The question of one that rests was answered.
    Woken(String),
    /// A run that came too late, or whose place was taken, was cancelled.
    Forgotten(String),
    /// The start that has taken the place of this one was never recorded.
    Restore {
        id: String,
        by: RunKey,
    },
    /// Nobody is let in until then.
    Close(Timestamp),
    Declare(Box<Settings>),
    Override(Box<Overrides>),
}

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Done,
    Granted,
    Waits,
    /// As many wait as may.
    Full(usize),
    /// It asks for more places than there are.
    TooMany(u32),
    /// This run was started for the key, or in its place.
    Before(RunKey),
    /// These settings are stored under this version.
    Differs(Box<Settings>),
}

/// What a key has, and how many wait for it.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    places: u32,
    entries: usize,
}

/// What was changed since the last patch.
#[derive(Debug, Default)]
struct Touched {
    held: BTreeSet<String>,
    waiting: BTreeSet<String>,
    late: BTreeSet<String>,
    replaced: BTreeSet<String>,
    keys: BTreeSet<String>,
    seen: BTreeSet<String>,
    pulse: bool,
    settings: bool,
    overrides: bool,
}

/// To whom a process gives places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    All,
    /// It lacks a tag of the queue, so it would not take up the runs.
    NodesAlone,
}

/// A queue.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) settings: Settings,
    pub(crate) overrides: Overrides,
    pub(crate) held: BTreeMap<String, Held>,
    pub(crate) waiting: BTreeMap<String, Waiting>,
    /// Runs that came too late and are to be cancelled.
    pub(crate) late: BTreeMap<String, RunKey>,
    /// Runs whose place another start has taken, and that are to be cancelled.
    pub(crate) replaced: BTreeMap<String, Replaced>,
    pulse: Pulse,
    keys: BTreeMap<String, KeyNote>,
    seen: BTreeMap<String, Seen>,
    /// What follows from the above.
    in_use: u32,
    loads: HashMap<String, Load>,
    /// No deadline is before it.
    deadline: Option<Timestamp>,
    touched: Touched,
    /// To whom places are given in this process.
    takes: Takes,
    /// Who was given a place since it was asked last.
    given: Vec<String>,
}

impl Ledger {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            overrides: Overrides::default(),
            held: BTreeMap::new(),
            waiting: BTreeMap::new(),
            late: BTreeMap::new(),
            replaced: BTreeMap::new(),
            pulse: Pulse::default(),
            keys: BTreeMap::new(),
            seen: BTreeMap::new(),
            in_use: 0,
            loads: HashMap::new(),
            deadline: None,
            touched: Touched::default(),
            takes: Takes::All,
            given: Vec::new(),
        }
    }

    /// Has places be given as this process may: to no run if it lacks a tag of the queue.
    pub(crate) fn for_process(mut self, runtime: &Runtime) -> Self {
        let has_tags = runtime.has_tags(self.settings.tags.iter().map(String::as_str));
        self.takes = if has_tags { Takes::All } else { Takes::NodesAlone };
        self
    }

    /// Returns who was given a place since this was called last.
    pub(crate) fn take_given(&mut self) -> Vec<String> {
        std::mem::take(&mut self.given)
    }

    /// What it allows now.
    pub(crate) fn effective(&self) -> Settings {
        self.overrides.over(&self.settings)
    }

    /// Until when nobody is let in.
    pub(crate) fn closed_until(&self) -> Option<Timestamp> {
        self.pulse.closed_until
    }

    /// Does something to the queue. Places that become free are given by [`grant`](Self::grant).
    pub(crate) fn apply(&mut self, op: Op, now: Timestamp) -> Said {
        match op {
            Op::Ask(ask) => return self.ask(*ask, now),
            Op::Rest { id, waiting, question } => {
                if let Some(held) = self.held.get_mut(&id) {
                    (held.question, held.woken) = (Some(question), None);
                    self.touched.held.insert(id);
                    return Said::Granted;
                }
                match self.waiting.get_mut(&id) {
                    Some(waiting) => waiting.question = Some(question),
                    None => self.enter(id.clone(), Waiting { question: Some(question), ..*waiting }),
                }
                self.touched.waiting.insert(id);
                return Said::Waits;
            }
            Op::Leave(id) => self.leave(&id),
            Op::Gone { id, executor, at } => {
                if self.held.get(&id).is_some_and(|held| held.executor == executor && held.at == at) {
                    self.leave(&id);
                }
            }
            Op::Hold(id) => {
                if let Some(held) = self.held.get_mut(&id).filter(|held| held.kind == Kind::Run) {
                    held.on_hold = true;
                    self.touched.held.insert(id);
                }
            }
            Op::Begun(id) => {
                if let Some(held) = self.held.get_mut(&id).filter(|held| held.on_hold) {
                    held.on_hold = false;
                    self.touched.held.insert(id);
                }
            }
            Op::Woken(id) => {
                let rests = |held: &&mut Held| held.question.is_some() && held.woken.is_none();
                if let Some(held) = self.held.get_mut(&id).filter(rests) {
                    held.woken = Some(now);
                    self.touched.held.insert(id);
                }
            }
            Op::Forgotten(id) => {
                if self.replaced.remove(&id).is_some() {
                    self.touched.replaced.insert(id.clone());
                }
                if self.late.remove(&id).is_some() {
                    self.touched.late.insert(id);
                }
            }
            Op::Restore { id, by } => self.restore(&id, &by, now),
            Op::Close(until) => {
                if self.pulse.closed_until.is_none_or(|closed| closed < until) {
                    self.pulse.closed_until = Some(until);
                    self.touched.pulse = true;
                }
            }
            Op::Declare(settings) => return self.declare(*settings),
            Op::Override(overrides) => {
                self.touched.overrides |= self.overrides != *overrides;
                self.overrides = *overrides;
            }
        }
        Said::Done
    }

    /// The settings of the highest version hold.
    fn declare(&mut self, settings: Settings) -> Said {
        if settings.version == self.settings.version && settings != self.settings {
            return Said::Differs(Box::new(self.settings.clone()));
        }
        if settings.version > self.settings.version {
            self.settings = settings;
            self.touched.settings = true;
        }
        Said::Done
    }

    fn ask(&mut self, ask: Ask, now: Timestamp) -> Said {
        let Ask { id, mut waiting, once, debounce } = ask;
        if let Some(held) = self.held.get_mut(&id) {
            let on_hold = held.on_hold;
            if held.executor != waiting.executor || held.question.is_some() {
                (held.executor, held.question, held.woken) = (waiting.executor, None, None);
                self.touched.held.insert(id);
            }
            return if on_hold { Said::Waits } else { Said::Granted };
        }
        if let Some(known) = self.waiting.get_mut(&id) {
            if known.executor != waiting.executor || known.question.is_some() {
                (known.executor, known.question) = (waiting.executor, None);
                self.touched.waiting.insert(id);
            }
            return Said::Waits;
        }
        if let Some(replaced) = self.replaced.get(&id) {
            return Said::Before(replaced.by.clone());
        }
        if let Some(places) = self.effective().at_once
            && waiting.places > places
        {
            return Said::TooMany(places);
        }
        self.forget_seen(now);
        if let Some((key, _)) = &once
            && let Some(seen) = self.seen.get(key)
            && seen.run != waiting.run
        {
            return Said::Before(seen.run.clone());
        }
        let run = waiting.run.clone();
        let before = debounce.as_ref().and_then(|debounce| self.debounced(&debounce.key));
        if let Some(debounce) = &debounce {
            self.delay(&mut waiting, debounce, before.as_deref(), now);
        }
        self.enter(id.clone(), waiting);
        self.grant(now);
        let most = (self.settings.max_waiting as usize).saturating_add(usize::from(before.is_some()));
        if !self.held.contains_key(&id) && self.waiting.len() > most
            || once.is_some() && self.seen.len() >= MOST_SEEN
        {
            self.leave(&id);
            return Said::Full(self.waiting.len());
        }
        if let Some(before) = before {
            self.replace(&before, &run, now);
        }
        if let Some((once, ms)) = once {
            let until = now.plus(std::time::Duration::from_millis(ms));
            self.touched.seen.insert(once.clone());
            self.seen.insert(once, Seen { run, until });
        }
        let Some(held) = self.held.get_mut(&id) else { return Said::Waits };
        // Who asked begins with it: it has not been started yet.
        held.on_hold = false;
        Said::Granted
    }

    fn enter(&mut self, id: String, waiting: Waiting) {
        if !waiting.key.is_empty() || !self.keys.is_empty() {
            // A key that was not there is served after those that were, once each.
            let turn = self.pulse.turn;
            self.keys.entry(waiting.key.clone()).or_insert_with(|| KeyNote { turn, next: 0 });
            self.touched.keys.insert(waiting.key.clone());
        }
        self.loads.entry(waiting.key.clone()).or_default().entries += 1;
        self.deadline = [self.deadline, waiting.deadline].into_iter().flatten().min();
        self.touched.waiting.insert(id.clone());
        self.waiting.insert(id, waiting);
    }

    /// Takes somebody out, whether he holds a place or waits for one.
    fn leave(&mut self, id: &str) {
        let key = if let Some(held) = self.held.remove(id) {
            self.touched.held.insert(id.to_owned());
            self.in_use = self.in_use.saturating_sub(held.places);
            let load = self.loads.entry(held.key.clone()).or_default();
            load.places = load.places.saturating_sub(held.places);
            held.key
        } else if let Some(waiting) = self.waiting.remove(id) {
            self.touched.waiting.insert(id.to_owned());
            waiting.key
        } else {
            return;
        };
        if let Some(load) = self.loads.get_mut(&key) {
            load.entries = load.entries.saturating_sub(1);
        }
    }

    /// Forgets keys for which something may start again.
    fn forget_seen(&mut self, now: Timestamp) {
        let over: Vec<String> =
            self.seen.iter().filter(|(_, seen)| seen.until <= now).map(|(key, _)| key.clone()).collect();
        for key in over {
            self.seen.remove(&key);
            self.touched.seen.insert(key);
        }
    }
}

#[cfg(test)]
mod tests;
