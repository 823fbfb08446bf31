//! The line of waiters. Its indexes find the next waiter without a scan.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Deref;
use std::sync::Arc;

use ferrata_core::{ExecutorId, RunKey, Timestamp};

use super::entry::{SlotKind, SlotWaiter, StoredSize, text};

/// Prefix of the entry id of a run; the run's name follows.
pub(crate) const RUN: &str = "run:";

/// Prefix of the entry id of a node; the key of its activation follows.
pub(crate) const NODE: &str = "node:";

/// The sort key of a waiter. The waiter with the smaller key comes first.
pub(super) type Rank<'a> = (Reverse<i64>, u64, Timestamp, &'a String);

/// A class of waiters that differ only in their waiting time. The waiter with the earliest time is always first in its class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct RankClass {
    key: String,
    priority: i32,
    is_run: bool,
    places: u32,
}

/// The key under which a waiter is stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WaiterKey {
    /// The waiter is a plain run: process that requested the slot, and name of the run.
    Plain(ExecutorId, String),
    /// Any other waiter: its entry id.
    Other(String),
}

/// Maximum number of bytes that the name of one channel takes in the state. A channel stores the plain waiting runs that one process requested.
const NAME: usize = 64;

/// Waiters by id. Only this type changes them, so the indexes match the entries, and each change is in the next patch.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    waiting: BTreeMap<String, SlotWaiter>,
    /// The waiters of each class, in their order. Waiters whose earliest time has not come are not in this index.
    classes: HashMap<Arc<RankClass>, BTreeSet<(Timestamp, String)>>,
    /// The first waiter of each class, by priority and by the time since which it waits.
    heads: BTreeMap<i32, BTreeSet<(Timestamp, Arc<RankClass>)>>,
    /// The waiters that must not get a slot before a time, by this time.
    later: BTreeSet<(Timestamp, String)>,
    deadlines: BTreeSet<(Timestamp, String)>,
    /// Runs that later starts may replace, by the debounce key of these starts.
    debounced: BTreeSet<(String, String)>,
    /// Number of plain runs that each process requested.
    plain: BTreeMap<ExecutorId, usize>,
    touched: BTreeMap<WaiterKey, String>,
    bytes: usize,
}

impl WaitQueue {
    /// Builds the line from the stored waiters, each with its id and its stored key. If a waiter is stored under a wrong key, the next patch moves
    /// it.
    pub(super) fn new(stored: impl IntoIterator<Item = (String, WaiterKey, SlotWaiter)>) -> Self {
        let (mut line, mut misplaced) = (Self::default(), BTreeMap::new());
        for (id, at, waiting) in stored {
            let slot = waiter_key(&id, &waiting);
            if slot != at {
                misplaced.extend([(slot, id.clone()), (at, id.clone())]);
            }
            line.insert(id, waiting);
        }
        line.touched = misplaced;
        line
    }

    /// Returns the maximum number of bytes that the line takes in the state.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.plain.len() * NAME
    }

    pub(super) fn insert(&mut self, id: String, waiting: SlotWaiter) {
        self.remove(&id);
        if let Some(at) = waiting.deadline {
            self.deadlines.insert((at, id.clone()));
        }
        if let Some(key) = other_requester(&waiting) {
            self.debounced.insert((key.to_owned(), id.clone()));
        }
        match waiting.not_before {
            Some(at) => drop(self.later.insert((at, id.clone()))),
            None => self.index_waiter(&id, &waiting),
        }
        let slot = waiter_key(&id, &waiting);
        self.bytes += stored_size(&slot, &waiting);
        if let WaiterKey::Plain(executor, _) = &slot {
            *self.plain.entry(*executor).or_default() += 1;
        }
        self.touched.insert(slot, id.clone());
        self.waiting.insert(id, waiting);
    }

    pub(super) fn remove(&mut self, id: &str) -> Option<SlotWaiter> {
        let (id, waiting) = self.waiting.remove_entry(id)?;
        if let Some(at) = waiting.deadline {
            self.deadlines.remove(&(at, id.clone()));
        }
        if let Some(key) = other_requester(&waiting) {
            self.debounced.remove(&(key.to_owned(), id.clone()));
        }
        if !waiting.not_before.is_some_and(|at| self.later.remove(&(at, id.clone()))) {
            self.unindex_waiter(&id, &waiting);
        }
        let slot = waiter_key(&id, &waiting);
        self.bytes -= stored_size(&slot, &waiting);
        if let WaiterKey::Plain(executor, _) = &slot
            && let Some(plain) = self.plain.get_mut(executor)
        {
            *plain -= 1;
            if *plain == 0 {
                self.plain.remove(executor);
            }
        }
        self.touched.insert(slot, id);
        Some(waiting)
    }

    /// Changes a waiter, if it is in the line.
    pub(super) fn update(&mut self, id: &str, change: impl FnOnce(&mut SlotWaiter)) {
        if let Some(mut waiting) = self.remove(id) {
            change(&mut waiting);
            self.insert(id.to_owned(), waiting);
        }
    }

    fn index_waiter(&mut self, id: &str, waiting: &SlotWaiter) {
        self.change_class(waiting, |members| members.insert((waiting.since, id.to_owned())));
    }

    fn unindex_waiter(&mut self, id: &str, waiting: &SlotWaiter) {
        self.change_class(waiting, |members| members.remove(&(waiting.since, id.to_owned())));
    }

    /// Changes a class, and updates the index of the first waiters.
    fn change_class(
        &mut self,
        waiting: &SlotWaiter,
        change: impl FnOnce(&mut BTreeSet<(Timestamp, String)>) -> bool,
    ) {
        let SlotWaiter { key, priority, kind, places, .. } = waiting;
        let class = RankClass {
            key: key.clone(),
            priority: *priority,
            is_run: *kind == SlotKind::Run,
            places: *places,
        };
        let (class, mut members) =
            self.classes.remove_entry(&class).unwrap_or_else(|| (Arc::new(class), BTreeSet::new()));
        let first = |members: &BTreeSet<(Timestamp, String)>| members.first().map(|(since, _)| *since);
        let before = first(&members);
        change(&mut members);
        let after = first(&members);
        if before != after {
            let heads = self.heads.entry(*priority).or_default();
            if let Some(since) = before {
                heads.remove(&(since, Arc::clone(&class)));
            }
            if let Some(since) = after {
                heads.insert((since, Arc::clone(&class)));
            }
            if heads.is_empty() {
                self.heads.remove(priority);
            }
        }
        if !members.is_empty() {
            self.classes.insert(class, members);
        }
    }

    /// Advances the time: waiters whose earliest time has come enter the order.
    pub(super) fn advance_time(&mut self, now: Timestamp) {
        while let Some((at, _)) = self.later.first()
            && *at <= now
            && let Some((_, id)) = self.later.pop_first()
        {
            if let Some(waiting) = self.waiting.get(&id).cloned() {
                self.index_waiter(&id, &waiting);
            }
        }
    }

    /// Returns the first waiter whose earliest time has come. `level` computes the effective priority from the priority and the start of the wait; a
    /// higher level comes first. `turn` returns the last turn of a waiter's key; `None` if no waiter of its class can have a slot now.
    pub(super) fn first(
        &self,
        now: Timestamp,
        level: impl Fn(i32, Timestamp) -> i64,
        mut turn: impl FnMut(&SlotWaiter) -> Option<u64>,
    ) -> Option<(&String, &SlotWaiter)> {
        let mut best: Option<(Rank<'_>, &SlotWaiter)> = None;
        let mut rank = |waiting: &SlotWaiter| Some((level(waiting.priority, waiting.since), turn(waiting)?));
        for (priority, heads) in self.heads.iter().rev() {
            for (since, class) in heads {
                // The other classes of this priority began to wait even later.
                if best.as_ref().is_some_and(|((Reverse(most), ..), _)| level(*priority, *since) < *most) {
                    break;
                }
                // All members have come, unless the clock was set back.
                let mut members = self.classes.get(class).into_iter().flatten();
                let first = members.find_map(|(_, id)| {
                    let (id, waiting) = self.waiting.get_key_value(id)?;
                    has_come(waiting, now).then_some((id, waiting))
                });
                if let Some((id, waiting)) = first
                    && let Some(rank) = rank(waiting)
                {
                    keep_better(&mut best, rank, id, waiting);
                }
            }
        }
        for (_, id) in self.later.iter().take_while(|(at, _)| *at <= now) {
            if let Some((id, waiting)) = self.waiting.get_key_value(id)
                && let Some(rank) = rank(waiting)
            {
                keep_better(&mut best, rank, id, waiting);
            }
        }
        best.map(|((.., id), waiting)| (id, waiting))
    }

    /// Returns the nodes that wait in the memory of their processes.
    pub(crate) fn nodes_in_memory(&self) -> impl Iterator<Item = (&String, &SlotWaiter)> {
        let nodes = self.waiting.range(NODE.to_owned()..).take_while(|(id, _)| id.starts_with(NODE));
        nodes.filter(|(_, waiting)| waiting.kind == SlotKind::Node && waiting.question.is_none())
    }

    /// Returns the next `not_before` time of a waiter.
    pub(super) fn next_time(&self, now: Timestamp) -> Option<Timestamp> {
        self.later.iter().map(|(at, _)| *at).find(|at| *at > now)
    }

    /// Returns the earliest deadline.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Returns a waiter whose deadline has passed.
    pub(super) fn first_expired(&self, now: Timestamp) -> Option<String> {
        self.deadlines.first().filter(|(at, _)| *at <= now).map(|(_, id)| id.clone())
    }

    /// Returns the waiting run that a start with this debounce key may replace.
    pub(super) fn debounced_run(&self, key: &str) -> Option<String> {
        let from = (key.to_owned(), String::new());
        self.debounced.range(from..).next().filter(|(other, _)| other == key).map(|(_, id)| id.clone())
    }

    /// Returns the changes since the last call: each changed key, and the waiter to store under it, if any.
    pub(super) fn take_touched(&mut self) -> Vec<(WaiterKey, Option<&SlotWaiter>)> {
        let touched = std::mem::take(&mut self.touched);
        let now = |slot: &WaiterKey, id: &String| {
            let (id, waiting) = self.waiting.get_key_value(id)?;
            (self::waiter_key(id, waiting) == *slot).then_some(waiting)
        };
        touched
            .into_iter()
            .map(|(slot, id)| {
                let waiting = now(&slot, &id);
                (slot, waiting)
            })
            .collect()
    }

    /// Returns the content of the indexes, in a fixed order.
    #[cfg(test)]
    pub(super) fn debug_text(&self) -> String {
        let classes: BTreeMap<_, _> = self.classes.iter().collect();
        let parts = (&self.heads, &self.later, &self.deadlines, &self.debounced, &self.plain);
        format!("{classes:?} {parts:?}")
    }

    /// Returns whether there are changes to store.
    pub(super) fn is_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Returns the names of the plain waiting runs that this process requested.
    pub(super) fn plain_of(&self, executor: ExecutorId) -> Vec<String> {
        if !self.has_plain(&executor) {
            return Vec::new();
        }
        let named = |(id, waiting): (&String, &SlotWaiter)| match waiter_key(id, waiting) {
            WaiterKey::Plain(of, name) if of == executor => Some(name),
            _ => None,
        };
        self.waiting.iter().filter_map(named).collect()
    }

    /// Returns whether plain runs wait that this process requested.
    pub(super) fn has_plain(&self, executor: &ExecutorId) -> bool {
        self.plain.contains_key(executor)
    }
}

fn keep_better<'a>(
    best: &mut Option<(Rank<'a>, &'a SlotWaiter)>,
    (level, turn): (i64, u64),
    id: &'a String,
    waiting: &'a SlotWaiter,
) {
    let rank = (Reverse(level), turn, waiting.since, id);
    if best.as_ref().is_none_or(|(other, _)| rank < *other) {
        *best = Some((rank, waiting));
    }
}

/// Returns the maximum number of bytes that a waiter takes in the state.
pub(super) fn stored_size(slot: &WaiterKey, waiting: &SlotWaiter) -> usize {
    match slot {
        // The stored form is a time in milliseconds. An entry with a key and a priority is stored as a list of all three values.
        WaiterKey::Plain(_, run) if is_bare(waiting) => text(run) + 14,
        WaiterKey::Plain(_, run) => text(run) + text(&waiting.key) + 16 + digits(waiting.priority),
        WaiterKey::Other(id) => text(id) + waiting.bytes(),
    }
}

fn digits(number: i32) -> usize {
    let digits = number.unsigned_abs().checked_ilog10().unwrap_or(0) as usize + 1;
    digits + usize::from(number < 0)
}

/// Returns whether a plain run has neither a key nor a priority, so that only its waiting time is stored.
pub(super) fn is_bare(waiting: &SlotWaiter) -> bool {
    waiting.key.is_empty() && waiting.priority == 0
}

fn has_come(waiting: &SlotWaiter, now: Timestamp) -> bool {
    waiting.not_before.is_none_or(|at| at <= now)
}

fn other_requester(waiting: &SlotWaiter) -> Option<&str> {
    waiting.debounced.as_ref().filter(|_| waiting.kind == SlotKind::Run).map(|one| one.key.as_str())
}

pub(super) fn waiter_key(id: &str, waiting: &SlotWaiter) -> WaiterKey {
    match id.strip_prefix(RUN) {
        // The name is short if the run has the default tenant.
        Some(run) if waiting.is_plain() && waiting.run.to_string() == run => {
            let run = RunKey::from(waiting.run.run.clone());
            let name = if run == waiting.run { run.run.to_string() } else { waiting.run.to_string() };
            WaiterKey::Plain(waiting.executor, name)
        }
        _ => WaiterKey::Other(id.to_owned()),
    }
}

impl Deref for WaitQueue {
    type Target = BTreeMap<String, SlotWaiter>;

    fn deref(&self) -> &Self::Target {
        &self.waiting
    }
}
