//! Rules about attributes: each attribute must act on its element, and have an accepted value.

use std::collections::{BTreeMap, BTreeSet};

use crate::attribute::{ALIASES, ALL, AttributeOwner, ValueKind, foreign, is_named, name_of, rules_of};
use crate::lint::{Diagnostic, Severity, View};
use crate::pipeline::Attributes;
use crate::source::Span;
use crate::suggest::{beginning_for_message, closest_name};
use crate::syntax::Attribute;
use crate::value::Value;

/// An element that has attributes.
#[derive(Clone, Copy)]
enum ElementKind<'a> {
    Graph,
    /// A node with this handler type. `None` stands for a node with a custom handler, which may read any attribute.
    Node(Option<&'a str>),
    Edge,
}

impl ElementKind<'_> {
    fn is_owner(self, owner: AttributeOwner) -> bool {
        matches!(
            (self, owner),
            (Self::Graph, AttributeOwner::Graph)
                | (Self::Node(_), AttributeOwner::AnyNode | AttributeOwner::NodeOf(_))
                | (Self::Edge, AttributeOwner::Edge)
        )
    }

    /// Returns the names of the attributes that act on this element.
    fn names(self) -> impl Iterator<Item = &'static str> {
        ALL.iter().filter(move |rule| self.is_owner(rule.owner)).map(|rule| rule.name)
    }
}

/// Returns all elements of a pipeline with their attributes, and a location for findings about each.
fn elements<'a>(view: &'a View<'_>) -> Vec<(ElementKind<'a>, &'a Attributes, ElementPlace<'a>)> {
    let pipeline = view.pipeline();
    let nodes = view.nodes().map(|(at, node)| {
        (ElementKind::Node(view.table_type(at)), &node.attributes, ElementPlace::Node(node))
    });
    let edges =
        pipeline.edges().iter().map(|edge| (ElementKind::Edge, &edge.attributes, ElementPlace::Edge(edge)));
    let graph = (ElementKind::Graph, &pipeline.attributes, ElementPlace::Graph);
    std::iter::once(graph).chain(nodes).chain(edges).collect()
}

#[derive(Clone, Copy)]
enum ElementPlace<'a> {
    Graph,
    Node(&'a crate::pipeline::Node),
    Edge(&'a crate::pipeline::Edge),
}

impl ElementPlace<'_> {
    fn put(self, diagnostic: Diagnostic, span: Span) -> Diagnostic {
        let placed = match self {
            Self::Graph => diagnostic,
            Self::Node(node) => diagnostic.at_node(node),
            Self::Edge(edge) => diagnostic.at_edge(edge),
        };
        placed.at_span(Some(span).filter(|span| *span != Span::default()))
    }

    fn name(self) -> String {
        match self {
            Self::Graph => "the graph".to_owned(),
            Self::Node(node) => format!("`{}`", node.id()),
            Self::Edge(edge) => format!("the edge from `{}` to `{}`", edge.from, edge.to),
        }
    }
}

/// Checks that every attribute with a type has a value of this type. Without this check, the default would silently replace a wrong value.
pub(super) fn attribute_type(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for (element, attributes, place) in elements(view) {
        for attribute in attributes.iter() {
            let (key, value) = (&*attribute.key.value, &attribute.value.value);
            let Some(rule) = rules_of(key).find(|rule| element.is_owner(rule.owner)) else { continue };
            let kind = rule.value;
            if !kind.accepts(value) {
                let text = value.to_string();
                let message = format!("`{key}` is {}, which is not {kind}", beginning_for_message(&text));
                let diagnostic = Diagnostic::new("attribute_type", Severity::Error, message);
                found.push(place.put(diagnostic, attribute.value.span).fix(format!("use {kind}")));
            } else if let Some((rule, severity, message, fix)) = tolerated(kind, key, value) {
                found
                    .push(place.put(Diagnostic::new(rule, severity, message), attribute.value.span).fix(fix));
            }
        }
    }
}

/// Describes how a value of another dialect is interpreted: the rule, the severity, the message and the replacement.
fn tolerated(kind: ValueKind, key: &str, value: &Value) -> Option<(&'static str, Severity, String, String)> {
    match (kind, value) {
        (ValueKind::Count(_) | ValueKind::Integer, Value::Float(_)) => {
            let number = value.as_integer()?;
            let message = format!("`{key}` is {value}, which is read as {number}");
            Some(("number_form", Severity::Info, message, format!("write `{number}`")))
        }
        (ValueKind::Duration, Value::Integer(_) | Value::String(_)) => {
            let count: i64 = value.as_integer()?;
            let message = format!("`{key}` is {value} without a unit, which is read as `{count}s`");
            Some(("duration_unit", Severity::Info, message, format!("write `{count}s`")))
        }
        (ValueKind::Goal, value) if value.as_bool().is_none() => {
            let message =
                format!("`{key}` is a text, which the engine cannot evaluate; it is read as `true`");
            let fix = "write `goal_gate=true`, and let the node fail if it misses its goal".to_owned();
            Some(("goal_gate_text", Severity::Warning, message, fix))
        }
        _ => None,
    }
}

/// Checks that every attribute of the language acts on its element, and that no attribute of another dialect that changes behavior there is ignored.
///
/// A default of a scope may be meant for only some of its nodes. A default that acts on none of them causes a warning.
pub(super) fn attribute_acts(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    let mut idle: BTreeMap<usize, (&Attribute, bool)> = BTreeMap::new();
    // The edges of a chain share their attributes, so report each attribute only once.
    let mut told: BTreeSet<(usize, usize)> = BTreeSet::new();
    for (element, attributes, place) in elements(view) {
        for attribute in attributes.iter() {
            let key = &*attribute.key.value;
            // An attribute with an empty value has no effect on any element.
            if attribute.value.value.as_str() == Some("") {
                continue;
            }
            if let (ElementKind::Node(Some(_)), false) = (element, attributes.is_own(key)) {
                let entry = idle.entry(attribute.key.span.start).or_insert((attribute, false));
                entry.1 |= refusal(element, place, key).is_none();
            } else if let Some((message, fix)) = refusal(element, place, key) {
                let span = attribute.key.span;
                if matches!(element, ElementKind::Edge) && !told.insert((span.start, span.end)) {
                    continue;
                }
                let diagnostic = Diagnostic::new("attribute_acts", Severity::Error, message);
                found.push(place.put(diagnostic, span).fix(fix));
            }
        }
    }
    for (attribute, _) in
        idle.into_values().filter(|(attribute, acts)| !acts && attribute.key.span != Span::default())
    {
        let key = &*attribute.key.value;
        let message = format!("the default `{key}` has no effect on any node that it applies to");
        let diagnostic = Diagnostic::new("attribute_acts", Severity::Warning, message);
        found.push(
            diagnostic.at_span(Some(attribute.key.span)).fix("remove it, or set it on the intended node"),
        );
    }
}

/// Returns the reason why an attribute has no effect on its element, and how to correct it. Returns `None` if it has an effect, or is not an
/// attribute of the language.
fn refusal(element: ElementKind<'_>, place: ElementPlace<'_>, key: &str) -> Option<(String, String)> {
    if let ElementKind::Node(None) = element {
        return None;
    }
    if let (ElementKind::Node(_), Some(foreign)) = (element, foreign(key)) {
        let message =
            format!("`{key}` of {} is an attribute of another dialect and has no effect", place.name());
        return Some((message, foreign.remedy.to_owned()));
    }
    let mut rules = rules_of(key).peekable();
    rules.peek()?;
    let rules: Vec<_> = rules.collect();
    let Some(rule) = rules.iter().find(|rule| element.is_owner(rule.owner)) else {
        let of = match rules[0].owner {
            AttributeOwner::Graph => "the graph",
            AttributeOwner::AnyNode | AttributeOwner::NodeOf(_) => "nodes",
            AttributeOwner::Edge => "edges",
        };
        let fix = match (element, key) {
            (ElementKind::Graph, "max_retries") => "write `default_max_retries`".to_owned(),
            (ElementKind::Graph, "fidelity") => "write `default_fidelity`".to_owned(),
            (ElementKind::Graph, "thread_id") => "write `default_thread`".to_owned(),
            (ElementKind::Graph, "max_visits") => "write `max_node_visits`".to_owned(),
            (ElementKind::Graph, _) if of == "nodes" => {
                format!("write `node [{key}=..]` for a default of all nodes after it")
            }
            _ => format!("set it on {of}, or remove it"),
        };
        return Some((format!("`{key}` belongs to {of} and has no effect on {}", place.name()), fix));
    };
    let ElementKind::Node(Some(kind)) = element else { return None };
    if rule.acts_on(kind) {
        return None;
    }
    let fix = match (rule.name, kind, rule.owner) {
        ("prompt", "conditional", _) => {
            "a `conditional` only routes by the outcome of the previous node; move the prompt to a task before it that writes its outcome to `status.json`"
                .to_owned()
        }
        ("prompt", "tool", _) => "a tool only runs its command; move the prompt to a task".to_owned(),
        (_, _, AttributeOwner::NodeOf([only])) => format!("set it on a node of type `{only}`, or remove it"),
        (_, _, AttributeOwner::NodeOf(kinds)) => {
            format!("set it on a node of one of the types `{}`, or remove it", kinds.join("`, `"))
        }
        _ => "remove it".to_owned(),
    };
    Some((format!("`{key}` has no effect on {}, which is of type `{kind}`", place.name()), fix))
}

/// Checks that no element has the same attribute twice, once by its name and once by its name in another dialect.
pub(super) fn attribute_alias(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for (element, attributes, place) in elements(view) {
        if let ElementKind::Node(None) = element {
            continue;
        }
        for attribute in attributes.own() {
            let key = &*attribute.key.value;
            let name = name_of(key);
            if attribute.key.span == Span::default() || name == key && key != "max_cost_cents" {
                continue;
            }
            let mut others = attributes.own().iter().map(|other| &*other.key.value);
            // Both values are the same amount, in different units.
            let is_same =
                |other: &str| is_named(other, name) || key == "max_cost_cents" && is_named(other, "max_cost");
            let diagnostic = match others.find(|other| *other != key && is_same(other)) {
                None if name == key => continue,
                Some(other) => {
                    let message =
                        format!("`{key}` and `{other}` of {} are two names of one attribute", place.name());
                    Diagnostic::new("attribute_alias", Severity::Error, message).fix(format!("keep `{name}`"))
                }
                None => {
                    Diagnostic::new("attribute_alias", Severity::Info, format!("`{key}` is read as `{name}`"))
                        .fix(format!("write `{name}`"))
                }
            };
            found.push(place.put(diagnostic, attribute.key.span));
        }
    }
}

/// Attributes of Graphviz and of other dialects whose names resemble attributes of this language. These attributes are not mistakes.
const NO_SLIPS: &[&str] = &[
    "labels",
    "labelloc",
    "labeljust",
    "xlabel",
    "height",
    "width",
    "color",
    "style",
    "group",
    "rank",
    "tooltip",
    "review_target",
    "params",
];

/// Checks that no unknown attribute looks like a misspelled known one. Without this check, a misspelled attribute would silently have no effect.
pub(super) fn attribute_known(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    let known: BTreeSet<&str> =
        ALL.iter().map(|rule| rule.name).chain(ALIASES.map(|(alias, _)| alias)).collect();
    for (element, attributes, place) in elements(view) {
        for attribute in attributes.iter().filter(|attribute| attribute.key.span != Span::default()) {
            let key = &*attribute.key.value;
            if found.len() > super::SUGGESTIONS {
                return;
            }
            if known.contains(key)
                || key.starts_with("env.")
                || NO_SLIPS.contains(&key)
                || foreign(key).is_some()
            {
                continue;
            }
            // People often omit hyphens and underscores, so compare the names without them.
            let joined = |name: &str| name.replace('_', "");
            let same = element.names().find(|name| joined(name) == joined(key));
            if let Some(near) = same.or_else(|| closest_name(key, element.names())) {
                let message =
                    format!("`{}` is not a known attribute and has no effect", beginning_for_message(key));
                let diagnostic = Diagnostic::new("attribute_known", Severity::Warning, message);
                found.push(place.put(diagnostic, attribute.key.span).fix(format!("did you mean `{near}`?")));
            }
        }
    }
}

/// Checks that no attribute depends on another attribute that is missing.
pub(super) fn attribute_alone(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    let mut tell = |place: ElementPlace<'_>, attributes: &Attributes, key: &str, fix: &str| {
        if attributes.is_own(key) {
            let message = format!("`{key}` of {} has no effect by itself", place.name());
            let diagnostic = Diagnostic::new("attribute_alone", Severity::Warning, message);
            found.push(place.put(diagnostic, attributes.span_of(key).unwrap_or_default()).fix(fix));
        }
    };
    let graph = &view.pipeline().attributes;
    for (_, node) in view.nodes() {
        let attributes = &node.attributes;
        if !["max_retries", "retry_policy"].iter().any(|key| attributes.get(key).is_some())
            && graph.get("default_max_retries").is_none()
        {
            tell(ElementPlace::Node(node), attributes, "retry_on", "set `max_retries` on the node");
        }
        if attributes.get("timeout").is_none() {
            tell(
                ElementPlace::Node(node),
                attributes,
                "human.default_choice",
                "the default applies after a `timeout`; set `timeout` on the gate",
            );
        }
        if attributes.text("join_policy") != "k_of_n" {
            tell(
                ElementPlace::Node(node),
                attributes,
                "k",
                "`k` is the number of successes for `join_policy=k_of_n`; set that policy",
            );
        }
    }
    if ["max_cost", "max_cost_cents", "max_total_tokens", "max_time"]
        .iter()
        .all(|key| graph.get(key).is_none())
    {
        tell(
            ElementPlace::Graph,
            graph,
            "budget_target",
            "set a budget: `max_cost`, `max_total_tokens` or `max_time`",
        );
    }
    let mut edges = view.pipeline().edges().iter();
    if !edges.any(|edge| edge.attributes.get("loop_restart").is_some()) {
        tell(
            ElementPlace::Graph,
            graph,
            "loop_restart_signature_limit",
            "the limit counts fresh starts; set `loop_restart=true` on an edge",
        );
    }
}
