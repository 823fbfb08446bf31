//! The model stylesheet: rules that choose the model of nodes by their shape, class or id.

use std::fmt;

use crate::pipeline::Pipeline;
use crate::suggest::closest_name;
use crate::value::Value;

/// Maximum number of rules in a stylesheet, because each rule is compared with each node.
const MAX_RULES: usize = 1000;

/// The properties that a rule may set.
const PROPERTIES: [&str; 3] = ["llm_model", "llm_provider", "reasoning_effort"];

/// Names of properties in other dialects, each with the name in this dialect.
const ALIASES: [(&str, &str); 2] = [("model", "llm_model"), ("provider", "llm_provider")];

/// A parsed stylesheet: a list of rules in the order of the text.
///
/// # Examples
///
/// ```
/// use ferrata_dot::Pipeline;
/// use ferrata_dot::transform::Stylesheet;
///
/// let mut pipeline = Pipeline::parse(b"digraph G { a [class = code] b }")?;
/// Stylesheet::parse("* { llm_model: small } .code { llm_model: large; reasoning_effort: high }")?.apply(&mut pipeline);
/// assert_eq!(pipeline.node("a").unwrap().attributes.text("llm_model"), "large");
/// assert_eq!(pipeline.node("b").unwrap().attributes.text("llm_model"), "small");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stylesheet {
    rules: Vec<StyleRule>,
    /// The names of other dialects in the text: position, name, and name in this dialect.
    aliases: Vec<(usize, &'static str, &'static str)>,
    /// The unknown properties in the text: position and name.
    unknown: Vec<(usize, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct StyleRule {
    selector: StyleSelector,
    declarations: Vec<(&'static str, String)>,
}

/// The selector of a rule. Later variants of this enum are more specific.
#[derive(Clone, Debug, PartialEq, Eq)]
enum StyleSelector {
    All,
    Shape(String),
    Class(String),
    Id(String),
}

impl StyleSelector {
    const fn specificity(&self) -> u8 {
        match self {
            Self::All => 0,
            Self::Shape(_) => 1,
            Self::Class(_) => 2,
            Self::Id(_) => 3,
        }
    }
}

/// The mistake for which a text is not a valid stylesheet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StylesheetError {
    at: usize,
    message: String,
    suggestion: String,
}

impl StylesheetError {
    /// Returns the position of the mistake, as a byte offset in the stylesheet.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Returns the description of the mistake.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the suggested replacement; empty if there is none.
    pub fn suggestion(&self) -> &str {
        &self.suggestion
    }
}

impl fmt::Display for StylesheetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stylesheet, byte {}: {}; {}", self.at, self.message, self.suggestion)
    }
}

impl std::error::Error for StylesheetError {}

impl Stylesheet {
    /// Parses a stylesheet. An empty text gives a stylesheet without rules.
    ///
    /// # Errors
    ///
    /// Returns [`StylesheetError`] for the first mistake.
    pub fn parse(text: &str) -> Result<Self, StylesheetError> {
        let mut parser = StylesheetParser { text, at: 0, aliases: Vec::new(), unknown: Vec::new() };
        let mut rules = Vec::new();
        while parser.peek().is_some() {
            if rules.len() == MAX_RULES {
                return Err(
                    parser.error(format!("the stylesheet has more than {MAX_RULES} rules"), "use fewer")
                );
            }
            rules.push(parser.rule()?);
        }
        Ok(Self { rules, aliases: parser.aliases, unknown: parser.unknown })
    }

    /// Returns the unknown properties with their positions.
    pub(crate) fn unknown(&self) -> &[(usize, String)] {
        &self.unknown
    }

    /// Returns the names of other dialects: the byte offset, the name, and the name in this dialect.
    pub(crate) fn aliases(&self) -> &[(usize, &'static str, &'static str)] {
        &self.aliases
    }

    /// Applies the stylesheet to all nodes. For each node, the most specific matching rule counts. If several are equally specific, the last one
    /// counts. The node's own attributes override the rule.
    pub fn apply(&self, pipeline: &mut Pipeline) {
        if self.rules.is_empty() {
            return;
        }
        for node in pipeline.nodes_mut() {
            let (shape, classes) = (node.shape().into_owned(), node.classes());
            let mut chosen: [Option<(u8, &str)>; PROPERTIES.len()] = [None; PROPERTIES.len()];
            for rule in &self.rules {
                let applies = match &rule.selector {
                    StyleSelector::All => true,
                    StyleSelector::Shape(name) => *name == shape,
                    StyleSelector::Class(class) => classes.contains(class),
                    StyleSelector::Id(id) => id == node.id(),
                };
                if !applies {
                    continue;
                }
                let specificity = rule.selector.specificity();
                for (property, value) in &rule.declarations {
                    for (slot, name) in chosen.iter_mut().zip(PROPERTIES) {
                        if name == *property && slot.is_none_or(|(before, _)| before <= specificity) {
                            *slot = Some((specificity, value));
                        }
                    }
                }
            }
            for (slot, property) in chosen.into_iter().zip(PROPERTIES) {
                if let Some((_, value)) = slot {
                    node.attributes.set_below(property, Value::string(value));
                }
            }
        }
    }
}

struct StylesheetParser<'a> {
    text: &'a str,
    at: usize,
    aliases: Vec<(usize, &'static str, &'static str)>,
    /// The unknown properties so far: position and name.
    unknown: Vec<(usize, String)>,
}

impl<'a> StylesheetParser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Returns the next character that is not a blank.
    fn peek(&mut self) -> Option<char> {
        loop {
            self.at += self.rest().len() - self.rest().trim_start().len();
            // Comments have the same form as in CSS. An unclosed comment is an error at its beginning.
            match self.rest().strip_prefix("/*").and_then(|rest| rest.find("*/")) {
                Some(end) => self.at += end + 4,
                None => return self.rest().chars().next(),
            }
        }
    }

    fn error(&self, message: impl Into<String>, suggestion: impl Into<String>) -> StylesheetError {
        StylesheetError { at: self.at, message: message.into(), suggestion: suggestion.into() }
    }

    fn expected(&mut self, wanted: &str) -> StylesheetError {
        let found = self.peek().map_or("its end".to_owned(), |c| format!("`{}`", c.escape_debug()));
        self.error(
            format!("expected {wanted}, found {found}"),
            "rules look like `.code { llm_model: name; reasoning_effort: high }`",
        )
    }

    fn eat(&mut self, c: char) -> bool {
        let here = self.peek() == Some(c);
        self.at += if here { c.len_utf8() } else { 0 };
        here
    }

    fn name(&mut self, wanted: &str, hyphens: bool) -> Result<String, StylesheetError> {
        let allowed = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_' || (hyphens && *b == b'-');
        let length = self.rest().bytes().take_while(allowed).count();
        if length == 0 {
            return Err(self.expected(wanted));
        }
        let name = self.rest()[..length].to_owned();
        self.at += length;
        Ok(name)
    }

    fn rule(&mut self) -> Result<StyleRule, StylesheetError> {
        let selector = match self.peek() {
            Some('*') => {
                self.at += 1;
                StyleSelector::All
            }
            Some('.') => {
                self.at += 1;
                StyleSelector::Class(self.name("the name of a class", true)?)
            }
            Some('#') => {
                self.at += 1;
                StyleSelector::Id(self.name("the id of a node", false)?)
            }
            _ => StyleSelector::Shape(self.name("a selector: `*`, a shape, `.class` or `#id`", false)?),
        };
        if !self.eat('{') {
            return Err(self.expected("`{`"));
        }
        let mut declarations = Vec::new();
        loop {
            declarations.push(self.declaration()?);
            let more = self.eat(';');
            if self.eat('}') {
                return Ok(StyleRule { selector, declarations });
            }
            if !more {
                return Err(self.expected("`;` or `}`"));
            }
        }
    }

    fn declaration(&mut self) -> Result<(&'static str, String), StylesheetError> {
        self.peek();
        let at = self.at;
        let name = self.name("a property", true)?;
        let alias = ALIASES.into_iter().find(|(alias, _)| *alias == name);
        if let Some((alias, property)) = alias {
            self.aliases.push((at, alias, property));
        }
        let property = PROPERTIES.into_iter().find(|property| *property == name);
        let property = match property.or(alias.map(|(_, property)| property)) {
            // If a name resembles none of the known names, it belongs to another dialect and is not a typing mistake.
            None if closest_name(&name, PROPERTIES.into_iter().chain(ALIASES.map(|(alias, _)| alias)))
                .is_none() =>
            {
                self.unknown.push((at, name.clone()));
                Some("")
            }
            property => property,
        };
        let Some(property) = property else {
            self.at = at;
            let suggestion = format!("the properties are `{}`", PROPERTIES.join("`, `"));
            return Err(self.error(format!("the property `{name}` does not exist"), suggestion));
        };
        if !self.eat(':') {
            return Err(self.expected("`:`"));
        }
        self.peek();
        let at = self.at;
        let value = match self.rest().strip_prefix('"') {
            Some(rest) => {
                let Some(end) = rest.find('"') else {
                    return Err(self.error("a quote is not closed", "close it with `\"`"));
                };
                self.at += end + 2;
                rest[..end].to_owned()
            }
            None => {
                let end = self.rest().find([';', '}', '{', '"', '\n']).unwrap_or(self.rest().len());
                let end = self.rest()[..end].find("/*").unwrap_or(end);
                let value = self.rest()[..end].trim().to_owned();
                self.at += end;
                value
            }
        };
        if value.is_empty() {
            self.at = at;
            return Err(self.expected("a value"));
        }
        Ok((property, value))
    }
}
