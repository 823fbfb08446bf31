//! The request for a watch of many runs, with the query, the start position and the filter.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::super::relay;
use super::super::request::WatchFilter;
use super::super::watch_event::WatchKind;
use super::cursor::RunsCursor;
use super::positions::RunsWatchStart;
use super::stream::RunsWatch;
use crate::error::Result;
use crate::record::RunStatus;
use crate::runtime::shared::RuntimeInner;
use crate::store::RunQuery;

/// The default maximum delay, by the writer's clock, until a record becomes visible and still reaches a watcher that reconnects.
const SETTLES: Duration = Duration::from_secs(60);

/// A prepared watch of all runs that a query selects. `.await` starts the watch, and [`RunsWatch::next`] returns its events one after another.
///
/// The watch delivers, for each selected run, the events that [`Runtime::watch`](crate::runtime::Runtime::watch) delivers. The runs may be active in
/// any process, and may start later. If the query has a status, only records after which the run has this status are delivered. The events of one run
/// arrive once each and in the order of its log. Events of different runs have no order. Children are treated like other runs, and their path is
/// empty.
///
/// Without [`after`](Self::after) and [`from_now`](Self::from_now), the watch first delivers the remaining records of all selected runs, one run
/// after another in the order of their creation. Then it delivers later events.
///
/// # What a cursor promises
///
/// A watcher that continues at its [cursor](RunsWatch::cursor) receives each record once, if the record became visible in the store at most a minute
/// ([`visibility_delay`](Self::visibility_delay)) after the time in the record. So the difference between the clocks of two processes, plus the
/// duration of an append, must not be more than this delay. If a record becomes visible later, a watch that is open delivers it, but a watch that
/// reconnects may not. The same rule applies to imported runs.
///
/// If records were pruned before they were delivered, the watcher receives [`Pruned`](crate::runtime::WatchEventKind::Pruned). After a purge, a run
/// has no further events. If a new run has the same id, its events are delivered from its beginning.
///
/// # Errors
///
/// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if a name in the query is invalid.
///
/// # Cancel safety
///
/// Cancel safe: the call changes nothing.
///
/// # Examples
///
/// ```
/// use ferrata_core::graph::Graph;
/// use ferrata_core::runtime::{Runtime, WatchKind};
/// use ferrata_core::state::Context;
/// use ferrata_core::store::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let graph = Graph::<Context>::builder("greet").node("hello", async |_cx, s| Ok(s)).entry("hello").build()?;
/// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
/// let mut ends = runtime.runs().workflow("greet").watch().kinds([WatchKind::NodeCompleted]).await?;
/// for id in ["ann", "bob"] {
///     runtime.start(&graph, Context::new()).id(id).await?.completed().await?;
/// }
/// let mut told = [ends.next().await?.run.to_string(), ends.next().await?.run.to_string()];
/// told.sort();
/// assert_eq!(told, ["default/ann", "default/bob"]);
/// // A watcher that was away continues after the last event that it saw. The cursor is text that can be stored anywhere.
/// let seen = ends.cursor().to_string();
/// let _rest = runtime.runs().workflow("greet").watch().after(seen.parse()?).await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a watch begins only when the future is awaited"]
pub struct RunsWatchRequest {
    shared: Arc<RuntimeInner>,
    query: Result<RunQuery>,
    begin: RunsWatchStart,
    want: WatchFilter,
    settles: Duration,
}

impl RunsWatchRequest {
    pub(crate) fn new(shared: &Arc<RuntimeInner>, query: Result<RunQuery>) -> Self {
        let (begin, want) = (RunsWatchStart::default(), WatchFilter::default());
        Self { shared: Arc::clone(shared), query, begin, want, settles: SETTLES }
    }

    /// Continues at the [cursor](RunsWatch::cursor) of an earlier watch.
    pub fn after(mut self, seen: RunsCursor) -> Self {
        self.begin = RunsWatchStart::After(seen);
        self
    }

    /// Delivers only records whose time is after the start of the watch, by the clocks of their writers, and live events.
    pub fn from_now(mut self) -> Self {
        self.begin = RunsWatchStart::Now;
        self
    }

    /// Delivers only events of these kinds. Further calls add kinds. Events that report missing events are always delivered.
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = WatchKind>) -> Self {
        self.want.add_kinds(kinds);
        self
    }

    /// Delivers the events of nodes only for this node, or for the nodes of the subgraph with this name. Further calls add nodes. Events that concern
    /// a whole run are always delivered.
    pub fn node(mut self, node: impl Into<String>) -> Self {
        self.want.add_node(node.into());
        self
    }

    /// For each record, also delivers the change of the state as an event.
    pub fn updates(mut self) -> Self {
        self.want.updates = true;
        self
    }

    /// After each record that changed the state, also delivers the whole state as an event.
    pub fn values(mut self) -> Self {
        self.want.values = true;
        self
    }

    /// Makes updates and values contain the values of [secret](crate::state::Secrets) channels. By default they contain `…` instead.
    pub fn reveal_secrets(mut self) -> Self {
        self.want.reveals = true;
        self
    }

    /// Sets the maximum delay between the time in a record and the moment when the record becomes visible in the store. The default is a minute. With
    /// a longer delay, the watch tolerates larger clock differences and slower appends, but its cursor is longer, because it contains each run that
    /// was active within this time.
    pub fn visibility_delay(mut self, time: Duration) -> Self {
        self.settles = time;
        self
    }
}

impl IntoFuture for RunsWatchRequest {
    type Output = Result<RunsWatch>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { shared, query, begin, want, settles } = self;
        Box::pin(async move {
            let mut query = query?;
            let statuses: Vec<RunStatus> = std::mem::take(&mut query.statuses);
            let watch = RunsWatch::begin(Arc::clone(&shared), query, statuses, begin, want, settles);
            relay::announced(&shared).await;
            Ok(watch)
        })
    }
}

impl fmt::Debug for RunsWatchRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunsWatchRequest")
            .field("query", &self.query)
            .field("begin", &self.begin)
            .field("want", &self.want)
            .finish_non_exhaustive()
    }
}
