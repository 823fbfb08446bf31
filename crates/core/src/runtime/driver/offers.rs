//! What waiting nodes are handed, and in which order.
//!
//! An attempt is handed one thing at a time: the next only when it has read this one, or given it up, and has said what it waits for
//! then. So the order in which waits end is decided here, and not by the order in which a `select!` looks at them. Where something
//! else could have ended instead, the decision is noted. Whatever ended in an attempt before, ends in the same order again.

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
use crate::record::body::{Event, StatusChange};
use crate::record::child::ChildEnd;
use crate::record::memo::{Memo, Memos, Reply, ended};
use crate::record::pause::{ActivationNote, Expired};
use crate::state::State;

/// Which of several things that could end a wait goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DeliveryPriority {
    /// It ended before this attempt, as the n-th.
    Again(usize),
    /// Its place is on record, or it had none beside it.
    Noted,
    /// An answer or a message has come.
    Said(Timestamp),
    /// Its time has come: what was said goes first, for it would be lost if a wait beside it ended instead.
    Due(Timestamp),
}

/// What an activation is handed next.
struct PendingDelivery {
    key: ActivationKey,
    name: String,
    turn: DeliveryPriority,
    /// Since when it waits, among all.
    order: u64,
    what: DeliveryKind,
}

enum DeliveryKind {
    /// This, which is on record; there, too, is that it ended before others, if `placed`.
    Known { given: NodeReply, seq: Option<Seq>, placed: bool },
    /// What came of these children of a group; `placed` if it is on record that they ended before others.
    Ends { names: Vec<String>, placed: bool },
    /// The first message that waits.
    Message,
    /// The patience for a message is over.
    Idle,
    /// Nothing as yet: that it is over must be durable first.
    Pending,
}

impl<S: State> RunDriver<S> {
    /// Hands what has come to the nodes that wait for it.
    pub(super) fn offer(&mut self) -> Result<()> {
        if !self.is_stopping() && self.waiters.next_wake().is_some() {
            self.ring(self.shared.clock.now())?;
        }
        let mut crowded = Vec::new();
        let mut seen = None;
        loop {
            // Another wait may be the longest for a message by now.
            if !self.machine.inbox().is_empty()
                && let Some((key, order)) = self.first_receiver()
                && seen.replace(order) != Some(order)
            {
                self.waiters.stir(key);
            }
            let stirred = self.waiters.drain_stirred();
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
                    true => self.hand(offer)?,
                    false => crowded.push(offer.key),
                }
            }
        }
        crowded.into_iter().for_each(|key| self.waiters.stir(key));
        Ok(())
    }

    /// Finds the wait that takes the next message: the longest, counting from before the last rest. `None` as long as an activation
    /// that waited before is about to wait again.
    fn first_receiver(&self) -> Option<(ActivationKey, u64)> {
        let before = self.machine.receivers();
        let first = self.waiters.first_receiver(before)?;
        let is_first = |(key, name): &&(ActivationKey, String)| {
            self.waiters.order_of(*key, name).is_none_or(|order| order != first.1)
        };
        let comes = |(key, name): &(ActivationKey, String)| {
            let Some(activation) = self.machine.in_flight().get(key) else { return false };
            let waits = matches!(activation.memos.get(name), None | Some(Memo::Until(_)));
            waits && self.line.running(*key).is_none_or(|running| !running.scope().waits.is_quiet())
        };
        (!before.iter().take_while(is_first).any(comes)).then_some(first)
    }

    /// Whether `concurrency` allows the activation to go on, and none is in line whose time came before.
    fn has_place(&self, offer: &PendingDelivery) -> bool {
        let parked = self.line.running(offer.key).is_some_and(|running| running.scope().waits.is_parked());
        if self.plan.concurrency.is_none() || !parked {
            return true;
        }
        let first = self.line.first_ready().and_then(|key| self.machine.in_flight().get(key));
        let before = first.and_then(|activation| activation.retry_at);
        let waits = matches!((offer.turn, before), (DeliveryPriority::Due(at), Some(before)) if before < at);
        self.room() && !waits
    }

    /// Whether an activation would be handed something if the driver went on: what came when nothing new was to start any more, or what
    /// may follow from a wish that is on its way.
    pub(super) fn has_news(&mut self) -> bool {
        let now = self.shared.clock.now();
        let keys: Vec<_> = self.machine.in_flight().keys().copied().collect();
        keys.into_iter().any(|key| {
            let is_quiet = self.line.running(key).is_none_or(|running| running.scope().waits.is_quiet());
            !is_quiet || self.next_of(key, now, false).is_some()
        })
    }

    /// Returns what an activation is handed next, if it has read what it was handed before. To one that is `stopping`, nothing is new.
    fn next_of(&mut self, key: ActivationKey, now: Timestamp, stopping: bool) -> Option<PendingDelivery> {
        let running = self.line.running(key)?;
        if !running.scope().waits.is_quiet() {
            return None;
        }
        let memos = &self.machine.in_flight().get(&key)?.memos;
        let inbox = self.machine.inbox().front().map(|message| message.at);
        let first = inbox.and_then(|_| self.first_receiver()).map(|(_, order)| order);
        let mut next: Option<PendingDelivery> = None;
        let groups = self.waiters.ended(key);
        for waiter in self.waiters.of(key) {
            let again = running.place_of(&waiter.name);
            let inbox = inbox.filter(|_| first == Some(waiter.order));
            let end = match waiter.what {
                WaitsFor::Ends { .. } => ends_of(groups.get(&waiter.name), |name| running.place_of(name)),
                _ => end_of(waiter, memos, now, again, inbox),
            };
            let Some((turn, what)) = end else { continue };
            // What ended before is the way to where the attempt before was; whatever is new waits.
            let held = stopping && !matches!(turn, DeliveryPriority::Again(_) | DeliveryPriority::Noted);
            let later = next.as_ref().is_some_and(|next| (next.turn, next.order) < (turn, waiter.order));
            if !(held || later) {
                next =
                    Some(PendingDelivery { key, name: waiter.name.clone(), turn, order: waiter.order, what });
            }
        }
        next.filter(|next| !matches!(next.what, DeliveryKind::Pending))
    }

    /// Hands an activation what it waited for.
    fn hand(&mut self, offer: PendingDelivery) -> Result<()> {
        let PendingDelivery { key, name, what, .. } = offer;
        let Some(mut waiter) = self.waiters.remove(key, &name) else { return Ok(()) };
        // It might have ended otherwise: then that is to be remembered.
        let first = waiter.reply.waits().has_rivals();
        let strong = matches!(waiter.what, WaitsFor::Record(..));
        waiter.reply.promise();
        let (seq, given) = match what {
            DeliveryKind::Known { given, seq, placed } if placed || !first => (seq, given),
            DeliveryKind::Known { given, .. } => {
                let Some(activation) = self.machine.in_flight().get(&key) else { return Ok(()) };
                let (place, of) = (activation.memos.next_ended(), ended(&name)?);
                (Some(self.note_step(key, &place, ActivationNote::Result(of), false)?), given)
            }
            DeliveryKind::Ends { names, placed } => {
                self.waiters.handed(key, &name, &names);
                // The next of them might have been enough instead.
                let first = first || matches!(waiter.what, WaitsFor::Ends { enough: true });
                let ends = self.place_ends(key, names, first, placed)?;
                (self.journal.on_its_way(), NodeReply::Ends(ends))
            }
            DeliveryKind::Message => {
                let Some(message) = self.machine.inbox().front().cloned() else { return Ok(()) };
                let seq = self.note_step(key, &name, ActivationNote::Took(message.number), first)?;
                (Some(seq), NodeReply::Message(message))
            }
            DeliveryKind::Idle => {
                (Some(self.note_step(key, &name, ActivationNote::Idle, first)?), NodeReply::Idle)
            }
            DeliveryKind::Pending => return Ok(()),
        };
        self.give(key, seq, waiter.reply, given, strong);
        // What else it waits for is looked at once it has read this, also if it has other work then.
        self.waiters.stir(key);
        Ok(())
    }

    /// Finds what came of children of a group, and notes that it ended before others: each if something else might have ended instead, and
    /// whatever is no success in any case, because the first of them may end the wait for all.
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
                let (place, of) = (memos.next_ended(), ended(&name)?);
                self.note_step(key, &place, ActivationNote::Result(of), false)?;
            }
            ends.push((name, end));
        }
        Ok(ends)
    }

    /// Gives a node what it waited for; once the record is durable, if the node's effect asks for that, or in any case.
    fn give(
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
            Some(seq) => self.journal.owe(seq, DurableReply::Given { reply, given }),
            None => reply.send(Ok(given)),
        }
    }

    /// Looks at the waits whose time has come, and notes which questions are over.
    fn ring(&mut self, now: Timestamp) -> Result<()> {
        while let Some((at, key, name)) = self.waiters.next_due(now) {
            self.waiters.stir(key);
            let memo = self.machine.in_flight().get(&key).and_then(|activation| activation.memos.get(&name));
            let open = matches!(memo, Some(Memo::Asked(asked)) if asked.reply.is_open());
            if !open || !self.waiters.of(key).iter().any(|waiter| waiter.name == name) {
                continue;
            }
            let node = self.machine.name(key.0).clone();
            let expired = Expired { node, visit: key.1, name: name.clone(), at };
            // No node may act on it before it is on record: until then, an answer may come.
            let seq = self.note(&Event::Status(StatusChange::Expired(expired)), None, false)?;
            self.waiters.await_expiry(key, &name);
            self.journal.owe(seq, DurableReply::Expiry(ExpiredQuestion { key, name }));
        }
        Ok(())
    }
}

/// Tells which ends of a group are handed over next: those that ended in an attempt before, as far as nothing else ended between them, and
/// then all others.
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

/// Tells whether a wait is over, and how it ends then. `again` is its place among what ended before this attempt,
/// `inbox` the time of a message that is for this one.
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
        // What came of children goes first of what has come, in the order of the waits.
        (WaitsFor::Child, Some(Memo::Result(end))) => {
            known(DeliveryPriority::Said(Timestamp::default()), NodeReply::Kept(Arc::clone(end)))
        }
        // A group's ends are those of its children.
        (WaitsFor::Child | WaitsFor::Ends { .. }, _) => None,
        // What has rung before has rung, whatever the clock says here.
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
                // A node whose question was answered by cancelling waits on, and is dropped with the run: told, it would fail the run first.
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
