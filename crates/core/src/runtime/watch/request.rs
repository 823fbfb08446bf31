//! The request for a watch of one run, with the start position and the filter.

use std::collections::BTreeSet;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use super::stream::Watch;
use crate::error::Result;
use crate::id::RunKey;
use crate::kernel::feed::cursor::WatchCursor;
use crate::kernel::feed::watch_event::{RecordedEvent, WatchEventKind, WatchKind};
use crate::kernel::inner::RuntimeInner;

/// The start position of a watch.
#[derive(Clone, Debug, Default)]
pub(super) enum WatchStart {
    /// The watch starts at the oldest remaining record.
    #[default]
    Start,
    /// The watch yields only records that are appended after its start.
    Now,
    /// The watch continues after this cursor.
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

/// A prepared watch of a run. `.await` starts the watch, and [`Watch::next`] returns its events one after another.
///
/// By default the watch delivers all recorded events of the run, beginning with the oldest remaining record, until the run ends. While the run is
/// active in this process, it also delivers live events. If the run is active in another process, the watch receives chunks of
/// [streams](crate::node::NodeContext::stream) if the store relays them.
///
/// # Errors
///
/// - [`ErrorKind::NotFound`](crate::ErrorKind::NotFound): the run does not exist, or its log does not contain the record of the
///   [cursor](Self::after), because the run was purged and another run has its id.
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
/// let mut events = run.watch().await?;
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

    /// Starts the watch after the record with this number, or at the [cursor](Watch::cursor) of an earlier watch.
    ///
    /// If the run was purged and its id is used again, only a cursor detects this. Only a cursor has the positions of children.
    pub fn after(mut self, seen: impl Into<WatchCursor>) -> Self {
        self.from = WatchStart::After(seen.into());
        self
    }

    /// Delivers only events that happen after the start of the watch.
    pub fn from_now(mut self) -> Self {
        self.from = WatchStart::Now;
        self
    }

    /// Allows the watch to start before the run exists. The watch then waits for the start of the run, and receives all live events of the run in
    /// this process.
    pub fn before_start(mut self) -> Self {
        self.want.before_start = true;
        self
    }

    /// Delivers only events of these kinds. Further calls add kinds. Events that report missing events
    /// ([`Lagged`](crate::runtime::WatchEventKind::Lagged), [`Pruned`](crate::runtime::WatchEventKind::Pruned)) are always delivered.
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = WatchKind>) -> Self {
        self.want.add_kinds(kinds);
        self
    }

    /// Delivers the events of nodes only for this node, or for the nodes of the subgraph with this name. Further calls add nodes. Events that concern
    /// the whole run are always delivered.
    pub fn node(mut self, node: impl Into<String>) -> Self {
        self.want.add_node(node.into());
        self
    }

    /// Delivers only events of the run at this [path](crate::runtime::WatchEvent::path) in the run tree, and of its descendants.
    pub fn under(mut self, path: impl Into<String>) -> Self {
        self.want.under = Some(path.into());
        self
    }

    /// Delivers only events of runs in the run tree that have this label. After several calls, a run must have all of the labels.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.want.labels.push((key.into(), value.into()));
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

    /// Makes [updates](Self::updates) and [values](Self::values) contain the values of [secret](crate::state::Secrets) channels. By default they
    /// contain `…` instead.
    pub fn reveal_secrets(mut self) -> Self {
        self.want.reveals = true;
        self
    }

    /// Also delivers the events of all descendants of the run, except detached runs. The events of a child come after the record of the parent that
    /// starts the child, and before the record of the parent that contains its end.
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
