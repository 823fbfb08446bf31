//! Events that the driver keeps until their records are acknowledged. After a write conflict, the driver creates the records again from these events.

use std::collections::VecDeque;
use std::time::Duration;

use crate::ask::QuestionRequest;
use crate::clock::Timestamp;
use crate::engine::frontier::ActivationKey;
use crate::id::Seq;
use crate::record::Failure;
use crate::record::pause::ActivationNote;
use crate::runtime::driver::origin::ActivationOrigin;
use crate::state::{State, Update};

/// An event of an activation.
pub(in crate::runtime::driver) struct PendingEvent<S: State> {
    pub(in crate::runtime::driver) key: ActivationKey,
    pub(in crate::runtime::driver) what: PendingEventKind<S>,
}

pub(in crate::runtime::driver) enum PendingEventKind<S: State> {
    /// The activation ended, with an update or with a permanent failure.
    Ended { result: Result<Update<S>, Failure>, took: Duration },
    /// An attempt failed, and another attempt follows at the time `at`. If `at` is `None`, the run asks a question about the outcome instead.
    Retry { failed: u32, failure: Failure, at: Option<Timestamp> },
    /// The activation recorded a result under a name.
    Noted { name: String, what: ActivationNote, first: bool },
    /// The activation asked a question.
    Asked { name: String, ask: QuestionRequest },
}

impl<S: State> PendingEvent<S> {
    /// Returns whether this event records a result under this name.
    pub(in crate::runtime::driver) fn is_note(&self, noted: &str) -> bool {
        matches!(&self.what, PendingEventKind::Noted { name, .. } if name == noted)
    }
}

struct RetainedEvent<S: State> {
    fact: PendingEvent<S>,
    /// The inputs of the event's activation.
    origin: ActivationOrigin,
    /// The record of the event. `None` while the record is delayed.
    seq: Option<Seq>,
}

/// The events without an acknowledged record, in order.
pub(in crate::runtime::driver) struct PendingEvents<S: State> {
    queue: VecDeque<RetainedEvent<S>>,
}

impl<S: State> Default for PendingEvents<S> {
    fn default() -> Self {
        Self { queue: VecDeque::new() }
    }
}

impl<S: State> PendingEvents<S> {
    pub(in crate::runtime::driver) fn push(&mut self, fact: PendingEvent<S>, origin: ActivationOrigin) {
        if self.queue.capacity() == 0 {
            // Mostly the only fact: a list that grows by itself starts with room for four.
            self.queue.reserve_exact(1);
        }
        self.queue.push_back(RetainedEvent { fact, origin, seq: None });
    }

    /// Assigns all events that have no record yet to the record with this number.
    pub(in crate::runtime::driver) fn written(&mut self, seq: Seq) {
        for kept in self.queue.iter_mut().rev().take_while(|kept| kept.seq.is_none()) {
            kept.seq = Some(seq);
        }
    }

    /// Drops the events of acknowledged records.
    pub(in crate::runtime::driver) fn acknowledged(&mut self, seq: Seq) {
        while self.queue.front().is_some_and(|kept| kept.seq.is_some_and(|at| at <= seq)) {
            self.queue.pop_front();
        }
    }

    /// Lists all events.
    pub(in crate::runtime::driver) fn iter(&self) -> impl Iterator<Item = &PendingEvent<S>> {
        self.queue.iter().map(|kept| &kept.fact)
    }

    /// Takes all events, each with the inputs of its activation, so that their records can be created again.
    pub(in crate::runtime::driver) fn drain(
        &mut self,
    ) -> impl Iterator<Item = (ActivationOrigin, PendingEvent<S>)> + use<S> {
        std::mem::take(&mut self.queue).into_iter().map(|kept| (kept.origin, kept.fact))
    }
}
