//! Delivers results to waiting nodes, and decides their order.
//!
//! An attempt receives one delivery at a time. The next delivery follows only after the attempt has read or dropped the previous one and has
//! registered its next waits. So the order in which waits end is decided by the driver, and not by the order in which a `select!` polls them. If
//! several waits could have ended, the driver records which wait ended. Waits that ended in an earlier attempt end again in the same order.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::RunDriver;
use super::journal::{DurableReply, ExpiredQuestion};
use super::waiters::{NodeWait, WaitsFor};
use crate::ask::Answer;
use crate::clock::Timestamp;
use crate::engine::frontier::ActivationKey;
use crate::error::Result;
use crate::graph::Effect;
use crate::graph::node_set::NodeIx;
use crate::id::Seq;
use crate::node::{NodeReply, ReplySender};
use crate::record::body::{RecordEvent, StatusChange};
use crate::record::child::ChildEnd;
use crate::record::memo::{Memo, Memos, Reply, end_note};
use crate::record::pause::{ActivationNote, ExpiredRecord};
use crate::state::State;

/// The priority of a delivery, if several deliveries are possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DeliveryPriority {
    /// The wait ended in an earlier attempt, at this position among the ended waits.
    Again(usize),
    /// The result is recorded, and its position is recorded or was the only possible one.
    Noted,
    /// An answer or a message arrived at this time.
    Said(Timestamp),
    /// A timer expired at this time. Answers and messages have priority over timers, because they would be lost if the timer ended the wait.
    Due(Timestamp),
}

/// The next delivery to an activation.
struct PendingDelivery {
    key: ActivationKey,
    name: String,
    turn: DeliveryPriority,
    /// The position of the wait among all waits, ordered by their start.
    order: u64,
    what: DeliveryKind,
}

enum DeliveryKind {
    /// A reply that is already recorded. If `placed` is true, the record also contains that this wait ended before the other waits.
    Known { given: NodeReply, seq: Option<Seq>, placed: bool },
    /// These children of a group have ended. If `placed` is true, the driver records that this wait ended before the other waits.
    Ends { names: Vec<String>, placed: bool },
    /// The node receives the first message that waits in the run.
    Message,
    /// No message arrived before the timeout of the wait.
    Idle,
    /// The delivery must wait, because the expiry of the question must become durable first.
    Pending,
}

impl<S: State> RunDriver<S> {
    /// Delivers results to the nodes that wait for them.
    pub(super) fn deliver_ready(&mut self) -> Result<()> {
        if !self.is_stopping() && self.waits.next_wake().is_some() {
            self.fire_timers(self.shared.clock.now())?;
        }
        let mut crowded = Vec::new();
        let mut seen = None;
        loop {
            // Another wait may now be the longest one for a message.
            if !self.machine.inbox().is_empty()
                && let Some((key, order)) = self.first_receiver()
                && seen.replace(order) != Some(order)
            {
                self.waits.mark_dirty(key);
            }
            let stirred = self.waits.drain_dirty();
            if stirred.is_empty() {
                break;
            }
            let now = self.shared.clock.now();
            let stopping = self.is_stopping();
            let mut offers: Vec<PendingDelivery> =
                stirred.into_iter().filter_map(|key| self.next_of(key, now, stopping)).collect();
            if offers.is_empty() {
                break;
            }
            offers.sort_by_key(|offer| (offer.turn, offer.order));
            for offer in offers {
                match self.has_place(&offer) {
                    true => self.deliver(offer)?,
                    false => crowded.push(offer.key),
                }
            }
        }
        crowded.into_iter().for_each(|key| self.waits.mark_dirty(key));
        Ok(())
    }

    /// Returns the wait that receives the next message. This is the longest wait, including waits that began before the last idle time of the run.
    /// Returns `None` if an activation that waited before the idle time has not started to wait again yet.
    fn first_receiver(&self) -> Option<(ActivationKey, u64)> {
        let before = self.machine.receivers();
        let first = self.waits.first_receiver(before)?;
        let is_first = |(key, name): &&(ActivationKey, String)| {
            self.waits.order_of(*key, name).is_none_or(|order| order != first.1)
        };
        let comes = |(key, name): &(ActivationKey, String)| {
            let Some(activation) = self.machine.in_flight().get(key) else { return false };
            let waits = matches!(activation.memos.get(name), None | Some(Memo::Until(_)));
            waits && self.ready_queue.running(*key).is_none_or(|running| !running.scope().waits.is_quiet())
        };
        (!before.iter().take_while(is_first).any(comes)).then_some(first)
    }

    /// Returns whether the concurrency limit allows the activation to continue, and whether no earlier activation waits for its turn.
    fn has_place(&self, offer: &PendingDelivery) -> bool {
        let parked =
            self.ready_queue.running(offer.key).is_some_and(|running| running.scope().waits.is_parked());
        if self.plan.concurrency.is_none() || !parked {
            return true;
        }
        let first = self.ready_queue.first_ready().and_then(|key| self.machine.in_flight().get(key));
        let before = first.and_then(|activation| activation.retry_at);
        let waits = matches!((offer.turn, before), (DeliveryPriority::Due(at), Some(before)) if before < at);
        self.room() && !waits
    }

    /// Returns whether an activation would receive a delivery if the driver continued. This may be an event that arrived after the driver had stopped
    /// starting activations, or the result of a pending request.
    pub(super) fn has_news(&mut self) -> bool {
        let now = self.shared.clock.now();
        let keys: Vec<_> = self.machine.in_flight().keys().copied().collect();
        keys.into_iter().any(|key| {
            let is_quiet =
                self.ready_queue.running(key).is_none_or(|running| running.scope().waits.is_quiet());
            !is_quiet || self.next_of(key, now, false).is_some()
        })
    }

    /// Returns the next delivery to an activation, if the activation has read the previous delivery. If the run is `stopping`, the activation
    /// receives no new events.
    fn next_of(&mut self, key: ActivationKey, now: Timestamp, stopping: bool) -> Option<PendingDelivery> {
        let running = self.ready_queue.running(key)?;
        if !running.scope().waits.is_quiet() {
            return None;
        }
        let stopping = stopping || self.machine.cancel().is_some() && !running.scope().cleanup.is_cleanup();
        let memos = &self.machine.in_flight().get(&key)?.memos;
        let inbox = self.machine.inbox().front().map(|message| message.at);
        let first = inbox.and_then(|_| self.first_receiver()).map(|(_, order)| order);
        let mut next: Option<PendingDelivery> = None;
        let groups = self.waits.ended_groups(key);
        for waiter in self.waits.next_waits(key) {
            let again = running.place_of(&waiter.name);
            let inbox = inbox.filter(|_| first == Some(waiter.order));
            let end = match waiter.what {
                WaitsFor::Ends { .. } => ends_of(groups.get(&waiter.name), |name| running.place_of(name)),
                _ => end_of(waiter, memos, now, again, inbox),
            };
            let Some((turn, what)) = end else { continue };
            // Replay earlier ends, which lead to the earlier attempt's position; new events wait.
            let held = stopping && !matches!(turn, DeliveryPriority::Again(_) | DeliveryPriority::Noted);
            let later = next.as_ref().is_some_and(|next| (next.turn, next.order) < (turn, waiter.order));
            if !(held || later) {
                next =
                    Some(PendingDelivery { key, name: waiter.name.clone(), turn, order: waiter.order, what });
            }
        }
        next.filter(|next| !matches!(next.what, DeliveryKind::Pending))
    }

    /// Delivers a result to an activation.
    fn deliver(&mut self, offer: PendingDelivery) -> Result<()> {
        let PendingDelivery { key, name, what, order, .. } = offer;
        let Some(mut waiter) = self.waits.remove(key, order) else { return Ok(()) };
        // A rival wait might have ended instead, so the order must be recorded.
        let first = waiter.reply.waits().has_rivals();
        let strong = matches!(waiter.what, WaitsFor::Record(..));
        waiter.reply.promise();
        let (seq, given) = match what {
            DeliveryKind::Known { given, seq, placed } if placed || !first => (seq, given),
            DeliveryKind::Known { given, .. } => {
                let Some(activation) = self.machine.in_flight().get(&key) else { return Ok(()) };
                let (place, of) = (activation.memos.next_ended(), end_note(&name)?);
                (Some(self.write_note(key, &place, ActivationNote::Result(of), false)?), given)
            }
            DeliveryKind::Ends { names, placed } => {
                self.waits.mark_delivered(key, &name, &names);
                // The next end might have been enough instead.
                let first = first || matches!(waiter.what, WaitsFor::Ends { enough: true });
                let ends = self.place_ends(key, names, first, placed)?;
                (self.journal.on_its_way(), NodeReply::Ends(ends))
            }
            DeliveryKind::Message => {
                let Some(message) = self.machine.inbox().front().cloned() else { return Ok(()) };
                let seq = self.write_note(key, &name, ActivationNote::Took(message.number), first)?;
                (Some(seq), NodeReply::Message(message))
            }
            DeliveryKind::Idle => {
                (Some(self.write_note(key, &name, ActivationNote::Idle, first)?), NodeReply::Idle)
            }
            DeliveryKind::Pending => return Ok(()),
        };
        self.send_reply(key, seq, waiter.reply, given, strong);
        // The activation's other waits are checked after it has read this delivery, even if it has other work then.
        self.waits.mark_dirty(key);
        Ok(())
    }

    /// Returns the ends of a group's children, and records that they came before other waits. An end is recorded only if another wait could have
    /// ended instead. The end of a failed child is always recorded, because the first failure may end the whole wait.
    fn place_ends(
        &mut self,
        key: ActivationKey,
        names: Vec<String>,
        first: bool,
        placed: bool,
    ) -> Result<Vec<(String, Arc<RawValue>)>> {
        let mut ends = Vec::with_capacity(names.len());
        for name in names {
            let Some(memos) = self.machine.in_flight().get(&key).map(|activation| &activation.memos) else {
                break;
            };
            let Some(Memo::Result(end)) = memos.get(&name) else { continue };
            let end = Arc::clone(end);
            if !placed && (first || !ChildEnd::is_good(&end)) {
                let (place, of) = (memos.next_ended(), end_note(&name)?);
                self.write_note(key, &place, ActivationNote::Result(of), false)?;
            }
            ends.push((name, end));
        }
        Ok(ends)
    }

    /// Delivers a reply to a node. If `strong` is set, or if the node's effect requires it, the reply is sent only after the record is durable.
    fn send_reply(
        &mut self,
        key: ActivationKey,
        seq: Option<Seq>,
        reply: ReplySender,
        given: NodeReply,
        strong: bool,
    ) {
        let weak =
            !strong && matches!(self.plan.node(NodeIx::new(key.0)).effect, Effect::Pure | Effect::Read);
        match seq.filter(|&seq| !weak && !self.journal.is_durable(seq)) {
            Some(seq) => self.journal.defer_reply(seq, DurableReply::Given { reply, given }),
            None => reply.send(Ok(given)),
        }
    }

    /// Handles the waits whose time has passed, and records expired questions.
    fn fire_timers(&mut self, now: Timestamp) -> Result<()> {
        while let Some((at, key, name)) = self.waits.next_due(now) {
            self.waits.mark_dirty(key);
            let memo = self.machine.in_flight().get(&key).and_then(|activation| activation.memos.get(&name));
            let open = matches!(memo, Some(Memo::Asked(asked)) if asked.reply.is_open());
            if !open || !self.waits.next_waits(key).any(|waiter| waiter.name == name) {
                continue;
            }
            let node = self.machine.name(key.0).clone();
            let expired = ExpiredRecord { node, visit: key.1, name: name.clone(), at };
            // No node may act on the expiry before it is recorded: until then, an answer may arrive.
            let seq = self.write_event(&RecordEvent::Status(StatusChange::Expired(expired)), None, false)?;
            self.waits.await_expiry(key, &name);
            self.journal.defer_reply(seq, DurableReply::Expiry(ExpiredQuestion { key, name }));
        }
        Ok(())
    }
}

/// Returns the ends of a group that are delivered next. First, these are the ends of an earlier attempt, up to the next end of another wait. Later,
/// these are all further ends.
fn ends_of(
    ended: Option<&Vec<String>>,
    place_of: impl Fn(&str) -> Option<usize>,
) -> Option<(DeliveryPriority, DeliveryKind)> {
    let ended = ended?;
    let mut before: Vec<_> = ended.iter().filter_map(|name| Some((place_of(name)?, name))).collect();
    before.sort_unstable();
    let Some(&(first, _)) = before.first() else {
        let turn = DeliveryPriority::Said(Timestamp::default());
        return Some((turn, DeliveryKind::Ends { names: ended.clone(), placed: false }));
    };
    let in_a_row = (first..).zip(before).take_while(|(place, (at, _))| place == at);
    let names = in_a_row.map(|(_, (_, name))| name.clone()).collect();
    Some((DeliveryPriority::Again(first), DeliveryKind::Ends { names, placed: true }))
}

/// Returns how a wait ends, if it has ended. `again` is the position of the wait among the waits that ended in earlier attempts. `inbox` is the time
/// of a message for the wait.
fn end_of(
    waiter: &NodeWait,
    memos: &Memos,
    now: Timestamp,
    again: Option<usize>,
    inbox: Option<Timestamp>,
) -> Option<(DeliveryPriority, DeliveryKind)> {
    let due = waiter.until.filter(|until| *until <= now).map(DeliveryPriority::Due);
    let again = again.map(DeliveryPriority::Again);
    let known = |turn, given| {
        Some((again.unwrap_or(turn), DeliveryKind::Known { given, seq: None, placed: again.is_some() }))
    };
    match (waiter.what, memos.get(&waiter.name)) {
        (WaitsFor::Step(None), _) => known(DeliveryPriority::Noted, NodeReply::Done),
        (WaitsFor::Step(Some((seq, placed))), _) => Some((
            DeliveryPriority::Noted,
            DeliveryKind::Known { given: NodeReply::Done, seq: Some(seq), placed },
        )),
        (WaitsFor::Record(seq, placed), _) => Some((
            DeliveryPriority::Noted,
            DeliveryKind::Known { given: NodeReply::Done, seq: Some(seq), placed },
        )),
        // Child results come first among arrived events, in the order of the waits.
        (WaitsFor::Child, Some(Memo::Result(end))) => {
            known(DeliveryPriority::Said(Timestamp::default()), NodeReply::Kept(Arc::clone(end)))
        }
        // A group's ends are the ends of its children.
        (WaitsFor::Child | WaitsFor::Ends { .. }, _) => None,
        // An expired timer stays expired, whatever this process's clock says.
        (WaitsFor::Time, _) => known(again.or(due)?, NodeReply::Done),
        (WaitsFor::Message, Some(Memo::Message(message))) => {
            known(DeliveryPriority::Noted, NodeReply::Message(message.clone()))
        }
        (WaitsFor::Message, Some(Memo::Idle)) => known(DeliveryPriority::Noted, NodeReply::Idle),
        (WaitsFor::Message, _) => match inbox {
            Some(at) => Some((DeliveryPriority::Said(at), DeliveryKind::Message)),
            None => Some((due?, DeliveryKind::Idle)),
        },
        (WaitsFor::Expiry, _) => Some((DeliveryPriority::Due(waiter.until?), DeliveryKind::Pending)),
        (WaitsFor::Answer, Some(Memo::Asked(asked))) => {
            let turn = match &asked.reply {
                Reply::Open => return None,
                // A node whose question was answered by cancelling keeps waiting, and is dropped with the run. A delivery would fail the run first.
                Reply::Answered { answer: Answer::Cancel(_), .. } => return None,
                Reply::Answered { at, .. } if asked.ask.deadline.is_none_or(|deadline| *at < deadline) => {
                    DeliveryPriority::Said(*at)
                }
                Reply::Answered { at, .. } | Reply::Expired { at } => DeliveryPriority::Due(*at),
            };
            known(turn, NodeReply::Reply(Arc::clone(asked)))
        }
        (WaitsFor::Answer, _) => None,
    }
}
