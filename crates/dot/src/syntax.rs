//! The statements of a DOT file, in their order. Printing a document and parsing the result gives an equal document.

use std::fmt;
use std::sync::Arc;

use crate::source::SpannedValue;
use crate::value::Value;

/// A whole DOT file, which contains one `digraph`.
///
/// Two documents are equal if their contents are equal. Their locations do not matter.
///
/// # Examples
///
/// ```
/// use ferrata_dot::Document;
///
/// let document = Document::parse(b"digraph G { a -> b // next\n }")?;
/// assert_eq!(document.to_string(), "digraph G {\n    a -> b\n}\n");
/// assert_eq!(Document::parse(document.to_string().as_bytes())?, document);
/// # Ok::<(), ferrata_dot::ParseError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The name after `digraph`.
    pub name: SpannedValue<Arc<str>>,
    /// The statements between the braces.
    pub statements: Vec<Statement>,
}

/// One statement of a graph or subgraph.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Statement {
    /// `graph [..]`: attributes of the graph, or of the subgraph that contains the statement.
    Graph(Vec<Attribute>),
    /// `node [..]`: defaults for the nodes that the same scope declares after this statement.
    NodeDefaults(Vec<Attribute>),
    /// `edge [..]`: defaults for the edges that the same scope declares after this statement.
    EdgeDefaults(Vec<Attribute>),
    /// `key = value`: the same as `graph [key = value]`.
    Set(Attribute),
    /// `subgraph name { .. }`: a subgraph.
    Subgraph(Subgraph),
    /// `id [..]`: a declaration of a node.
    Node(NodeStatement),
    /// `a -> b -> c [..]`: a declaration of edges.
    Edge(EdgeStatement),
}

/// The key and the value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// The key, which may contain dots.
    pub key: SpannedValue<Arc<str>>,
    /// The value.
    pub value: SpannedValue<Value>,
}

/// A subgraph: a scope of defaults. Its label becomes a class of its nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Subgraph {
    /// The name of the subgraph, if it has one.
    pub name: Option<SpannedValue<Arc<str>>>,
    /// The statements between its braces.
    pub statements: Vec<Statement>,
}

/// A declaration of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeStatement {
    /// The id of the node.
    pub id: SpannedValue<Arc<str>>,
    /// The attributes in its brackets.
    pub attributes: Vec<Attribute>,
}

/// A declaration of an edge, or of a chain of edges that share their attributes.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeStatement {
    /// The ids of the nodes along the chain. A chain has at least two ids.
    pub path: Vec<SpannedValue<Arc<str>>>,
    /// The attributes in the brackets.
    pub attributes: Vec<Attribute>,
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "digraph {} {{", self.name.value)?;
        print(f, &self.statements, 1)?;
        writeln!(f, "}}")
    }
}

/// Words that begin other statements, so they cannot be ids of nodes.
pub(crate) const KEYWORDS: [&str; 6] = ["strict", "digraph", "graph", "subgraph", "node", "edge"];

/// Returns the id that is made from a quoted name. Each character other than an ASCII letter, a digit or `_` becomes `_`. If the name begins with a
/// digit, the id gets a `_` before it. If the name is a keyword, the id gets a `_` after it.
pub(crate) fn id_of_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let id: String = name.chars().map(plain).collect();
    if id.starts_with(|c: char| c.is_ascii_digit()) {
        format!("_{id}")
    } else if KEYWORDS.contains(&&*id) {
        format!("{id}_")
    } else {
        id
    }
}

/// Prints statements, one on each line. The parser limits their nesting.
fn print(f: &mut fmt::Formatter<'_>, statements: &[Statement], depth: usize) -> fmt::Result {
    for statement in statements {
        indent(f, depth)?;
        match statement {
            Statement::Graph(attributes) => block(f, "graph ", attributes)?,
            Statement::NodeDefaults(attributes) => block(f, "node ", attributes)?,
            Statement::EdgeDefaults(attributes) => block(f, "edge ", attributes)?,
            Statement::Set(attribute) => write!(f, "{attribute}")?,
            Statement::Node(node) => {
                f.write_str(&node.id.value)?;
                if !node.attributes.is_empty() {
                    block(f, " ", &node.attributes)?;
                }
            }
            Statement::Edge(edge) => {
                for (at, id) in edge.path.iter().enumerate() {
                    write!(f, "{}{}", if at == 0 { "" } else { " -> " }, id.value)?;
                }
                if !edge.attributes.is_empty() {
                    block(f, " ", &edge.attributes)?;
                }
            }
            Statement::Subgraph(subgraph) => {
                f.write_str("subgraph ")?;
                if let Some(name) = &subgraph.name {
                    write!(f, "{} ", name.value)?;
                }
                f.write_str("{\n")?;
                print(f, &subgraph.statements, depth + 1)?;
                indent(f, depth)?;
                f.write_str("}")?;
            }
        }
        f.write_str("\n")?;
    }
    Ok(())
}

fn indent(f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
    (0..depth).try_for_each(|_| f.write_str("    "))
}

fn block(f: &mut fmt::Formatter<'_>, before: &str, attributes: &[Attribute]) -> fmt::Result {
    write!(f, "{before}[")?;
    for (at, attribute) in attributes.iter().enumerate() {
        write!(f, "{}{attribute}", if at == 0 { "" } else { ", " })?;
    }
    f.write_str("]")
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key.value, self.value.value)
    }
}
