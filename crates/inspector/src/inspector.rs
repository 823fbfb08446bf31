//! The inspector with its choices: what is shown, to whom, and what may be done.

use std::sync::Arc;

use axum::Router;
use axum::http::request::Parts;
use ferrata_core::SystemClock;
use ferrata_core::graph::Graph;
use ferrata_core::runtime::{ReasonCache, Runtime};
use ferrata_core::state::State;
use ferrata_core::store::RunHead;
use tokio::sync::watch;

use crate::access::{Access, Viewer};
use crate::app::App;
use crate::guard::Guard;
use crate::outline::{Outline, Outlines};
use crate::queues::QueueBoard;
use crate::redact::Redaction;
use crate::trees::TreeBoard;
use crate::{api, cache};

/// An inspector over the store of a runtime, and what it may show and do.
///
/// # Examples
///
/// Behind the service's own login, for one tenant each, without what is secret:
///
/// ```
/// # use ferrata_core::runtime::Runtime;
/// # use ferrata_core::graph::Graph;
/// # use ferrata_core::state::Context;
/// use ferrata_inspector::{Inspector, Viewer};
///
/// # struct Session { user: String, tenant: ferrata_core::TenantId }
/// # fn mount(runtime: Runtime, graph: &Graph<Context>) -> axum::Router {
/// let inspector = Inspector::new(runtime)
///     .graph(graph)
///     .allow_host("ops.example.com")
///     .access(|request| {
///         let session = request.extensions.get::<Session>()?; // put there by the service's own layer
///         Some(Viewer::new().named(&session.user).of_tenant(session.tenant.clone()))
///     })
///     .redact("/card/number")
///     .allow_writes();
/// axum::Router::new().nest("/ferrata", inspector.into_router())
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct Inspector {
    runtime: Runtime,
    guard: Guard,
    access: Access,
    redaction: Redaction,
    outlines: Outlines,
    allows_writes: bool,
    options: String,
    ending: Option<watch::Receiver<bool>>,
}

impl Inspector {
    /// Makes an inspector that only reads, for clients of the same machine.
    pub fn new(runtime: Runtime) -> Self {
        Self {
            runtime,
            guard: Guard::default(),
            access: Access::default(),
            redaction: Redaction::default(),
            outlines: Outlines::default(),
            allows_writes: false,
            options: String::new(),
            ending: None,
        }
    }

    /// Shows the runs of a workflow over its whole graph, also the edges that were not taken.
    pub fn graph<S: State>(mut self, graph: &Graph<S>) -> Self {
        self.outlines.insert(graph.name().as_str(), Outline::of(graph));
        self
    }

    /// Asks for the outlines of graphs that [`graph`](Self::graph) was not given. It is asked for each run that is shown, and must not block for
    /// long.
    pub fn outlines(mut self, find: impl Fn(&RunHead) -> Option<Outline> + Send + Sync + 'static) -> Self {
        self.outlines.find_by(find);
        self
    }

    /// Lets viewers act: answer, send, retry, pause, cancel, edit, move, fork, purge; also on all runs that meet conditions.
    pub fn allow_writes(mut self) -> Self {
        self.allows_writes = true;
        self
    }

    /// Answers clients that reach it by this name, too, without a port. Requests for other names are refused, so that no page of another site can reach
    /// the inspector through a name that it points here.
    pub fn allow_host(mut self, host: impl Into<String>) -> Self {
        self.guard.hosts.insert(host.into().to_ascii_lowercase());
        self
    }

    /// Answers clients by whatever name they reach it: where a proxy before it checks names.
    pub fn allow_any_host(mut self) -> Self {
        self.guard.any_host = true;
        self
    }

    /// Answers only requests with this token, as `Authorization: Bearer TOKEN`. The page takes it from its address, behind `#token=`.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.guard.token = Some(token.into());
        self
    }

    /// Asks the service who sent a request to the API; none is refused with 401. The hook sees what layers around the router have put into the
    /// request's extensions.
    pub fn access(mut self, hook: impl Fn(&Parts) -> Option<Viewer> + Send + Sync + 'static) -> Self {
        self.access = Access::new(hook);
        self
    }

    /// Hides the value at this place of every state, as a JSON pointer in which `*` stands for any one name or number. What nodes say in notes,
    /// questions and errors is not of the state: [`redact_texts`](Self::redact_texts) looks into that.
    pub fn redact(mut self, path: impl AsRef<str>) -> Self {
        self.redaction.add(path.as_ref());
        self
    }

    /// Asks a hook what to show in the place of a text; `None` shows it as it is. It is asked before anything is cut, of every text, number and
    /// name of a field in a state, and of whatever nodes, callers and errors said: notes, reasons, questions, failures, labels, users, events and the
    /// post-mortem. Other words may stand in the same text, and it may be asked again of what it has answered.
    ///
    /// The names by which things are found are shown as they are: tenants, ids, workflows, nodes, questions and queues.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn mount(runtime: ferrata_core::runtime::Runtime) -> axum::Router {
    /// let inspector = ferrata_inspector::Inspector::new(runtime)
    ///     .redact_texts(|text| text.contains("token=").then(|| "[a text with a token]".to_owned()));
    /// # inspector.into_router()
    /// # }
    /// ```
    pub fn redact_texts(mut self, hook: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        self.redaction.add_hook(hook);
        self
    }

    /// Sets the options with which the commands on the page reach this store, as `--store postgres://db/app`.
    pub fn command_options(mut self, options: impl Into<String>) -> Self {
        self.options = options.into();
        self
    }

    /// Ends open event streams once this is true: a graceful shutdown of the server would wait for them.
    pub fn ending(mut self, ending: watch::Receiver<bool>) -> Self {
        self.ending = Some(ending);
        self
    }

    /// Makes the router. Nest it below a path, or serve it as it is.
    pub fn into_router(self) -> Router {
        let Self { runtime, guard, access, redaction, outlines, allows_writes, options, ending } = self;
        let (cache, clock) = (cache::Cache::default(), SystemClock::new());
        api::routes(Arc::new(App {
            runtime,
            guard,
            access,
            redaction,
            outlines,
            allows_writes,
            options,
            ending,
            cache,
            states: cache::Cache::of_states(),
            reasons: ReasonCache::new(),
            queues: QueueBoard::default(),
            trees: TreeBoard::default(),
            schedules: api::schedules::ScheduleBoard::default(),
            clock,
        }))
    }
}
