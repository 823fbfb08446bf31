//! Caches answers about a run until its head changes, so that an open page causes only one read of the store per change.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferrata_core::{RecordId, RunKey};
use serde_json::Value;

use crate::view::tree::bytes;

/// Maximum number of cached answers. Further limits are the bytes of JSON in total and per answer. A larger answer is computed for each request.
const ENTRIES: usize = 2_048;
const BYTES: usize = 16 * 1024 * 1024;
const SHARE: usize = 4;

/// Maximum total size of cached states, of which one state may use all. In memory a state takes several times its size.
const STATES: usize = 8 * 1024 * 1024;

/// The key of an answer.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct CacheKey {
    pub(crate) run: RunKey,
    /// The head for which the answer is valid. If a run is purged and its id is used again, the new run has another head.
    pub(crate) head: RecordId,
    /// The kind of answer.
    pub(crate) what: Cow<'static, str>,
}

/// Answers that stay valid until the head of their run changes.
pub(crate) struct AnswerCache(Mutex<CacheEntry>);

struct CacheEntry {
    /// Entries, oldest first.
    all: VecDeque<(CacheKey, Arc<Value>, usize)>,
    bytes: usize,
    most: usize,
    /// Maximum size of one answer in bytes.
    each: usize,
}

impl Default for AnswerCache {
    fn default() -> Self {
        Self::of(BYTES, BYTES / SHARE)
    }
}

impl AnswerCache {
    /// Creates a cache for states. Each entry is the state at a position of a log, of which a page requests one level after the other.
    pub(crate) fn of_states() -> Self {
        Self::of(STATES, STATES)
    }

    fn of(most: usize, each: usize) -> Self {
        Self(Mutex::new(CacheEntry { all: VecDeque::new(), bytes: 0, most, each }))
    }

    fn lock(&self) -> MutexGuard<'_, CacheEntry> {
        // The content is consistent even if another thread panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds an answer.
    pub(crate) fn get(&self, about: &CacheKey) -> Option<Arc<Value>> {
        let kept = self.lock();
        kept.all.iter().rev().find(|(known, ..)| known == about).map(|(_, value, _)| Arc::clone(value))
    }

    /// Stores an answer, and removes an older answer of the same kind about the same run.
    pub(crate) fn put(&self, about: CacheKey, value: Value) -> Arc<Value> {
        let (size, value) = (bytes(&value), Arc::new(value));
        let mut kept = self.lock();
        kept.all.retain(|(known, ..)| known.run != about.run || known.what != about.what);
        if size <= kept.each {
            kept.all.push_back((about, Arc::clone(&value), size));
        }
        kept.bytes = kept.all.iter().map(|(.., size)| size).sum();
        while kept.all.len() > ENTRIES || kept.bytes > kept.most {
            let Some((.., size)) = kept.all.pop_front() else { break };
            kept.bytes -= size;
        }
        value
    }
}

impl fmt::Debug for AnswerCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.lock();
        f.debug_struct("Cache").field("answers", &kept.all.len()).field("bytes", &kept.bytes).finish()
    }
}

#[cfg(test)]
mod tests {
    use ferrata_core::{IdSource as _, RandomIds, Timestamp};
    use serde_json::json;

    use super::*;

    fn about(run: usize, ids: &RandomIds) -> CacheKey {
        let run = RunKey::try_from(format!("run-{run}").as_str()).unwrap();
        CacheKey { run, head: RecordId::from_uuid(ids.next(Timestamp::from_unix_ms(0))), what: "run".into() }
    }

    #[test]
    fn answers_of_many_large_runs_take_bounded_memory() {
        let (cache, ids) = (AnswerCache::of(16_000, 4_000), RandomIds::new());
        let large = about(0, &ids);
        assert_eq!(cache.put(large.clone(), json!("x".repeat(4_000))).as_str().unwrap().len(), 4_000);
        assert!(cache.get(&large).is_none(), "an oversized answer is not cached");
        let all: Vec<CacheKey> = (1..=40).map(|run| about(run, &ids)).collect();
        for one in &all {
            cache.put(one.clone(), json!("x".repeat(1_000)));
        }
        assert!(cache.lock().bytes <= 16_000, "{cache:?}");
        assert!(cache.get(&all[0]).is_none() && cache.get(&all[39]).is_some(), "the newest answers are kept");
    }

    #[test]
    fn a_run_has_one_answer_of_a_kind() {
        let (cache, ids) = (AnswerCache::default(), RandomIds::new());
        let (old, new) = (about(1, &ids), about(1, &ids));
        cache.put(old.clone(), json!(1));
        cache.put(new.clone(), json!(2));
        assert!(cache.get(&old).is_none());
        assert_eq!(cache.get(&new).as_deref(), Some(&json!(2)));
    }
}
