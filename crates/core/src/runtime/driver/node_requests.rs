//! Handles the requests of running nodes, such as step results, timers, messages and questions. The module `deliveries` decides what is delivered and
//! in which order.

use std::time::Duration;

use serde_json::value::RawValue;

use super::RunDriver;
use super::journal::pending_events::{PendingEvent, PendingEventKind};
use super::origin::ActivationOrigin;
use super::transactions::StepCommit;
use super::waiters::WaitsFor;
use crate::ask::{Answer, OnDeadline, QuestionRequest};
use crate::clock::Timestamp;
use crate::engine::frontier::ActivationKey;
use crate::engine::questions::BEFORE;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::Effect;
use crate::graph::node_set::NodeIx;
use crate::id::Seq;
use crate::kernel::event::Event as RunEventKind;
use crate::node::{NodeReply, NodeRequest, ReplySender};
use crate::record::body::{RecordEvent, StatusChange};
use crate::record::codec::to_raw;
use crate::record::memo::{Memo, Reply};
use crate::record::pause::{ActivationNote, QuestionRecord, StepRecord};
use crate::record::{Failure, FailureKind};
use crate::state::State;

impl<S: State> RunDriver<S> {
    /// Handles a request of a node.
    pub(super) fn handle_request(
        &mut self,
        key: ActivationKey,
        name: String,
        wish: NodeRequest,
        reply: ReplySender,
    ) -> Result<()> {
        reply.waits().accepted();
        let Some(activation) = self.machine.in_flight().get(&key) else {
            // After a write conflict, the activation no longer follows and its work is dropped.
            return Ok(());
        };
        let memo = activation.memos.get(&name).cloned();
        let effect = self.plan.node(NodeIx::new(key.0)).effect;
        if effect == Effect::External && !matches!(wish, NodeRequest::Keep(_) | NodeRequest::Recall) {
            let message = "a node declared `External` cannot wait, because it must not start twice; ask, receive, sleep or start children \
                in an earlier node";
            let error = Error::new(ErrorKind::Unsupported, message).with_node(self.machine.name(key.0));
            reply.send(Err(error));
            return Ok(());
        }
        match wish {
            NodeRequest::Keep(text) => self.record_result(key, name, text, reply),
            NodeRequest::Commit(text, handed_in) => {
                self.await_commit(StepCommit { key, name, text, handed_in, reply });
                Ok(())
            }
            NodeRequest::Record(text) => {
                let first = reply.waits().has_rivals();
                let seq = self.write_note(key, &name, ActivationNote::Result(text.into()), first)?;
                self.waits.add(key, name, WaitsFor::Record(seq, first), None, reply);
                Ok(())
            }
            NodeRequest::RecordAll(all) => {
                let first = reply.waits().has_rivals();
                match self.write_notes(key, all, first)? {
                    Some(seq) => self.waits.add(key, name, WaitsFor::Record(seq, first), None, reply),
                    None => reply.send(Ok(NodeReply::Done)),
                }
                Ok(())
            }
            NodeRequest::Join { group, wait } => {
                let is_told = memo.is_some();
                self.await_child(key, &name, *wait, is_told)?;
                self.waits.join_group(key, group, name, is_told);
                reply.send(Ok(NodeReply::Done));
                Ok(())
            }
            NodeRequest::Ends { enough } => {
                self.waits.add(key, name, WaitsFor::Ends { enough }, None, reply);
                Ok(())
            }
            NodeRequest::Mark => {
                if memo.is_none() {
                    self.write_note(key, &name, ActivationNote::Result(to_raw(&true)?.into()), false)?;
                }
                reply.send(Ok(NodeReply::Done));
                Ok(())
            }
            NodeRequest::Child(wait) => {
                self.await_child(key, &name, *wait, memo.is_some())?;
                self.waits.add(key, name, WaitsFor::Child, None, reply);
                Ok(())
            }
            NodeRequest::Recall => {
                self.waits.add(key, name, WaitsFor::Step(None), None, reply);
                Ok(())
            }
            NodeRequest::Until(moment) => self.wait_until(key, name, memo.as_ref(), moment, reply),
            NodeRequest::Message { patience } => self.wait_message(key, name, memo.as_ref(), patience, reply),
            NodeRequest::Refuse { message, why, patience } => {
                let node = self.machine.name(key.0).clone();
                tracing::warn!(run = %self.journal.run(), %node, message, why, "cannot read a message; it is rejected");
                let event = RunEventKind::MessageRefused { node, visit: key.1, message, why: why.clone() };
                self.emit(|| event);
                self.write_note(key, &name, ActivationNote::Refused { message, why }, false)?;
                self.reopen_wait(key, &name);
                self.wait_message(key, name, None, patience, reply)
            }
            NodeRequest::Ask(request) => self.wait_answer(key, &name, memo.as_ref(), request, reply),
            NodeRequest::AskAgain { problem, by_default } => {
                let Some(Memo::Asked(asked)) = memo else { return Ok(()) };
                let mut request = QuestionRequest { problem: Some(problem), ..asked.ask.clone() };
                if by_default {
                    request.on_deadline = OnDeadline::Tell;
                }
                self.reopen_wait(key, &name);
                self.wait_answer(key, &name, None, request, reply)
            }
        }
    }

    /// Forgets that a wait ended in an earlier attempt. The wait is open again and may end in another order.
    fn reopen_wait(&mut self, key: ActivationKey, name: &str) {
        if let Some(running) = self.ready_queue.running_mut(key) {
            running.reopen_wait(name);
        }
    }

    fn record_result(
        &mut self,
        key: ActivationKey,
        name: String,
        text: Box<RawValue>,
        reply: ReplySender,
    ) -> Result<()> {
        if let Err(error) = self.check_result(key, &name, &text) {
            reply.send(Err(error));
            return Ok(());
        }
        let first = reply.waits().has_rivals();
        let seq = self.write_note(key, &name, ActivationNote::Result(text.into()), first)?;
        self.waits.add(key, name, WaitsFor::Step(Some((seq, first))), None, reply);
        Ok(())
    }

    /// Returns an error if a result is larger than the maximum size of a record.
    pub(super) fn check_result(&self, key: ActivationKey, name: &str, text: &RawValue) -> Result<()> {
        let (bytes, most) = (text.get().len(), self.journal.max_body());
        if bytes <= most {
            return Ok(());
        }
        let message = format!(
            "the result of the step `{name}` has {bytes} bytes, and at most {most} are allowed; store large values as blobs (docs/how-to/blobs.md) \
             and return their names, or raise `max_body`"
        );
        Err(Error::new(ErrorKind::TooLarge, message).with_node(self.machine.name(key.0)))
    }

    fn wait_until(
        &mut self,
        key: ActivationKey,
        name: String,
        memo: Option<&Memo>,
        moment: Timestamp,
        reply: ReplySender,
    ) -> Result<()> {
        let until = match memo {
            Some(Memo::Until(until)) => *until,
            _ => {
                self.write_note(key, &name, ActivationNote::Until(moment), false)?;
                moment
            }
        };
        self.waits.add(key, name, WaitsFor::Time, Some(until), reply);
        Ok(())
    }

    fn wait_message(
        &mut self,
        key: ActivationKey,
        name: String,
        memo: Option<&Memo>,
        patience: Option<Duration>,
        reply: ReplySender,
    ) -> Result<()> {
        let until = match memo {
            Some(Memo::Message(_) | Memo::Idle) => None,
            Some(Memo::Until(until)) => Some(*until),
            _ => {
                let until = patience.map(|patience| self.shared.clock.now().plus(patience));
                // If a message is there, no wait is registered.
                if let Some(until) =
                    until.filter(|_| self.machine.inbox().is_empty() || self.waits.is_receiving())
                {
                    self.write_note(key, &name, ActivationNote::Until(until), false)?;
                }
                until
            }
        };
        self.waits.add(key, name, WaitsFor::Message, until, reply);
        Ok(())
    }

    fn wait_answer(
        &mut self,
        key: ActivationKey,
        name: &str,
        memo: Option<&Memo>,
        request: QuestionRequest,
        reply: ReplySender,
    ) -> Result<()> {
        let deadline = match memo {
            Some(Memo::Asked(asked)) if request.expects.continues(&asked.ask.expects) => asked.ask.deadline,
            Some(_) => {
                let message = format!(
                    "the question `{name}` was already asked in another form; finish the run with the code that started it, or give the new \
                     question another name"
                );
                let error = Error::new(ErrorKind::GraphChanged, message).with_node(self.machine.name(key.0));
                reply.send(Err(error));
                return Ok(());
            }
            None => {
                let deadline = request.deadline;
                self.write_question(key, name, request)?;
                deadline
            }
        };
        self.waits.add(key, name.to_owned(), WaitsFor::Answer, deadline, reply);
        Ok(())
    }

    /// Returns whether the node may start, because it has no `interrupt_before` or its question was accepted.
    pub(super) fn agreed(&mut self, key: ActivationKey) -> Result<bool> {
        if !self.plan.node(NodeIx::new(key.0)).interrupt.before {
            return Ok(true);
        }
        let memo = self.machine.in_flight().get(&key).and_then(|activation| activation.memos.get(BEFORE));
        let reply = match memo {
            Some(Memo::Asked(asked)) => asked.reply.clone(),
            _ => {
                self.write_question(key, BEFORE, QuestionRequest::plain())?;
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
                let what = PendingEventKind::Ended { result: Err(failure), took: Duration::ZERO };
                self.apply_fact(PendingEvent { key, what })?;
                Ok(false)
            }
            Reply::Answered { .. } => Ok(true),
        }
    }

    /// Records a result under a name. `first` tells whether the activation had other work or waits when this operation ended. If so, this operation
    /// must end first again when the activation runs again.
    pub(super) fn write_note(
        &mut self,
        key: ActivationKey,
        name: &str,
        what: ActivationNote,
        first: bool,
    ) -> Result<Seq> {
        let node = self.machine.name(key.0).clone();
        let fact = PendingEventKind::Noted { name: name.to_owned(), what: what.clone(), first };
        let origin = ActivationOrigin::of(&self.machine, key);
        let step = StepRecord { node: node.clone(), visit: key.1, name: name.to_owned(), what, first };
        let seq = self.write_event(&RecordEvent::Step(step), Some((node, key.1)), false)?;
        self.journal.remember(PendingEvent { key, what: fact }, origin, Some(seq));
        Ok(seq)
    }

    /// Records several results, whose records are sent together. Returns the last record, or `None` if there was nothing to record.
    fn write_notes(
        &mut self,
        key: ActivationKey,
        all: Vec<(String, Box<RawValue>)>,
        first: bool,
    ) -> Result<Option<Seq>> {
        let mut last = None;
        self.journal.gather(true);
        for (name, text) in all {
            last = Some(self.write_note(key, &name, ActivationNote::Result(text.into()), first)?);
        }
        self.journal.gather(false);
        Ok(last)
    }

    pub(super) fn write_question(
        &mut self,
        key: ActivationKey,
        name: &str,
        ask: QuestionRequest,
    ) -> Result<Seq> {
        let node = self.machine.name(key.0).clone();
        let fact = PendingEventKind::Asked { name: name.to_owned(), ask: ask.clone() };
        let origin = ActivationOrigin::of(&self.machine, key);
        let asking = QuestionRecord { node: node.clone(), visit: key.1, name: name.to_owned(), ask };
        let seq = self.write_event(
            &RecordEvent::Status(StatusChange::Asked(asking)),
            Some((node.clone(), key.1)),
            false,
        )?;
        self.journal.remember(PendingEvent { key, what: fact }, origin, Some(seq));
        let (visit, name) = (key.1, name.to_owned());
        if !self.answerer_tasks.is_empty() {
            self.answerer_tasks.withdraw(&format!("{node}@{visit}:{name}"));
        }
        self.emit(|| RunEventKind::Asked { node, visit, name });
        Ok(seq)
    }
}
