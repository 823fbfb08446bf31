//! What a caller asks to watch of many runs: which, from when on, and what of them.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::super::relay;
use super::super::request::WatchFilter;
use super::super::what::WatchKind;
use super::cursor::RunsCursor;
use super::places::Begin;
use super::stream::RunsWatch;
use crate::error::Result;
use crate::record::RunStatus;
use crate::runtime::shared::RuntimeInner;
use crate::store::RunQuery;

/// How late a record may become visible, by the clock of its writer, and be told after a watcher came back.
const SETTLES: Duration = Duration::from_secs(60);

/// A watch of all runs that a query selects, being prepared; `.await` begins it, and [`RunsWatch::next`] returns one event after the other.
///
/// It tells what [`Runtime::watch`](crate::runtime::Runtime::watch) tells of each of the runs, whichever process drives them, and of runs
/// that begin later. Of a status, it tells the records that leave the run in that status. Events of one run come in the order of its log,
/// each once; between runs there is no order. Children are runs as others: they are told if the query selects them, with an empty path.
///
/// Without [`after`](Self::after) and [`from_now`](Self::from_now) it first tells what is kept of each run, one run after the other in the
/// order of their creation, and then what happens.
///
/// # What a cursor promises
///
/// A watcher that goes on with its [cursor](RunsWatch::cursor) is told each record of a run once, if the record became visible in the store
/// no later than a minute ([`settles_in`](Self::settles_in)) after the time that its writer put on it: the clocks of processes and the time
/// that an append takes must not differ by more than that. One that is later is told by a watch that is open, but not by one that comes
/// back. The same holds for a run that was imported with its records.
///
/// What a watcher had not seen when it was pruned is told as [`Pruned`](crate::runtime::WatchEventKind::Pruned). A run that was purged is not told any
/// more; another that was started under its name is told from its start.
///
/// # Errors
///
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if a name in the query is none.
///
/// # Cancel safety
///
/// Cancel safe: nothing is changed.
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
/// // Who was away goes on behind what was seen, with a text that can be kept anywhere.
/// let seen = ends.cursor().to_string();
/// let _rest = runtime.runs().workflow("greet").watch().after(seen.parse()?).await?;
/// # Ok(())
/// # }
/// ```
///
/// <!-- held by: watching_runs::a_watcher_of_runs_that_drops_out_anywhere_misses_nothing_and_hears_nothing_twice -->
#[must_use = "a watch begins when it is awaited"]
pub struct RunsWatchRequest {
    shared: Arc<RuntimeInner>,
    query: Result<RunQuery>,
    begin: Begin,
    want: WatchFilter,
    settles: Duration,
}

impl RunsWatchRequest {
    pub(crate) fn new(shared: &Arc<RuntimeInner>, query: Result<RunQuery>) -> Self {
        let (begin, want) = (Begin::default(), WatchFilter::default());
        Self { shared: Arc::clone(shared), query, begin, want, settles: SETTLES }
    }

    /// Goes on where another watch [stood](RunsWatch::cursor).
    pub fn after(mut self, seen: RunsCursor) -> Self {
        self.begin = Begin::After(seen);
        self
    }

    /// Tells only what is recorded from now on, by the clocks of the writers, and what is heard.
    pub fn from_now(mut self) -> Self {
        self.begin = Begin::Now;
        self
    }

    /// Tells only events of these kinds; called again, of these as well. What tells of a gap is told in any case.
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = WatchKind>) -> Self {
        self.want.add_kinds(kinds);
        self
    }

    /// Tells, of what is about a node, only what is about this one, or about the nodes of the subgraph of this name; called again, of
    /// this one as well. What is about the whole run is told in any case.
    pub fn node(mut self, node: impl Into<String>) -> Self {
        self.want.add_node(node.into());
        self
    }

    /// Also tells how each record changed the state.
    pub fn updates(mut self) -> Self {
        self.want.updates = true;
        self
    }

    /// Also tells the whole state after each record that changed it.
    pub fn values(mut self) -> Self {
        self.want.values = true;
        self
    }

    /// Tells the values of [secret](crate::state::Secrets) channels as well: updates and values hold `…` in their place unless this is asked for.
    ///
    /// <!-- held by: secrets::a_secret_is_in_no_view_of_a_run -->
    pub fn reveal_secrets(mut self) -> Self {
        self.want.reveals = true;
        self
    }

    /// Sets how much later than its writer's time a record may become visible: a minute, unless this says otherwise. A longer time forgives
    /// more, and makes the cursor longer: it names each run that did something within it.
    pub fn settles_in(mut self, time: Duration) -> Self {
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
