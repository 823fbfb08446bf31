//! Limits each wait of a driver for the store to the current heartbeat term, which is the time in which this process certainly owns its runs. While a
//! driver waits for the store, it handles no other event. Even if the store never answers, the driver must stop its nodes before another process can
//! claim the run and start the same nodes.

use std::sync::Arc;

use super::RunDriver;
use crate::error::Result;
use crate::id::HeadRef;
use crate::kernel::inner::RuntimeInner;
use crate::state::State;

/// Waits for an answer, but only as long as the heartbeat term lasts, in which this process certainly owns its runs.
///
/// # Errors
///
/// Returns the errors of the answer, and [`ErrorKind::Fenced`](crate::ErrorKind::Fenced) if the term has ended.
pub(super) async fn in_term<T>(
    shared: &RuntimeInner,
    term: u64,
    answer: impl Future<Output = Result<T>>,
) -> Result<T> {
    let over = async {
        // `shared` owns the registry, so the sender exists.
        let _ = shared.registry.watch_stop().wait_for(|stop| stop.term != term).await;
    };
    tokio::select! {
        biased;
        answer = answer => answer,
        () = over => Err(shared.heartbeat.fenced()),
    }
}

impl<S: State> RunDriver<S> {
    /// Waits for the store, but only as long as the term lasts.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`in_term`].
    pub(super) fn in_term<T, F: Future<Output = Result<T>>>(
        &self,
        answer: F,
    ) -> impl Future<Output = Result<T>> + use<S, T, F> {
        let (shared, term) = (Arc::clone(&self.shared), self.registration.term);
        async move { in_term(&shared, term, answer).await }
    }

    /// Waits for the store's answer to the sent records, but only as long as the term lasts. If no record was sent, the call never returns.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`in_term`].
    pub(super) async fn acknowledged(&mut self) -> Result<HeadRef> {
        in_term(&self.shared, self.registration.term, self.journal.acknowledged()).await
    }
}
