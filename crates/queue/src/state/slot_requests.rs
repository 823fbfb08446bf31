//! Requests for slots, made by nodes, by starts, and by runs that are on hold.

use std::time::Duration;

use ferrata_core::{Epoch, ExecutorId, Timestamp};

use super::{EnqueueUndo, OpResult, QueueState, SlotKind, SlotRequest, SlotWaiter, wait_queue};

/// Maximum delay with which a node may claim a slot of a queue with a rate. Normally an idle run is claimed within moments of its grant. If no
/// process claimed runs for a while, all grants of that time would otherwise be used at once.
const LATEST_CLAIM: Duration = Duration::from_secs(10);

impl QueueState {
    pub(super) fn request_slot(&mut self, ask: SlotRequest, now: Timestamp) -> OpResult {
        let SlotRequest { id, mut waiting, once, debounce, doubts, is_on_record } = ask;
        if let Some((executor, epoch)) = self.last_requester(&id) {
            if epoch > waiting.epoch {
                return OpResult::Stale(executor, epoch);
            }
            return match self.returned_slot_start(&id, &waiting, is_on_record, now) {
                Some(since) => self.enter_again(&id, waiting, since, now),
                None => self.answer_entry_request(&id, &waiting, &doubts),
            };
        }
        if let Some(replaced) = self.replaced.get(&id) {
            return OpResult::Before(replaced.by.clone());
        }
        let limits = self.effective();
        if let Some(places) = limits.at_once.filter(|most| waiting.places > *most) {
            return OpResult::TooMany(places);
        }
        if let Some(places) = limits.at_once_per_key.filter(|most| waiting.places > *most) {
            return OpResult::TooManyForKey(places);
        }
        if let Some((key, ms)) = &once
            && let Some(said) = self.check_once(key, *ms, &waiting.run, now)
        {
            return said;
        }
        let bytes = self.bytes() + wait_queue::stored_size(&wait_queue::waiter_key(&id, &waiting), &waiting);
        if bytes > self.max_bytes {
            return OpResult::NoRoom { bytes, room: self.max_bytes };
        }
        let (run, kind) = (waiting.run.clone(), waiting.kind);
        let before = debounce.as_ref().and_then(|debounce| self.waiting.debounced_run(&debounce.key));
        if let Some(debounce) = &debounce {
            self.delay(&mut waiting, debounce, before.as_deref(), now);
        }
        // The start has a new deadline. Its run may already be stored, on hold.
        let late = self.expired.remove(&id);
        self.insert_waiter(id.clone(), waiting);
        self.grant(now);
        let most = (self.settings.max_waiting as usize).saturating_add(usize::from(before.is_some()));
        if !self.held.contains_key(&id) && self.waiting.len() > most {
            self.remove_entry(&id);
            if let Some(late) = late {
                self.expired.insert(&id, late);
            }
            return OpResult::Full(self.waiting.len());
        }
        if let Some(before) = &before {
            self.replace(before, &run, now);
        }
        let once = once.map(|(key, ms)| self.note_once(key, ms, &run, now));
        let is_in = self.held.contains_key(&id) && late.is_none() && !is_on_record;
        if kind == SlotKind::Run && !is_on_record {
            self.undos.push((id.clone(), EnqueueUndo::new(run, now, late, once, before)));
        }
        if !is_in {
            return OpResult::Waits;
        }
        // The requester begins the run with the slot. Its run is not started yet.
        self.held.update(&id, |held| held.on_hold = false);
        OpResult::Granted
    }

    /// Answers a holder or waiter that repeats its request.
    fn answer_entry_request(
        &mut self,
        id: &str,
        waiting: &SlotWaiter,
        doubts: &[super::StartId],
    ) -> OpResult {
        self.add_start(id, &waiting.all_starts(), doubts);
        self.mark_alive(id, waiting.alive);
        self.repeat_request(id, waiting, None);
        let is_in = self.held.get(id).is_some_and(|held| !held.on_hold);
        if is_in { OpResult::Granted } else { OpResult::Waits }
    }

    /// Moves a holder that returns its slot back into the line. The holder was in the queue before, so the limit on waiting requests does not apply.
    fn enter_again(
        &mut self,
        id: &str,
        mut waiting: SlotWaiter,
        since: Timestamp,
        now: Timestamp,
    ) -> OpResult {
        let kind = waiting.kind;
        if let Some(mut starts) = self.starts_of(id).filter(|_| kind == SlotKind::Run) {
            // Other starts of the run that are in progress keep their entry.
            let own = waiting.all_starts();
            starts.extend(own.into_iter().filter(|own| !starts.contains(own)).collect::<Vec<_>>());
            waiting.is_of(starts);
        }
        self.remove_entry(id);
        waiting.since = since;
        self.insert_waiter(id.to_owned(), waiting);
        self.grant(now);
        match kind == SlotKind::Node && self.held.contains_key(id) {
            true => OpResult::Granted,
            false => OpResult::Waits,
        }
    }

    /// Returns the time since which a repeated request waits, if the request returns its slot; `None` if it keeps the slot. A run that is on hold
    /// again has ended since it was granted the slot. If a node's run was claimed again, the node's request counts as another start at the rate. A
    /// woken node keeps the slot that it was granted, unless it claims the slot too late.
    fn returned_slot_start(
        &self,
        id: &str,
        by: &SlotWaiter,
        is_on_record: bool,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let held = self.held.get(id).filter(|held| held.kind == by.kind)?;
        match held.kind {
            SlotKind::Run => {
                // A request that was read before the run began is stale.
                let is_stale = held.alive.is_some_and(|alive| {
                    by.alive.is_none_or(|by| alive.start == by.start && alive.at >= by.at)
                });
                (is_on_record && !held.on_hold && !is_stale).then_some(by.since)
            }
            SlotKind::Node => {
                let limits = self.effective();
                let has_rate = limits.rate.is_some() || limits.rate_per_key.is_some();
                let is_late = has_rate && now.since(held.at) > LATEST_CLAIM;
                let is_other = (held.executor, held.epoch) != (by.executor, by.epoch);
                (is_other && (held.question.is_none() || is_late)).then(|| by.since.min(held.at))
            }
        }
    }

    /// Returns the process that last requested the slot of a holder or waiter, and the epoch of the run at that time.
    pub(super) fn last_requester(&self, id: &str) -> Option<(ExecutorId, Epoch)> {
        let holder = self.held.get(id).map(|held| (held.executor, held.epoch));
        holder.or_else(|| self.waiting.get(id).map(|waiting| (waiting.executor, waiting.epoch)))
    }

    /// Records that a holder or waiter repeated its request, or became idle and waits for the answer to `question`.
    pub(super) fn repeat_request(&mut self, id: &str, by: &SlotWaiter, question: Option<String>) {
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
                let start_ids = known.all_starts();
                (known.executor, known.epoch, known.question) = (executor, epoch, question);
                known.is_of(start_ids);
            });
        }
    }
}
