//! The options of a watch: the run, the start position and the filter.

use std::collections::BTreeSet;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use super::cursor::WatchCursor;
use super::stream::Watch;
use super::watch_event::{RecordedEvent, WatchEventKind, WatchKind};
use crate::error::Result;
use crate::id::RunKey;
use crate::runtime::shared::RuntimeInner;

/// The start position of a watch.
#[derive(Clone, Debug, Default)]
pub(super) enum WatchStart {
    /// The oldest remaining record.
    #[default]
    Start,
    /// Only later records.
    Now,
    /// After this cursor.
    After(WatchCursor),
}

/// The filter of a watch.
#[derive(Clone, Debug, Default)]
pub(super) struct WatchFilter {
    kinds: Option<BTreeSet<WatchKind>>,
    nodes: Vec<String>,
    under: Option<String>,
    pub(super) labels: Vec<(String, String)>,
    pub(super) updates: bool,
    pub(super) values: bool,
    /// Whether to include values of secret channels.
    pub(super) reveals: bool,
    pub(super) children: bool,
    /// Whether the run may not exist yet.
    pub(super) before_start: bool,
}

impl WatchFilter {
    /// Adds these kinds to the filter.
    pub(super) fn add_kinds(&mut self, kinds: impl IntoIterator<Item = WatchKind>) {
        self.kinds.get_or_insert_default().extend(kinds);
    }

    /// Adds this node to the filter.
    pub(super) fn add_node(&mut self, node: String) {
        self.nodes.push(node);
    }

    /// Returns whether the filter passes chunks of streams that are not durable.
    pub(super) fn hears_chunks(&self) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&WatchKind::Chunk))
    }

    /// Returns whether the filter passes an event of the run at this path.
    pub(super) fn passes(&self, path: &str, what: &WatchEventKind) -> bool {
        let is_of_kind = match what {
            // Gap events pass every filter.
            WatchEventKind::Lagged { .. } | WatchEventKind::Pruned { .. } => return true,
            WatchEventKind::Recorded(RecordedEvent::Update { .. }) => self.updates,
            WatchEventKind::Recorded(RecordedEvent::Value { .. }) => self.values,
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

/// A prepared watch; `.await` starts it, and [`Watch::next`] returns one event after the other.
///
/// By default it delivers all recorded events of the run from the oldest remaining record on, and live events while the run is active in this
/// process, until the run ends. If the run is active in another process, it receives chunks of [streams](crate::node::NodeContext::stream) if
/// the store relays them.
///
/// # Errors
///
/// - [`ErrorKind::NotFound`](crate::ErrorKind::NotFound): no such run, or its log lacks the record of the [cursor](Self::after), because the run
///   was purged and its id is in use again.
/// - The errors of the store.
///
/// # Cancel safety
///
/// Cancel safe: the call changes nothing.
///
/// # Examples
///
/// ```
/// use ferrata_core::graph::Graph;
/// use ferrata_core::runtime::{RecordedEvent, Runtime, WatchEventKind};
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
///     if let WatchEventKind::Recorded(RecordedEvent::NodeCompleted { node, .. }) = event.what {
///         completed.push((event.seq, node.to_string()));
///     }
/// }
/// assert_eq!(completed, [(Some(ferrata_core::Seq::new(1)), "hello".to_owned())]);
/// // A watcher that was away continues after the last event that it saw.
/// let mut rest = runtime.watch(run.run()).after(events.cursor()).await?;
/// assert!(rest.next().await?.is_none());
/// # Ok(())
/// # }
/// ```
#[must_use = "a watch begins only when the future is awaited"]
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

    /// Continues after a record number, or at the [cursor](Watch::cursor) of another watch.
    ///
    /// A number does not distinguish generations of the run and has no positions of children; a cursor does both.
    pub fn after(mut self, seen: impl Into<WatchCursor>) -> Self {
        self.from = WatchStart::After(seen.into());
        self
    }

    /// Delivers only later events.
    pub fn from_now(mut self) -> Self {
        self.from = WatchStart::Now;
        self
    }

    /// Starts before the run exists, and waits for it. A watch from before the start also receives all live events.
    pub fn before_start(mut self) -> Self {
        self.want.before_start = true;
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

    /// Delivers only events of runs at or below this [path](super::WatchEvent::path) in the run tree.
    pub fn under(mut self, path: impl Into<String>) -> Self {
        self.want.under = Some(path.into());
        self
    }

    /// Delivers only events of runs in the tree with this label; further calls add required labels.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.want.labels.push((key.into(), value.into()));
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

    /// Reveals the values of [secret](crate::state::Secrets) channels. By default, [updates](Self::updates) and [values](Self::values) contain
    /// `…` instead.
    pub fn reveal_secrets(mut self) -> Self {
        self.want.reveals = true;
        self
    }

    /// Adds the events of all descendants, except spawned runs. A child's events come after the record that starts it and before the record of
    /// its end.
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
