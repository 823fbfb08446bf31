//! Groups of children: one child for each item of a list.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::child_start::ChildSpec;
use super::error::ChildError;
use super::gather::ChildGather;
use super::names::ChildName;
use super::request::OnParentEnd;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::Graph;
use crate::kernel::inner::RuntimeInner;
use crate::node::NodeContext;
use crate::runtime::child_control::await_end::close;
use crate::runtime::requests::start_extras::StartExtras;
use crate::state::State;

/// The default maximum number of active children of a group.
const RUNNING: usize = 64;

/// A prepared start of several children: one child for each item of a list. `.await` starts the children and returns their final states in the order
/// of the items.
///
/// # Cancel safety
///
/// For each started child, the rules of [`ChildRequest`](crate::runtime::ChildRequest) apply.
#[must_use = "children start only when the future is awaited"]
pub struct ChildrenRequest<S: State> {
    cx: NodeContext,
    graph: Graph<S>,
    items: Vec<S>,
    name: Option<String>,
    labels: Vec<(String, String)>,
    given: StartExtras,
    bond: OnParentEnd,
    deadline: Option<Duration>,
    running: usize,
}

impl<S: State> ChildrenRequest<S> {
    /// Sets the names of the children. Each name is `name`, `-`, and the index of the item, counted from 0. By default `name` is the name of the
    /// workflow.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Adds a label to each child.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }

    /// Sets the configuration of each child, like [`ChildRequest::config`](crate::runtime::ChildRequest::config).
    pub fn config(mut self, config: impl serde::Serialize) -> Self {
        self.given.configure(&config);
        self
    }

    /// Sets whether the children are cancelled or continue if their activation or the parent run ends before them. The default is
    /// [`OnParentEnd::Cancel`].
    pub fn on_parent_end(mut self, what: OnParentEnd) -> Self {
        self.bond = what;
        self
    }

    /// Sets the maximum duration of each child, like [`ChildRequest::deadline`](crate::runtime::ChildRequest::deadline).
    pub fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(after);
        self
    }

    /// Sets the maximum number of active children, at least 1. The default is 64. When an active child ends, the next child starts.
    pub fn max_running(mut self, children: usize) -> Self {
        self.running = children.max(1);
        self
    }

    /// Starts the children and waits until all of them have ended. Returns the result of each child, in the order of the items.
    ///
    /// # Errors
    ///
    /// Returns [`ChildError::Refused`] if there are more items than an activation may have children. In this case no child was started.
    ///
    /// # Cancel safety
    ///
    /// For each started child, the rules of [`ChildRequest`](crate::runtime::ChildRequest) apply.
    pub async fn settle(self) -> Result<Vec<Result<S, ChildError>>, ChildError> {
        let mut kept: Vec<_> = self.items.iter().map(|_| None).collect();
        self.gather(false, |index, ended| {
            kept[index] = Some(ended);
            Ok(false)
        })
        .await?;
        Ok(kept.into_iter().flatten().collect())
    }

    /// Starts the children and waits until `count` children have completed. Returns the final states of these children, each at the index of its
    /// item. The other active children are then cancelled, and the call waits until they have ended, at most for the grace period. With
    /// [`OnParentEnd::Leave`] they continue instead. A child that is being started at that time may run until the activation ends. For the remaining
    /// items, no child is started.
    ///
    /// If the node runs again, the call returns the states of the same children.
    ///
    /// # Errors
    ///
    /// If so many children fail that `count` children can no longer complete, the call returns the last of these failures. It returns
    /// [`ChildError::Refused`] if `count` is 0 or larger than the number of items, or if there are more items than an activation may have children.
    /// In the case of `Refused`, no child was started.
    ///
    /// # Cancel safety
    ///
    /// For each started child, the rules of [`ChildRequest`](crate::runtime::ChildRequest) apply.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::node::NodeContext;
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::{Context, Draft};
    /// # use ferrata_core::store::MemoryStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let ask = Graph::<Context>::builder("ask").node("ask", async |_cx, s| Ok(s)).entry("ask").build()?;
    /// let child = ask.clone();
    /// let quorum = Graph::<Context>::builder("quorum")
    ///     .node("ask", move |cx: NodeContext, mut s: Draft<Context>| {
    ///         let child = child.clone();
    ///         async move {
    ///             let inputs = (0..5).map(|_| Context::new());
    ///             let first = cx.children(&child, inputs).at_least(3).await?;
    ///             s.set("answers", first.iter().flatten().count())?;
    ///             Ok(s)
    ///         }
    ///     })
    ///     .entry("ask")
    ///     .build()?;
    /// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// # runtime.serve(&ask)?;
    /// # let state = runtime.start(&quorum, Context::new()).await?.completed().await?;
    /// # assert_eq!(state.get::<u32>("answers")?, Some(3));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn at_least(self, count: usize) -> Result<Vec<Option<S>>, ChildError> {
        let items = self.items.len();
        if count == 0 || count > items {
            let message = format!("cannot wait for {count} of {items} children; wait for 1 to {items}");
            return Err(Error::new(ErrorKind::Invalid, message).with_node(self.cx.node()).into());
        }
        let mut kept: Vec<_> = self.items.iter().map(|_| None).collect();
        let (mut completed, mut failed) = (0, 0);
        self.gather(true, |index, ended| {
            match ended {
                Ok(state) => {
                    kept[index] = Some(state);
                    completed += 1;
                }
                Err(ChildError::Refused(error)) => return Err(error.into()),
                Err(error) => {
                    failed += 1;
                    if items - failed < count {
                        return Err(error);
                    }
                }
            }
            Ok(completed == count)
        })
        .await?;
        Ok(kept)
    }

    /// Starts the children in order, up to the maximum number of active children, and passes each result to `take`. An error of `take` ends the wait.
    /// If `enough` is set, `take` also ends the wait when it has enough results. The bond of the other children then decides whether they are
    /// cancelled or continue.
    async fn gather(
        self,
        enough: bool,
        mut take: impl FnMut(usize, Result<S, ChildError>) -> Result<bool, ChildError>,
    ) -> Result<(), ChildError> {
        let most = self.cx.most_children();
        if self.items.len() > most {
            let message = format!(
                "cannot start a child for each of {} items, because an activation can have at most {most} children; start children of \
                 children, or raise `max_children`",
                self.items.len()
            );
            return Err(Error::new(ErrorKind::Invalid, message).with_node(self.cx.node()).into());
        }
        let name = ChildName::of(self.name.as_deref(), self.graph.name());
        name.check_group(self.items.len()).map_err(|error| error.with_node(self.cx.node()))?;
        let cx = self.cx.grouped();
        let waiting = cx.wait_as_one();
        let (graph, labels, given, bond) = (&self.graph, &self.labels, &self.given, self.bond.into());
        let wanted = self.items.into_iter().enumerate().map(|(index, item)| {
            let mut wanted = ChildSpec::new(&cx, graph, item, bond);
            wanted.name = Some(name.of_item(index));
            wanted.labels.clone_from(labels);
            wanted.given.clone_from(given);
            wanted.deadline = self.deadline;
            wanted
        });
        let mut gather = ChildGather::new(&cx, &name.text, wanted, self.running, enough);
        loop {
            let came = gather.next().await;
            if came.is_empty() {
                return Ok(());
            }
            for (index, ended) in came {
                if take(index, ended)? {
                    let _working = cx.at_work();
                    drop(waiting);
                    let reason = format!("enough of the children `{}` have completed", name.text);
                    close(cx.shared()?, cx.scope_of_run(), gather.bound(), reason).await;
                    return Ok(());
                }
            }
        }
    }
}

impl<S: State> IntoFuture for ChildrenRequest<S> {
    type Output = Result<Vec<S>, ChildError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let mut kept: Vec<_> = self.items.iter().map(|_| None).collect();
            self.gather(false, |index, ended| {
                kept[index] = Some(ended?);
                Ok(false)
            })
            .await?;
            Ok(kept.into_iter().flatten().collect())
        })
    }
}

impl<S: State> fmt::Debug for ChildrenRequest<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ChildrenRequest");
        shown.field("workflow", self.graph.name()).field("items", &self.items.len()).finish_non_exhaustive()
    }
}

impl NodeContext {
    /// Starts a child for each input and waits for the final states of all children. This is the map step of a map-reduce. The states are returned in
    /// the order of the inputs. If a child fails, the call returns its error at once, and the other active children are cancelled when the activation
    /// ends. Use [`settle`](ChildrenRequest::settle) to get the result of every child.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::node::NodeContext;
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::{Context, Draft};
    /// # use ferrata_core::store::MemoryStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let square = Graph::<Context>::builder("square")
    ///     .node("square", async |_cx, mut s| {
    ///         let number: u32 = s.get("number")?.unwrap_or_default();
    ///         s.set("number", number * number)?;
    ///         Ok(s)
    ///     })
    ///     .entry("square")
    ///     .build()?;
    /// let child = square.clone();
    /// let sum = Graph::<Context>::builder("sum")
    ///     .node("map", move |cx: NodeContext, mut s: Draft<Context>| {
    ///         let child = child.clone();
    ///         async move {
    ///             let mut inputs = Vec::new();
    ///             for number in 1..=10 {
    ///                 let mut input = Context::new();
    ///                 input.set("number", number)?;
    ///                 inputs.push(input);
    ///             }
    ///             let mut sum = 0;
    ///             for squared in cx.children(&child, inputs).max_running(4).await? {
    ///                 sum += squared.get::<u32>("number")?.unwrap_or_default();
    ///             }
    ///             s.set("sum", sum)?;
    ///             Ok(s)
    ///         }
    ///     })
    ///     .entry("map")
    ///     .build()?;
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// runtime.serve(&square)?;
    /// runtime.serve(&sum)?;
    /// let state = runtime.start(&sum, Context::new()).await?.completed().await?;
    /// assert_eq!(state.get::<u32>("sum")?, Some(385));
    /// # Ok(())
    /// # }
    /// ```
    pub fn children<C: State>(
        &self,
        graph: &Graph<C>,
        inputs: impl IntoIterator<Item = C>,
    ) -> ChildrenRequest<C> {
        ChildrenRequest {
            cx: self.clone(),
            graph: graph.clone(),
            items: inputs.into_iter().collect(),
            name: None,
            labels: Vec::new(),
            given: StartExtras::default(),
            bond: OnParentEnd::Cancel,
            deadline: None,
            running: RUNNING,
        }
    }

    /// Returns the maximum number of children of an activation.
    fn most_children(&self) -> usize {
        self.shared().map_or(usize::MAX, |shared| shared.limits.max_children)
    }

    /// Returns the runtime that drives the run.
    ///
    /// # Errors
    ///
    /// Returns an error if this process no longer drives the run.
    pub(in crate::runtime) fn shared(&self) -> Result<Arc<RuntimeInner>> {
        self.host().runtime.upgrade().ok_or_else(|| self.not_driven_error())
    }
}
