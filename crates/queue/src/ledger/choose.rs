//! The order in which the queue grants slots.

use std::cmp::Reverse;
use std::time::Duration;

use ferrata_core::Timestamp;

use super::line::Rank;
use super::{ExpiredStart, GrantScope, QueueState, SlotHolder, SlotKind, SlotWaiter};
use crate::settings::{QueueSettings, RateLimit};

/// How long whom a limit protects can have it closed, whatever the clocks say.
pub(crate) const LONGEST_CLOSED: Duration = Duration::from_secs(86_400);

/// How far ahead of its own clock a process believes that a queue is closed. Twice as long: the clock of the process that closed it may be a day ahead.
/// Beyond that the process opens the queue. If it shortened the time instead, each look would close the queue for a day from then.
const MOST_AHEAD: Duration = Duration::from_secs(2 * 86_400);

/// The next grant.
enum NextGrant {
    Of(String),
    /// No grant before this time, unless the queue changes.
    Not(Option<Timestamp>),
}

impl QueueState {
    /// Grants free slots to the next waiters. Returns when to check again without a change.
    pub(crate) fn grant(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.drop_late(now);
        let settings = self.effective();
        self.mistrust(&settings, now);
        self.waiting.advance(now);
        let next = loop {
            match self.turn(&settings, self.takes, now) {
                NextGrant::Of(id) => self.give(&id, &settings, now),
                NextGrant::Not(next) => break next,
            }
        };
        self.keys.forget(now);
        [next, self.waiting.deadline()].into_iter().flatten().min()
    }

    /// Takes back what a clock has said that was ahead: more than any starts could have come to, or any provider asked for.
    fn mistrust(&mut self, settings: &QueueSettings, now: Timestamp) {
        let most = |rate: Option<RateLimit>| {
            rate.map_or(i64::MAX, |rate| {
                let ahead = rate.interval().saturating_mul(i64::from(rate.burst));
                micros(now).saturating_add(ahead)
            })
        };
        let most_of_key = most(settings.rate_per_key);
        if settings.rate_per_key.is_some() {
            self.keys.mistrust(most_of_key);
        }
        if self.pulse.next > most(settings.rate) {
            self.pulse.next = most(settings.rate);
            self.touched.pulse = true;
        }
        if self.pulse.closed_until.is_some_and(|until| until.since(now) > MOST_AHEAD) {
            self.pulse.closed_until = None;
            self.touched.pulse = true;
        }
    }

    /// Takes out those whose deadline is over.
    fn drop_late(&mut self, now: Timestamp) {
        while let Some(id) = self.waiting.late(now) {
            let run = self.waiting.get(&id).filter(|waiting| waiting.kind == SlotKind::Run);
            let run = run.map(|waiting| waiting.run.clone());
            self.leave(&id);
            if let Some(run) = run {
                self.late.insert(&id, ExpiredStart { run, at: now });
            }
        }
    }

    /// Returns the tags of the queue if the turn of a run has come and no process gave it its place: none has them, or has looked yet.
    pub(crate) fn lacks(&self, now: Timestamp) -> Vec<String> {
        let settings = self.effective();
        if settings.tags.is_empty() {
            return Vec::new();
        }
        match self.turn(&settings, GrantScope::All, now) {
            NextGrant::Of(id) if self.waiting.get(&id).is_some_and(|one| one.kind == SlotKind::Run) => {
                settings.tags.into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    fn turn(&self, settings: &QueueSettings, takes: GrantScope, now: Timestamp) -> NextGrant {
        if self.overrides.paused.is_some() || self.waiting.is_empty() {
            return NextGrant::Not(None);
        }
        let free = settings.at_once.map_or(u32::MAX, |places| places.saturating_sub(self.in_use));
        if free == 0 {
            return NextGrant::Not(None);
        }
        let closed = self.pulse.closed_until.filter(|until| *until > now);
        let open = [closed, opens(settings.rate, self.pulse.next, now)].into_iter().flatten().max();
        if open.is_some() {
            return NextGrant::Not(open);
        }
        let mut next = self.waiting.next_time(now);
        let turn = |waiting: &SlotWaiter| {
            if takes == GrantScope::NodesAlone && waiting.kind == SlotKind::Run {
                return None;
            }
            // A limit was lowered after this request. The request waits until the limit is raised, and blocks no other waiter.
            if settings.at_once.is_some_and(|most| waiting.places > most) {
                return None;
            }
            let note = self.keys.note(&waiting.key);
            if let Some(opens) = opens(settings.rate_per_key, note.map_or(0, |note| note.next), now) {
                next = [next, Some(opens)].into_iter().flatten().min();
                return None;
            }
            let places = self.keys.places(&waiting.key);
            let may_have =
                settings.at_once_per_key.is_none_or(|most| places.saturating_add(waiting.places) <= most);
            may_have.then(|| note.map_or(0, |note| note.turn))
        };
        match self.waiting.first(now, |priority, since| level(priority, since, settings, now), turn) {
            // No waiter overtakes a request for more slots than are free: otherwise that request could wait forever.
            Some((_, waiting)) if waiting.places > free => NextGrant::Not(next),
            Some((id, _)) => NextGrant::Of(id.clone()),
            None => NextGrant::Not(next),
        }
    }

    /// Returns the waiters in their current order.
    pub(crate) fn line(&self, now: Timestamp) -> Vec<(&String, &SlotWaiter)> {
        self.front(usize::MAX, now)
    }

    /// Returns the first `most` waiters in their current order, and sorts only those.
    pub(crate) fn front(&self, most: usize, now: Timestamp) -> Vec<(&String, &SlotWaiter)> {
        let settings = self.effective();
        let mut line: Vec<_> = self.waiting.iter().collect();
        if line.len() > most {
            line.select_nth_unstable_by_key(most, |(id, waiting)| self.rank(id, waiting, &settings, now));
            line.truncate(most);
        }
        line.sort_by_key(|(id, waiting)| self.rank(id, waiting, &settings, now));
        line
    }

    /// Returns the rank of a waiter; the lowest is first.
    fn rank<'a>(
        &self,
        id: &'a String,
        waiting: &SlotWaiter,
        settings: &QueueSettings,
        now: Timestamp,
    ) -> Rank<'a> {
        let turn = self.keys.note(&waiting.key).map_or(0, |note| note.turn);
        (Reverse(level(waiting.priority, waiting.since, settings, now)), turn, waiting.since, id)
    }

    fn give(&mut self, id: &str, settings: &QueueSettings, now: Timestamp) {
        let Some(waiting) = self.waiting.remove(id) else { return };
        let lives = waiting.all_lives();
        let SlotWaiter { run, kind, places, key, executor, epoch, question, alive, .. } = waiting;
        self.in_use = self.in_use.saturating_add(places);
        self.keys.hold(&key, places);
        let is_noted = settings.rate_per_key.is_some() || self.keys.take_turns();
        if settings.rate.is_some() || is_noted {
            self.pulse.turn += 1;
            self.pulse.next = after(settings.rate, self.pulse.next, now);
            self.touched.pulse = true;
        }
        if is_noted {
            self.keys.serve(&key, self.pulse.turn, |next| after(settings.rate_per_key, next, now));
        }
        let on_hold = kind == SlotKind::Run;
        self.given.push(id.to_owned());
        let held = SlotHolder {
            run,
            kind,
            places,
            key,
            executor,
            epoch,
            at: now,
            question,
            woken: None,
            on_hold,
            lives,
            alive,
        };
        self.held.insert(id, held);
    }
}

/// How urgent one of a priority is that waits since a moment.
fn level(priority: i32, since: Timestamp, settings: &QueueSettings, now: Timestamp) -> i64 {
    let waited = now.since(since).as_millis() / u128::from(settings.ageing_ms.max(1));
    i64::from(priority).saturating_add(i64::try_from(waited).unwrap_or(i64::MAX))
}

pub(super) fn micros(now: Timestamp) -> i64 {
    now.unix_ms().saturating_mul(1_000)
}

/// Returns when a rate allows the next grant, if not now. `next` is when the next would be due if starts were spread evenly.
fn opens(rate: Option<RateLimit>, next: i64, now: Timestamp) -> Option<Timestamp> {
    let rate = rate?;
    let ahead = rate.interval().saturating_mul(i64::from(rate.burst.saturating_sub(1)));
    let at = next.saturating_sub(ahead);
    (at > micros(now))
        .then(|| Timestamp::from_unix_ms(at.div_euclid(1_000) + i64::from(at.rem_euclid(1_000) > 0)))
}

/// Returns `next` after a start now.
fn after(rate: Option<RateLimit>, next: i64, now: Timestamp) -> i64 {
    rate.map_or(0, |rate| next.max(micros(now)).saturating_add(rate.interval()))
}
