//! The options of a watch of many runs: the query, the start and the filter.

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

/// A prepared watch of all runs that a query selects; `.await` starts it, and [`RunsWatch::next`] returns one event after the other.
///
/// It delivers the events of [`Runtime::watch`](crate::runtime::Runtime::watch) for each run, in any process, later runs included. A status
/// condition selects the records that leave the run in that status. Events of one run come in the order of its log, each once; between runs
/// there is no order. Children count as ordinary runs, with an empty path.
///
/// Without [`after`](Self::after) and [`from_now`](Self::from_now) it first delivers the remaining records of each run, run by run in the order
/// of their creation, and then later events.
///
/// # What a cursor promises
///
/// A watcher that continues at its [cursor](RunsWatch::cursor) receives each record once, if the record became visible in the store at most a
/// minute ([`visibility_delay`](Self::visibility_delay)) after its writer's timestamp. The difference between clocks and the duration of an append must not
/// exceed that. An open watch delivers later records, too, but a watch that reconnects does not. The same holds for imported runs.
///
/// If records were pruned before their delivery, the watcher receives [`Pruned`](crate::runtime::WatchEventKind::Pruned). A purged run has no
/// further events; a new run under its id starts from its beginning.
///
/// # Errors
///
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if a name in the query is invalid.
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

    /// Continues at the [cursor](RunsWatch::cursor) of another watch.
    pub fn after(mut self, seen: RunsCursor) -> Self {
        self.begin = RunsWatchStart::After(seen);
        self
    }

    /// Delivers only later records, by the clocks of the writers, and live events.
    pub fn from_now(mut self) -> Self {
        self.begin = RunsWatchStart::Now;
        self
    }

    /// Delivers only events of these kinds; further calls add kinds. Gap events always pass.
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = WatchKind>) -> Self {
        self.want.add_kinds(kinds);
        self
    }

    /// Restricts node events to this node, or to the nodes of the subgraph with this name; further calls add nodes. Events of the whole run
    /// always pass.
    pub fn node(mut self, node: impl Into<String>) -> Self {
        self.want.add_node(node.into());
        self
    }

    /// Adds the state change of each record.
    pub fn updates(mut self) -> Self {
        self.want.updates = true;
        self
    }

    /// Adds the whole state after each record that changed it.
    pub fn values(mut self) -> Self {
        self.want.values = true;
        self
    }

    /// Reveals the values of [secret](crate::state::Secrets) channels. By default, updates and values contain `…` instead.
    pub fn reveal_secrets(mut self) -> Self {
        self.want.reveals = true;
        self
    }

    /// Sets the maximum delay between a record's timestamp and its visibility. The default is a minute. A longer time tolerates more, and makes
    /// the cursor longer: it contains each run that was active within it.
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
