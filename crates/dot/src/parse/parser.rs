//! Parses statements by the grammar of the dialect.

use std::collections::HashSet;
use std::sync::Arc;

use super::cursor::{SourceCursor, is_word};
use super::error::{ParseError, ParseErrorKind as Kind};
use super::names::NameTable;
use super::{MAX_ATTRIBUTES, MAX_DEPTH, MAX_SOURCE};
use crate::source::{Span, SpannedValue};
use crate::syntax::{
    Attribute, Document, EdgeStatement, KEYWORDS, NodeStatement, Statement, Subgraph, id_of_name,
};
use crate::tolerance::{Tolerance, note};
use crate::value::Value;

type Result<T> = std::result::Result<T, ParseError>;

/// Parses a whole source.
pub(super) fn document(source: &[u8]) -> Result<(Document, Vec<Tolerance>)> {
    if source.len() > MAX_SOURCE {
        let message = format!("the source has {} bytes; the maximum is {MAX_SOURCE}", source.len());
        let span = Span::new(MAX_SOURCE, MAX_SOURCE);
        return Err(ParseError::new(Kind::TooLarge, source, span, message, "read up to here")
            .suggest("split the pipeline"));
    }
    let mut parser = DocumentParser {
        cursor: SourceCursor::new(source),
        keys: HashSet::new(),
        names: NameTable::default(),
    };
    let document = parser.graph()?;
    Ok((document, parser.cursor.tolerated))
}

struct DocumentParser<'a> {
    cursor: SourceCursor<'a>,
    /// All attribute keys so far. The same few keys occur often, so they are shared.
    keys: HashSet<Arc<str>>,
    names: NameTable<'a>,
}

impl<'a> DocumentParser<'a> {
    /// Parses `digraph Name { .. }`, and checks that nothing follows.
    fn graph(&mut self) -> Result<Document> {
        self.cursor.skip_blank()?;
        let begins = self.cursor.here();
        match self.cursor.identifier().map(|word| word.value) {
            Some("digraph") => {}
            Some("strict") => {
                return Err(self
                    .cursor
                    .error(Kind::Strict, begins, "`strict` is not part of the dialect", "a strict graph")
                    .suggest("remove `strict`: two edges between the same nodes are two edges"));
            }
            Some("graph") => {
                let message = "an undirected graph is not a pipeline";
                return Err(self
                    .cursor
                    .error(Kind::Undirected, begins, message, "an undirected graph")
                    .suggest("write `digraph`, and `->` for each edge"));
            }
            _ => {
                self.cursor.at = begins.start;
                let message = format!("expected `digraph`, found {}", self.cursor.found());
                return Err(self
                    .cursor
                    .error(Kind::NotAGraph, begins, &message, "a pipeline begins with `digraph`")
                    .suggest("write `digraph Name { .. }`"));
            }
        }
        self.cursor.skip_blank()?;
        let name = match self.cursor.identifier() {
            Some(name) => owned(name),
            None if self.cursor.peek() == Some(b'"') => self.names.take_quoted(&mut self.cursor)?.0,
            None => {
                return Err(self
                    .unexpected("the graph's name")
                    .suggest("write `digraph Name {`, with a name of letters, digits and underscores"));
            }
        };
        self.cursor.skip_blank()?;
        let open = Span::new(self.cursor.at, self.cursor.at + 1);
        if !self.cursor.eat(b'{') {
            return Err(self.unexpected("`{`"));
        }
        let statements = self.statements(open, 0)?;
        self.cursor.skip_blank()?;
        if self.cursor.peek().is_some() {
            let message = format!("{} follows the end of the graph", self.cursor.found());
            let error = self.cursor.error(Kind::SecondGraph, self.cursor.here(), &message, "after the end");
            return Err(
                error.suggest("one file holds one graph: move the rest to a file of its own, or remove it")
            );
        }
        Ok(Document { name, statements })
    }

    /// Parses statements up to and including the closing brace.
    fn statements(&mut self, open: Span, depth: usize) -> Result<Vec<Statement>> {
        let mut statements = Vec::new();
        loop {
            self.cursor.skip_blank()?;
            match self.cursor.peek() {
                Some(b'}') => {
                    self.cursor.at += 1;
                    return Ok(statements);
                }
                Some(b';') => self.cursor.at += 1,
                None => {
                    let end = self.cursor.here();
                    let error =
                        self.cursor.error(Kind::Unclosed, end, "a brace is not closed", "the file ends");
                    return Err(error
                        .also(self.cursor.source, open, "opened here")
                        .suggest("close it with `}`"));
                }
                Some(_) => statements.push(self.statement(depth)?),
            }
        }
    }

    fn statement(&mut self, depth: usize) -> Result<Statement> {
        if self.cursor.peek() == Some(b'{') {
            return Err(self.not_in_dialect("a group without `subgraph`", "write `subgraph { .. }`"));
        }
        if self.cursor.peek() == Some(b'"') {
            return self.quoted_statement();
        }
        let Some(word) = self.cursor.identifier() else { return Err(self.no_identifier("a statement")) };
        let begin = self.cursor.at;
        self.cursor.skip_blank()?;
        match (word.value, self.cursor.peek()) {
            ("graph", Some(b'[')) => Ok(Statement::Graph(self.attributes()?)),
            ("node", Some(b'[')) => Ok(Statement::NodeDefaults(self.attributes()?)),
            ("edge", Some(b'[')) => Ok(Statement::EdgeDefaults(self.attributes()?)),
            ("subgraph", _) => self.subgraph(depth),
            (_, Some(b'=' | b'.')) => {
                self.cursor.at = word.span.start;
                self.attribute().map(Statement::Set)
            }
            (keyword, _) if KEYWORDS.contains(&keyword) => {
                self.cursor.at = begin;
                let message = format!("`{keyword}` is a keyword and cannot name a node");
                let suggestion = match keyword {
                    "graph" | "node" | "edge" => {
                        format!("write `{keyword} [key = value]`, or rename the node")
                    }
                    _ => "rename the node".to_owned(),
                };
                let error = self.cursor.error(Kind::Unexpected, word.span, &message, "not a node");
                Err(error.suggest(suggestion))
            }
            (_, Some(b'-')) => {
                let first = self.names.take_bare(&self.cursor, word)?;
                self.edge(first)
            }
            (_, after) => {
                let id = self.names.take_bare(&self.cursor, word)?;
                let attributes = if after == Some(b'[') { self.attributes()? } else { Vec::new() };
                self.end_of_statement()?;
                Ok(Statement::Node(NodeStatement { id, attributes }))
            }
        }
    }

    /// Parses a statement that begins with a quoted name. If it declares a node, the name becomes the label of the node.
    fn quoted_statement(&mut self) -> Result<Statement> {
        let (id, name) = self.names.take_quoted(&mut self.cursor)?;
        self.cursor.skip_blank()?;
        let after = self.cursor.peek();
        if after == Some(b'-') {
            return self.edge(id);
        }
        if after == Some(b'=') {
            return Err(self.not_in_dialect("a key in quotes", "write the key without quotes"));
        }
        let mut attributes = if after == Some(b'[') { self.attributes()? } else { Vec::new() };
        self.end_of_statement()?;
        if name != *id.value && attributes.iter().all(|attribute| &*attribute.key.value != "label") {
            let (key, value) = (Arc::from("label"), Value::string(name));
            attributes.push(Attribute {
                key: SpannedValue::new(key, id.span),
                value: SpannedValue::new(value, id.span),
            });
        }
        Ok(Statement::Node(NodeStatement { id, attributes }))
    }

    /// Parses the rest of `subgraph name { .. }`.
    fn subgraph(&mut self, depth: usize) -> Result<Statement> {
        let name = match self.cursor.peek() {
            // The name of a subgraph has no meaning in this dialect.
            Some(b'"') => {
                let name = self.cursor.value()?;
                Some(SpannedValue::new(Arc::from(id_of_name(&name.value.text())), name.span))
            }
            _ => self.cursor.identifier().map(owned),
        };
        self.cursor.skip_blank()?;
        let open = Span::new(self.cursor.at, self.cursor.at + 1);
        if !self.cursor.eat(b'{') {
            return Err(self.unexpected("`{`").suggest("write `subgraph name { .. }`"));
        }
        if depth == MAX_DEPTH {
            let message = format!("subgraphs nest deeper than {MAX_DEPTH}");
            let error = self.cursor.error(Kind::TooLarge, open, &message, "one too many");
            return Err(error
                .suggest("remove the outer subgraphs: a subgraph only scopes defaults and names a class"));
        }
        let statements = self.statements(open, depth + 1)?;
        self.cursor.skip_blank()?;
        if self.cursor.rest().starts_with(b"->") {
            return Err(
                self.not_in_dialect("an edge from a subgraph", "write an edge from each of its nodes")
            );
        }
        Ok(Statement::Subgraph(Subgraph { name, statements }))
    }

    /// Parses the rest of `first -> b -> c [..]`.
    fn edge(&mut self, first: SpannedValue<Arc<str>>) -> Result<Statement> {
        let mut path = vec![first];
        loop {
            self.cursor.skip_blank()?;
            match self.cursor.rest() {
                [b'-', b'>', ..] => self.cursor.at += 2,
                [b'-', b'-', ..] => {
                    let span = Span::new(self.cursor.at, self.cursor.at + 2);
                    let message = "an undirected edge is not part of the dialect";
                    return Err(self
                        .cursor
                        .error(Kind::Undirected, span, message, "undirected")
                        .suggest("write `->`"));
                }
                [b'-', ..] => return Err(self.no_identifier("`->`")),
                _ => break,
            }
            self.cursor.skip_blank()?;
            if self.cursor.peek() == Some(b'{') {
                return Err(self.not_in_dialect("an edge to a group", "write an edge to each of its nodes"));
            }
            if self.cursor.peek() == Some(b'"') {
                path.push(self.names.take_quoted(&mut self.cursor)?.0);
                continue;
            }
            let Some(id) = self.cursor.identifier() else {
                return Err(self.no_identifier("the node that the edge leads to"));
            };
            if id.value == "subgraph" {
                self.cursor.at = id.span.start;
                return Err(self.not_in_dialect("an edge to a group", "write an edge to each of its nodes"));
            }
            if KEYWORDS.contains(&id.value) {
                let message = format!("`{}` is a keyword and cannot name a node", id.value);
                return Err(self
                    .cursor
                    .error(Kind::Unexpected, id.span, &message, "not a node")
                    .suggest("rename the node"));
            }
            let id = self.names.take_bare(&self.cursor, id)?;
            path.push(id);
        }
        let attributes = if self.cursor.peek() == Some(b'[') { self.attributes()? } else { Vec::new() };
        self.end_of_statement()?;
        Ok(Statement::Edge(EdgeStatement { path, attributes }))
    }

    /// Parses `[key = value, ..]`. The bracket is the next token.
    fn attributes(&mut self) -> Result<Vec<Attribute>> {
        let open = Span::new(self.cursor.at, self.cursor.at + 1);
        self.cursor.at += 1;
        let mut attributes: Vec<Attribute> = Vec::new();
        loop {
            self.cursor.skip_blank()?;
            if self.cursor.peek().is_none() {
                return Err(self.unclosed_bracket(open));
            }
            if attributes.len() == MAX_ATTRIBUTES {
                let message = format!("a statement has more than {MAX_ATTRIBUTES} attributes");
                let here = self.cursor.here();
                return Err(self
                    .cursor
                    .error(Kind::TooLarge, here, &message, "one too many")
                    .suggest("use fewer attributes"));
            }
            if attributes.is_empty() && self.cursor.peek() == Some(b']') {
                self.cursor.at += 1;
                note(&mut self.cursor.tolerated, || {
                    let span = Span::new(open.start, self.cursor.at);
                    Tolerance::new("empty_list", span, "a list of attributes is empty", "remove the brackets")
                });
                return Ok(attributes);
            }
            if matches!(self.cursor.peek(), Some(b']' | b',')) {
                let error = self.unexpected("an attribute");
                return Err(match attributes.is_empty() {
                    true => error.suggest("write `key = value`, or remove the brackets"),
                    false => error.suggest("remove the comma before it"),
                });
            }
            attributes.push(self.attribute()?);
            self.cursor.skip_blank()?;
            match self.cursor.peek() {
                Some(b',') => {
                    let comma = Span::new(self.cursor.at, self.cursor.at + 1);
                    self.cursor.at += 1;
                    self.cursor.skip_blank()?;
                    if self.cursor.eat(b']') {
                        note(&mut self.cursor.tolerated, || {
                            let message = "the comma after the last attribute is ignored";
                            Tolerance::new("trailing_comma", comma, message, "remove it")
                        });
                        return Ok(attributes);
                    }
                }
                Some(b']') => {
                    self.cursor.at += 1;
                    return Ok(attributes);
                }
                None => return Err(self.unclosed_bracket(open)),
                Some(b) if is_word(b) || b == b';' => {
                    let here = Span::new(self.cursor.at, self.cursor.at + usize::from(b == b';'));
                    note(&mut self.cursor.tolerated, || {
                        let message = "a comma is missing between two attributes; it is assumed";
                        Tolerance::new("missing_comma", here, message, "write `,` between the attributes")
                    });
                    self.cursor.eat(b';');
                    self.cursor.skip_blank()?;
                    if self.cursor.eat(b']') {
                        return Ok(attributes);
                    }
                }
                Some(_) => return Err(self.unexpected("`,` or `]`")),
            }
        }
    }

    /// Parses `key = value`. The key may contain dots.
    fn attribute(&mut self) -> Result<Attribute> {
        let start = self.cursor.at;
        loop {
            if self.cursor.identifier().is_none() {
                return Err(self.no_identifier("the key of an attribute"));
            }
            if !self.cursor.eat(b'.') {
                break;
            }
        }
        let span = Span::new(start, self.cursor.at);
        let key = String::from_utf8_lossy(&self.cursor.source[start..self.cursor.at]);
        let shared = match self.keys.get(&*key) {
            Some(known) => Arc::clone(known),
            None => {
                let new: Arc<str> = Arc::from(key);
                self.keys.insert(Arc::clone(&new));
                new
            }
        };
        let key = SpannedValue::new(shared, span);
        self.cursor.skip_blank()?;
        if !self.cursor.eat(b'=') {
            let suggestion = format!("write `{} = value`", key.value);
            return Err(self.unexpected("`=`").suggest(suggestion));
        }
        self.cursor.skip_blank()?;
        let value = self.cursor.value()?;
        Ok(Attribute { key, value })
    }

    /// Checks that the declaration of a node or an edge ends here. Text that would become the next statement by accident is a mistake.
    fn end_of_statement(&mut self) -> Result<()> {
        self.cursor.skip_blank()?;
        match self.cursor.peek() {
            Some(b'[') => {
                let here = self.cursor.here();
                let message = "a statement has one list of attributes";
                let error = self.cursor.error(Kind::NotInDialect, here, message, "a second list");
                Err(error.suggest("join the lists: `[a = 1, b = 2]`"))
            }
            Some(b':') => Err(self.not_in_dialect("a port", "remove it: edges lead to nodes")),
            Some(b',') => {
                Err(self.unexpected("the next statement").suggest("end a statement with `;` or a new line"))
            }
            Some(b'-') => Err(self.unexpected("the next statement").suggest(
                "attributes come after the whole chain: `a -> b -> c [..]`; an id has no `-`: use `_`",
            )),
            _ => Ok(()),
        }
    }

    fn unclosed_bracket(&self, open: Span) -> ParseError {
        let error =
            self.cursor.error(Kind::Unclosed, self.cursor.here(), "a bracket is not closed", "the file ends");
        error.also(self.cursor.source, open, "opened here").suggest("close it with `]`")
    }

    fn unexpected(&self, wanted: &str) -> ParseError {
        let message = format!("expected {wanted}, found {}", self.cursor.found());
        let label = format!("{wanted} belongs here");
        self.cursor.error(Kind::Unexpected, self.cursor.here(), &message, &label)
    }

    fn not_in_dialect(&self, what: &str, suggestion: &str) -> ParseError {
        let message = format!("{what} is not part of the dialect");
        self.cursor.error(Kind::NotInDialect, self.cursor.here(), &message, what).suggest(suggestion)
    }

    /// Returns the error for a missing identifier.
    fn no_identifier(&self, wanted: &str) -> ParseError {
        match self.cursor.peek() {
            Some(b'"') => self.not_in_dialect("a key in quotes", "write the key without quotes"),
            Some(b'0'..=b'9' | b'-') => self
                .unexpected(wanted)
                .suggest("an id starts with a letter or `_` and continues with letters, digits and `_`"),
            _ => self.unexpected(wanted),
        }
    }
}

fn owned(word: SpannedValue<&str>) -> SpannedValue<Arc<str>> {
    SpannedValue::new(Arc::from(word.value), word.span)
}
