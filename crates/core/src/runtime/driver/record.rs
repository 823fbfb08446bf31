//! From what was absorbed to records on their way.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::super::log::About;
use super::outbox::Anew;
use super::{Driver, First};
use crate::engine::machine::Machine;
use crate::error::{ErrorKind, Result};
use crate::graph::{CheckpointFrequency, NodeCheckpoint};
use crate::id::{NodeName, Seq, Visit};
use crate::record::body::{Event, NodeDone, NodesDone, StatusChange};
use crate::record::pause::{Noted, Stepped};
use crate::record::{Failure, FailureKind, RunStatus};
use crate::runtime::event::Event as RunEventKind;
use crate::state::{Patch, State};

/// For how many ends memory is kept from one record to the next.
const SPARE: usize = 4;

impl<S: State> Driver<S> {
    /// Holds an end that was absorbed, and writes what is held if the policy says so.
    pub(super) fn hold(
        &mut self,
        done: NodeDone,
        patch: Patch,
        checkpoint: NodeCheckpoint,
        must: bool,
    ) -> Result<()> {
        self.held.any = true;
        if self.encodes_patches() {
            self.held.patch = std::mem::take(&mut self.held.patch).merge(patch)?;
            if self.held.done.is_empty() {
                // Mostly it is the only one; a list that grows by itself begins with room for four.
                self.held.done.reserve_exact(1);
            }
            self.held.done.push(done);
        }
        let frequency = match self.policy.frequency {
            _ if checkpoint == NodeCheckpoint::None => false,
            CheckpointFrequency::EveryNode => true,
            CheckpointFrequency::EveryNth(n) => {
                u32::try_from(self.held.done.len()).map_or(true, |held| held >= NonZeroU32::get(n))
            }
            CheckpointFrequency::Interval(interval) => {
                self.shared.clock.monotonic().saturating_sub(self.held.written) >= interval
            }
            CheckpointFrequency::StatusChangeOnly | CheckpointFrequency::Disabled => false,
        };
        let after = matches!(checkpoint, NodeCheckpoint::After | NodeCheckpoint::Both);
        if must || frequency || after || self.writes_status() {
            // What is declared to be on record is, also where nothing was before.
            self.flush(must || after)?;
        }
        Ok(())
    }

    /// Whether the status that the run has now is to be written.
    pub(super) fn writes_status(&self) -> bool {
        let is_unrecorded = self.policy.frequency == CheckpointFrequency::Disabled && self.log.head.is_none();
        self.machine.status() != RunStatus::InProgress && !is_unrecorded
    }

    /// Writes what is held back. `whole` asks for a checkpoint even where nothing has been written at all.
    pub(super) fn flush(&mut self, whole: bool) -> Result<()> {
        if !whole && (!self.held.any || self.first.is_some()) {
            return Ok(());
        }
        self.begin_log()?;
        if !std::mem::take(&mut self.held.any) {
            return Ok(());
        }
        if !self.encodes_patches() {
            // Nobody knows how many nodes ran since the last checkpoint; the full state says what they came to.
            self.write(&Event::Base, About { base: true, ..About::default() })?;
            return Ok(());
        }
        let done = std::mem::take(&mut self.held.done);
        let patch = std::mem::take(&mut self.held.patch);
        self.held.written = self.shared.clock.monotonic();
        let about =
            About { node: done.last().map(|last| (last.node.clone(), last.visit)), ..About::default() };
        let event = Event::Node(NodesDone { done, patch });
        let seq = self.write(&event, about)?;
        self.facts.written(seq);
        if let Event::Node(NodesDone { mut done, .. }) = event {
            // The next list needs no memory of its own, unless many were held back.
            if done.capacity() <= SPARE {
                done.clear();
                self.held.done = done;
            }
        }
        Ok(())
    }

    /// Writes the first record, if it was held back since the start.
    fn begin_log(&mut self) -> Result<()> {
        let Some(first) = self.first.take() else { return Ok(()) };
        let First { event, input } = *first;
        let mut machine = Machine::new(Some(Arc::clone(&self.plan)));
        machine.absorb(&event)?;
        let about = About { base: true, ..About::default() };
        let record = self.log.record(&event, about, &machine, || Ok(input))?;
        self.outbox.push(record, self.anew(&event));
        Ok(())
    }

    /// Writes a record of what the machine has just absorbed.
    pub(super) fn write(&mut self, event: &Event, about: About) -> Result<Seq> {
        let anew = self.anew(event);
        let state = &self.state;
        match self.log.record(event, about, &self.machine, || state.to_channels_json()) {
            Ok(record) => {
                let seq = record.header.seq;
                self.outbox.push(record, anew);
                Ok(seq)
            }
            // What happened is small enough, the base is not: the record goes without it, and the run stops for the reason.
            Err(error) if error.kind() == ErrorKind::TooLarge => {
                let failure = Failure::of(FailureKind::Update, &error);
                let record = self.log.record_without_base(event, &self.machine)?;
                self.outbox.push(record, anew);
                // Where the record before it is made anew, so is this one.
                let event = Event::Status(StatusChange::Failed(failure));
                self.machine.absorb(&event)?;
                let record = self.log.record_without_base(&event, &self.machine)?;
                let seq = record.header.seq;
                self.outbox.push(record, self.anew(&event));
                Ok(seq)
            }
            Err(error) => Err(error),
        }
    }

    /// Says how what an event tells is decided again if its record is refused.
    fn anew(&self, event: &Event) -> Anew {
        match event {
            Event::Node(_) if self.keeps_ends() => Anew::Kept,
            Event::Attempt(_) | Event::Step(_) | Event::Status(StatusChange::Asked(_)) => Anew::Kept,
            // Whoever is in line asks for its intent anew; `settle`, the deadline and `ring` look at what is due.
            Event::Intent(_) | Event::Release(_) => Anew::Follows,
            Event::Status(
                StatusChange::Interrupted
                | StatusChange::Failed(_)
                | StatusChange::Cancelled
                | StatusChange::Expired(_)
                | StatusChange::Rested(_),
            ) => Anew::Follows,
            Event::Signal(_) | Event::Edit(_) => Anew::Told,
            // What nodes returned is not kept; the first record and claims are of a run that somebody else has by now.
            Event::Node(_) | Event::Base | Event::Start(_) | Event::Claim(_) => Anew::Never,
        }
    }

    /// Absorbs an event and writes it, after everything that is held back.
    pub(super) fn note(
        &mut self,
        event: &Event,
        node: Option<(NodeName, Visit)>,
        release: bool,
    ) -> Result<Seq> {
        self.flush(true)?;
        let before = self.machine.status();
        self.machine.absorb(event)?;
        let wake_at = match event {
            Event::Attempt(attempt) if self.machine.in_flight().len() == 1 => attempt.retry_at,
            // Should this process end, the run is taken up when the time has come, and not before.
            Event::Step(Stepped { what: Noted::Until(until), .. }) if self.machine.in_flight().len() == 1 => {
                Some(*until)
            }
            _ => None,
        };
        let seq = self.write(event, About { node, wake_at, release, base: false })?;
        self.announce(before);
        Ok(seq)
    }

    /// Tells subscribers if the status changed.
    pub(super) fn announce(&self, before: RunStatus) {
        let status = self.machine.status();
        if status != before {
            self.shared.emit(&self.log.run, || RunEventKind::Status { status });
        }
    }
}
