//! The cache of node results, which [`GraphBuilder::cached`](super::GraphBuilder::cached) enables. It is local to this process.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::clock::Timestamp;
use crate::graph::CachePolicy;
use crate::node::{NodeContext, NodeError, StartWork, Work};
use crate::state::strict::to_json_string;
use crate::state::{Draft, KeptUpdate, State};

/// A function that returns the cache key of an activation as text.
pub(crate) type KeyFn<S> = dyn Fn(&S, &NodeContext) -> Result<String, NodeError> + Send + Sync;

/// The work of a cached node: it uses the result in the cache, and does the inner work only if there is none.
pub(crate) struct CachedNode<S: State> {
    node: Arc<dyn StartWork<S>>,
    key: Box<KeyFn<S>>,
    policy: CachePolicy,
    results: Mutex<CachedResults<S>>,
}

struct CachedResults<S: State> {
    by_key: HashMap<Arc<str>, CachedUpdate<S>>,
    /// The keys, ordered by the time at which their results were stored.
    order: VecDeque<Arc<str>>,
}

struct CachedUpdate<S: State> {
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
        let results = Mutex::new(CachedResults { by_key: HashMap::new(), order: VecDeque::new() });
        Self { node, key: Box::new(key), policy, results }
    }

    fn find(&self, key: &str, now: Timestamp) -> Option<KeptUpdate<S>> {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = results.by_key.get(key)?;
        // After the clock was set back, the age is unknown.
        if entry.at <= now && now.since(entry.at) < self.policy.max_age {
            return Some(entry.update.clone());
        }
        results.remove(key);
        None
    }

    fn store_result(&self, key: String, update: KeptUpdate<S>, at: Timestamp) {
        let key: Arc<str> = key.into();
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.remove(&key);
        results.by_key.insert(Arc::clone(&key), CachedUpdate { update, at });
        results.order.push_back(key);
        while results.order.len() > self.policy.entries {
            if let Some(oldest) = results.order.pop_front() {
                results.by_key.remove(&oldest);
            }
        }
    }
}

impl<S: State> CachedResults<S> {
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
            // Its outbox messages and notes belong to its own run.
            if !cx.leaves_anything()
                && let Some(kept) = update.make_reusable()
            {
                // The result is as old as its oldest possible input.
                self.store_result(key, kept, begun);
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
