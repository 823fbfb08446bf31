//! What a caller asks to watch: which run, from where on, and what of it.

use std::collections::BTreeSet;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use super::cursor::WatchCursor;
use super::stream::Watch;
use super::what::{Recorded, WatchEventKind, WatchKind};
use crate::error::Result;
use crate::id::RunKey;
use crate::runtime::shared::RuntimeInner;

/// From where on a run is told.
#[derive(Clone, Debug, Default)]
pub(super) enum WatchStart {
    /// From the oldest record that is kept.
    #[default]
    Start,
    /// Only what is recorded from now on.
    Now,
    /// From behind this.
    After(WatchCursor),
}

/// What of a run is told.
#[derive(Clone, Debug, Default)]
pub(super) struct WatchFilter {
    kinds: Option<BTreeSet<WatchKind>>,
    nodes: Vec<String>,
    under: Option<String>,
    pub(super) labels: Vec<(String, String)>,
    pub(super) updates: bool,
    pub(super) values: bool,
    /// Whether values of secret channels are told, too.
    pub(super) reveals: bool,
    pub(super) children: bool,
    /// Whether the run need not exist yet.
    pub(super) before_start: bool,
}

impl WatchFilter {
    /// Wants events of these kinds, too.
    pub(super) fn add_kinds(&mut self, kinds: impl IntoIterator<Item = WatchKind>) {
        self.kinds.get_or_insert_default().extend(kinds);
    }

    /// Wants what is about this node, too.
    pub(super) fn add_node(&mut self, node: String) {
        self.nodes.push(node);
    }

    /// Whether chunks of streams are wanted that are not recorded.
    pub(super) fn hears_chunks(&self) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&WatchKind::Chunk))
    }

    /// Whether an event of a run at this place in the family is to be told.
    pub(super) fn wants(&self, path: &str, what: &WatchEventKind) -> bool {
        let is_of_kind = match what {
            // They say what is missing, whatever is asked for.
            WatchEventKind::Lagged { .. } | WatchEventKind::Pruned { .. } => return true,
            WatchEventKind::Recorded(Recorded::Update { .. }) => self.updates,
            WatchEventKind::Recorded(Recorded::Value { .. }) => self.values,
            _ => self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&what.kind())),
        };
        let is_below = |whole: &str, top: &str| {
            whole.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        is_of_kind
            && self.under.as_deref().is_none_or(|under| under.is_empty() || is_below(path, under))
            && (self.nodes.is_empty()
                || what
                    .activation()
                    .is_none_or(|(node, _)| self.nodes.iter().any(|wanted| is_below(node.as_str(), wanted))))
    }
}

/// A watch that is being prepared; `.await` begins it, and [`Watch::next`] returns one event after the other.
///
/// Unless more is asked for, it tells everything that is recorded of the run from the oldest record that is kept on, and what is heard of
/// it while it goes on in this process, until the run has ended. Where the run goes on elsewhere, chunks of its
/// [streams](crate::node::NodeContext::stream) are heard if the store passes them on.
///
/// # Errors
///
/// - [`ErrorKind::NotFound`](crate::ErrorKind::NotFound): there is no such run, or its log has no such record as the
///   [cursor](Self::after) names: it was purged and another was started under its name.
/// - What the store says.
///
/// # Cancel safety
///
/// Cancel safe: nothing is changed.
///
/// # Examples
///
/// ```
/// use ferrata_core::graph::Graph;
/// use ferrata_core::runtime::{Recorded, Runtime, WatchEventKind};
/// use ferrata_core::state::Context;
/// use ferrata_core::store::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let graph = Graph::<Context>::builder("greet").node("hello", async |_cx, s| Ok(s)).entry("hello").build()?;
/// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
/// let run = runtime.start(&graph, Context::new()).await?;
/// let mut events = run.events().await?;
/// let mut completed = Vec::new();
/// while let Some(event) = events.next().await? {
///     if let WatchEventKind::Recorded(Recorded::NodeCompleted { node, .. }) = event.what {
///         completed.push((event.seq, node.to_string()));
///     }
/// }
/// assert_eq!(completed, [(Some(ferrata_core::Seq::new(1)), "hello".to_owned())]);
/// // Who was away goes on behind what was seen.
/// let mut rest = runtime.watch(run.run()).after(events.cursor()).await?;
/// assert!(rest.next().await?.is_none());
/// # Ok(())
/// # }
/// ```
///
/// <!-- held by: watching::a_watcher_that_drops_out_anywhere_misses_nothing_and_hears_nothing_twice -->
#[must_use = "a watch begins when it is awaited"]
pub struct WatchRequest {
    shared: Arc<RuntimeInner>,
    run: RunKey,
    from: WatchStart,
    want: WatchFilter,
}

impl WatchRequest {
    pub(crate) fn new(shared: &Arc<RuntimeInner>, run: &RunKey) -> Self {
        Self {
            shared: Arc::clone(shared),
            run: run.clone(),
            from: WatchStart::default(),
            want: WatchFilter::default(),
        }
    }

    /// Goes on behind what was seen: behind a record by its number, or where another watch [stood](Watch::cursor).
    ///
    /// A number does not tell one life of the run from another, and says nothing of children; the cursor of a watch does.
    pub fn after(mut self, seen: impl Into<WatchCursor>) -> Self {
        self.from = WatchStart::After(seen.into());
        self
    }

    /// Tells only what happens from now on.
    pub fn from_now(mut self) -> Self {
        self.from = WatchStart::Now;
        self
    }

    /// Begins although there is no such run yet, and waits for it: who watches before the start hears everything that is only heard, too.
    pub fn before_start(mut self) -> Self {
        self.want.before_start = true;
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

    /// Tells only of the runs of the family at this [path](super::WatchEvent::path) and below it.
    pub fn under(mut self, path: impl Into<String>) -> Self {
        self.want.under = Some(path.into());
        self
    }

    /// Tells only of the runs of the family with this label; called again, with both.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.want.labels.push((key.into(), value.into()));
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

    /// Tells the values of [secret](crate::state::Secrets) channels as well: [updates](Self::updates) and [values](Self::values) hold `…` in
    /// their place unless this is asked for.
    ///
    /// <!-- held by: secrets::a_secret_is_in_no_view_of_a_run -->
    pub fn reveal_secrets(mut self) -> Self {
        self.want.reveals = true;
        self
    }

    /// Also tells of the run's children, of theirs, and so on; not of spawned runs. What a child says is told after the record with
    /// which it began and before the record that tells its end.
    pub fn children(mut self) -> Self {
        self.want.children = true;
        self
    }
}

impl IntoFuture for WatchRequest {
    type Output = Result<Watch>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { shared, run, from, want } = self;
        Box::pin(Watch::begin(shared, run, from, want))
    }
}

impl fmt::Debug for WatchRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchRequest")
            .field("run", &self.run)
            .field("from", &self.from)
            .field("want", &self.want)
            .finish_non_exhaustive()
    }
}
