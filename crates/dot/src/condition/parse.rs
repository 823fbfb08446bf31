//! Parses conditions. `||` binds least, then `&&`, then `!`, and then clauses and parentheses.

use regex_lite::Regex;

use crate::outcome::Status;

use super::{ConditionError, Expression, Literal, MAX_DEPTH, MAX_LENGTH, Operator};

type Result<T> = std::result::Result<T, ConditionError>;

/// Parses a condition; `None` if the text is empty. Also returns the texts that are compared with the outcome, as written in the source.
pub(super) fn parse(text: &str) -> Result<(Option<Expression>, Vec<String>)> {
    if text.len() > MAX_LENGTH {
        let message = format!("the condition has {} bytes; the maximum is {MAX_LENGTH}", text.len());
        return Err(ConditionError::new(
            MAX_LENGTH,
            message,
            "let a node compute the value, and test the key that it sets",
        ));
    }
    let mut parser = ConditionParser { text, at: 0, outcomes: Vec::new() };
    parser.skip_blank();
    if parser.rest().is_empty() {
        return Ok((None, Vec::new()));
    }
    let root = parser.any(0)?;
    parser.skip_blank();
    if parser.rest().is_empty() { Ok((Some(root), parser.outcomes)) } else { Err(parser.leftover()) }
}

struct ConditionParser<'a> {
    text: &'a str,
    at: usize,
    outcomes: Vec<String>,
}

impl<'a> ConditionParser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_blank(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip_blank();
        let here = self.rest().starts_with(token);
        self.at += if here { token.len() } else { 0 };
        here
    }

    fn error(&self, message: impl Into<String>, suggestion: impl Into<String>) -> ConditionError {
        ConditionError::new(self.at, message, suggestion)
    }

    /// Describes the text at this position, for an error message.
    fn found(&self) -> String {
        match self.rest().chars().next() {
            None => "its end".to_owned(),
            Some(c) => format!("`{}`", c.escape_debug()),
        }
    }

    fn leftover(&self) -> ConditionError {
        match self.rest().chars().next() {
            Some(')') => self.error("a closing parenthesis has no opening one", "remove it"),
            _ => self.error(
                format!("expected `&&`, `||` or the end, found {}", self.found()),
                "join clauses with `&&` or `||`",
            ),
        }
    }

    fn any(&mut self, depth: usize) -> Result<Expression> {
        let first = self.all(depth)?;
        if !self.eat("||") {
            return Ok(first);
        }
        let mut parts = vec![first, self.all(depth)?];
        while self.eat("||") {
            parts.push(self.all(depth)?);
        }
        Ok(Expression::Any(parts))
    }

    fn all(&mut self, depth: usize) -> Result<Expression> {
        let first = self.negated(depth)?;
        if !self.eat("&&") {
            return Ok(first);
        }
        let mut parts = vec![first, self.negated(depth)?];
        while self.eat("&&") {
            parts.push(self.negated(depth)?);
        }
        Ok(Expression::All(parts))
    }

    fn negated(&mut self, depth: usize) -> Result<Expression> {
        if depth > MAX_DEPTH {
            let message = format!("parentheses and negations nest deeper than {MAX_DEPTH}");
            return Err(self.error(message, "let a node compute the value, and test the key that it sets"));
        }
        self.skip_blank();
        if self.rest().starts_with('!') && !self.rest().starts_with("!=") {
            self.at += 1;
            return Ok(Expression::Not(Box::new(self.negated(depth + 1)?)));
        }
        let opened = self.at;
        if self.eat("(") {
            let inner = self.any(depth + 1)?;
            if !self.eat(")") {
                let message = format!("expected `)`, found {}", self.found());
                return Err(self.error(message, format!("close the parenthesis of byte {opened}")));
            }
            return Ok(inner);
        }
        self.clause()
    }

    fn clause(&mut self) -> Result<Expression> {
        let key = self.key()?;
        self.skip_blank();
        const OPERATORS: [(&str, Operator); 6] = [
            ("!=", Operator::NotEqual),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("=", Operator::Equal),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ];
        if self.rest().starts_with("==") {
            return Err(self.error("`==` is not an operator", "write `=`"));
        }
        for (token, operator) in OPERATORS {
            if self.eat(token) {
                let at = self.at;
                let compares = matches!(operator, Operator::Equal | Operator::NotEqual);
                // `context.x=` compares with an empty text. An outcome is never empty, so `outcome=` is a mistake.
                let mut literal = match compares && key != "outcome" && self.at_end_of_value() {
                    true => String::new(),
                    false => self.literal()?,
                };
                if key == "outcome" && compares {
                    self.outcomes.push(literal.clone());
                    // A literal may be a status name of another dialect. Replace it with the name in this dialect.
                    if let Some(status) = Status::of_word(&literal) {
                        literal = status.as_str().to_owned();
                    }
                }
                if !compares && literal.parse::<f64>().is_err() {
                    let message = format!("`{literal}` is not a number");
                    return Err(ConditionError::new(at, message, "`<`, `<=`, `>` and `>=` compare numbers"));
                }
                return Ok(Expression::Compare(key, operator, Literal(literal)));
            }
        }
        if self.word("contains") {
            return Ok(Expression::Compare(key, Operator::Contains, Literal(self.literal()?)));
        }
        if self.word("matches") {
            self.skip_blank();
            let at = self.at;
            let pattern = self.literal()?;
            return match Regex::new(&pattern) {
                Ok(regex) => Ok(Expression::Matches(key, regex)),
                Err(error) => {
                    let message = format!("`{pattern}` is not a regular expression: {error}");
                    Err(ConditionError::new(
                        at,
                        message,
                        "put the expression in quotes, and write `\\\\` for `\\`",
                    ))
                }
            };
        }
        Ok(Expression::Truthy(key))
    }

    /// Consumes a word that stands alone.
    fn word(&mut self, word: &str) -> bool {
        let alone =
            self.rest().strip_prefix(word).is_some_and(|rest| rest.starts_with([' ', '\t', '\n', '"']));
        self.at += if alone { word.len() } else { 0 };
        alone
    }

    /// `name(.name)*`
    fn key(&mut self) -> Result<String> {
        let start = self.at;
        loop {
            let length = self.rest().bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
            if length == 0 || self.rest().as_bytes()[0].is_ascii_digit() {
                let message = format!("expected a key, found {}", self.found());
                let keys = "a key is `outcome`, `preferred_label`, or a name of the context such as `context.tests_passed`";
                return Err(self.error(message, keys));
            }
            self.at += length;
            if !self.rest().starts_with('.') {
                return Ok(self.text[start..self.at].to_owned());
            }
            self.at += 1;
        }
    }

    /// Returns whether no value follows at this position.
    fn at_end_of_value(&self) -> bool {
        let rest = self.rest().trim_start();
        rest.is_empty() || ["&&", "||", ")"].iter().any(|token| rest.starts_with(token))
    }

    /// Text in quotes, or everything up to `&&`, `||` or `)`.
    fn literal(&mut self) -> Result<String> {
        self.skip_blank();
        if self.rest().starts_with('"') {
            return self.quoted();
        }
        let rest = self.rest();
        let end = ["&&", "||", ")"].iter().filter_map(|token| rest.find(token)).min().unwrap_or(rest.len());
        let literal = rest[..end].trim();
        if literal.is_empty() {
            return Err(self.error("a value is missing", "write `\"\"` for the empty text"));
        }
        if let Some(at) = literal.find(['=', '<', '>', '"', '(']) {
            self.at += at;
            let message = format!("{} stands in a value without quotes", self.found());
            return Err(self.error(message, "join clauses with `&&` or `||`, or put the value in quotes"));
        }
        if let Some(word) = literal.split_whitespace().find(|word| matches!(*word, "AND" | "OR" | "NOT")) {
            self.at += literal.find(word).unwrap_or(0);
            let message = format!("`{word}` stands in a value without quotes");
            return Err(self.error(message, "write `&&`, `||` and `!`, or put the value in quotes"));
        }
        self.at += end;
        Ok(literal.to_owned())
    }

    fn quoted(&mut self) -> Result<String> {
        let start = self.at;
        let mut literal = String::new();
        let mut letters = self.rest().char_indices().skip(1);
        while let Some((at, c)) = letters.next() {
            match c {
                '"' => {
                    self.at = start + at + 1;
                    return Ok(literal);
                }
                '\\' => match letters.next() {
                    Some((_, c @ ('"' | '\\'))) => literal.push(c),
                    Some((_, 'n')) => literal.push('\n'),
                    Some((_, 't')) => literal.push('\t'),
                    _ => {
                        let suggestion = "the escapes are `\\\"`, `\\n`, `\\t` and `\\\\`";
                        return Err(ConditionError::new(start + at, "the escape is unknown", suggestion));
                    }
                },
                c => literal.push(c),
            }
        }
        Err(self.error("a quote is not closed", "close it with `\"`"))
    }
}
