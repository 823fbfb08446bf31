//! Where the state of a subgraph lies in the state of the graph around it.

use std::fmt;
use std::sync::Arc;

use crate::graph::typed::{NodeFunctions, Predicate};
use crate::node::{NodeContext, StartWork, Work};
use crate::state::{ChannelSpec, Context, Draft, PatchWriter, Schema, State, Update};

/// Where the state `P` of a subgraph lies in the state `S` of the graph around it; cheap to clone.
///
/// A node of the subgraph is given the part as it is in the outer state, and what it changes in the part becomes a change of the
/// outer state: by comparing, as an edited [`Draft`] does, and joined by the reducers of the **outer** channels. What the node
/// does not change is not written, so nodes beside the subgraph may write it.
///
/// A lens gives back what was put: `put` after `get` changes nothing, and `get` after `put` returns what was put. Both depend on
/// nothing but their arguments, since they are called again for the same activation.
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
pub struct Lens<S: State, P: State>(Arc<Parts<S, P>>);

struct Parts<S: State, P: State> {
    get: Get<S, P>,
    put: Box<Put<S, P>>,
    /// How the state passes unchanged, if the part is the whole.
    same: Option<IdentityLens<S, P>>,
    /// The channels of the outer state that it declares, given those of the part.
    declares: Option<Box<Declare>>,
    /// The prefix of its keys, if the part is those.
    prefix: Option<String>,
}

type Put<S, P> = dyn Fn(&mut S, P) + Send + Sync;
type Declare = dyn Fn(&Schema) -> Vec<ChannelSpec> + Send + Sync;

enum Get<S, P> {
    Lent(Box<dyn Fn(&S) -> &P + Send + Sync>),
    Made(Box<dyn Fn(&S) -> P + Send + Sync>),
}

/// How drafts and updates pass where both states are of one type.
struct IdentityLens<S: State, P: State> {
    draft: fn(Draft<S>) -> Draft<P>,
    update: fn(Update<P>) -> Update<S>,
}

impl<S: State, P: State> Lens<S, P> {
    /// Makes the part of some channels of the outer state: `get` reads it, `put` writes it back.
    ///
    /// Give each channel of the part a channel of the outer state with the same reducer, and nodes of the subgraph may write at once
    /// what they could write at once without it. What the outer graph does not declare of a [`Context`] has no reducer, whatever the
    /// graph of the subgraph says of it.
    pub fn new(
        get: impl Fn(&S) -> P + Send + Sync + 'static,
        put: impl Fn(&mut S, P) + Send + Sync + 'static,
    ) -> Self {
        Self::of(Get::Made(Box::new(get)), put)
    }

    /// Takes a field as the part.
    ///
    /// The field is one channel: each change stores it whole, and two nodes of the subgraph that change it at the same time fail
    /// the run, whatever the reducers of its own fields are. It fits subgraphs of which one node works at a time. Ephemeral channels of
    /// the part are not handed on, for the field is stored as a whole.
    pub fn field(
        get: impl Fn(&S) -> &P + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut P + Send + Sync + 'static,
    ) -> Self {
        Self::of(Get::Lent(Box::new(get)), move |state, mut part| {
            part.forget_ephemeral();
            *get_mut(state) = part;
        })
    }

    fn of(get: Get<S, P>, put: impl Fn(&mut S, P) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Parts { get, put: Box::new(put), same: None, declares: None, prefix: None }))
    }

    /// Returns the channels of the outer state that the lens declares.
    pub(super) fn channels(&self, part: &Schema) -> Vec<ChannelSpec> {
        self.0.declares.as_ref().map(|declare| declare(part)).unwrap_or_default()
    }

    /// Returns the prefix of the keys that are the part, if it is made of keys.
    pub(super) fn prefix(&self) -> Option<&str> {
        self.0.prefix.as_deref()
    }

    /// Reads the part.
    fn read<R>(&self, state: &S, read: impl FnOnce(&P) -> R) -> R {
        match &self.0.get {
            Get::Lent(get) => read(get(state)),
            Get::Made(get) => read(&get(state)),
        }
    }

    /// Turns a condition on the part into one on the outer state.
    pub(super) fn predicate(&self, holds: &Arc<Predicate<P>>) -> Arc<Predicate<S>> {
        let (lens, holds) = (self.clone(), Arc::clone(holds));
        Arc::new(move |state| lens.read(state, |part| holds(part)))
    }

    /// Turns the functions of a node of the subgraph into those of a node of the outer graph; `path` is what stands before the names
    /// of the subgraph's nodes.
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
    /// Takes the outer state as it is: the subgraph is over the same type, and its nodes read and write all of it.
    ///
    /// What the graph of the subgraph declares for the channels of a [`Context`] is declared in the outer graph, too.
    pub fn whole() -> Self {
        let same = IdentityLens { draft: |draft| draft, update: |update| update };
        let put: Box<Put<S, S>> = Box::new(|state, part| *state = part);
        let declares: Box<Declare> = Box::new(|part| part.channels().to_vec());
        let get = Get::Lent(Box::new(|state| state));
        Self(Arc::new(Parts { get, put, same: Some(same), declares: Some(declares), prefix: None }))
    }
}

impl Lens<Context, Context> {
    /// Takes the keys that begin with a prefix as the part, where they stand without it.
    ///
    /// The channels that the graph of the subgraph declares are declared in the outer graph, with the prefix; the reducers go along.
    ///
    /// Subgraphs with the same prefix share their keys. Two prefixes of which one begins with the other would share some of them by accident:
    /// [`build`](crate::graph::GraphBuilder::build) refuses them.
    pub fn keys(prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        let (get, put, declared) = (prefix.clone(), prefix.clone(), prefix.clone());
        let declare = move |part: &Schema| -> Vec<ChannelSpec> {
            let channels = part.channels().iter();
            channels
                .map(|own| ChannelSpec { name: format!("{declared}{}", own.name).into(), ..own.clone() })
                .collect()
        };
        Self(Arc::new(Parts {
            get: Get::Made(Box::new(move |state| state.part(&get))),
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

/// A node of a subgraph as a node of the outer graph.
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
            Ok(update.carried(|change| {
                let (mut part, mut after) = (Arc::unwrap_or_clone(part), S::clone(before));
                part.apply(change, &mut PatchWriter::idle())?;
                (parts.put)(&mut after, part);
                S::diff(before, after).map(Some)
            }))
        })
    }
}
