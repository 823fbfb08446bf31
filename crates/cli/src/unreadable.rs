//! Runs that a listing came upon and could not read: they are counted and named, and the command does not end as if all were well.

use ferrata::store::{Page, Paged, RunHead, RunQuery};
use ferrata::{CheckpointStore, Error, ErrorKind, RunKey};

use ferrata_core::wording::count;

use crate::exit::Exit;
use crate::failure::{Failure, missing_key};
use crate::find::shown;
use crate::output::quoted;
use crate::watch::PollResult;

/// How many runs are named.
const NAMED: usize = 10;

/// Runs that could not be read, each with the reason.
#[derive(Debug, Default)]
pub(crate) struct UnreadableRuns {
    named: Vec<(Option<RunKey>, Error)>,
    /// Whether a listing left out more than it names.
    has_more: bool,
}

/// Tells whether an error says that the log of one run cannot be read, so that others can.
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

    /// Lists a page of runs. A store leaves out what it cannot read, and names the first of these only when it is asked for all.
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

    /// Returns what the command saw: what could not be read, if there is any. `missing` says what of these runs is not listed.
    pub(crate) fn seen(self, missing: &str) -> PollResult {
        match self.failure(missing) {
            Some(failure) => PollResult::Partly(failure),
            None => PollResult::MayChange,
        }
    }

    pub(crate) fn failure(self, missing: &str) -> Option<Failure> {
        let (run, error) = self.named.first()?;
        let next = match (missing_key(error), run) {
            (Some(next), _) => next.to_owned(),
            (None, Some(run)) => format!("ferrata verify {}", quoted(&shown(run))),
            (None, None) => "ferrata store check".to_owned(),
        };
        let count = count(self.named.len(), "run");
        let least = if self.has_more { "at least " } else { "" };
        let message = format!("{least}{count} cannot be read, and {missing}");
        let name =
            |run: &Option<RunKey>| run.as_ref().map(|run| format!("{}: ", shown(run))).unwrap_or_default();
        let named = self.named.iter().take(NAMED);
        let named = named.map(|(run, error)| format!("{}{}", name(run), error.message()));
        let more = self.named.len().saturating_sub(NAMED);
        let rest = (more > 0).then(|| format!("and {more} more"));
        let failure = Failure::new(Exit::Internal, message, next).with_code(error.kind());
        Some(failure.with_details(named.chain(rest)))
    }
}
