//! Listing runs by what is known of them, without reading their logs; and watching what such a listing selects.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{TenantId, WorkflowName};
use crate::record::RunStatus;
use crate::runtime::shared::Shared;
use crate::runtime::watch::RunsWatchRequest;
use crate::store::{Cursor, Order, Page, Paged, RunHead, RunQuery};

/// A listing of runs; `.await` asks the store for a page of it, of 100 runs unless [`limit`](Self::limit) says otherwise, newest first.
///
/// Every condition that is set holds for each run of the page. A run that exists throughout is on exactly one of the pages that
/// follow each other.
///
/// # Errors
///
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if a name is none, or the cursor is of another listing; else as
/// [`CheckpointStore::runs`](crate::store::CheckpointStore::runs).
///
/// # Cancel safety
///
/// Cancel safe: nothing is changed.
///
/// # Examples
///
/// ```
/// use ferrata_core::Result;
/// use ferrata_core::record::RunStatus;
/// use ferrata_core::runtime::Runtime;
///
/// /// The ids of all failed runs of a customer.
/// async fn failed(runtime: &Runtime, customer: &str) -> Result<Vec<String>> {
///     let (mut ids, mut after) = (Vec::new(), None);
///     loop {
///         let page = runtime.runs().status(RunStatus::Failed).label("customer", customer).after(after).await?;
///         ids.extend(page.items.iter().map(|head| head.run.to_string()));
///         after = page.next;
///         if after.is_none() {
///             return Ok(ids);
///         }
///     }
/// }
/// # let _ = failed;
/// ```
#[must_use = "nothing is asked before it is awaited"]
pub struct RunsRequest {
    shared: Arc<Shared>,
    query: Result<RunQuery>,
    page: Page,
}

impl RunsRequest {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), query: Ok(RunQuery::default()), page: Page::default() }
    }

    fn with(mut self, set: impl FnOnce(&mut RunQuery) -> Result<()>) -> Self {
        self.query = self.query.and_then(|mut query| set(&mut query).map(|()| query));
        self
    }

    /// Lists only runs of this tenant.
    pub fn tenant(self, tenant: impl AsRef<str>) -> Self {
        self.with(|query| TenantId::new(tenant.as_ref()).map(|tenant| query.tenant = Some(tenant)))
    }

    /// Lists only runs of this workflow.
    pub fn workflow(self, name: impl AsRef<str>) -> Self {
        self.with(|query| WorkflowName::new(name.as_ref()).map(|name| query.workflow = Some(name)))
    }

    /// Lists only runs for this user. No store is bound to keep an index of users.
    pub fn user(self, user: impl Into<String>) -> Self {
        self.with(|query| {
            query.user = Some(user.into());
            Ok(())
        })
    }

    /// Lists only runs of this status; said several times, of any of them.
    pub fn status(self, status: RunStatus) -> Self {
        self.with(|query| {
            query.statuses.push(status);
            Ok(())
        })
    }

    /// Lists only runs with this label; said several times, with all of them.
    pub fn label(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|query| {
            query.labels.push((key.into(), value.into()));
            Ok(())
        })
    }

    /// Lists only runs that were started at this time or later.
    pub fn since(self, from: Timestamp) -> Self {
        self.with(|query| {
            query.created_from = Some(from);
            Ok(())
        })
    }

    /// Lists only runs that were started before this time.
    pub fn before(self, to: Timestamp) -> Self {
        self.with(|query| {
            query.created_before = Some(to);
            Ok(())
        })
    }

    /// Sets how many runs the page has at most: 1 to 1,000.
    pub fn limit(mut self, runs: u32) -> Self {
        self.page.limit = Page::first(runs).limit;
        self
    }

    /// Lists the oldest first.
    pub fn oldest_first(mut self) -> Self {
        self.page.order = Order::OldestFirst;
        self
    }

    /// Goes on behind a page of the same listing, at its [`Paged::next`]; `None` is the first page.
    pub fn after(mut self, cursor: Option<Cursor>) -> Self {
        self.page.cursor = cursor;
        self
    }

    /// Watches these runs instead of listing them: what happens in any of them, runs that begin later included, whichever process drives
    /// them. Of a status, it tells the records that leave a run in it. What is said of pages means nothing here.
    ///
    /// <!-- held by: watching_runs::who_watches_runs_is_told_what_who_watches_each_is_told -->
    pub fn watch(self) -> RunsWatchRequest {
        RunsWatchRequest::new(&self.shared, self.query)
    }
}

impl IntoFuture for RunsRequest {
    type Output = Result<Paged<RunHead>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.shared.store.runs(&self.query?, self.page).await })
    }
}

impl fmt::Debug for RunsRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunsRequest")
            .field("query", &self.query)
            .field("page", &self.page)
            .finish_non_exhaustive()
    }
}
