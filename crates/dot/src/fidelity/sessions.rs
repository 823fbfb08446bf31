//! Remembers the tasks that have run in this process. A session exists only in the process in which its tasks ran.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use ferrata_core::state::Context;
use serde_json::Value as Json;

use super::{Fidelity, FidelityChoice, LAST};

/// Maximum number of remembered tasks. If a task was forgotten, the next task of its session gets a summary instead.
const REMEMBERED: usize = 4096;

/// The last tasks that ran in this process, by the idempotency keys of their activations.
#[derive(Debug, Default)]
pub(crate) struct TaskSessions {
    ran: Mutex<(HashSet<String>, VecDeque<String>)>,
}

impl TaskSessions {
    /// Returns the fidelity that a task can have in this process. If the previous task had full fidelity and ran in another process, its session does
    /// not exist here, and a summary replaces it. Later tasks have full fidelity again, because their previous task ran in this process.
    pub(crate) fn effective_fidelity(
        &self,
        told: &FidelityChoice,
        context: &Context,
        activation: &str,
    ) -> FidelityChoice {
        let last = context.get_value(LAST);
        let text = |key: &str| last.and_then(|last| last.get(key)).and_then(Json::as_str).unwrap_or_default();
        let start_id = activation.split_once(':').map_or("", |(start_id, _)| start_id);
        let lost =
            text("mode") == Fidelity::Full.as_str() && !self.contains(&format!("{start_id}:{}", text("by")));
        if told.fidelity == Fidelity::Full && lost {
            return FidelityChoice { fidelity: Fidelity::SummaryHigh, thread: told.thread.clone() };
        }
        told.clone()
    }

    fn contains(&self, activation: &str) -> bool {
        // No code panics while it holds this lock.
        self.ran.lock().unwrap_or_else(PoisonError::into_inner).0.contains(activation)
    }

    /// Records that a task has run in this process.
    pub(crate) fn insert(&self, activation: String) {
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
