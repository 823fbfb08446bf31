//! Delivers the result of a finished child to its parent if both run in the same process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::value::RawValue;
use tokio::sync::Notify;

use crate::record::parent_link::ChildRef;

/// The children whose parents are in this process and wait for the end of the child.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndWaiters(Arc<Mutex<HashMap<ChildRef, Arc<ChildEndCell>>>>);

#[derive(Debug, Default)]
struct ChildEndCell {
    ended: Notify,
    /// The result of the child, if its driver reported it.
    end: OnceLock<Arc<RawValue>>,
}

/// A wait for the end of a child. It receives every notice after its creation. All its clones together are one wait.
#[derive(Clone, Debug)]
pub(crate) struct EndWaiter(Arc<EndWaiterInner>);

#[derive(Debug)]
struct EndWaiterInner {
    all: EndWaiters,
    child: ChildRef,
    awaited: Arc<ChildEndCell>,
}

impl EndWaiters {
    /// Begins to wait for the end of a child.
    pub(crate) fn wait_for(&self, child: &ChildRef) -> EndWaiter {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let awaited = Arc::clone(all.entry(child.clone()).or_default());
        EndWaiter(Arc::new(EndWaiterInner { all: self.clone(), child: child.clone(), awaited }))
    }

    /// Returns whether a parent waits for the end of a child.
    pub(crate) fn is_awaited(&self, child: &ChildRef) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(child)
    }

    /// Reports that a child has ended, with its result if it is known. Returns whether a parent waits for the child.
    pub(crate) fn notify(&self, child: &ChildRef, end: Option<Arc<RawValue>>) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(awaited) = all.get(child) else { return false };
        if let Some(end) = end {
            // The first result stays, as in the log of the parent.
            let _ = awaited.end.set(end);
        }
        awaited.ended.notify_one();
        true
    }
}

impl EndWaiter {
    /// Waits until the child may have ended. Returns the result of the child if it is known.
    ///
    /// Cancel safe: if the future is dropped, the next call returns the result.
    pub(crate) async fn wait_for_end(&self) -> Option<Arc<RawValue>> {
        let awaited = &self.0.awaited;
        if awaited.end.get().is_none() {
            awaited.ended.notified().await;
        }
        awaited.end.get().cloned()
    }
}

impl Drop for EndWaiterInner {
    fn drop(&mut self) {
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One reference belongs to this wait, the other to the list.
        if all.get(&self.child).is_some_and(|awaited| Arc::strong_count(awaited) <= 2) {
            all.remove(&self.child);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{RunId, RunKey};
    use crate::record::codec::to_raw;

    fn child() -> ChildRef {
        let (run, parent) = (RunKey::try_from("c").unwrap(), RunId::new("p").unwrap());
        ChildRef { run, parent, start: "1:n:1:c".into() }
    }

    #[tokio::test]
    async fn an_end_between_two_looks_is_heard() {
        let (waiters, child) = (EndWaiters::default(), child());
        assert!(!waiters.notify(&child, None), "nobody waits");
        let waiter = waiters.wait_for(&child);
        assert!(waiters.notify(&child, None));
        assert!(waiter.wait_for_end().await.is_none(), "it must be checked");
        drop(waiter);
        assert!(!waiters.notify(&child, None), "no waiter remains");
        assert!(waiters.0.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn child_end_notifies_only_its_parent() {
        let (waiters, child) = (EndWaiters::default(), child());
        let (first, second) = (waiters.wait_for(&child), waiters.wait_for(&child));
        let other = ChildRef { parent: RunId::new("other").unwrap(), ..child.clone() };
        let end: Arc<RawValue> = to_raw(&"good").unwrap().into();
        assert!(!waiters.notify(&other, Some(Arc::clone(&end))));
        assert!(waiters.is_awaited(&child) && waiters.notify(&child, Some(end)));
        for waiter in [first.clone(), first, second] {
            assert_eq!(waiter.wait_for_end().await.unwrap().get(), "\"good\"");
        }
        assert!(!waiters.is_awaited(&child));
    }
}
