//! The context of every request: the runtime, the settings of the service, and the viewer.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use ferrata_core::runtime::{ReasonCache, Runtime};
use ferrata_core::store::RunHead;
use ferrata_core::{Clock, RunId, RunKey, SystemClock, TenantId, Timestamp};
use tokio::sync::watch;

use crate::access::{Viewer, ViewerHook};
use crate::api::schedules::ScheduleBoard;
use crate::cache::AnswerCache;
use crate::guard::Guard;
use crate::outline::OutlineLookup;
use crate::params::QueryParams;
use crate::problem::Problem;
use crate::queues::QueueBoard;
use crate::redact::Redaction;
use crate::trees::TreeBoard;

/// The context of every request.
#[derive(Debug)]
pub(crate) struct AppContext {
    pub(crate) runtime: Runtime,
    pub(crate) guard: Guard,
    pub(crate) access: ViewerHook,
    pub(crate) redaction: Redaction,
    pub(crate) outlines: OutlineLookup,
    pub(crate) allows_writes: bool,
    /// The options after `ferrata` in the commands that the page shows, so that these commands address this store.
    pub(crate) options: String,
    /// Turns true when streams must end.
    pub(crate) ending: Option<watch::Receiver<bool>>,
    pub(crate) cache: AnswerCache,
    pub(crate) states: AnswerCache,
    pub(crate) reasons: ReasonCache,
    pub(crate) queues: QueueBoard,
    pub(crate) trees: TreeBoard,
    pub(crate) schedules: ScheduleBoard,
    pub(crate) clock: SystemClock,
}

impl AppContext {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// An API request that passed the guard.
#[derive(Debug)]
pub(crate) struct ApiCall {
    pub(crate) app: Arc<AppContext>,
    pub(crate) viewer: Viewer,
    query: Option<String>,
}

impl ApiCall {
    /// Reads the parameters of the request and rejects unknown parameters.
    pub(crate) fn params(&self, known: &'static [&'static str]) -> Result<QueryParams, Problem> {
        QueryParams::read(self.query.as_deref(), known)
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.app.runtime
    }

    /// Reads the name of a run and checks that the viewer may see the run.
    pub(crate) fn run(&self, (tenant, run): &(String, String)) -> Result<RunKey, Problem> {
        let key = RunKey::new(TenantId::new(tenant)?, RunId::new(run)?);
        if self.viewer.sees(&key) { Ok(key) } else { Err(Problem::no_run(&key)) }
    }

    /// Reads the head of a run, or fails if the run does not exist.
    pub(crate) async fn head(&self, run: &RunKey) -> Result<RunHead, Problem> {
        self.runtime().head(run).await?.ok_or_else(|| Problem::no_run(run))
    }

    /// Returns the tenant for a listing: the tenant of the viewer, or the requested tenant.
    pub(crate) fn tenant(&self, asked: Option<&str>) -> Result<Option<TenantId>, Problem> {
        let asked = asked.map(TenantId::new).transpose()?;
        match (self.viewer.tenant(), asked) {
            (Some(own), Some(asked)) if *own != asked => {
                Err(Problem::not_found(format!("this inspector does not show the tenant `{asked}`")))
            }
            (Some(own), _) => Ok(Some(own.clone())),
            (None, asked) => Ok(asked),
        }
    }
}

impl FromRequestParts<Arc<AppContext>> for ApiCall {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<AppContext>) -> Result<Self, Problem> {
        let query = parts.uri.query().map(str::to_owned);
        // The guard inserts the viewer; a route before the guard has none.
        let viewer = parts.extensions.get::<Viewer>().cloned().ok_or_else(Problem::unauthorized)?;
        Ok(Self { app: Arc::clone(app), viewer, query })
    }
}
