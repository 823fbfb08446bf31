//! What a node came to, kept in the process for other activations that would come to the same.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

use crate::clock::Timestamp;
use crate::node::{NodeContext, NodeError, StartWork, Work};
use crate::state::strict::to_json_string;
use crate::state::{Draft, KeptUpdate, State};

/// For how long what a [cached](crate::graph::GraphBuilder::cached) node came to is taken again, and how many results of the node are kept.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ferrata_core::graph::CachePolicy;
///
/// let policy = CachePolicy::for_life(Duration::from_secs(600)).with_entries(50);
/// assert_eq!(policy.entries, 50);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CachePolicy {
    /// How long after a result it is still taken, by the clock of the runtime; more than zero.
    pub life: Duration,
    /// How many results are kept, at least 1; 1,000 unless set. The oldest one goes first, whatever their sizes are.
    pub entries: usize,
}

impl CachePolicy {
    /// Keeps up to 1,000 results, each for this long.
    pub const fn for_life(life: Duration) -> Self {
        Self { life, entries: 1_000 }
    }

    /// Sets how many results are kept.
    #[must_use]
    pub const fn with_entries(mut self, entries: usize) -> Self {
        self.entries = entries;
        self
    }
}

/// Says what the work of an activation depends on, as text.
pub(crate) type KeyFn<S> = dyn Fn(&S, &NodeContext) -> Result<String, NodeError> + Send + Sync;

/// A node that works only where no result is kept.
pub(crate) struct CachedNode<S: State> {
    node: Arc<dyn StartWork<S>>,
    key: Box<KeyFn<S>>,
    policy: CachePolicy,
    results: Mutex<Results<S>>,
}

struct Results<S: State> {
    by_key: HashMap<Arc<str>, Entry<S>>,
    /// The keys in the order of their results.
    order: VecDeque<Arc<str>>,
}

struct Entry<S: State> {
    update: KeptUpdate<S>,
    at: Timestamp,
}

impl<S: State> CachedNode<S> {
    pub(crate) fn new<K: Serialize>(
        node: Arc<dyn StartWork<S>>,
        policy: CachePolicy,
        key: impl Fn(&S, &NodeContext) -> Result<K, NodeError> + Send + Sync + 'static,
    ) -> Self {
        let key = move |state: &S, cx: &NodeContext| Ok(to_json_string(&key(state, cx)?)?);
        let results = Mutex::new(Results { by_key: HashMap::new(), order: VecDeque::new() });
        Self { node, key: Box::new(key), policy, results }
    }

    fn find(&self, key: &str, now: Timestamp) -> Option<KeptUpdate<S>> {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = results.by_key.get(key)?;
        // A clock that was set back tells no age.
        if entry.at <= now && now.since(entry.at) < self.policy.life {
            return Some(entry.update.clone());
        }
        results.remove(key);
        None
    }

    fn keep(&self, key: String, update: KeptUpdate<S>, at: Timestamp) {
        let key: Arc<str> = key.into();
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.remove(&key);
        results.by_key.insert(Arc::clone(&key), Entry { update, at });
        results.order.push_back(key);
        while results.order.len() > self.policy.entries {
            if let Some(oldest) = results.order.pop_front() {
                results.by_key.remove(&oldest);
            }
        }
    }
}

impl<S: State> Results<S> {
    fn remove(&mut self, key: &str) {
        if self.by_key.remove(key).is_some() {
            self.order.retain(|other| **other != *key);
        }
    }
}

impl<S: State> StartWork<S> for CachedNode<S> {
    fn begin(self: Arc<Self>, cx: NodeContext, state: Draft<S>) -> Work<S> {
        Box::pin(async move {
            let key = (self.key)(state.original(), &cx)?;
            let begun = cx.now();
            if let Some(kept) = self.find(&key, begun) {
                return Ok(kept.into_update());
            }
            let mut update = Arc::clone(&self.node).begin(cx.clone(), state).await?;
            // What it sends and notes is that of its own run.
            if !cx.leaves_anything()
                && let Some(kept) = update.keep()
            {
                // As old as what it may have read first.
                self.keep(key, kept, begun);
            }
            Ok(update)
        })
    }
}

impl<S: State> fmt::Debug for CachedNode<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedNode").field("policy", &self.policy).finish_non_exhaustive()
    }
}
