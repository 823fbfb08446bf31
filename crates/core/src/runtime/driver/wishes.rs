//! What nodes wish for while they run: noting steps, waiting for timers, messages and answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::value::RawValue;

use super::Driver;
use super::facts::{Fact, What};
use crate::ask::{Answer, Request};
use crate::clock::Timestamp;
use crate::engine::frontier::ActivationKey;
use crate::engine::questions::BEFORE;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::Effect;
use crate::graph::node_set::NodeIx;
use crate::id::Seq;
use crate::node::{Given, Replier, Wish};
use crate::record::body::{Event, StatusChange};
use crate::record::memo::{Memo, Reply};
use crate::record::pause::{Asking, Expired, Noted, Stepped};
use crate::record::{Failure, FailureKind};
use crate::runtime::event::Event as RunEventKind;
use crate::state::State;

/// What nodes that run here wait for.
#[derive(Default)]
pub(super) struct Waiting {
    by_activation: BTreeMap<ActivationKey, Vec<Waiter>>,
    /// When those are to be told that wait for a time, or not longer than that.
    times: BTreeSet<(Timestamp, ActivationKey, String)>,
    /// How many have waited: those who wait longest are served first.
    count: u64,
}

struct Waiter {
    name: String,
    order: u64,
    what: WaitsFor,
    reply: Replier,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitsFor {
    Time,
    Message,
    Answer,
}

impl Waiting {
    /// Whether somebody of this activation waits who has not gone away.
    pub(super) fn waits(&self, key: ActivationKey) -> bool {
        self.by_activation.get(&key).is_some_and(|all| all.iter().any(|waiter| !waiter.reply.is_closed()))
    }

    /// Whether anybody waits for a message.
    pub(super) fn is_receiving(&self) -> bool {
        self.by_activation
            .values()
            .flatten()
            .any(|waiter| waiter.what == WaitsFor::Message && !waiter.reply.is_closed())
    }

    /// Whether anybody waits for nothing but a time.
    pub(super) fn is_sleeping(&self) -> bool {
        self.by_activation
            .values()
            .flatten()
            .any(|waiter| waiter.what == WaitsFor::Time && !waiter.reply.is_closed())
    }

    /// Returns when somebody is to be told next.
    pub(super) fn next_time(&self) -> Option<Timestamp> {
        self.times.first().map(|&(at, ..)| at)
    }

    fn add(
        &mut self,
        key: ActivationKey,
        name: String,
        what: WaitsFor,
        until: Option<Timestamp>,
        reply: Replier,
    ) {
        if let Some(until) = until {
            self.times.insert((until, key, name.clone()));
        }
        self.count += 1;
        let waiter = Waiter { name, order: self.count, what, reply };
        self.by_activation.entry(key).or_default().push(waiter);
    }

    /// Takes whoever waits under this name.
    fn take(&mut self, key: ActivationKey, name: &str) -> Option<Waiter> {
        let all = self.by_activation.get_mut(&key)?;
        let at = all.iter().position(|waiter| waiter.name == name)?;
        let waiter = all.swap_remove(at);
        if all.is_empty() {
            self.by_activation.remove(&key);
        }
        self.times.retain(|(_, of, named)| !(*of == key && *named == name));
        Some(waiter)
    }

    /// Finds who has waited longest for a message.
    fn next_receiver(&self) -> Option<(ActivationKey, String)> {
        let all = self.by_activation.iter().flat_map(|(&key, all)| all.iter().map(move |one| (key, one)));
        all.filter(|(_, waiter)| waiter.what == WaitsFor::Message && !waiter.reply.is_closed())
            .min_by_key(|(_, waiter)| waiter.order)
            .map(|(key, waiter)| (key, waiter.name.clone()))
    }

    /// Lists everybody who waits for an answer.
    fn asking(&self) -> Vec<(ActivationKey, String)> {
        let all = self.by_activation.iter().flat_map(|(&key, all)| all.iter().map(move |one| (key, one)));
        all.filter(|(_, waiter)| waiter.what == WaitsFor::Answer)
            .map(|(key, waiter)| (key, waiter.name.clone()))
            .collect()
    }

    /// Forgets an activation that has ended.
    pub(super) fn forget(&mut self, key: ActivationKey) {
        if self.by_activation.remove(&key).is_some() {
            self.times.retain(|(_, of, _)| *of != key);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_activation.is_empty()
    }
}

impl<S: State> Driver<S> {
    /// Takes in what a node wishes.
    pub(super) fn wish(
        &mut self,
        key: ActivationKey,
        name: String,
        wish: Wish,
        reply: Replier,
    ) -> Result<()> {
        let Some(activation) = self.machine.in_flight.get(&key) else {
            // Another writer came first: the activation does not follow any more, and its work is dropped.
            return Ok(());
        };
        let memo = activation.memos.get(&name).cloned();
        let effect = self.plan.node(NodeIx::new(key.0)).effect;
        if effect == Effect::External && !matches!(wish, Wish::Keep(_)) {
            let message = "a node declared `External` must not be started twice, so it cannot wait; ask, receive or sleep in \
                           a node before it";
            let error = Error::new(ErrorKind::Unsupported, message).with_node(self.machine.name(key.0));
            reply.send(Err(error));
            return Ok(());
        }
        match wish {
            Wish::Keep(text) => self.keep(key, &name, text, reply),
            Wish::Until(moment) => self.wait_until(key, name, memo.as_ref(), moment, reply),
            Wish::Message { patience } => self.wait_message(key, name, memo.as_ref(), patience, reply),
            Wish::Refuse { message, why, patience } => {
                let node = self.machine.name(key.0).clone();
                tracing::warn!(run = %self.log.run, %node, message, why, "a message cannot be read and is set aside");
                let event = RunEventKind::MessageRefused { node, visit: key.1, message, why: why.clone() };
                self.shared.emit(&self.log.run, || event);
                self.note_step(key, &name, Noted::Refused { message, why })?;
                self.wait_message(key, name, None, patience, reply)
            }
            Wish::Ask(request) => self.wait_answer(key, &name, memo.as_ref(), request, reply),
            Wish::AskAgain { problem } => {
                let Some(Memo::Asked(asked)) = memo else { return Ok(()) };
                let request = Request { problem: Some(problem), ..asked.ask.clone() };
                self.wait_answer(key, &name, None, request, reply)
            }
        }
    }

    fn keep(&mut self, key: ActivationKey, name: &str, text: Box<RawValue>, reply: Replier) -> Result<()> {
        let (bytes, most) = (text.get().len(), self.log.max_body);
        if bytes > most {
            let message = format!(
                "the step `{name}` came to {bytes} bytes, allowed are {most}: keep large values elsewhere and return a \
                 reference, or raise `max_body`"
            );
            let error = Error::new(ErrorKind::TooLarge, message).with_node(self.machine.name(key.0));
            reply.send(Err(error));
            return Ok(());
        }
        let seq = self.note_step(key, name, Noted::Result(text.into()))?;
        self.give(key, Some(seq), reply, Given::Done);
        Ok(())
    }

    fn wait_until(
        &mut self,
        key: ActivationKey,
        name: String,
        memo: Option<&Memo>,
        moment: Timestamp,
        reply: Replier,
    ) -> Result<()> {
        let until = match memo {
            Some(Memo::Until(until)) => *until,
            _ => {
                self.note_step(key, &name, Noted::Until(moment))?;
                moment
            }
        };
        self.waits.add(key, name, WaitsFor::Time, Some(until), reply);
        self.ring(self.shared.clock.now())
    }

    fn wait_message(
        &mut self,
        key: ActivationKey,
        name: String,
        memo: Option<&Memo>,
        patience: Option<Duration>,
        reply: Replier,
    ) -> Result<()> {
        let until = match memo {
            Some(Memo::Message(message)) => {
                self.give(key, None, reply, Given::Message(message.clone()));
                return Ok(());
            }
            Some(Memo::Idle) => {
                self.give(key, None, reply, Given::Idle);
                return Ok(());
            }
            Some(Memo::Until(until)) => Some(*until),
            _ => patience.map(|patience| self.shared.clock.now().plus(patience)),
        };
        if let (Some(until), true) = (until, self.machine.inbox.is_empty())
            && !matches!(memo, Some(Memo::Until(_)))
        {
            self.note_step(key, &name, Noted::Until(until))?;
        }
        self.waits.add(key, name, WaitsFor::Message, until, reply);
        self.deliver()?;
        self.ring(self.shared.clock.now())
    }

    fn wait_answer(
        &mut self,
        key: ActivationKey,
        name: &str,
        memo: Option<&Memo>,
        request: Request,
        reply: Replier,
    ) -> Result<()> {
        let deadline = match memo {
            Some(Memo::Asked(asked)) if asked.ask.expects == request.expects => asked.ask.deadline,
            Some(_) => {
                let message = format!(
                    "the question `{name}` was asked before in another form; finish the run with the code it was started \
                     with, or give the new question another name"
                );
                let error = Error::new(ErrorKind::GraphChanged, message).with_node(self.machine.name(key.0));
                reply.send(Err(error));
                return Ok(());
            }
            None => {
                let deadline = request.deadline;
                self.note_asked(key, name, request)?;
                deadline
            }
        };
        self.waits.add(key, name.to_owned(), WaitsFor::Answer, deadline, reply);
        self.serve(key, name, None);
        self.ring(self.shared.clock.now())
    }

    /// Tells whoever waits for an answer under this name, if there is one; once its record is durable, if that is `seq`.
    fn serve(&mut self, key: ActivationKey, name: &str, seq: Option<Seq>) {
        if self.machine.paused.is_some() {
            // Nothing that waits goes on before the run does.
            return;
        }
        let memo = self.machine.in_flight.get(&key).and_then(|activation| activation.memos.get(name));
        let Some(Memo::Asked(asked)) = memo else { return };
        // Whoever asked what somebody cancelled waits on, and is dropped with the run: told, it would fail the run first.
        if asked.reply.is_open() || matches!(asked.reply, Reply::Answered { answer: Answer::Cancel(_), .. }) {
            return;
        }
        let given = Given::Reply(asked.reply.clone(), asked.ask.deadline);
        let Some(waiter) = self.waits.take(key, name) else { return };
        match seq {
            Some(seq) => {
                let to = Some((key, name.to_owned()));
                self.replies.push_back((seq, super::Owed::Given { reply: waiter.reply, given, to }));
            }
            None => self.give(key, None, waiter.reply, given),
        }
    }

    /// Has those wait again who were to be told of a deadline whose record did not become durable: others may have answered.
    pub(super) fn wait_again(&mut self) {
        for (seq, owed) in std::mem::take(&mut self.replies) {
            match owed {
                super::Owed::Given { reply, to: Some((key, name)), given: Given::Reply(_, deadline) } => {
                    self.waits.add(key, name, WaitsFor::Answer, deadline, reply);
                }
                owed => self.replies.push_back((seq, owed)),
            }
        }
    }

    /// Serves everybody whom a signal or another writer may have answered.
    pub(super) fn serve_all(&mut self) -> Result<()> {
        if self.waits.is_empty() {
            return Ok(());
        }
        let gone: Vec<_> = self.waits.by_activation.keys().copied().collect();
        for key in gone.into_iter().filter(|key| !self.machine.in_flight.contains_key(key)) {
            self.waits.forget(key);
        }
        for (key, name) in self.waits.asking() {
            self.serve(key, &name, None);
        }
        self.deliver()
    }

    /// Gives waiting messages to those who have waited longest.
    fn deliver(&mut self) -> Result<()> {
        if self.machine.paused.is_some() {
            return Ok(());
        }
        while let Some(message) = self.machine.inbox.front().cloned() {
            let Some((key, name)) = self.waits.next_receiver() else { return Ok(()) };
            let seq = self.note_step(key, &name, Noted::Took(message.number))?;
            if let Some(waiter) = self.waits.take(key, &name) {
                self.give(key, Some(seq), waiter.reply, Given::Message(message));
            }
        }
        Ok(())
    }

    /// Tells those whose time has come, in the order of their times.
    pub(super) fn ring(&mut self, now: Timestamp) -> Result<()> {
        if self.machine.paused.is_some() {
            return Ok(());
        }
        while let Some((at, key, name)) = self.waits.times.first().filter(|(at, ..)| *at <= now).cloned() {
            let Some(waiter) = self.waits.take(key, &name) else {
                self.waits.times.remove(&(at, key, name));
                continue;
            };
            match waiter.what {
                WaitsFor::Time => self.give(key, None, waiter.reply, Given::Done),
                WaitsFor::Message => {
                    let seq = self.note_step(key, &name, Noted::Idle)?;
                    self.give(key, Some(seq), waiter.reply, Given::Idle);
                }
                WaitsFor::Answer => {
                    let node = self.machine.name(key.0).clone();
                    let expired = Expired { node, visit: key.1, name: name.clone(), at };
                    // No node may act on it before it is on record: until then, somebody may answer.
                    let seq = self.note(&Event::Status(StatusChange::Expired(expired)), None, false)?;
                    self.waits.add(key, name.clone(), WaitsFor::Answer, None, waiter.reply);
                    self.serve(key, &name, Some(seq));
                }
            }
        }
        Ok(())
    }

    /// Gives a node what it waited for; once the record is durable, if the node's effect asks for that.
    fn give(&mut self, key: ActivationKey, seq: Option<Seq>, reply: Replier, given: Given) {
        let weak = matches!(self.plan.node(NodeIx::new(key.0)).effect, Effect::Pure | Effect::Read);
        match seq.filter(|&seq| !weak && !self.outbox.is_durable(seq)) {
            Some(seq) => self.replies.push_back((seq, super::Owed::Given { reply, given, to: None })),
            None => reply.send(Ok(given)),
        }
    }

    /// Whether the node may start as far as a declared interrupt before it goes.
    pub(super) fn agreed(&mut self, key: ActivationKey) -> Result<bool> {
        if !self.plan.node(NodeIx::new(key.0)).interrupt.before {
            return Ok(true);
        }
        let memo = self.machine.in_flight.get(&key).and_then(|activation| activation.memos.get(BEFORE));
        let reply = match memo {
            Some(Memo::Asked(asked)) => asked.reply.clone(),
            _ => {
                self.note_asked(key, BEFORE, Request::plain())?;
                Reply::Open
            }
        };
        match reply {
            Reply::Open | Reply::Expired { .. } => Ok(false),
            Reply::Answered { answer: Answer::Reject(comment), by, .. } => {
                let who = by.map_or_else(String::new, |by| format!(" by {by}"));
                let message = format!("starting the node was rejected{who}: {comment}");
                let failure =
                    Failure::new(FailureKind::Rejected, message).with_node(self.machine.name(key.0));
                let what = What::Ended { result: Err(failure), took: Duration::ZERO };
                self.take_in(Fact { key, what })?;
                Ok(false)
            }
            Reply::Answered { .. } => Ok(true),
        }
    }

    pub(super) fn note_step(&mut self, key: ActivationKey, name: &str, what: Noted) -> Result<Seq> {
        let node = self.machine.name(key.0).clone();
        let fact = What::Noted { name: name.to_owned(), what: what.clone() };
        let step = Stepped { node: node.clone(), visit: key.1, name: name.to_owned(), what };
        let seq = self.note(&Event::Step(step), Some((node, key.1)), false)?;
        self.remember(key, fact, seq);
        Ok(seq)
    }

    pub(super) fn note_asked(&mut self, key: ActivationKey, name: &str, ask: Request) -> Result<Seq> {
        let node = self.machine.name(key.0).clone();
        let fact = What::Asked { name: name.to_owned(), ask: ask.clone() };
        let asking = Asking { node: node.clone(), visit: key.1, name: name.to_owned(), ask };
        let seq =
            self.note(&Event::Status(StatusChange::Asked(asking)), Some((node.clone(), key.1)), false)?;
        self.remember(key, fact, seq);
        let (visit, name) = (key.1, name.to_owned());
        self.shared.emit(&self.log.run, || RunEventKind::Asked { node, visit, name });
        Ok(seq)
    }

    fn remember(&mut self, key: ActivationKey, what: What<S>, seq: Seq) {
        self.facts.push(Fact { key, what });
        self.facts.written(seq);
    }
}
