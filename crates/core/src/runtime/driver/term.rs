//! Waits for the store that end with the term: a driver that waits hears nothing else, and its nodes are not to go on beside those of the
//! process that takes the run, however long the store takes to answer.

use std::sync::Arc;

use super::RunDriver;
use crate::error::Result;
use crate::id::HeadRef;
use crate::runtime::shared::RuntimeInner;
use crate::state::State;

/// Waits for an answer as long as this process may believe that what it took in this term is its own.
///
/// # Errors
///
/// Those of the answer; [`ErrorKind::Fenced`](crate::ErrorKind::Fenced) once the term is over.
pub(super) async fn in_term<T>(
    shared: &RuntimeInner,
    term: u64,
    answer: impl Future<Output = Result<T>>,
) -> Result<T> {
    let over = async {
        // The registry is a part of `shared`, so it is there to tell.
        let _ = shared.registry.watch_stop().wait_for(|stop| stop.term != term).await;
    };
    tokio::select! {
        biased;
        answer = answer => answer,
        () = over => Err(shared.heartbeat.fenced()),
    }
}

impl<S: State> RunDriver<S> {
    /// Waits for the store, as long as the term lasts.
    ///
    /// # Errors
    ///
    /// As [`in_term`].
    pub(super) fn in_term<T, F: Future<Output = Result<T>>>(
        &self,
        answer: F,
    ) -> impl Future<Output = Result<T>> + use<S, T, F> {
        let (shared, term) = (Arc::clone(&self.shared), self.registration.term);
        async move { in_term(&shared, term, answer).await }
    }

    /// Waits for the answer to what was sent, as long as the term lasts; never ends otherwise if nothing was sent.
    ///
    /// # Errors
    ///
    /// As [`in_term`].
    pub(super) async fn acknowledged(&mut self) -> Result<HeadRef> {
        in_term(&self.shared, self.registration.term, self.journal.acknowledged()).await
    }
}
