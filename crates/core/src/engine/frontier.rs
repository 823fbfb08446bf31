//! What is unfinished in a run: activations in flight and tokens waiting.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::clock::Timestamp;
use crate::id::Visit;
use crate::record::memo::Memos;
use crate::record::{Failure, Resolution};

/// A node by the machine's own number: the graph's index for nodes of the graph, further numbers for those that only the log
/// knows.
pub(crate) type Local = u32;

/// One execution of a node: which node, which visit.
pub(crate) type ActivationKey = (Local, Visit);

/// A fired edge waiting at its target, or joined into an activation.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) from: Local,
    pub(crate) visit: Visit,
    pub(crate) output: Option<Arc<RawValue>>,
    pub(crate) item: Option<Arc<RawValue>>,
}

/// An activation in flight.
#[derive(Clone, Debug)]
pub(crate) struct Activation {
    /// How many activations had ended in the run when this one began: what it cannot have seen came later.
    pub(crate) since: u64,
    /// How many attempts have failed.
    pub(crate) failed: u32,
    /// When the next attempt may start.
    pub(crate) retry_at: Option<Timestamp>,
    /// Whether it is recorded that an attempt which must not be repeated was about to start.
    pub(crate) intent: bool,
    /// Whether nobody knows what became of that attempt: a question is open.
    pub(crate) in_doubt: bool,
    /// How the attempt in doubt ended; none if its process ended.
    pub(crate) why: Option<Box<Failure>>,
    /// What somebody answered to that question.
    pub(crate) resolution: Option<Resolution>,
    pub(crate) item: Option<Arc<RawValue>>,
    pub(crate) inputs: Vec<Token>,
    /// What it noted so that it does not happen twice, by name.
    pub(crate) memos: Memos,
}

impl Activation {
    pub(crate) fn new(since: u64, item: Option<Arc<RawValue>>, inputs: Vec<Token>) -> Self {
        Self {
            since,
            failed: 0,
            retry_at: None,
            intent: false,
            in_doubt: false,
            why: None,
            resolution: None,
            item,
            inputs,
            memos: Memos::default(),
        }
    }
}
