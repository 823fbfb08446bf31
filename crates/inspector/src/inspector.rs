//! The inspector and its settings: which data is visible, who the viewers are, and which acts are allowed.

use std::sync::Arc;

use axum::Router;
use axum::http::request::Parts;
use ferrata_core::SystemClock;
use ferrata_core::graph::Graph;
use ferrata_core::runtime::{ReasonCache, Runtime};
use ferrata_core::state::State;
use ferrata_core::store::RunHead;
use tokio::sync::watch;

use crate::access::{Viewer, ViewerHook};
use crate::app::AppContext;
use crate::guard::Guard;
use crate::outline::{Outline, OutlineLookup};
use crate::queues::QueueBoard;
use crate::redact::Redaction;
use crate::trees::TreeBoard;
use crate::{api, cache};

/// An inspector of a runtime's store. Its settings determine the visible data and the allowed acts.
///
/// # Examples
///
/// An inspector behind the service's own login, where each viewer sees one tenant and secrets are hidden:
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
    access: ViewerHook,
    redaction: Redaction,
    outlines: OutlineLookup,
    allows_writes: bool,
    options: String,
    ending: Option<watch::Receiver<bool>>,
}

impl Inspector {
    /// Creates a read-only inspector that only clients on the same machine can use.
    pub fn new(runtime: Runtime) -> Self {
        Self {
            runtime,
            guard: Guard::default(),
            access: ViewerHook::default(),
            redaction: Redaction::default(),
            outlines: OutlineLookup::default(),
            allows_writes: false,
            options: String::new(),
            ending: None,
        }
    }

    /// Shows the runs of a workflow with the whole graph, including edges that a run has not taken.
    pub fn graph<S: State>(mut self, graph: &Graph<S>) -> Self {
        self.outlines.insert(graph.name().as_str(), Outline::of(graph));
        self
    }

    /// Sets a hook that returns outlines of graphs other than those that [`graph`](Self::graph) added. The inspector calls the hook for each
    /// displayed run, so the hook must not block for long.
    pub fn outlines(mut self, find: impl Fn(&RunHead) -> Option<Outline> + Send + Sync + 'static) -> Self {
        self.outlines.find_by(find);
        self
    }

    /// Allows viewers to act: answer, send, retry, pause, cancel, edit, move, fork and purge. Viewers may also act on all runs that match a filter.
    pub fn allow_writes(mut self) -> Self {
        self.allows_writes = true;
        self
    }

    /// Accepts requests with this host name, given without a port. The inspector rejects other names, so that no page of another site can reach it
    /// through a name that resolves to this machine.
    pub fn allow_host(mut self, host: impl Into<String>) -> Self {
        self.guard.hosts.insert(host.into().to_ascii_lowercase());
        self
    }

    /// Accepts requests with any host name. Use it behind a proxy that checks host names.
    pub fn allow_any_host(mut self) -> Self {
        self.guard.any_host = true;
        self
    }

    /// Requires this token in every request, as `Authorization: Bearer TOKEN`. The page reads the token from its own address, after `#token=`.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.guard.token = Some(token.into());
        self
    }

    /// Sets a hook that identifies the sender of an API request. If the hook returns `None`, the inspector rejects the request with status 401. The
    /// hook sees the request extensions that outer layers have set.
    pub fn access(mut self, hook: impl Fn(&Parts) -> Option<Viewer> + Send + Sync + 'static) -> Self {
        self.access = ViewerHook::new(hook);
        self
    }

    /// Hides a value in every state. `path` is a JSON pointer, in which `*` matches any name or number. Notes, questions and errors are not part of
    /// the state; [`redact_texts`](Self::redact_texts) hides them.
    pub fn redact(mut self, path: impl AsRef<str>) -> Self {
        self.redaction.add(path.as_ref());
        self
    }

    /// Sets a hook that returns a replacement for a text, or `None` to show the text. The inspector calls the hook for every text, number and field
    /// name in a state, and for notes, reasons, questions, failures, labels, users, events and the post-mortem. The hook gets each text before the
    /// inspector shortens it. A text may contain other words around the secret, and the hook may get its own replacement as input.
    ///
    /// Identifiers are never hidden: tenants, ids, workflows, nodes, questions and queues.
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

    /// Sets the options that address this store in the commands that the page shows, such as `--store postgres://db/app`.
    pub fn command_options(mut self, options: impl Into<String>) -> Self {
        self.options = options.into();
        self
    }

    /// Ends open event streams when `ending` becomes true. Without it, a graceful shutdown of the server would wait for these streams.
    pub fn ending(mut self, ending: watch::Receiver<bool>) -> Self {
        self.ending = Some(ending);
        self
    }

    /// Creates the router. Nest the router below a path, or serve it alone.
    pub fn into_router(self) -> Router {
        let Self { runtime, guard, access, redaction, outlines, allows_writes, options, ending } = self;
        let (cache, clock) = (cache::AnswerCache::default(), SystemClock::new());
        api::routes(Arc::new(AppContext {
            runtime,
            guard,
            access,
            redaction,
            outlines,
            allows_writes,
            options,
            ending,
            cache,
            states: cache::AnswerCache::of_states(),
            reasons: ReasonCache::new(),
            queues: QueueBoard::default(),
            trees: TreeBoard::default(),
            schedules: api::schedules::ScheduleBoard::default(),
            clock,
        }))
    }
}
