//! Who holds a place of a queue and who waits for one. No I/O and no clock: each operation is told the time, and what it changed is a patch
//! of the run that the queue is.

mod choose;
mod debounce;
mod entered;
mod entry;
mod follow;
mod keys;
mod life;
mod line;
mod store;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrata_core::runtime::{Runtime, StateCell};
use ferrata_core::{Epoch, ExecutorId, RunKey, Timestamp};
use serde::{Deserialize, Serialize};

pub(crate) use self::choose::LONGEST_CLOSED;
pub use self::debounce::Debounced;
pub(crate) use self::debounce::{Debounce, Replaced};
pub(crate) use self::entered::Entered;
use self::entered::Noted;
pub(crate) use self::entry::Late;
pub use self::entry::{Held, Kind, Waiting};
use self::entry::{Seen, text};
use self::keys::Keys;
pub(crate) use self::life::Life;
use self::line::Line;
pub(crate) use self::line::RUN;
use self::table::Table;
use crate::settings::{Overrides, Settings};

/// How many keys are remembered for which nothing may start again.
const MOST_SEEN: usize = 10_000;

/// How many bytes of a queue are its settings, names and counters, at the most.
const FIXED: usize = 2_048;

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
    /// Starts of the run in this process that came to an end without knowing what became of them.
    pub(crate) doubts: Vec<Life>,
}

/// What is done to a queue.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Ask(Box<Ask>),
    /// The one who waits rests from now on, and is woken by the answer of this question. Who is not in the line any more stands in it again: his
    /// run may have been seen at rest before this was recorded, and his place been given back. Where the run goes on in another process since, what
    /// stands there is of the node in that one, and stays.
    Rest {
        id: String,
        waiting: Box<Waiting>,
        question: String,
    },
    /// A run has ended: its start is taken out. Where the run or its entry does not say which one it is of, its place is given back, or it
    /// leaves the line; but if it is known which place it had, and which process asked for that last, of that place alone.
    LeaveRun {
        id: String,
        life: Option<Life>,
        place: Option<(Timestamp, ExecutorId)>,
    },
    /// These starts record nothing any more, and what that one has recorded has not ended.
    Settle {
        id: String,
        gone: Vec<Life>,
        found: Option<Life>,
    },
    /// A place is given back, or the line left, of a node of this process: where the run goes on in another one since, what stands there is of the node in that one.
    LeaveNode {
        id: String,
        executor: ExecutorId,
    },
    /// A place is given back, or the line left, of a run whose start in this process has entered it and was refused.
    TakeBack {
        id: String,
        life: Life,
        entered: Arc<Entered>,
    },
    /// A place is given back, if it is still as it was seen: its node may have come for it since.
    Gone {
        id: String,
        seen: Box<Held>,
    },
    /// A run that was to begin at once begins on hold: its starter died before it was recorded, and this process takes no runs; or it is on record
    /// on hold, of before the queue was purged.
    Hold(String),
    /// The claim of its run in which this one asked is not in the log: the store has lost its last records.
    Lost {
        id: String,
        executor: ExecutorId,
        epoch: Epoch,
    },
    /// A run on hold that was given its place then was let go: not another start of the same name since.
    Begun {
        id: String,
        at: Timestamp,
        life: Option<Life>,
    },
    /// This question of one that rests was answered: not another, which it asked since.
    Woken {
        id: String,
        question: String,
    },
    /// A run that came too late then, or whose place was taken then, was cancelled: not another start of the same name since.
    Forgotten {
        id: String,
        at: Timestamp,
    },
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
    /// It was asked for in a later claim of the run, by this process.
    Stale(ExecutorId, Epoch),
    /// As many wait as may.
    Full(usize),
    /// As many keys are remembered, so that nothing is started for them again, as may be.
    Seen(usize),
    /// Those who are in it take as many bytes as the state may have.
    NoRoom {
        bytes: usize,
        room: usize,
    },
    /// It asks for more places than there are.
    TooMany(u32),
    /// This run was started for the key, or in its place.
    Before(RunKey),
    /// These settings are stored under this version.
    Differs(Box<Settings>),
}

/// What was changed since the last patch beside the entries.
#[derive(Debug, Default)]
struct Touched {
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
    pub(crate) held: Table<Held>,
    pub(crate) waiting: Line,
    /// Runs that came too late and are to be cancelled.
    pub(crate) late: Table<Late>,
    /// Runs whose place another start has taken, and that are to be cancelled.
    pub(crate) replaced: Table<Replaced>,
    pulse: Pulse,
    keys: Keys,
    seen: Table<Seen>,
    /// How many places are held.
    in_use: u32,
    /// How many bytes it may have in the state.
    room: usize,
    touched: Touched,
    /// To whom places are given in this process.
    takes: Takes,
    /// Who was given a place since it was asked last.
    given: Vec<String>,
    /// What was entered by starts that were not told yet.
    entered: Vec<(String, Entered)>,
}

impl Ledger {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            overrides: Overrides::default(),
            held: Table::new(BTreeMap::new()),
            waiting: Line::default(),
            late: Table::new(BTreeMap::new()),
            replaced: Table::new(BTreeMap::new()),
            pulse: Pulse::default(),
            keys: Keys::new(BTreeMap::new()),
            seen: Table::new(BTreeMap::new()),
            in_use: 0,
            room: usize::MAX,
            touched: Touched::default(),
            takes: Takes::All,
            given: Vec::new(),
            entered: Vec::new(),
        }
    }

    /// Has places be given as this process may: to no run if it lacks a tag of the queue. Takes in no more than this process can read at once.
    pub(crate) fn for_process(mut self, runtime: &Runtime) -> Self {
        let has_tags = runtime.has_tags(self.settings.tags.iter().map(String::as_str));
        self.takes = if has_tags { Takes::All } else { Takes::NodesAlone };
        // An eighth is left for what becomes of those who are in it.
        let room = StateCell::room(runtime);
        self.room = room - room / 8;
        self
    }

    /// Returns who was given a place since this was called last.
    pub(crate) fn take_given(&mut self) -> Vec<String> {
        std::mem::take(&mut self.given)
    }

    /// Returns what was entered by a start, of several of the same run in their order; nothing if the run was there before.
    pub(crate) fn take_entered(&mut self, id: &str) -> Option<Entered> {
        let at = self.entered.iter().position(|(entered, _)| entered == id)?;
        Some(self.entered.remove(at).1)
    }

    /// What it allows now.
    pub(crate) fn effective(&self) -> Settings {
        self.overrides.over(&self.settings)
    }

    /// Until when nobody is let in.
    pub(crate) fn closed_until(&self) -> Option<Timestamp> {
        self.pulse.closed_until
    }

    /// How many bytes it takes in the state at the most.
    pub(crate) fn bytes(&self) -> usize {
        let entries = [self.held.bytes(), self.waiting.bytes(), self.late.bytes(), self.replaced.bytes()];
        let paused = self.overrides.paused.as_ref().map_or(0, |reason| text(reason));
        entries.iter().sum::<usize>() + self.keys.bytes() + self.seen.bytes() + paused + FIXED
    }

    /// Does something to the queue. Places that become free are given by [`grant`](Self::grant).
    pub(crate) fn apply(&mut self, op: Op, now: Timestamp) -> Said {
        match op {
            Op::Ask(ask) => return self.ask(*ask, now),
            Op::Rest { id, waiting, question } => match self.asked_by(&id) {
                None => self.enter(id, Waiting { question: Some(question), ..*waiting }),
                Some((_, epoch)) if epoch > waiting.epoch => {}
                Some(_) => self.ask_again(&id, &waiting, Some(question)),
            },
            Op::LeaveRun { id, life, place } => match life.filter(|_| self.lives(&id).is_some()) {
                Some(life) => self.settle(&id, &[life], None),
                None => {
                    let has =
                        |place| self.held.get(&id).is_some_and(|held| (held.at, held.executor) == place);
                    if place.is_none_or(has) {
                        self.leave(&id);
                    }
                }
            },
            Op::Settle { id, gone, found } => self.settle(&id, &gone, found),
            Op::LeaveNode { id, executor } => {
                if self.asked_by(&id).is_some_and(|(by, _)| by == executor) {
                    self.leave(&id);
                }
            }
            Op::TakeBack { id, life, entered } => self.take_back(&id, life, &entered),
            Op::Gone { id, seen } => {
                if self.held.get(&id) == Some(&*seen) {
                    self.leave(&id);
                }
            }
            Op::Lost { id, executor, epoch } => {
                if self.asked_by(&id) == Some((executor, epoch)) {
                    self.leave(&id);
                }
            }
            Op::Hold(id) => {
                if self.held.get(&id).is_some_and(|held| held.kind == Kind::Run && !held.on_hold) {
                    self.held.update(&id, |held| held.on_hold = true);
                }
            }
            Op::Begun { id, at, life } => {
                if self.held.get(&id).is_some_and(|held| held.on_hold && held.at == at) {
                    self.settle(&id, &[], life);
                    // The run of another start is on hold as well, or about to be.
                    let is_alone = life.is_none() || self.lives(&id).is_none_or(|lives| lives.len() == 1);
                    self.held.update(&id, |held| held.on_hold = !is_alone);
                }
            }
            Op::Woken { id, question } => {
                let waits = |held: &Held| held.question.as_ref() == Some(&question) && held.woken.is_none();
                if self.held.get(&id).is_some_and(waits) {
                    self.held.update(&id, |held| held.woken = Some(now));
                }
            }
            Op::Forgotten { id, at } => {
                if self.replaced.get(&id).is_some_and(|replaced| replaced.at == at) {
                    self.replaced.remove(&id);
                }
                if self.late.get(&id).is_some_and(|late| late.at == at) {
                    self.late.remove(&id);
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
        let Ask { id, mut waiting, once, debounce, doubts } = ask;
        if let Some((executor, epoch)) = self.asked_by(&id) {
            if epoch > waiting.epoch {
                return Said::Stale(executor, epoch);
            }
            self.join(&id, &waiting.all_lives(), &doubts);
            self.ask_again(&id, &waiting, None);
            let is_in = self.held.get(&id).is_some_and(|held| !held.on_hold);
            return if is_in { Said::Granted } else { Said::Waits };
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
        if let Some((key, _)) = &once {
            match self.seen.get(key) {
                Some(seen) if seen.run != waiting.run => return Said::Before(seen.run.clone()),
                None if self.seen.len() >= MOST_SEEN => return Said::Seen(MOST_SEEN),
                _ => {}
            }
        }
        let bytes = self.bytes() + line::weight(&line::slot(&id, &waiting), &waiting);
        if bytes > self.room {
            return Said::NoRoom { bytes, room: self.room };
        }
        let (run, kind) = (waiting.run.clone(), waiting.kind);
        let before = debounce.as_ref().and_then(|debounce| self.waiting.debounced(&debounce.key));
        if let Some(debounce) = &debounce {
            self.delay(&mut waiting, debounce, before.as_deref(), now);
        }
        // It has another deadline now, and its run may be on record, on hold.
        let late = self.late.remove(&id);
        self.enter(id.clone(), waiting);
        self.grant(now);
        let most = (self.settings.max_waiting as usize).saturating_add(usize::from(before.is_some()));
        if !self.held.contains_key(&id) && self.waiting.len() > most {
            self.leave(&id);
            if let Some(late) = late {
                self.late.insert(&id, late);
            }
            return Said::Full(self.waiting.len());
        }
        if let Some(before) = before {
            self.replace(&before, &run, now);
        }
        let once = once.map(|(key, ms)| {
            let seen = Seen { run, until: now.plus(std::time::Duration::from_millis(ms)) };
            let before = self.seen.remove(&key);
            self.seen.insert(&key, seen.clone());
            Noted { key, seen, before }
        });
        let is_in = self.held.contains_key(&id) && late.is_none();
        if kind == Kind::Run {
            self.entered.push((id.clone(), Entered::new(now, late, once)));
        }
        if !is_in {
            return Said::Waits;
        }
        // Who asked begins with it: it has not been started yet.
        self.held.update(&id, |held| held.on_hold = false);
        Said::Granted
    }

    /// Returns which process asked last for one who holds a place or waits for one, and in which epoch of the run.
    fn asked_by(&self, id: &str) -> Option<(ExecutorId, Epoch)> {
        let holder = self.held.get(id).map(|held| (held.executor, held.epoch));
        holder.or_else(|| self.waiting.get(id).map(|waiting| (waiting.executor, waiting.epoch)))
    }

    /// Takes in that one who holds a place or waits for one asks for it again, or rests with this question.
    fn ask_again(&mut self, id: &str, by: &Waiting, question: Option<String>) {
        let (executor, epoch) = (by.executor, by.epoch);
        if let Some(held) = self.held.get(id) {
            if (held.executor, held.epoch, &held.question) != (executor, epoch, &question)
                || question.is_some()
            {
                self.held.update(id, |held| {
                    (held.executor, held.epoch, held.question, held.woken) =
                        (executor, epoch, question, None);
                });
            }
        } else if let Some(known) = self.waiting.get(id)
            && (known.executor, known.epoch, &known.question) != (executor, epoch, &question)
        {
            self.waiting.update(id, |known| {
                let lives = known.all_lives();
                (known.executor, known.epoch, known.question) = (executor, epoch, question);
                known.is_of(lives);
            });
        }
    }

    fn enter(&mut self, id: String, waiting: Waiting) {
        self.keys.come(&waiting.key, self.pulse.turn);
        self.waiting.insert(id, waiting);
    }

    /// Takes one out who holds a place or waits for one.
    fn leave(&mut self, id: &str) {
        if let Some(held) = self.held.remove(id) {
            self.in_use = self.in_use.saturating_sub(held.places);
            self.keys.leave(&held.key, held.places);
        } else if let Some(waiting) = self.waiting.remove(id) {
            self.keys.leave(&waiting.key, 0);
        }
    }

    /// Forgets keys for which something may start again.
    fn forget_seen(&mut self, now: Timestamp) {
        let over: Vec<String> =
            self.seen.iter().filter(|(_, seen)| seen.until <= now).map(|(key, _)| key.clone()).collect();
        for key in over {
            self.seen.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests;
