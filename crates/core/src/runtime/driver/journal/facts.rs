//! What happened, kept until its record is acknowledged: after another writer came first, records are made anew from it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::ask::Request;
use crate::clock::Timestamp;
use crate::engine::frontier::ActivationKey;
use crate::id::Seq;
use crate::record::Failure;
use crate::record::pause::ActivationNote;
use crate::runtime::driver::origin::ActivationOrigin;
use crate::state::{State, Update};

/// Something that happened to an activation.
pub(in crate::runtime::driver) struct PendingEvent<S: State> {
    pub(in crate::runtime::driver) key: ActivationKey,
    pub(in crate::runtime::driver) what: PendingEventKind<S>,
}

pub(in crate::runtime::driver) enum PendingEventKind<S: State> {
    /// It ended: with an update, or for good with a failure.
    Ended { result: Result<Update<S>, Failure>, took: Duration },
    /// An attempt failed and another follows at this time; without one, a question asks what became of it.
    Retry { failed: u32, failure: Failure, at: Option<Timestamp> },
    /// It noted something.
    Noted { name: String, what: ActivationNote, first: bool },
    /// It asked something.
    Asked { name: String, ask: Request },
}

impl<S: State> PendingEvent<S> {
    /// Whether it is what was noted under this name.
    pub(in crate::runtime::driver) fn is_note(&self, noted: &str) -> bool {
        matches!(&self.what, PendingEventKind::Noted { name, .. } if name == noted)
    }
}

struct RetainedEvent<S: State> {
    fact: PendingEvent<S>,
    /// What its activation started from.
    origin: ActivationOrigin,
    /// The record that holds it; none yet if it is held back.
    seq: Option<Seq>,
}

/// The facts that no acknowledged record holds, in order.
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
            // Mostly it is the only one; a list that grows by itself begins with room for four.
            self.queue.reserve_exact(1);
        }
        self.queue.push_back(RetainedEvent { fact, origin, seq: None });
    }

    /// Says that everything so far stands in the record with this number.
    pub(in crate::runtime::driver) fn written(&mut self, seq: Seq) {
        for kept in self.queue.iter_mut().rev().take_while(|kept| kept.seq.is_none()) {
            kept.seq = Some(seq);
        }
    }

    /// Forgets what stands in acknowledged records.
    pub(in crate::runtime::driver) fn acknowledged(&mut self, seq: Seq) {
        while self.queue.front().is_some_and(|kept| kept.seq.is_some_and(|at| at <= seq)) {
            self.queue.pop_front();
        }
    }

    /// Lists all facts.
    pub(in crate::runtime::driver) fn iter(&self) -> impl Iterator<Item = &PendingEvent<S>> {
        self.queue.iter().map(|kept| &kept.fact)
    }

    /// Takes all facts, each with what its activation started from, to make their records anew.
    pub(in crate::runtime::driver) fn drain(
        &mut self,
    ) -> impl Iterator<Item = (ActivationOrigin, PendingEvent<S>)> + use<S> {
        std::mem::take(&mut self.queue).into_iter().map(|kept| (kept.origin, kept.fact))
    }
}
