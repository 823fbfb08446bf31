//! The order in which the queue grants slots.

use std::cmp::Reverse;
use std::time::Duration;

use ferrata_core::Timestamp;

use super::wait_queue::Rank;
use super::{ExpiredStart, GrantScope, QueueState, SlotHolder, SlotKind, SlotWaiter};
use crate::settings::{QueueSettings, RateLimit};

/// The longest time for which a provider can close a queue.
pub(crate) const LONGEST_CLOSED: Duration = Duration::from_secs(86_400);

/// Maximum time in the future for which a process believes that a queue is closed. The maximum is twice the longest pause, because the clock of the
/// process that closed the queue may be a day ahead. If the time is further ahead, the process opens the queue. If the process shortened the time
/// instead, each check would close the queue for another day.
const MOST_AHEAD: Duration = Duration::from_secs(2 * 86_400);

/// The decision about the next grant.
enum NextGrant {
    Of(String),
    /// No slot is granted before this time, unless the queue changes.
    Not(Option<Timestamp>),
}

impl QueueState {
    /// Grants free slots to the next waiters. Returns the time of the next check if nothing changes.
    pub(crate) fn grant(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.drop_late(now);
        let settings = self.effective();
        self.bound_clock_skew(&settings, now);
        self.waiting.advance_time(now);
        let next = loop {
            match self.next_grant(&settings, self.scope, now) {
                NextGrant::Of(id) => self.grant_slot(&id, &settings, now),
                NextGrant::Not(next) => break next,
            }
        };
        self.keys.remove_idle(now);
        [next, self.waiting.deadline()].into_iter().flatten().min()
    }

    /// Corrects times that a clock ahead of the real time has written: a next grant that is later than the rate allows, or a pause that is longer
    /// than allowed.
    fn bound_clock_skew(&mut self, settings: &QueueSettings, now: Timestamp) {
        let most = |rate: Option<RateLimit>| {
            rate.map_or(i64::MAX, |rate| {
                let ahead = rate.interval().saturating_mul(i64::from(rate.burst));
                micros(now).saturating_add(ahead)
            })
        };
        let most_of_key = most(settings.rate_per_key);
        if settings.rate_per_key.is_some() {
            self.keys.bound_rates(most_of_key);
        }
        if self.grants.next > most(settings.rate) {
            self.grants.next = most(settings.rate);
            self.dirty.pulse = true;
        }
        if self.grants.closed_until.is_some_and(|until| until.since(now) > MOST_AHEAD) {
            self.grants.closed_until = None;
            self.dirty.pulse = true;
        }
    }

    /// Removes the waiters whose deadline has passed.
    fn drop_late(&mut self, now: Timestamp) {
        while let Some(id) = self.waiting.first_expired(now) {
            let run = self.waiting.get(&id).filter(|waiting| waiting.kind == SlotKind::Run);
            let run = run.map(|waiting| waiting.run.clone());
            self.remove_entry(&id);
            if let Some(run) = run {
                self.expired.insert(&id, ExpiredStart { run, at: now });
            }
        }
    }

    /// Returns the tags of the queue if a run could get a slot but no process has granted it. In this case, no process has the tags, or none has
    /// checked the queue yet.
    pub(crate) fn unserved_tags(&self, now: Timestamp) -> Vec<String> {
        let settings = self.effective();
        if settings.tags.is_empty() {
            return Vec::new();
        }
        match self.next_grant(&settings, GrantScope::All, now) {
            NextGrant::Of(id) if self.waiting.get(&id).is_some_and(|one| one.kind == SlotKind::Run) => {
                settings.tags.into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    fn next_grant(&self, settings: &QueueSettings, takes: GrantScope, now: Timestamp) -> NextGrant {
        if self.overrides.paused.is_some() || self.waiting.is_empty() {
            return NextGrant::Not(None);
        }
        let free = settings.at_once.map_or(u32::MAX, |places| places.saturating_sub(self.in_use));
        if free == 0 {
            return NextGrant::Not(None);
        }
        let closed = self.grants.closed_until.filter(|until| *until > now);
        let open = [closed, rate_opens_at(settings.rate, self.grants.next, now)].into_iter().flatten().max();
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
            let note = self.keys.key_note(&waiting.key);
            if let Some(opens) = rate_opens_at(settings.rate_per_key, note.map_or(0, |note| note.next), now) {
                next = [next, Some(opens)].into_iter().flatten().min();
                return None;
            }
            let places = self.keys.places(&waiting.key);
            let may_have =
                settings.at_once_per_key.is_none_or(|most| places.saturating_add(waiting.places) <= most);
            may_have.then(|| note.map_or(0, |note| note.turn))
        };
        match self.waiting.first(now, |priority, since| priority_level(priority, since, settings, now), turn)
        {
            // No waiter overtakes a request for more slots than are free: otherwise that request could wait forever.
            Some((_, waiting)) if waiting.places > free => NextGrant::Not(next),
            Some((id, _)) => NextGrant::Of(id.clone()),
            None => NextGrant::Not(next),
        }
    }

    /// Returns the waiters in their current order.
    pub(crate) fn waiters_in_order(&self, now: Timestamp) -> Vec<(&String, &SlotWaiter)> {
        self.first_waiters(usize::MAX, now)
    }

    /// Returns the first `most` waiters in their current order, and sorts only those.
    pub(crate) fn first_waiters(&self, most: usize, now: Timestamp) -> Vec<(&String, &SlotWaiter)> {
        let settings = self.effective();
        let mut line: Vec<_> = self.waiting.iter().collect();
        if line.len() > most {
            line.select_nth_unstable_by_key(most, |(id, waiting)| self.rank(id, waiting, &settings, now));
            line.truncate(most);
        }
        line.sort_by_key(|(id, waiting)| self.rank(id, waiting, &settings, now));
        line
    }

    /// Returns the rank of a waiter. The waiter with the lowest rank is first.
    fn rank<'a>(
        &self,
        id: &'a String,
        waiting: &SlotWaiter,
        settings: &QueueSettings,
        now: Timestamp,
    ) -> Rank<'a> {
        let turn = self.keys.key_note(&waiting.key).map_or(0, |note| note.turn);
        (Reverse(priority_level(waiting.priority, waiting.since, settings, now)), turn, waiting.since, id)
    }

    fn grant_slot(&mut self, id: &str, settings: &QueueSettings, now: Timestamp) {
        let Some(waiting) = self.waiting.remove(id) else { return };
        let start_ids = waiting.all_starts();
        let SlotWaiter { run, kind, places, key, executor, epoch, question, alive, .. } = waiting;
        self.in_use = self.in_use.saturating_add(places);
        self.keys.count_slots(&key, places);
        let is_noted = settings.rate_per_key.is_some() || self.keys.take_turns();
        if settings.rate.is_some() || is_noted {
            self.grants.turn += 1;
            self.grants.next = next_opening_after(settings.rate, self.grants.next, now);
            self.dirty.pulse = true;
        }
        if is_noted {
            self.keys.record_turn(&key, self.grants.turn, settings.weight(&key), |next| {
                next_opening_after(settings.rate_per_key, next, now)
            });
        }
        let on_hold = kind == SlotKind::Run;
        self.granted.push(id.to_owned());
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
            start_ids,
            alive,
        };
        self.held.insert(id, held);
    }
}

/// Returns the effective priority of a waiter: its priority, raised by the time that it has waited since `since`.
fn priority_level(priority: i32, since: Timestamp, settings: &QueueSettings, now: Timestamp) -> i64 {
    let waited = now.since(since).as_millis() / u128::from(settings.ageing_ms.max(1));
    i64::from(priority).saturating_add(i64::try_from(waited).unwrap_or(i64::MAX))
}

pub(super) fn micros(now: Timestamp) -> i64 {
    now.unix_ms().saturating_mul(1_000)
}

/// Returns the time at which a rate allows the next grant; `None` if it allows one now. `next` is the time of the next grant if grants were spread
/// evenly.
fn rate_opens_at(rate: Option<RateLimit>, next: i64, now: Timestamp) -> Option<Timestamp> {
    let rate = rate?;
    let ahead = rate.interval().saturating_mul(i64::from(rate.burst.saturating_sub(1)));
    let at = next.saturating_sub(ahead);
    (at > micros(now))
        .then(|| Timestamp::from_unix_ms(at.div_euclid(1_000) + i64::from(at.rem_euclid(1_000) > 0)))
}

/// Returns the new value of `next` after a grant at `now`.
fn next_opening_after(rate: Option<RateLimit>, next: i64, now: Timestamp) -> i64 {
    rate.map_or(0, |rate| next.max(micros(now)).saturating_add(rate.interval()))
}
