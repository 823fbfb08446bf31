//! Listings of runs, which read no logs.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{TenantId, WorkflowName};
use crate::kernel::inner::RuntimeInner;
use crate::record::RunStatus;
use crate::store::{Cursor, Order, Page, Paged, RunHead, RunQuery};

/// A listing of runs. `.await` reads one page from the store, with the newest runs first. By default a page has at most 100 runs;
/// [`limit`](Self::limit) changes this.
///
/// Each run of a page meets all conditions of the listing. If you read all pages one after another, a run that exists during the whole time is on
/// exactly one page.
///
/// # Errors
///
/// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if a name is invalid or the cursor belongs to another listing, and the errors of
/// [`CheckpointStore::runs`](crate::store::CheckpointStore::runs).
///
/// # Cancel safety
///
/// Cancel safe: the call changes nothing.
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
#[must_use = "the runs are listed only when the future is awaited"]
pub struct RunsRequest {
    shared: Arc<RuntimeInner>,
    query: Result<RunQuery>,
    page: Page,
    /// Whether the caller set a limit.
    is_limited: bool,
}

impl RunsRequest {
    pub(crate) fn new(shared: &Arc<RuntimeInner>) -> Self {
        Self {
            shared: Arc::clone(shared),
            query: Ok(RunQuery::default()),
            page: Page::default(),
            is_limited: false,
        }
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

    /// Lists only runs that were started for this user. A store may have no index of users, so this condition can be slow.
    pub fn user(self, user: impl Into<String>) -> Self {
        self.with(|query| {
            query.user = Some(user.into());
            Ok(())
        })
    }

    /// Lists only runs with this status. After several calls, a run matches if it has one of the statuses.
    pub fn status(self, status: RunStatus) -> Self {
        self.with(|query| {
            query.statuses.push(status);
            Ok(())
        })
    }

    /// Lists only runs with this label. After several calls, a run matches if it has all of the labels.
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

    /// Sets the maximum number of runs on the page: 1 to 1,000.
    pub fn limit(mut self, runs: u32) -> Self {
        self.page.limit = Page::first(runs).limit;
        self.is_limited = true;
        self
    }

    /// Lists the oldest runs first.
    pub fn oldest_first(mut self) -> Self {
        self.page.order = Order::OldestFirst;
        self
    }

    /// Returns whether the listing selects one workflow.
    pub(crate) fn has_workflow(&self) -> bool {
        self.query.as_ref().is_ok_and(|query| query.workflow.is_some())
    }

    /// Continues the listing after a page that was already read. `cursor` is the [`Paged::next`] of that page. With `None`, the listing begins with
    /// the first page.
    pub fn after(mut self, cursor: Option<Cursor>) -> Self {
        self.page.cursor = cursor;
        self
    }
}

impl RunsRequest {
    pub(super) fn shared(&self) -> Arc<RuntimeInner> {
        Arc::clone(&self.shared)
    }

    /// Lists only runs with these statuses, unless the caller set statuses.
    pub(super) fn set_statuses(&mut self, statuses: &[RunStatus]) {
        if let Ok(query) = &mut self.query
            && query.statuses.is_empty()
        {
            query.statuses = statuses.to_vec();
        }
    }

    /// Lists page by page.
    pub(super) fn pages(self) -> RunPages {
        RunPages { runs: self, is_over: false }
    }
}

/// The pages of a listing. If the caller has set a limit, there is only one page.
pub(super) struct RunPages {
    runs: RunsRequest,
    is_over: bool,
}

impl RunPages {
    /// Lists the page after `after`, or the first page.
    pub(super) async fn next(&mut self, after: Option<Cursor>) -> Result<Paged<RunHead>> {
        let mut page = self.runs.page.clone();
        if after.is_some() {
            page.cursor = after;
        }
        let query = match &self.runs.query {
            Ok(query) => query,
            Err(error) => return Err(error.clone()),
        };
        self.is_over = self.runs.is_limited;
        self.runs.shared.store.runs(query, page).await
    }

    /// Returns whether there is no further page to read.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
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
