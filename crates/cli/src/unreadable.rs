//! Unreadable runs in a listing. The command counts and names these runs, and ends with a failure.

use ferrata::store::{Page, Paged, RunHead, RunQuery};
use ferrata::{CheckpointStore, Error, ErrorKind, RunKey};

use ferrata_core::wording::count;

use crate::exit::ExitReason;
use crate::failure::{CommandFailure, missing_key};
use crate::find::display_key;
use crate::output::quoted;
use crate::watch::PollResult;

/// Maximum number of unreadable runs that are named.
const NAMED: usize = 10;

/// The unreadable runs, each with the reason.
#[derive(Debug, Default)]
pub(crate) struct UnreadableRuns {
    named: Vec<(Option<RunKey>, Error)>,
    /// Whether there are more unreadable runs than the listing names.
    has_more: bool,
}

/// Returns whether an error means that only the log of one run is unreadable.
pub(crate) fn is_unreadable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported)
}

impl UnreadableRuns {
    pub(crate) fn add(&mut self, run: &RunKey, error: Error) {
        self.named.push((Some(run.clone()), error));
    }

    /// Adds the run that an error names.
    pub(crate) fn add_error(&mut self, error: Error) {
        self.named.push((error.run().cloned(), error));
    }

    /// Lists a page of runs. A store omits unreadable runs, and only a listing of all runs names the first of them.
    pub(crate) async fn page(
        &mut self,
        store: &dyn CheckpointStore,
        query: &RunQuery,
        page: Page,
    ) -> ferrata::Result<Paged<RunHead>> {
        let mut query = query.clone();
        query.complete = !self.has_more;
        match store.runs(&query, page.clone()).await {
            Err(error) if query.complete && is_unreadable(&error) => {
                self.named.push((error.run().cloned(), error));
                self.has_more = true;
                query.complete = false;
                store.runs(&query, page).await
            }
            listed => listed,
        }
    }

    /// Returns the result of a poll. If runs are unreadable, the result is partial. `missing` describes what is missing in the listing.
    pub(crate) fn into_poll_result(self, missing: &str) -> PollResult {
        match self.failure(missing) {
            Some(failure) => PollResult::Partly(failure),
            None => PollResult::MayChange,
        }
    }

    pub(crate) fn failure(self, missing: &str) -> Option<CommandFailure> {
        let (run, error) = self.named.first()?;
        let next = match (missing_key(error), run) {
            (Some(next), _) => next.to_owned(),
            (None, Some(run)) => format!("ferrata verify {}", quoted(&display_key(run))),
            (None, None) => "ferrata store check".to_owned(),
        };
        let count = count(self.named.len(), "run");
        let least = if self.has_more { "at least " } else { "" };
        let message = format!("cannot read {least}{count}; {missing}");
        let name = |run: &Option<RunKey>| {
            run.as_ref().map(|run| format!("{}: ", display_key(run))).unwrap_or_default()
        };
        let named = self.named.iter().take(NAMED);
        let named = named.map(|(run, error)| format!("{}{}", name(run), error.message()));
        let more = self.named.len().saturating_sub(NAMED);
        let rest = (more > 0).then(|| format!("and {more} more"));
        let failure = CommandFailure::new(ExitReason::Internal, message, next).with_code(error.kind());
        Some(failure.with_details(named.chain(rest)))
    }
}
