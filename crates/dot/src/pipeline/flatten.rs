//! Converts the statements of a document to nodes and edges. The conversion applies the defaults of scopes, splits chains, and adds the classes of
//! subgraphs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Pipeline;
use super::attributes::{Attributes, put};
use super::node::{Edge, MAX_CLASSES, Node};
use crate::parse::{MAX_ATTRIBUTES, ParseError, ParseErrorKind as Kind};
use crate::source::{Span, SpannedValue};
use crate::suggest::{beginning_for_message, closest_name};
use crate::syntax::{Attribute, Document, Statement, Subgraph};
use crate::tolerance::{Tolerance, note};

/// Maximum number of defaults that all scopes together may copy from outer scopes. Without it, a small file could require a huge number of copies.
const MAX_COPIES: usize = 1 << 22;

/// Converts a document to nodes and edges. `source` is the text of the document, for errors.
pub(super) fn flatten(
    document: Document,
    source: &[u8],
    tolerated: Vec<Tolerance>,
) -> Result<Pipeline, ParseError> {
    let pipeline = Pipeline {
        name: document.name.value,
        attributes: Attributes::default(),
        nodes: Vec::new(),
        by_id: HashMap::new(),
        edges: Vec::new(),
        tolerated,
    };
    let mut flat =
        FlatPipeline { source, pipeline, graph: Vec::new(), copies: 0, mentioned: ImplicitNodes::default() };
    let mut scope = DefaultScope::default();
    flat.statements(document.statements, &mut scope, true)?;
    flat.declare_mentioned();
    flat.pipeline.attributes = Attributes::new(flat.graph, Arc::default());
    Ok(flat.pipeline)
}

/// The defaults that apply to declarations from this position to the end of the braces.
#[derive(Clone, Default)]
struct DefaultScope {
    nodes: Arc<Vec<Attribute>>,
    edges: Arc<Vec<Attribute>>,
    classes: Arc<[Arc<str>]>,
}

struct FlatPipeline<'a> {
    source: &'a [u8],
    pipeline: Pipeline,
    graph: Vec<Attribute>,
    copies: usize,
    mentioned: ImplicitNodes,
}

/// The nodes that edges name before their declaration, each with the scope of the first such edge.
#[derive(Default)]
struct ImplicitNodes {
    known: HashSet<Arc<str>>,
    in_order: Vec<(SpannedValue<Arc<str>>, DefaultScope)>,
}

/// Maximum number of undeclared nodes whose names are checked for misspelling. Each check compares the name with many others.
const LOOKED: usize = 100;

/// Returns whether a name may be a misspelling of another name. Names that differ only in digits, such as `step_1` and `step_2`, are not.
fn is_slip(name: &str, of: &str) -> bool {
    let letters = |name: &str| name.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    letters(name) != letters(of)
}

impl FlatPipeline<'_> {
    /// Declares the nodes that only edges name. If such a name looks like a misspelling of another, it is not declared, and lint reports it.
    fn declare_mentioned(&mut self) {
        let ends = |end: fn(&Edge) -> &Arc<str>| -> HashSet<Arc<str>> {
            self.pipeline.edges.iter().map(|edge| Arc::clone(end(edge))).collect()
        };
        let (from, to) = (ends(|edge| &edge.from), ends(|edge| &edge.to));
        for (looked, (id, scope)) in std::mem::take(&mut self.mentioned.in_order).into_iter().enumerate() {
            if self.pipeline.by_id.contains_key(&id.value) {
                continue;
            }
            // A run would complete at such a node if it has no successor, so a misspelling there would end the run with success.
            let on_a_way = from.contains(&id.value) && to.contains(&id.value);
            if !on_a_way && !["start", "Start", "exit", "end"].contains(&&*id.value) {
                continue;
            }
            let names = self.pipeline.nodes.iter().map(Node::id);
            if looked < LOOKED && closest_name(&id.value, names).is_some_and(|near| is_slip(&id.value, near))
            {
                continue;
            }
            note(&mut self.pipeline.tolerated, || {
                let message = format!(
                    "only edges mention `{}`; the node is declared implicitly, with the defaults",
                    beginning_for_message(&id.value)
                );
                Tolerance::new(
                    "declared_by_edge",
                    id.span,
                    message,
                    format!("declare it: `{} [label=\"..\"]`", beginning_for_message(&id.value)),
                )
            });
            let attributes = Attributes::new(Vec::new(), scope.nodes);
            self.pipeline.by_id.insert(Arc::clone(&id.value), self.pipeline.nodes.len());
            let declared = vec![id.span];
            self.pipeline.nodes.push(Node { id: id.value, attributes, derived: scope.classes, declared });
        }
    }

    /// Processes the statements of one scope. The parser limits the nesting.
    fn statements(
        &mut self,
        statements: Vec<Statement>,
        scope: &mut DefaultScope,
        top: bool,
    ) -> Result<(), ParseError> {
        for statement in statements {
            match statement {
                // The attributes of a subgraph itself are only for drawing. The exception is its label, which was already read.
                Statement::Graph(_) | Statement::Set(_) if !top => {}
                Statement::Graph(attributes) => {
                    for attribute in attributes {
                        self.graph_attribute(&attribute)?;
                    }
                }
                Statement::Set(attribute) => self.graph_attribute(&attribute)?,
                Statement::NodeDefaults(attributes) => self.defaults(&mut scope.nodes, &attributes)?,
                Statement::EdgeDefaults(attributes) => self.defaults(&mut scope.edges, &attributes)?,
                Statement::Subgraph(subgraph) => {
                    let mut inner = scope.clone();
                    if let Some(class) = derived_class(&subgraph) {
                        inner.classes = self.classes(&inner.classes, &[class], Span::default())?;
                    }
                    self.statements(subgraph.statements, &mut inner, false)?;
                }
                Statement::Node(node) => self.node(node.id, node.attributes, scope)?,
                Statement::Edge(edge) => {
                    for id in &edge.path {
                        let declared = self.pipeline.by_id.contains_key(&id.value);
                        if !declared && self.mentioned.known.insert(Arc::clone(&id.value)) {
                            self.mentioned.in_order.push((id.clone(), scope.clone()));
                        }
                    }
                    let attributes = Attributes::new(edge.attributes, Arc::clone(&scope.edges));
                    for pair in edge.path.windows(2) {
                        self.pipeline.edges.push(Edge {
                            from: Arc::clone(&pair[0].value),
                            to: Arc::clone(&pair[1].value),
                            attributes: attributes.clone(),
                            span: pair[0].span.to(pair[1].span),
                        });
                    }
                }
            }
        }
        Ok(())
    }

    fn graph_attribute(&mut self, attribute: &Attribute) -> Result<(), ParseError> {
        put(&mut self.graph, attribute.clone());
        self.bound(self.graph.len(), MAX_ATTRIBUTES, attribute.key.span, "attributes of the graph")
    }

    /// Adds defaults to the defaults of a scope. Other scopes may share these.
    fn defaults(
        &mut self,
        defaults: &mut Arc<Vec<Attribute>>,
        added: &[Attribute],
    ) -> Result<(), ParseError> {
        if Arc::strong_count(defaults) > 1 {
            self.copies += defaults.len();
        }
        let defaults = Arc::make_mut(defaults);
        for attribute in added {
            put(defaults, attribute.clone());
            self.bound(defaults.len(), MAX_ATTRIBUTES, attribute.key.span, "defaults in one scope")?;
            self.bound(self.copies, MAX_COPIES, attribute.key.span, "defaults repeated by scopes")?;
        }
        Ok(())
    }

    fn node(
        &mut self,
        id: crate::source::SpannedValue<Arc<str>>,
        attributes: Vec<Attribute>,
        scope: &DefaultScope,
    ) -> Result<(), ParseError> {
        let at = self.pipeline.by_id.get(&id.value).copied();
        let Some(at) = at else {
            let attributes = Attributes::new(attributes, Arc::clone(&scope.nodes));
            let derived = Arc::clone(&scope.classes);
            self.pipeline.by_id.insert(Arc::clone(&id.value), self.pipeline.nodes.len());
            self.pipeline.nodes.push(Node { id: id.value, attributes, derived, declared: vec![id.span] });
            return Ok(());
        };
        let derived = self.classes(&self.pipeline.nodes[at].derived, &scope.classes, id.span)?;
        let node = &mut self.pipeline.nodes[at];
        node.attributes.declare(attributes);
        node.derived = derived;
        node.declared.push(id.span);
        let own = node.attributes.own_len();
        self.bound(own, 2 * MAX_ATTRIBUTES, id.span, "attributes of one node")
    }

    /// Joins two lists of classes without repetitions.
    fn classes(
        &self,
        classes: &Arc<[Arc<str>]>,
        added: &[Arc<str>],
        span: Span,
    ) -> Result<Arc<[Arc<str>]>, ParseError> {
        let new = |class: &&Arc<str>| !classes.contains(class);
        if !added.iter().any(|class| new(&class)) {
            return Ok(Arc::clone(classes));
        }
        let joined: Arc<[_]> = classes.iter().chain(added.iter().filter(new)).cloned().collect();
        self.bound(joined.len(), MAX_CLASSES, span, "classes of one node")?;
        Ok(joined)
    }

    fn bound(&self, found: usize, most: usize, span: Span, what: &str) -> Result<(), ParseError> {
        if found <= most {
            return Ok(());
        }
        let message = format!("the pipeline has more than {most} {what}");
        Err(ParseError::new(Kind::TooLarge, self.source, span, message, "one too many").suggest("use fewer"))
    }
}

/// Returns the class that the label of a subgraph gives to its nodes. The label may be at any position in the subgraph.
fn derived_class(subgraph: &Subgraph) -> Option<Arc<str>> {
    let label = |attribute: &Attribute| {
        (&*attribute.key.value == "label").then(|| attribute.value.value.text().into_owned())
    };
    let label = subgraph.statements.iter().rev().find_map(|statement| match statement {
        Statement::Set(attribute) => label(attribute),
        Statement::Graph(attributes) => attributes.iter().rev().find_map(label),
        _ => None,
    })?;
    let class = class_of(&label);
    (!class.is_empty()).then(|| Arc::from(class))
}

/// Converts a label to a class: lower case, with a hyphen for each space, and without characters other than letters, digits and hyphens.
pub(super) fn class_of(label: &str) -> String {
    let lower = label.chars().flat_map(char::to_lowercase);
    let kept =
        lower.map(|c| if c == ' ' { '-' } else { c }).filter(|c| c.is_ascii_alphanumeric() || *c == '-');
    kept.collect()
}
