//! Whose turn it is: the order in which places are given.

use std::cmp::Reverse;
use std::time::Duration;

use ferrata_core::Timestamp;

use super::{Held, Kind, Ledger, Takes, Waiting};
use crate::settings::{Rate, Settings};

/// How long whom a limit protects can have it closed, whatever the clocks say.
pub(crate) const LONGEST_CLOSED: Duration = Duration::from_secs(86_400);

/// Whose turn it is.
enum Turn {
    Of(String),
    /// Nobody's before this moment, unless something else happens.
    Not(Option<Timestamp>),
}

impl Ledger {
    /// Gives free places to those whose turn it is. Returns when to look again though nothing happens.
    pub(crate) fn grant(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.drop_late(now);
        let settings = self.effective();
        self.mistrust(&settings, now);
        let next = loop {
            match self.turn(&settings, self.takes, now) {
                Turn::Of(id) => self.give(&id, &settings, now),
                Turn::Not(next) => break next,
            }
        };
        self.forget_keys(now);
        [next, self.deadline].into_iter().flatten().min()
    }

    /// Takes back what a clock has said that was ahead: more than any starts could have come to, or any provider asked for.
    fn mistrust(&mut self, settings: &Settings, now: Timestamp) {
        let most = |rate: Option<Rate>| {
            rate.map_or(i64::MAX, |rate| {
                let ahead = rate.interval().saturating_mul(i64::from(rate.burst));
                micros(now).saturating_add(ahead)
            })
        };
        let most_of_key = most(settings.rate_per_key);
        for (key, note) in self.keys.iter_mut().filter(|(_, note)| note.next > most_of_key) {
            note.next = most_of_key;
            self.touched.keys.insert(key.clone());
        }
        if self.pulse.next > most(settings.rate) {
            self.pulse.next = most(settings.rate);
            self.touched.pulse = true;
        }
        if self.pulse.closed_until.is_some_and(|until| until.since(now) > LONGEST_CLOSED) {
            self.pulse.closed_until = None;
            self.touched.pulse = true;
        }
    }

    /// Takes out those whose deadline is over.
    fn drop_late(&mut self, now: Timestamp) {
        if self.deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        let is_late = |waiting: &Waiting| waiting.deadline.is_some_and(|deadline| deadline <= now);
        let late: Vec<(String, Waiting)> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| is_late(waiting))
            .map(|(id, waiting)| (id.clone(), waiting.clone()))
            .collect();
        for (id, waiting) in late {
            self.leave(&id);
            if waiting.kind == Kind::Run {
                self.touched.late.insert(id.clone());
                self.late.insert(id, waiting.run);
            }
        }
        self.deadline = self.waiting.values().filter_map(|waiting| waiting.deadline).min();
    }

    /// Returns the tags of the queue if the turn of a run has come and no process gave it its place: none has them, or has looked yet.
    pub(crate) fn lacks(&self, now: Timestamp) -> Vec<String> {
        let settings = self.effective();
        if settings.tags.is_empty() {
            return Vec::new();
        }
        match self.turn(&settings, Takes::All, now) {
            Turn::Of(id) if self.waiting.get(&id).is_some_and(|one| one.kind == Kind::Run) => {
                settings.tags.into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    fn turn(&self, settings: &Settings, takes: Takes, now: Timestamp) -> Turn {
        if self.overrides.paused.is_some() || self.waiting.is_empty() {
            return Turn::Not(None);
        }
        let free = settings.at_once.map_or(u32::MAX, |places| places.saturating_sub(self.in_use));
        if free == 0 {
            return Turn::Not(None);
        }
        let closed = self.pulse.closed_until.filter(|until| *until > now);
        let open = [closed, opens(settings.rate, self.pulse.next, now)].into_iter().flatten().max();
        if open.is_some() {
            return Turn::Not(open);
        }
        let (mut first, mut next) = (None, None);
        let may_have = |waiting: &Waiting| takes == Takes::All || waiting.kind == Kind::Node;
        for (id, waiting) in self.waiting.iter().filter(|(_, waiting)| may_have(waiting)) {
            let key = self.keys.get(&waiting.key);
            let load = self.loads.get(&waiting.key).copied().unwrap_or_default();
            let key_opens = opens(settings.rate_per_key, key.map_or(0, |key| key.next), now);
            let later = [waiting.not_before.filter(|at| *at > now), key_opens].into_iter().flatten().max();
            if let Some(later) = later {
                next = [next, Some(later)].into_iter().flatten().min();
                continue;
            }
            if let Some(most) = settings.at_once_per_key
                && load.places > 0
                && load.places.saturating_add(waiting.places) > most
            {
                continue;
            }
            let rank = self.rank(id, waiting, settings, now);
            if first.as_ref().is_none_or(|(best, _)| rank < *best) {
                first = Some((rank, waiting));
            }
        }
        match first {
            // Nobody passes one that waits for more places than are free, or that one would wait for ever.
            Some((_, waiting)) if waiting.places > free && self.in_use > 0 => Turn::Not(next),
            Some(((_, _, _, id), _)) => Turn::Of(id.clone()),
            None => Turn::Not(next),
        }
    }

    /// Returns those who wait, in the order of their turns as it is now.
    pub(crate) fn line(&self, now: Timestamp) -> Vec<(&String, &Waiting)> {
        self.front(usize::MAX, now)
    }

    /// Returns the first of those who wait, in the order of their turns as it is now: no more of the line than they is put in order.
    pub(crate) fn front(&self, most: usize, now: Timestamp) -> Vec<(&String, &Waiting)> {
        let settings = self.effective();
        let mut line: Vec<_> = self.waiting.iter().collect();
        if line.len() > most {
            line.select_nth_unstable_by_key(most, |(id, waiting)| self.rank(id, waiting, &settings, now));
            line.truncate(most);
        }
        line.sort_by_key(|(id, waiting)| self.rank(id, waiting, &settings, now));
        line
    }

    /// What comes first is served first.
    fn rank<'a>(
        &self,
        id: &'a String,
        waiting: &Waiting,
        settings: &Settings,
        now: Timestamp,
    ) -> (Reverse<i64>, u64, Timestamp, &'a String) {
        let waited = now.since(waiting.since).as_millis() / u128::from(settings.ageing_ms.max(1));
        let level = i64::from(waiting.priority).saturating_add(i64::try_from(waited).unwrap_or(i64::MAX));
        let turn = self.keys.get(&waiting.key).map_or(0, |key| key.turn);
        (Reverse(level), turn, waiting.since, id)
    }

    fn give(&mut self, id: &str, settings: &Settings, now: Timestamp) {
        let Some(waiting) = self.waiting.remove(id) else { return };
        self.touched.waiting.insert(id.to_owned());
        self.touched.held.insert(id.to_owned());
        let Waiting { run, kind, places, key, executor, question, .. } = waiting;
        self.in_use = self.in_use.saturating_add(places);
        let load = self.loads.entry(key.clone()).or_default();
        load.places = load.places.saturating_add(places);
        if settings.rate.is_some() || !self.keys.is_empty() {
            self.pulse.turn += 1;
            self.pulse.next = after(settings.rate, self.pulse.next, now);
            self.touched.pulse = true;
        }
        if let Some(note) = self.keys.get_mut(&key) {
            note.turn = self.pulse.turn;
            note.next = after(settings.rate_per_key, note.next, now);
            self.touched.keys.insert(key.clone());
        }
        let on_hold = kind == Kind::Run;
        self.given.push(id.to_owned());
        self.held.insert(
            id.to_owned(),
            Held { run, kind, places, key, executor, at: now, question, woken: None, on_hold },
        );
    }

    /// Forgets keys that have no place, do not wait, and may be given one.
    fn forget_keys(&mut self, now: Timestamp) {
        if self.keys.is_empty() {
            return;
        }
        let micros = micros(now);
        let idle: Vec<String> = self
            .touched
            .keys
            .iter()
            .chain(self.loads.keys())
            .filter(|key| self.loads.get(*key).is_none_or(|load| load.entries == 0))
            .filter(|key| self.keys.get(*key).is_some_and(|note| note.next <= micros))
            .cloned()
            .collect();
        for key in idle {
            self.keys.remove(&key);
            self.touched.keys.insert(key);
        }
        let keys = &self.keys;
        self.loads.retain(|key, load| load.entries > 0 || keys.contains_key(key));
    }
}

fn micros(now: Timestamp) -> i64 {
    now.unix_ms().saturating_mul(1_000)
}

/// When a place may be given at a rate, if not now. `next` is when the next would be due if starts were spread evenly.
fn opens(rate: Option<Rate>, next: i64, now: Timestamp) -> Option<Timestamp> {
    let rate = rate?;
    let ahead = rate.interval().saturating_mul(i64::from(rate.burst.saturating_sub(1)));
    let at = next.saturating_sub(ahead);
    (at > micros(now))
        .then(|| Timestamp::from_unix_ms(at.div_euclid(1_000) + i64::from(at.rem_euclid(1_000) > 0)))
}

/// What becomes of `next` by a start now.
fn after(rate: Option<Rate>, next: i64, now: Timestamp) -> i64 {
    rate.map_or(0, |rate| next.max(micros(now)).saturating_add(rate.interval()))
}
