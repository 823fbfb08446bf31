//! The nodes and edges of a pipeline, with methods that interpret their attributes.

use std::borrow::Cow;
use std::sync::Arc;

use super::attributes::Attributes;
use crate::condition::Condition;
use crate::select::normal_label;
use crate::source::Span;
use crate::value::Value;

/// The shapes of the specification, followed by the shapes of Fabro. Each shape has the handler type that the shape stands for.
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

/// The handler type of a node that has no explicit type and whose shape implies no type.
pub const DEFAULT_TYPE: &str = "codergen";

/// The handler type of nodes that run a command. The next constant is the attribute that contains the command.
const TOOL_TYPE: &str = "tool";
const COMMAND: &str = "tool_command";

/// Maximum number of classes of a node. Further classes are ignored.
pub(super) const MAX_CLASSES: usize = 64;

/// A declared node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub(super) id: Arc<str>,
    /// The attributes of the node.
    pub attributes: Attributes,
    /// The classes that the subgraphs around the node give to it.
    pub(super) derived: Arc<[Arc<str>]>,
    pub(super) declared: Vec<Span>,
}

impl Node {
    /// Creates a node without attributes. Transforms use it.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self {
            id: id.into(),
            attributes: Attributes::default(),
            derived: Arc::from([]),
            declared: Vec::new(),
        }
    }

    /// Returns the id of the node.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the id as a shared text.
    pub(crate) fn shared_id(&self) -> Arc<str> {
        Arc::clone(&self.id)
    }

    /// Returns the location of the first declaration. The span is empty if a transform added the node.
    pub fn span(&self) -> Span {
        self.declared.first().copied().unwrap_or_default()
    }

    /// Returns the locations of all declarations of the node.
    pub fn declarations(&self) -> &[Span] {
        &self.declared
    }

    /// Returns the label. The default is the id.
    pub fn label(&self) -> Cow<'_, str> {
        match self.attributes.get("label") {
            Some(label) => label.text(),
            None => Cow::Borrowed(&self.id),
        }
    }

    /// Returns the shape. The default is `box`.
    pub fn shape(&self) -> Cow<'_, str> {
        self.attributes.get("shape").map_or(Cow::Borrowed("box"), Value::text)
    }

    /// Returns the explicit type; an empty text if there is none.
    pub fn explicit_type(&self) -> Cow<'_, str> {
        self.attributes.text("type")
    }

    /// Returns the handler type. The handler type is the explicit type if `known` returns true for it, and otherwise the type of the shape. If the
    /// shape implies no type, a node with a command is a tool, and any other node is a `codergen`.
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

    /// Returns whether the node has a command. If the node has its own prompt, a command from its scope does not count.
    fn has_command(&self) -> bool {
        let has = |key: &str| !self.attributes.text(key).trim().is_empty();
        has(COMMAND) && (self.attributes.is_own(COMMAND) || !self.attributes.is_own("prompt"))
    }

    /// Returns the classes without repetitions. First come those in the attribute `class`, separated by blanks or commas, and then those of the
    /// subgraphs around the node.
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

    /// Returns the class of the innermost subgraph around the node.
    pub(crate) fn innermost_class(&self) -> Option<&str> {
        self.derived.last().map(|class| &**class)
    }

    /// Returns whether the node is a goal gate: it has `goal_gate=true`, or a text with its goal, as in other dialects.
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
    /// The node where the edge begins. Lint checks that the node exists.
    pub from: Arc<str>,
    /// The node to which the edge leads. Lint checks that the node exists.
    pub to: Arc<str>,
    /// The attributes of the edge. All edges of a chain share them.
    pub attributes: Attributes,
    /// The location of the statement that declares the edge. The span is empty if a transform added the edge.
    pub span: Span,
}

impl Edge {
    /// Creates an edge without attributes. Transforms use it.
    pub fn new(from: impl Into<Arc<str>>, to: impl Into<Arc<str>>) -> Self {
        Self { from: from.into(), to: to.into(), attributes: Attributes::default(), span: Span::default() }
    }

    /// Returns the label. The default is an empty text.
    pub fn label(&self) -> Cow<'_, str> {
        self.attributes.text("label")
    }

    /// Returns the condition without surrounding blanks. The default is an empty text.
    pub fn condition(&self) -> Cow<'_, str> {
        match self.attributes.text("condition") {
            Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
            Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
        }
    }

    /// Returns whether the edge is meant for an outcome of this name, according to its label or its condition.
    pub(crate) fn names_outcome(&self, word: &str) -> bool {
        let asks = |condition: Condition| condition.outcomes().iter().any(|asked| asked == word);
        normal_label(&self.label()) == normal_label(word)
            || Condition::parse(&self.condition()).is_ok_and(asks)
    }

    /// Returns the weight. The default is 0.
    pub fn weight(&self) -> i64 {
        self.attributes.get("weight").and_then(Value::as_integer).unwrap_or(0)
    }
}
