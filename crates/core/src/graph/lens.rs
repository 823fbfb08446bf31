//! Lenses, which map the state of a graph to the state of a subgraph and back.

use std::fmt;
use std::sync::Arc;

use crate::graph::typed::{NodeFunctions, Predicate};
use crate::node::{NodeContext, StartWork, Work};
use crate::state::{ChannelSpec, Context, Draft, PatchWriter, Schema, State, Update};

/// The mapping between the state `P` of a subgraph and the state `S` of the graph around it. Cheap to clone.
///
/// A node of the subgraph receives `P`, the current part of the outer state. When the node ends, the runtime compares the part with the original, as
/// for an edited [`Draft`], and applies the changes to the outer state by the reducers of the **outer** channels. The runtime does not write channels
/// that the node left unchanged, so concurrent nodes outside of the subgraph may write them.
///
/// The two functions of a lens must fit: `put` after `get` changes nothing, and `get` after `put` returns the value that was put. Both functions must
/// depend only on their arguments, because the runtime may call them again for the same activation.
///
/// | lens | the part is | two nodes of the subgraph at once |
/// |---|---|---|
/// | [`whole`](Self::whole) | the outer state | as in one graph |
/// | [`new`](Self::new) | made of some channels, and written back to them | as in one graph, if channels and reducers fit |
/// | [`keys`](Self::keys) | the keys of a [`Context`] with a prefix | as in one graph |
/// | [`field`](Self::field) | one field, and so one channel | both writing is an error, as for any channel without a reducer |
///
/// # Examples
///
/// ```
/// use ferrata_core::graph::{Graph, Lens};
/// use ferrata_core::state::{Context, Reducer};
///
/// let review = Graph::<Context>::builder("review")
///     .channel("notes", Reducer::Append)
///     .node("lint", async |_cx, _s| Ok(Context::update().append("notes", ["lint: fine"])))
///     .entry("lint")
///     .build()?;
/// let graph = Graph::<Context>::builder("article")
///     .node("write", async |_cx, s| Ok(s))
///     .subgraph("review", &review, Lens::keys("review."))
///     .entry("write")
///     .edge("write", "review")
///     .build()?;
/// assert_eq!(graph.node_names().map(|name| name.as_str()).collect::<Vec<_>>(), ["write", "review/lint"]);
/// assert_eq!(graph.schema().reducer("review.notes"), &Reducer::Append);
/// # Ok::<(), ferrata_core::graph::GraphError>(())
/// ```
pub struct Lens<S: State, P: State>(Arc<LensParts<S, P>>);

struct LensParts<S: State, P: State> {
    get: LensGetter<S, P>,
    put: Box<Put<S, P>>,
    /// The direct mapping, if the part is the whole outer state.
    same: Option<IdentityLens<S, P>>,
    /// Computes the channels of the outer state that the lens declares, from the channels of the part.
    declares: Option<Box<Declare>>,
    /// The prefix of the part's keys, if the part consists of keys.
    prefix: Option<String>,
}

type Put<S, P> = dyn Fn(&mut S, P) + Send + Sync;
type Declare = dyn Fn(&Schema) -> Vec<ChannelSpec> + Send + Sync;

enum LensGetter<S, P> {
    Lent(Box<dyn Fn(&S) -> &P + Send + Sync>),
    Made(Box<dyn Fn(&S) -> P + Send + Sync>),
}

/// The direct mapping of drafts and updates if both states have the same type.
struct IdentityLens<S: State, P: State> {
    draft: fn(Draft<S>) -> Draft<P>,
    update: fn(Update<P>) -> Update<S>,
}

impl<S: State, P: State> Lens<S, P> {
    /// Creates a lens for several channels of the outer state: `get` reads the part, and `put` writes it back.
    ///
    /// Map each channel of the part to a channel of the outer state with the same reducer. Then several nodes of the subgraph can write concurrently,
    /// as they could without a lens. A channel of a [`Context`] that the outer graph does not declare has no reducer, whatever the subgraph declares.
    pub fn new(
        get: impl Fn(&S) -> P + Send + Sync + 'static,
        put: impl Fn(&mut S, P) + Send + Sync + 'static,
    ) -> Self {
        Self::of(LensGetter::Made(Box::new(get)), put)
    }

    /// Creates a lens for one field.
    ///
    /// The field is one channel of the outer state, and each change stores the whole field. If two nodes of the subgraph change the field
    /// concurrently, the run fails, even if the fields of the part have reducers. Use this lens for subgraphs in which one node runs at a time.
    /// Ephemeral channels of the part are lost, because the field is stored as a whole.
    pub fn field(
        get: impl Fn(&S) -> &P + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut P + Send + Sync + 'static,
    ) -> Self {
        Self::of(LensGetter::Lent(Box::new(get)), move |state, mut part| {
            part.forget_ephemeral();
            *get_mut(state) = part;
        })
    }

    fn of(get: LensGetter<S, P>, put: impl Fn(&mut S, P) + Send + Sync + 'static) -> Self {
        Self(Arc::new(LensParts { get, put: Box::new(put), same: None, declares: None, prefix: None }))
    }

    /// Returns the channels of the outer state that the lens declares.
    pub(super) fn channels(&self, part: &Schema) -> Vec<ChannelSpec> {
        self.0.declares.as_ref().map(|declare| declare(part)).unwrap_or_default()
    }

    /// Returns the prefix of the part's keys, if the part consists of keys.
    pub(super) fn prefix(&self) -> Option<&str> {
        self.0.prefix.as_deref()
    }

    /// Calls `read` with the part of the state.
    fn read<R>(&self, state: &S, read: impl FnOnce(&P) -> R) -> R {
        match &self.0.get {
            LensGetter::Lent(get) => read(get(state)),
            LensGetter::Made(get) => read(&get(state)),
        }
    }

    /// Converts a condition on the part to a condition on the outer state.
    pub(super) fn predicate(&self, holds: &Arc<Predicate<P>>) -> Arc<Predicate<S>> {
        let (lens, holds) = (self.clone(), Arc::clone(holds));
        Arc::new(move |state| lens.read(state, |part| holds(part)))
    }

    /// Converts the functions of a node of the subgraph to functions over the outer state. `path` is the prefix of the names of the subgraph's nodes.
    pub(super) fn behaviour(&self, own: &NodeFunctions<P>, schema: &Schema, path: &str) -> NodeFunctions<S> {
        let node = EmbeddedNode { node: Arc::clone(&own.node), lens: self.clone(), schema: schema.clone() };
        let route = own.route.as_ref().map(|choose| {
            let (lens, choose, path) = (self.clone(), Arc::clone(choose), path.to_owned());
            let route = move |state: &S, cx: &crate::graph::RouteContext<'_>| {
                let route = lens.read(state, |part| choose(part, &cx.further(path.len())));
                route.renamed(|name| format!("{path}{name}"))
            };
            Arc::new(route) as Arc<super::builder::RouteFn<S>>
        });
        NodeFunctions {
            node: Arc::new(node),
            goal: own.goal.as_ref().map(|goal| self.predicate(goal)),
            route,
        }
    }
}

impl<S: State> Lens<S, S> {
    /// Creates a lens for a subgraph over the same state type. Its nodes read and write the whole state.
    ///
    /// The outer graph inherits the subgraph's declarations of [`Context`] channels.
    pub fn whole() -> Self {
        let same = IdentityLens { draft: |draft| draft, update: |update| update };
        let put: Box<Put<S, S>> = Box::new(|state, part| *state = part);
        let declares: Box<Declare> = Box::new(|part| part.channels().to_vec());
        let get = LensGetter::Lent(Box::new(|state| state));
        Self(Arc::new(LensParts { get, put, same: Some(same), declares: Some(declares), prefix: None }))
    }
}

impl Lens<Context, Context> {
    /// Creates a lens for the keys of a [`Context`] that begin with `prefix`. The part has these keys without the prefix.
    ///
    /// The outer graph inherits the subgraph's channel declarations, with the prefix and with their reducers.
    ///
    /// Subgraphs with the same prefix share their keys. If one prefix begins with another, the subgraphs would share keys by accident:
    /// [`build`](crate::graph::GraphBuilder::build) rejects such prefixes.
    pub fn keys(prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        let (get, put, declared) = (prefix.clone(), prefix.clone(), prefix.clone());
        let declare = move |part: &Schema| -> Vec<ChannelSpec> {
            let mut channels = part.channels().to_vec();
            for channel in &mut channels {
                channel.name = format!("{declared}{}", channel.name).into();
            }
            channels
        };
        Self(Arc::new(LensParts {
            get: LensGetter::Made(Box::new(move |state| state.part(&get))),
            put: Box::new(move |state, part| state.put_part(&put, part)),
            same: None,
            declares: Some(Box::new(declare)),
            prefix: Some(prefix),
        }))
    }
}

impl<S: State, P: State> Clone for Lens<S, P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: State, P: State> fmt::Debug for Lens<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lens").finish_non_exhaustive()
    }
}

/// The work of a node of a subgraph, as work over the outer state.
struct EmbeddedNode<S: State, P: State> {
    node: Arc<dyn StartWork<P>>,
    lens: Lens<S, P>,
    /// The channels of the part.
    schema: Schema,
}

impl<S: State, P: State> StartWork<S> for EmbeddedNode<S, P> {
    fn begin(self: Arc<Self>, cx: NodeContext, state: Draft<S>) -> Work<S> {
        Box::pin(async move {
            let node = Arc::clone(&self.node);
            let parts = &*self.lens.0;
            if let Some(same) = &parts.same {
                let work = node.begin(cx, (same.draft)(state));
                return work.await.map(same.update);
            }
            let before = state.original();
            let mut part = self.lens.read(before, P::clone);
            part.bind(&self.schema);
            let part = Arc::new(part);
            let update = node.begin(cx, Draft::new(Arc::clone(&part))).await?;
            Ok(update.map_change(|change| {
                let (mut part, mut after) = (Arc::unwrap_or_clone(part), S::clone(before));
                part.apply(change, &mut PatchWriter::idle())?;
                (parts.put)(&mut after, part);
                S::diff(before, after).map(Some)
            }))
        })
    }
}
