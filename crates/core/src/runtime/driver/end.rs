//! What follows when an attempt ends: retry, or the update, the routes and the next activations.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use super::super::attempt::AttemptEnd;
use super::super::log::too_large;
use super::Driver;
use super::facts::{Fact, What};
use crate::engine::decide::Ending;
use crate::engine::frontier::ActivationKey;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::fire::Fires;
use crate::graph::node_set::NodeIx;
use crate::graph::{Effect, RouteContext};
use crate::panics::panic_text;
use crate::record::body::{AttemptFailed, Event};
use crate::record::{Failure, FailureKind};
use crate::runtime::event::Event as RunEventKind;
use crate::runtime::past::Verdict;
use crate::state::{Patch, PatchWriter, Schema, State, Touch, Update, Write, reread};

/// An activation whose update went wrong after it had changed the live state.
pub(super) struct Spoilt {
    key: ActivationKey,
    failure: Failure,
    took: Duration,
}

/// What an update and the routes after it came to.
struct Applied {
    patch: Patch,
    overwrites: Vec<String>,
    fired: Fires,
}

impl<S: State> Driver<S> {
    /// Takes in the end of an attempt.
    pub(super) async fn ended(
        &mut self,
        key: ActivationKey,
        end: AttemptEnd<S>,
        took: Duration,
    ) -> Result<()> {
        let told = match self.running.remove(&key) {
            Some(running) => running.scope.run.cancelled.get().is_some(),
            None => self.cancelled.has_told(),
        };
        self.waits.forget(key);
        let Some(activation) = self.machine.in_flight().get(&key) else {
            // Another writer came first, and the activation does not follow any more.
            return Ok(());
        };
        let failed = activation.failed + 1;
        match end {
            AttemptEnd::Done(update) => self.take_in_end(key, Ok(update), took)?,
            AttemptEnd::Failed { failure, unfinished: true, .. } if told => self.broken_off(key, failure)?,
            AttemptEnd::Failed { failure, fatal, retry_after, .. } => {
                let node = self.plan.node(NodeIx::new(key.0));
                let failure = failure.with_node(&node.name);
                let what = if activation.is_doubted(&failure) {
                    What::Retry { failed, failure, at: None }
                } else if fatal || failed >= node.retry.attempts() {
                    What::Ended { result: Err(failure), took }
                } else {
                    let seed = u64::from(key.0) << 32 | u64::from(key.1.get());
                    let delay = retry_after.unwrap_or_else(|| node.retry.delay(failed, seed));
                    What::Retry { failed, failure, at: Some(self.shared.clock.now().plus(delay)) }
                };
                self.take_in(Fact { key, what })?;
            }
        }
        if let Some(spoilt) = self.spoilt.take() {
            // Rare and large, like all that is boxed where a driver awaits it: the driver is as large as the largest, at rest, too.
            Box::pin(self.mend(*spoilt)).await?;
        }
        if self.log.head.is_some_and(|head| !self.outbox.is_durable(head.seq)) {
            return Ok(());
        }
        self.pass_barriers();
        Ok(())
    }

    /// Takes in that an attempt broke off because its run was to stop.
    ///
    /// It stays in flight: a cancelled run has no use for it, and whoever goes on with one that was left begins it again, or asks
    /// what became of it. A run that failed may be retried while it is still driven here, so there the doubt is recorded at once.
    fn broken_off(&mut self, key: ActivationKey, failure: Failure) -> Result<()> {
        let Some(activation) = self.machine.in_flight().get(&key) else { return Ok(()) };
        let failure = failure.with_node(&self.plan.node(NodeIx::new(key.0)).name);
        let ends = self.machine.cancel().is_some() || self.grace.is_some();
        let (failed, at) = match activation.intent {
            // Without a record of that, it would be asked about.
            true if failure.not_done => (activation.failed, Some(self.shared.clock.now())),
            true if !ends => (activation.failed + 1, None),
            _ => {
                if !self.is_stopping() {
                    self.ready.push_back(key);
                }
                return Ok(());
            }
        };
        self.take_in(Fact { key, what: What::Retry { failed, failure, at } })
    }

    /// Takes in a fact: absorbs it and writes it as the policy says. Also used to make records anew after a conflict.
    pub(super) fn take_in(&mut self, fact: Fact<S>) -> Result<()> {
        let Fact { key, what } = fact;
        match what {
            What::Retry { failed, failure, at } => {
                let (node, visit) = (self.machine.name(key.0).clone(), key.1);
                let delay = at.map(|at| at.since(self.shared.clock.now()));
                let event = AttemptFailed {
                    node: node.clone(),
                    visit,
                    failed,
                    failure: failure.clone(),
                    retry_at: at,
                };
                let seq = self.note(&Event::Attempt(event), Some((node.clone(), visit)), false)?;
                self.timers.extend(at.map(|at| (at, key)));
                self.shared.emit(&self.log.run, || match delay {
                    Some(_) => {
                        RunEventKind::NodeFailed { node, visit, failure: failure.clone(), retry_in: delay }
                    }
                    None => RunEventKind::NodeInDoubt { node, visit, failure: failure.clone() },
                });
                self.facts.push(Fact { key, what: What::Retry { failed, failure, at } });
                self.facts.written(seq);
                Ok(())
            }
            What::Ended { result, took } => self.take_in_end(key, result, took),
            What::Noted { name, what, first } => self.note_step(key, &name, what, first).map(|_| ()),
            What::Asked { name, ask } => self.note_asked(key, &name, ask).map(|_| ()),
        }
    }

    fn take_in_end(
        &mut self,
        key: ActivationKey,
        result: Result<Update<S>, Failure>,
        took: Duration,
    ) -> Result<()> {
        let index = NodeIx::new(key.0);
        let keep = !self.keeps_ends() && self.may_fail_after_apply(index);
        let before = keep.then(|| Arc::clone(&self.state));
        let applied = match &result {
            Ok(update) => self.apply(key, update).and_then(|applied| {
                if applied.overwrites.is_empty() {
                    return Ok(applied);
                }
                let overwrites: Vec<&str> = applied.overwrites.iter().map(String::as_str).collect();
                match self.machine.clash(key, &overwrites) {
                    Some(failure) => Err(failure),
                    None => Ok(applied),
                }
            }),
            Err(failure) => Err(failure.clone()),
        };
        let (output, notes) = match &result {
            Ok(update) => (update.shared_output().cloned(), update.notes().map(str::to_owned)),
            Err(_) => (None, None),
        };
        let (ending, patch, overwrites) = match applied {
            Ok(Applied { patch, overwrites, fired }) => (Ok(fired), patch, overwrites),
            Err(failure) => {
                let name = &self.plan.node(index).name;
                let failure = if failure.node.is_none() { failure.with_node(name) } else { failure };
                if let Some(before) = before {
                    self.state = before;
                } else if result.is_ok() {
                    self.spoilt = Some(Box::new(Spoilt { key, failure, took }));
                    return Ok(());
                }
                (Err(failure), Patch::default(), Vec::new())
            }
        };
        let failed = ending.as_ref().err().cloned();
        let overwrites: Vec<&str> = overwrites.iter().map(String::as_str).collect();
        let (graph, state) = (&self.graph, &self.state);
        let unmet = |gate| !catch_unwind(AssertUnwindSafe(|| graph.goal_met(gate, state))).unwrap_or(false);
        let mut done = self.machine.decide(Ending { key, result: ending, overwrites: &overwrites }, unmet);
        done.took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        if failed.is_none() {
            done.output = output;
            if notes.is_some() {
                done.notes = notes;
            }
        }
        let status = self.machine.status();
        self.given.remove(&key);
        // Each starts from the state as it is now.
        for &fresh in self.machine.absorb_end(&done)? {
            self.given.insert(fresh, Arc::clone(&self.state));
            self.ready.push_back(fresh);
        }
        let (node, visit) = (done.node.clone(), done.visit);
        self.shared.emit(&self.log.run, || match failed {
            None => {
                let verdict = done.output.as_deref().and_then(Verdict::of);
                RunEventKind::NodeCompleted { node, visit, took, verdict }
            }
            Some(failure) => RunEventKind::NodeFailed { node, visit, failure, retry_in: None },
        });
        if self.keeps_ends() {
            self.facts.push(Fact { key, what: What::Ended { result, took } });
        }
        let node = self.plan.node(index);
        let (checkpoint, must) = (node.checkpoint, node.effect == Effect::External);
        self.hold(done, patch, checkpoint, must)?;
        self.announce(status);
        Ok(())
    }

    /// Makes the live state anew from the log, without the update that went wrong, and takes in the failure.
    ///
    /// No copy of the state is kept for this rare case: that would cost every node what the whole state weighs.
    ///
    /// # Errors
    ///
    /// What went wrong, if checkpoints are held back without a bound: then the log does not hold what it takes.
    async fn mend(&mut self, spoilt: Spoilt) -> Result<()> {
        let Spoilt { key, failure, took } = spoilt;
        if !self.keeps_ends() {
            let message = format!(
                "{failure}; checkpoints are held back, so the run stops: resume it from the last one"
            );
            return Err(Error::new(ErrorKind::Invalid, message).with_run(&self.log.run));
        }
        while !self.outbox.is_empty() {
            let answer = self.outbox.acknowledged().await;
            self.acknowledge(answer).await?;
        }
        self.rebase().await?;
        if self.machine.in_flight().contains_key(&key) {
            self.ready.retain(|ready| *ready != key);
            self.take_in(Fact { key, what: What::Ended { result: Err(failure), took } })?;
        }
        Ok(())
    }

    /// Whether something can go wrong once the update is applied, so that the state before must be kept.
    fn may_fail_after_apply(&self, node: NodeIx) -> bool {
        let plan = self.plan.node(node);
        plan.routed
            || self.machine.has_overwrites()
            || plan.outgoing.iter().any(|&edge| self.plan.edge(edge).kind == crate::graph::EdgeKind::When)
    }

    /// Applies an update to the state and asks the routes.
    fn apply(&mut self, key: ActivationKey, update: &Update<S>) -> Result<Applied, Failure> {
        let index = NodeIx::new(key.0);
        let caught = |what: &str, panic: &(dyn std::any::Any + Send)| {
            Failure::new(FailureKind::Graph, format!("{what} panicked: {}", panic_text(panic)))
        };
        // Who runs alone overwrites what nobody else writes.
        let alone = self.machine.in_flight().len() <= 1 && !self.machine.has_overwrites();
        let mut writer = match self.encodes_patches() {
            true => PatchWriter::recording(),
            false if alone => PatchWriter::idle(),
            false => PatchWriter::touching(),
        };
        if !update.is_none() || update.output().is_none() {
            let state = Arc::make_mut(&mut self.state);
            catch_unwind(AssertUnwindSafe(|| update.apply(state, &mut writer)))
                .map_err(|panic| caught("a reducer of the state", &*panic))?
                .map_err(|error| Failure::of(FailureKind::Update, &error))?;
        }
        let (patch, touched) = writer.close();
        self.check_size(&touched, update.output())?;
        let name = &self.plan.node(index).name;
        let replans = self.machine.replan_counts();
        let cx = RouteContext::new(name, key.1, update.output())
            .with_replans(&replans)
            .with_left(self.machine.node(key.0).left);
        let (graph, state) = (&self.graph, &self.state);
        let fired = catch_unwind(AssertUnwindSafe(|| graph.fires(index, state, &cx)))
            .map_err(|panic| caught("a route or a condition", &*panic))?
            .map_err(|error| Failure::of(FailureKind::Route, &error))?;
        let overwritten = touched.iter().filter(|touch| touch.write == Write::Overwritten);
        let overwrites = if alone {
            Vec::new()
        } else {
            overwritten.map(|touch| touch.channel.name().to_owned()).collect()
        };
        Ok(Applied { patch: patch.unwrap_or_default(), overwrites, fired })
    }

    /// Refuses what would not fit into a record, and names what is to blame.
    fn check_size(&self, touched: &[Touch], output: Option<&RawValue>) -> Result<(), Failure> {
        let output_bytes = output.map_or(0, |text| text.get().len());
        let bytes: usize = touched.iter().map(|touch| touch.bytes).sum::<usize>() + output_bytes;
        let most = self.log.max_body;
        if bytes <= most {
            return Ok(());
        }
        let blame = match touched.iter().max_by_key(|touch| touch.bytes) {
            Some(touch) if touch.bytes >= output_bytes => {
                format!("the channel `{}` alone {} bytes", touch.channel.name(), touch.bytes)
            }
            _ => format!("its output alone {output_bytes} bytes"),
        };
        let message = format!(
            "the update writes {bytes} bytes, {blame}; allowed are {most}: keep large values elsewhere and store a reference, \
             or raise `max_body`"
        );
        Err(Failure::new(FailureKind::Update, message))
    }
}

/// Refuses an input that would not fit into a record, or that a restart would not find as it is.
pub(crate) fn check_input<S: State>(input: &S, schema: &Schema, most: usize) -> Result<Box<RawValue>> {
    let text = input.to_channels_json()?;
    if text.get().len() > most {
        return Err(too_large(&text, most));
    }
    reread::<S>(text.get(), schema)?;
    Ok(text)
}
