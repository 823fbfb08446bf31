//! Properties that hold after every operation, even if the progress of a dead process is unknown.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ferrata_core::ask::{Answer, Question, QuestionKind};
use ferrata_core::record::{Record, Resolution, RunStatus};
use ferrata_core::state::{Channels, Patch};
use ferrata_core::store::{At, CheckpointStore};
use ferrata_core::{Clock, Error, ErrorKind};
use serde_json::{Value, json};

use crate::graphs::{Bank, Family};
use crate::operations::Op;
use crate::process::{Often, graph};
use crate::support::bounds::Lists;
use crate::support::log::Log;
use crate::world::{Checked, World, now, once, same};

/// Number of idle periods after which the run counts as endless.
const ROUNDS: usize = 40;

/// The log of a run, and its state.
pub(crate) struct Seen {
    log: Log,
    pub(crate) channels: Channels,
}

impl Default for Seen {
    fn default() -> Self {
        Self { log: Log::default(), channels: Channels::from_json("{}").unwrap() }
    }
}

impl Seen {
    fn add(&mut self, record: Record) {
        let body: Value = serde_json::from_slice(&record.body).unwrap();
        if let Some(base) = body.get("base") {
            self.channels = Channels::from_json(base["state"].to_string()).unwrap();
        } else if let Some(patch) = body.get("patch") {
            self.channels.apply(&Patch::from_json(&patch.to_string()).unwrap()).unwrap();
        }
        self.log.add(record);
    }
}

impl World {
    /// Reads new records, and checks the guarantees.
    pub(crate) fn look(&mut self) -> Checked {
        let key = self.key();
        let mut records = now(self.stores.near.load(&key, At::Latest)).unwrap().unwrap_or_default();
        let read = self.seen.log.records.len() as u64;
        if records.first().is_some_and(|first| first.header.seq.get() > read) {
            records = now(Log::read(&self.stores.near, &key)).records;
        }
        for record in records.into_iter().filter(|record| record.header.seq.get() >= read) {
            self.seen.add(record);
        }
        let log = &self.seen.log;
        same("broken", &log.broken, &Vec::new())?;
        if let Some(head) = now(self.stores.near.head(&key)).unwrap() {
            let lists = now(Lists::of(&self.stores.near));
            same("stuck", &lists.stuck(&head, self.clock.now(), log.unread()), &None)?;
        }
        self.outside.check(log)
    }

    /// Whether finished work without a record may be lost from here on, because its process is gone or its record was refused.
    pub(crate) fn may_be_lost(&self, op: &Op, driver: Option<usize>, real: &Result<(), Error>) -> bool {
        if self.setting.often == Often::EveryNode {
            return false;
        }
        let is_gone = match *op {
            Op::Crash { slot } => driver == Some(slot),
            Op::Resume { take_over, .. } => take_over && driver.is_some(),
            // Nodes that continue after a retry have no record of this until the next one is due.
            Op::Retry { .. } => driver.is_some(),
            _ => false,
        };
        let is_refused = real.as_ref().is_err_and(|error| error.kind() == ErrorKind::Conflict)
            || self.processes.iter().any(|process| {
                let Some(handle) = &process.handle else { return false };
                let told = process.tasks.block_on(once(handle.wait()));
                told.is_some_and(|told| told.is_err_and(|error| error.kind() == ErrorKind::Conflict))
            });
        // Its handle may have been replaced.
        let is_left = self.oracle.run.as_ref().is_some_and(|run| run.owner.is_some())
            && now(self.stores.near.head(&self.key())).unwrap().is_some_and(|head| head.owner.is_none());
        is_gone || is_refused || is_left
    }

    /// Checks the guarantees of an operation.
    pub(crate) fn judge(&self, op: &Op, real: &Result<(), Error>) -> Checked {
        match real {
            Err(error) if error.kind() == ErrorKind::Corrupt => Err(format!("{op:?}: {error}")),
            _ => Ok(()),
        }
    }

    /// Brings a run without a predicted end to its end, in any process and with all answers that it needs.
    pub(crate) fn finish_if_judged(&mut self) -> Checked {
        if !self.is_judged {
            return Ok(());
        }
        let generation = self.generations.len() as u64 + 1;
        self.processes[0] = self.process(generation);
        let key = self.key();
        let graphs = [self.oracle.revision(), "3"].map(|revision| graph(self.family, revision));
        self.outside.rain.store(false, Ordering::SeqCst);
        for _ in 0..ROUNDS {
            let Some(head) = now(self.stores.near.head(&key)).unwrap() else { return Ok(()) };
            match head.status {
                RunStatus::Completed | RunStatus::Cancelled => return Ok(()),
                // After the deadline, a retry fails at once.
                RunStatus::Failed if self.family == Family::Timed => return Ok(()),
                _ => {}
            }
            self.ask(0, async |runtime| {
                // Only one of these calls may be valid.
                let _ = runtime.unpause(&key).await;
                let _ = runtime.retry(&key).await;
                for question in runtime.questions(&key).await.unwrap_or_default() {
                    let _ = runtime.respond(&key, &question.id, answer(&question)).await;
                }
                for graph in &graphs {
                    let resumed = runtime.resume(graph, key.clone()).take_over().allow_changed_graph().await;
                    // The state may have the newest version, which the oracle does not know here.
                    if !resumed.is_err_and(|error| error.kind() == ErrorKind::GraphChanged) {
                        break;
                    }
                }
            });
            self.pump();
            self.outside.bank.send_replace(Bank::Pays);
            self.pump();
            self.ask(0, async |runtime| {
                let _ = runtime.send(&key, format!("late {}", self.clock.now())).await;
            });
            self.clock.advance(Duration::from_secs(43_200));
            self.pump();
            self.look()?;
        }
        Err("the run does not end".to_owned())
    }
}

/// A valid answer.
fn answer(question: &Question) -> Answer {
    if question.kind == QuestionKind::Doubt {
        return Resolution::Skip.into();
    }
    let fits =
        |value: &Value| question.expects.as_ref().is_none_or(|shape| shape.check(&value.to_string()).is_ok());
    let values = [json!(true), json!(7), json!("red")];
    Answer::accept(values.iter().find(|value| fits(value)).unwrap_or(&values[0])).unwrap()
}
