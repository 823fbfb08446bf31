//! Which tasks have run in this process: a session that another process had is gone.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use ferrata_core::state::Context;
use serde_json::Value as Json;

use super::{Fidelity, FidelityChoice, LAST};

/// How many tasks are remembered. One that is forgotten costs the next task on its session a summary in its place.
const REMEMBERED: usize = 4096;

/// The last tasks that ran in this process, by the idempotency keys of their activations.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    ran: Mutex<(HashSet<String>, VecDeque<String>)>,
}

impl Sessions {
    /// Says how a task is told of the run here. If the task before it was told in full by a process that is gone, its session
    /// is gone, too: then a summary takes the place of the session, once, for after that the task before has run here.
    pub(crate) fn here(&self, told: &FidelityChoice, context: &Context, activation: &str) -> FidelityChoice {
        let last = context.get_value(LAST);
        let text = |key: &str| last.and_then(|last| last.get(key)).and_then(Json::as_str).unwrap_or_default();
        let life = activation.split_once(':').map_or("", |(life, _)| life);
        let lost = text("mode") == Fidelity::Full.as_str() && !self.knows(&format!("{life}:{}", text("by")));
        if told.fidelity == Fidelity::Full && lost {
            return FidelityChoice { fidelity: Fidelity::SummaryHigh, thread: told.thread.clone() };
        }
        told.clone()
    }

    fn knows(&self, activation: &str) -> bool {
        // Nothing panics while it is held.
        self.ran.lock().unwrap_or_else(PoisonError::into_inner).0.contains(activation)
    }

    /// Remembers that a task has run here.
    pub(crate) fn remember(&self, activation: String) {
        let mut ran = self.ran.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, order) = &mut *ran;
        if known.insert(activation.clone()) {
            order.push_back(activation);
        }
        if order.len() > REMEMBERED
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
    }
}
