//! A node and an edge of a pipeline, with the meaning of their attributes.

use std::borrow::Cow;
use std::sync::Arc;

use super::attributes::Attributes;
use crate::condition::Condition;
use crate::select::normal_label;
use crate::source::Span;
use crate::value::Value;

/// The shapes of the specification with their types of handler, followed by those of Fabro.
pub const SHAPES: [(&str, &str); 11] = [
    ("Mdiamond", "start"),
    ("Msquare", "exit"),
    ("box", "codergen"),
    ("hexagon", "wait.human"),
    ("diamond", "conditional"),
    ("component", "parallel"),
    ("tripleoctagon", "parallel.fan_in"),
    ("parallelogram", "tool"),
    ("house", "stack.manager_loop"),
    ("tab", "prompt"),
    ("insulator", "wait"),
];

/// The type of handler for a node without a type or a shape that implies one.
pub const DEFAULT_TYPE: &str = "codergen";

/// The type of nodes that run a command, and the attribute that holds it.
const TOOL_TYPE: &str = "tool";
const COMMAND: &str = "tool_command";

/// Maximum number of classes of a node; further ones are ignored.
pub(super) const MAX_CLASSES: usize = 64;

/// A declared node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub(super) id: Arc<str>,
    /// Its attributes.
    pub attributes: Attributes,
    /// The classes of the subgraphs around it.
    pub(super) derived: Arc<[Arc<str>]>,
    pub(super) declared: Vec<Span>,
}

impl Node {
    /// Creates a node without attributes, for a transform.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self {
            id: id.into(),
            attributes: Attributes::default(),
            derived: Arc::from([]),
            declared: Vec::new(),
        }
    }

    /// Returns the id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the id, shared.
    pub(crate) fn shared_id(&self) -> Arc<str> {
        Arc::clone(&self.id)
    }

    /// Returns the location of its first declaration; an empty span if a transform added it.
    pub fn span(&self) -> Span {
        self.declared.first().copied().unwrap_or_default()
    }

    /// Returns the locations of all its declarations.
    pub fn declarations(&self) -> &[Span] {
        &self.declared
    }

    /// Returns its label; by default its id.
    pub fn label(&self) -> Cow<'_, str> {
        match self.attributes.get("label") {
            Some(label) => label.text(),
            None => Cow::Borrowed(&self.id),
        }
    }

    /// Returns its shape; by default `box`.
    pub fn shape(&self) -> Cow<'_, str> {
        self.attributes.get("shape").map_or(Cow::Borrowed("box"), Value::text)
    }

    /// Returns the explicit type; by default empty.
    pub fn explicit_type(&self) -> Cow<'_, str> {
        self.attributes.text("type")
    }

    /// Returns the type of handler: the explicit one if `known` contains it, otherwise that of the shape. A node with an uninformative shape is a
    /// tool if it has a command, otherwise `codergen`.
    pub fn handler_type(&self, known: impl Fn(&str) -> bool) -> Cow<'_, str> {
        let explicit = self.explicit_type();
        if !explicit.is_empty() && known(&explicit) {
            return explicit;
        }
        let shape = self.shape();
        match SHAPES.iter().find(|(name, _)| *name == shape) {
            Some((_, handler)) if *handler != DEFAULT_TYPE => Cow::Borrowed(*handler),
            _ if explicit.is_empty() && self.has_command() => Cow::Borrowed(TOOL_TYPE),
            _ => Cow::Borrowed(DEFAULT_TYPE),
        }
    }

    /// Returns whether it has a command, and no prompt of its own that overrides a command from its scope.
    fn has_command(&self) -> bool {
        let has = |key: &str| !self.attributes.text(key).trim().is_empty();
        has(COMMAND) && (self.attributes.is_own(COMMAND) || !self.attributes.is_own("prompt"))
    }

    /// Returns the classes: those of `class`, separated by blanks or commas, then those of the subgraphs around it, each once.
    pub fn classes(&self) -> Vec<String> {
        let explicit = self.attributes.text("class");
        let explicit =
            explicit.split([',', ' ', '\t', '\n']).filter(|class| !class.is_empty()).take(MAX_CLASSES);
        let mut classes: Vec<String> = Vec::new();
        for class in explicit.chain(self.derived.iter().map(|class| &**class)) {
            if !classes.iter().any(|known| known == class) {
                classes.push(class.to_owned());
            }
        }
        classes
    }

    /// Returns the class of the innermost subgraph around it.
    pub(crate) fn innermost_class(&self) -> Option<&str> {
        self.derived.last().map(|class| &**class)
    }

    /// Returns whether it has `goal_gate=true`, or a text with its goal, as in other dialects.
    pub fn is_goal_gate(&self) -> bool {
        match self.attributes.get("goal_gate") {
            Some(value) => {
                value.as_bool().unwrap_or_else(|| value.as_str().is_some_and(|goal| !goal.trim().is_empty()))
            }
            None => false,
        }
    }
}

/// A declared edge.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// The node where it begins; lint checks that it exists.
    pub from: Arc<str>,
    /// The node to which it leads.
    pub to: Arc<str>,
    /// Its attributes, shared with the rest of its chain.
    pub attributes: Attributes,
    /// The statement that declares it; an empty span if a transform added it.
    pub span: Span,
}

impl Edge {
    /// Creates an edge without attributes, for a transform.
    pub fn new(from: impl Into<Arc<str>>, to: impl Into<Arc<str>>) -> Self {
        Self { from: from.into(), to: to.into(), attributes: Attributes::default(), span: Span::default() }
    }

    /// Returns its label; by default empty.
    pub fn label(&self) -> Cow<'_, str> {
        self.attributes.text("label")
    }

    /// Returns its condition, trimmed; by default empty.
    pub fn condition(&self) -> Cow<'_, str> {
        match self.attributes.text("condition") {
            Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
            Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
        }
    }

    /// Returns whether it is for an outcome of this name, by its label or its condition.
    pub(crate) fn names_outcome(&self, word: &str) -> bool {
        let asks = |condition: Condition| condition.outcomes().iter().any(|asked| asked == word);
        normal_label(&self.label()) == normal_label(word)
            || Condition::parse(&self.condition()).is_ok_and(asks)
    }

    /// Returns its weight; by default 0.
    pub fn weight(&self) -> i64 {
        self.attributes.get("weight").and_then(Value::as_integer).unwrap_or(0)
    }
}
