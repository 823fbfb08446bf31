//! Checks a declared graph. It finds all mistakes, in the order of the declaration.

use std::collections::{HashMap, HashSet};

use crate::graph::Effect;
use crate::graph::edge::EdgeKind;
use crate::graph::issue::GraphIssue;
use crate::graph::join::Join;
use crate::graph::outline::{EdgeOutline, GraphOutline, NodeOutline};
use crate::graph::shape;
use crate::graph::suggest::closest;
use crate::id::{NodeName, WorkflowName};

/// The maximum length of a version or revision, in bytes. Every run stores the version, and stores index it.
const MAX_TEXT: usize = 256;

/// Returns every mistake in the outline.
pub(crate) fn check(outline: &GraphOutline) -> Vec<GraphIssue> {
    let mut checker = Checker { outline, by_name: by_name(outline), issues: outline.issues.clone() };
    checker.graph();
    let mut seen = HashSet::new();
    for node in &outline.nodes {
        checker.node(node, seen.insert(&*node.name));
    }
    checker.routes();
    checker.edges();
    let entry = outline.entries.first().and_then(|name| checker.guess(name));
    let (edges, jumps) = (checker.guessed_edges(), checker.guessed_jumps());
    shape::check(outline, entry, &edges, &jumps, &mut checker.issues);
    checker.issues
}

/// Returns the index of each name. If two nodes have the same name, the first wins.
pub(crate) fn by_name(outline: &GraphOutline) -> HashMap<&str, usize> {
    let mut names = HashMap::with_capacity(outline.nodes.len());
    for (at, node) in outline.nodes.iter().enumerate() {
        names.entry(&*node.name).or_insert(at);
    }
    names
}

struct Checker<'a> {
    outline: &'a GraphOutline,
    by_name: HashMap<&'a str, usize>,
    issues: Vec<GraphIssue>,
}

impl Checker<'_> {
    fn graph(&mut self) {
        let outline = self.outline;
        let mut wrong = |message: String| self.issues.push(GraphIssue::graph(message));
        match WorkflowName::new(&outline.name) {
            Ok(name) if name.is_reserved() => {
                wrong("has a name that begins with `ferrata:`, which is reserved; use another name".into());
            }
            Ok(_) => {}
            Err(error) => wrong(error.message().into()),
        }
        if let Some(message) = text_problem("version", &outline.version) {
            wrong(message);
        }
        if outline.max_steps == Some(0) {
            wrong("allows 0 steps; use at least 1, or `unlimited_steps`".into());
        }
        if outline.concurrency == Some(0) {
            wrong("allows 0 concurrent activations; use at least 1, or leave `concurrency` out".into());
        }
        if outline.deadline.is_some_and(|deadline| deadline.is_zero()) {
            wrong("has a deadline of zero; use a longer one, or leave `deadline` out".into());
        }
        match (&*outline.nodes, &*outline.entries) {
            ([], _) => wrong("has no nodes; add at least one with `node` or `add`".into()),
            ([first, ..], []) => {
                wrong(format!(
                    "has no entry; set the first node of a run, as in `.entry(\"{}\")`",
                    first.name
                ));
            }
            (_, [_]) => {}
            (_, several) => {
                wrong(format!("has more than one entry, {}; keep one", quoted(several)));
            }
        }
        if !outline.nodes.is_empty() {
            for name in outline.entries.iter().chain(&outline.fallback) {
                self.known(name, GraphIssue::graph);
            }
        }
    }

    fn node(&mut self, node: &NodeOutline, first_of_its_name: bool) {
        let mut wrong = |message: String| self.issues.push(GraphIssue::node(&node.name, message));
        if let Err(error) = NodeName::new(&node.name) {
            wrong(error.message().into());
        } else if node.name.contains('/') && !node.inner {
            wrong("contains '/', which separates a subgraph from its nodes; use another character".into());
        }
        if !first_of_its_name {
            wrong("is added twice; give each node its own name".into());
        }
        if let Some(message) = node.retry.problem() {
            wrong(message);
        }
        if node.waits && node.effect == Effect::External {
            wrong(
                "is declared `External`, so it cannot wait, because a node that waits starts again; declare another effect, and move the \
                 work that must not be repeated to another node"
                    .into(),
            );
        }
        if let Some(policy) = node.cached {
            if !matches!(node.effect, Effect::Pure | Effect::Read) {
                wrong(format!(
                    "is cached, and its effect is `{:?}`: a cached result would skip the effect; declare it `Pure` or `Read` if it only \
                     computes and reads, or leave `cached` out",
                    node.effect
                ));
            }
            if node.waits {
                wrong(
                    "is cached, and waits for input of its own in each activation; leave `cached` out".into(),
                );
            }
            if policy.max_age.is_zero() || policy.entries == 0 {
                wrong("is cached with a lifetime or a capacity of 0; raise both in `CachePolicy`, or leave `cached` out".into());
            }
        }
        if node.timeout.is_some_and(|timeout| timeout.is_zero()) {
            wrong("has a timeout of zero; use a longer one, or leave `timeout` out".into());
        }
        if node.max_visits == Some(0) {
            wrong("allows 0 visits; use at least 1, or leave `max_visits` out".into());
        }
        if node.max_running == Some(0) {
            wrong("allows 0 concurrent activations; use at least 1, or leave `max_running` out".into());
        }
        if node.join == Join::AtLeast(0) {
            wrong("joins at least 0 tokens; use at least 1, or `Join::Any` to run for each".into());
        }
        if let Some(message) = node.revision.as_deref().and_then(|text| text_problem("revision", text)) {
            wrong(message);
        }
        for target in &node.returns {
            self.known(target, |message| {
                GraphIssue::node(&node.name, format!("as its retry target, {message}"))
            });
        }
    }

    fn routes(&mut self) {
        let mut seen = HashSet::new();
        for route in &self.outline.routes {
            let mut wrong = |message: &str| self.issues.push(GraphIssue::node(&route.from, message));
            if !seen.insert(&route.from) {
                wrong("has two routes; merge them into one function");
            }
            if route.targets == 0 {
                wrong("has a route without targets; name every node that it may choose");
                // With targets, each edge reports the unknown source.
                self.known(&route.from, |message| {
                    GraphIssue::node(&route.from, format!("has a route, but {message}"))
                });
            }
        }
    }

    fn edges(&mut self) {
        let outline = self.outline;
        let with = |wanted: EdgeKind| {
            outline.edges.iter().filter(move |edge| edge.kind == wanted).map(|edge| &edge.from)
        };
        let conditional: HashSet<&String> = with(EdgeKind::When).collect();
        let mut seen = HashSet::new();
        let mut unknown = HashSet::new();
        for edge in &outline.edges {
            let issue = |message: String| GraphIssue::edge(&edge.from, &edge.to, message);
            if !seen.insert((&edge.from, &edge.to, edge.kind)) {
                self.issues.push(issue(twice(edge)));
                continue;
            }
            for name in [&edge.from, &edge.to] {
                if !unknown.contains(&(edge.call, name)) && !self.known(name, issue) {
                    unknown.insert((edge.call, name));
                }
            }
            if edge.kind == EdgeKind::Otherwise && !conditional.contains(&edge.from) {
                self.issues.push(issue(format!(
                    "is an `otherwise`, but no `when` edge leaves `{}`; add one, or remove `otherwise`",
                    edge.from
                )));
            }
        }
    }

    /// Reports an unknown node name. Returns whether the name is known.
    fn known(&mut self, name: &str, issue: impl FnOnce(String) -> GraphIssue) -> bool {
        let known = self.by_name.contains_key(name);
        if !known {
            let around = name.split_once('/').map(|(around, _)| around);
            let remedy = match (around.filter(|around| self.by_name.contains_key(around)), self.suggest(name))
            {
                (Some(around), _) => {
                    format!("name the subgraph `{around}`, because only its own graph can name its nodes")
                }
                (None, Some(other)) => format!("did you mean `{other}`?"),
                (None, None) => "add it with `node` or `add`".into(),
            };
            self.issues.push(issue(format!("the node `{}` does not exist; {remedy}", name.escape_debug())));
        }
        known
    }

    fn suggest(&self, name: &str) -> Option<&str> {
        closest(name, self.outline.nodes.iter().map(|node| &*node.name))
    }

    /// Returns the node with a name, or the most similar node if the name is misspelled. So one misspelled name does not cause further mistakes in
    /// the list.
    fn guess(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).or_else(|| self.by_name.get(self.suggest(name)?)).copied()
    }

    fn guessed_edges(&self) -> Vec<(Option<usize>, Option<usize>)> {
        self.outline.edges.iter().map(|edge| (self.guess(&edge.from), self.guess(&edge.to))).collect()
    }

    /// Returns the retry targets and the fallback as pairs of source and target. The source is `None` if the run can jump from any node.
    fn guessed_jumps(&self) -> Vec<(Option<usize>, usize)> {
        let nodes = self.outline.nodes.iter().enumerate();
        let own = nodes.flat_map(|(at, node)| {
            node.returns.iter().filter_map(move |target| Some((Some(at), self.guess(target)?)))
        });
        let all = self.outline.fallback.iter().filter_map(|name| Some((None, self.guess(name)?)));
        own.chain(all).collect()
    }
}

fn twice(edge: &EdgeOutline) -> String {
    match edge.kind {
        EdgeKind::When => "is declared twice with `when`; join the two predicates with `||`".into(),
        EdgeKind::Routed => "is declared twice as a target of a route; name it once".into(),
        EdgeKind::Plain => "is declared twice; remove one".into(),
        EdgeKind::Otherwise | EdgeKind::OnFailure => {
            format!("is declared twice with `{}`; remove one", edge.kind)
        }
    }
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{}`", name.escape_debug())).collect::<Vec<_>>().join(" and ")
}

fn text_problem(what: &str, text: &str) -> Option<String> {
    if text.is_empty() {
        return Some(format!("has an empty {what}; add text, or leave it out"));
    }
    if text.len() > MAX_TEXT {
        return Some(format!("has a {what} of {} bytes; use at most {MAX_TEXT}", text.len()));
    }
    let bad = text.chars().find(|c| c.is_control())?;
    Some(format!("has a {what} with the control character {bad:?}; leave it out"))
}
