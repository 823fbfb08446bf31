//! Finds the variables of a shell command: their positions, the quotes around them, and the names that the command sets itself.

use std::collections::BTreeSet;

use crate::variable::{VariableForm, VariableRef, variable_at};

/// The kind of quotes around a position in a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShellQuote {
    /// No quotes.
    Plain,
    /// Double quotes.
    Double,
    /// Single quotes. The shell replaces no variable inside them.
    Single,
    /// The body of a here-document.
    HereDocument,
    /// The body of a here-document whose end word is quoted. The shell replaces no variable inside it.
    QuotedHereDocument,
    /// A comment.
    Comment,
}

/// A variable in a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShellVariable<'a> {
    pub(crate) variable: VariableRef<'a>,
    pub(crate) quote: ShellQuote,
}

/// The variables of a command.
#[derive(Debug, Default)]
pub(crate) struct ShellVariables<'a> {
    /// The variables of the command, in order.
    pub(crate) found: Vec<ShellVariable<'a>>,
    /// The names that the command sets itself.
    assigned: BTreeSet<&'a str>,
    /// Whether the command runs text from elsewhere, which may set any name.
    is_open: bool,
}

impl ShellVariables<'_> {
    /// Returns whether the command may set this name itself.
    pub(crate) fn may_set(&self, name: &str) -> bool {
        self.is_open || self.assigned.contains(name)
    }
}

/// Names of variables that shells set.
const OF_SHELLS: [&str; 24] = [
    "BASHPID",
    "BASH_SOURCE",
    "BASH_VERSION",
    "EPOCHREALTIME",
    "EPOCHSECONDS",
    "EUID",
    "FUNCNAME",
    "GROUPS",
    "HOSTNAME",
    "IFS",
    "LINENO",
    "MACHTYPE",
    "OLDPWD",
    "OPTARG",
    "OPTIND",
    "OSTYPE",
    "PIPESTATUS",
    "PPID",
    "PWD",
    "RANDOM",
    "REPLY",
    "SECONDS",
    "SHLVL",
    "UID",
];

/// Returns whether shells set a variable of this name.
pub(crate) fn is_of_shells(name: &str) -> bool {
    OF_SHELLS.contains(&name)
}

/// Finds the variables of a command.
pub(crate) fn read(command: &str) -> ShellVariables<'_> {
    let mut reader = ShellReader {
        text: command,
        at: 0,
        quotes: Vec::new(),
        documents: Vec::new(),
        result: ShellVariables::default(),
    };
    reader.run();
    let mut result = reader.result;
    find_assignments(command, &mut result);
    result
}

/// A construct that is open at a position in a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenConstructs {
    Double,
    /// A command substitution `$(`.
    Substitution,
    Backtick,
}

/// A here-document whose body follows later.
struct HereDocument<'a> {
    end: &'a str,
    is_quoted: bool,
    strips_tabs: bool,
}

struct ShellReader<'a> {
    text: &'a str,
    at: usize,
    quotes: Vec<OpenConstructs>,
    documents: Vec<HereDocument<'a>>,
    result: ShellVariables<'a>,
}

impl<'a> ShellReader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn quote(&self) -> ShellQuote {
        if self.quotes.last() == Some(&OpenConstructs::Double) {
            ShellQuote::Double
        } else {
            ShellQuote::Plain
        }
    }

    fn run(&mut self) {
        while let Some(c) = self.rest().chars().next() {
            let is_plain = self.quote() == ShellQuote::Plain;
            match c {
                '\\' => self.skip(2),
                '\'' if is_plain => self.single(false),
                '"' if is_plain => self.open(OpenConstructs::Double, 1),
                '"' => self.close(1),
                '`' if self.quotes.contains(&OpenConstructs::Backtick) => {
                    // The end of the substitution also ends everything that is still open inside it.
                    while self.quotes.pop().is_some_and(|open| open != OpenConstructs::Backtick) {}
                    self.at += 1;
                }
                '`' => self.open(OpenConstructs::Backtick, 1),
                ')' if self.quotes.last() == Some(&OpenConstructs::Substitution) => self.close(1),
                '#' if is_plain && self.begins_word() => self.through_line(ShellQuote::Comment),
                '\n' => {
                    self.at += 1;
                    for document in std::mem::take(&mut self.documents) {
                        self.read_document(&document);
                    }
                }
                '<' if is_plain && self.rest().starts_with("<<<") => self.at += 3,
                '<' if is_plain && self.rest().starts_with("<<") => self.read_here_document(),
                '$' if is_plain && self.rest().starts_with("$'") => {
                    self.at += 1;
                    self.single(true);
                }
                '$' if self.rest().starts_with("$(") => self.open(OpenConstructs::Substitution, 2),
                _ if self.variable(self.quote()) => {}
                _ => self.at += c.len_utf8(),
            }
        }
    }

    fn skip(&mut self, count: usize) {
        let skipped: usize = self.rest().chars().take(count).map(char::len_utf8).sum();
        self.at += skipped;
    }

    fn open(&mut self, open: OpenConstructs, length: usize) {
        self.quotes.push(open);
        self.at += length;
    }

    fn close(&mut self, length: usize) {
        self.quotes.pop();
        self.at += length;
    }

    fn begins_word(&self) -> bool {
        self.text[..self.at].chars().next_back().is_none_or(|c| c.is_whitespace() || ";|&(`".contains(c))
    }

    /// Reads a variable if one begins at this position.
    fn variable(&mut self, quote: ShellQuote) -> bool {
        let rest = self.rest();
        if rest.starts_with("${{") {
            self.at += 3;
            return true;
        }
        let Some(variable) =
            (rest.starts_with(['$', '{'])).then(|| variable_at(self.text, self.at)).flatten()
        else {
            return false;
        };
        self.at = variable.end;
        self.result.found.push(ShellVariable { variable, quote });
        true
    }

    /// Reads a text in single quotes, beginning at the first quote.
    fn single(&mut self, has_escapes: bool) {
        self.at += 1;
        while let Some(c) = self.rest().chars().next() {
            match c {
                '\'' => {
                    self.at += 1;
                    return;
                }
                '\\' if has_escapes => self.skip(2),
                _ if self.variable(ShellQuote::Single) => {}
                _ => self.at += c.len_utf8(),
            }
        }
    }

    /// Reads the rest of the line.
    fn through_line(&mut self, quote: ShellQuote) {
        while let Some(c) = self.rest().chars().next().filter(|c| *c != '\n') {
            if !self.variable(quote) {
                self.at += c.len_utf8();
            }
        }
    }

    /// Reads `<<END`.
    fn read_here_document(&mut self) {
        self.at += 2;
        let strips_tabs = self.rest().starts_with('-');
        self.at += usize::from(strips_tabs);
        self.at += self.rest().len() - self.rest().trim_start_matches([' ', '\t']).len();
        let rest = self.rest();
        let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'));
        let (end, length) = match quote {
            Some(quote) => {
                let inner = &rest[1..];
                let end = inner.split(quote).next().unwrap_or_default();
                (end, end.len() + 2)
            }
            None => {
                let length =
                    rest.find(|c: char| c.is_whitespace() || ";|&<>()".contains(c)).unwrap_or(rest.len());
                (&rest[..length], length)
            }
        };
        // The spelling `\END` quotes the end word as well.
        let escaped = end.strip_prefix('\\');
        let is_quoted = quote.is_some() || escaped.is_some();
        let end = escaped.unwrap_or(end);
        self.at = (self.at + length).min(self.text.len());
        if !end.is_empty() {
            self.documents.push(HereDocument { end, is_quoted, strips_tabs });
        }
    }

    fn read_document(&mut self, document: &HereDocument<'_>) {
        let quote =
            if document.is_quoted { ShellQuote::QuotedHereDocument } else { ShellQuote::HereDocument };
        while !self.rest().is_empty() {
            let line = self.rest().split('\n').next().unwrap_or_default();
            let line = if document.strips_tabs { line.trim_start_matches('\t') } else { line };
            let is_end = line == document.end;
            self.through_line(if is_end { ShellQuote::Comment } else { quote });
            self.at += usize::from(self.rest().starts_with('\n'));
            if is_end {
                return;
            }
        }
    }
}

/// Commands that set the names in their arguments.
const SETTERS: [&str; 11] = [
    "read",
    "export",
    "local",
    "declare",
    "typeset",
    "readonly",
    "unset",
    "mapfile",
    "readarray",
    "getopts",
    "let",
];

/// Finds the names that a command sets, by its words. The search prefers too many names: a name too many costs a warning, a missing name could fail a
/// run.
fn find_assignments<'a>(command: &'a str, result: &mut ShellVariables<'a>) {
    let is_name = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    for part in command.split([';', '|', '&', '(', ')', '{', '}', '\n', '`', '"', '\'']) {
        let mut sets = false;
        let mut before = "";
        for word in part.split_whitespace() {
            let name = word.split(['=', '+', '[', ':', '?', '-']).next().unwrap_or_default();
            let assigns = word.len() > name.len() && word[name.len()..].contains('=');
            if is_name(name) && (assigns || sets || matches!(before, "for" | "select" | "-v")) {
                result.assigned.insert(name);
            }
            result.is_open |= matches!(word, "eval" | "source" | ".");
            sets |= SETTERS.contains(&word);
            before = word;
        }
    }
}

/// Returns whether the shell itself replaces the variable: it has a plain name, and is at a position where the shell replaces variables.
pub(crate) fn is_looked_up(one: &ShellVariable<'_>) -> bool {
    !matches!(one.quote, ShellQuote::Single | ShellQuote::QuotedHereDocument | ShellQuote::Comment)
        && match one.variable.form {
            VariableForm::Dollar => true,
            VariableForm::Braces => !one.variable.name.contains('.'),
            VariableForm::Template => false,
        }
}

/// Returns the name that the shell looks up. For `$a.b` it is `a`.
pub(crate) fn lookup_name<'a>(one: &ShellVariable<'a>) -> &'a str {
    one.variable.name.split('.').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ShellQuote::{Comment, Double, HereDocument, Plain, QuotedHereDocument, Single};

    fn quotes(command: &str) -> Vec<(String, ShellQuote)> {
        read(command).found.iter().map(|one| (one.variable.name.to_owned(), one.quote)).collect()
    }

    #[test]
    fn quotes_of_variables_are_known() {
        for (command, expected) in [
            (
                "echo $a \"$b\" '$c' \\$d {{ e }}",
                &[("a", Plain), ("b", Double), ("c", Single), ("e", Plain)][..],
            ),
            (
                "echo \"x $(cat $a \"$b\") {{ c }}\" $d",
                &[("a", Plain), ("b", Double), ("c", Double), ("d", Plain)],
            ),
            (
                "echo \"`cat $a`\" $b # don't $c\necho $d",
                &[("a", Plain), ("b", Plain), ("c", Comment), ("d", Plain)],
            ),
            (
                "cat <<EOF; echo $a\n$b ' \" {{ c }}\nEOF\necho '$d'",
                &[("a", Plain), ("b", HereDocument), ("c", HereDocument), ("d", Single)],
            ),
            ("cat <<-'EOF'\n\t$a\n\tEOF\necho $b", &[("a", QuotedHereDocument), ("b", Plain)]),
            ("echo $'it\\'s $a' $b <<< $c", &[("a", Single), ("b", Plain), ("c", Plain)]),
            ("case $a in x) echo $b;; esac; echo \"$c\"", &[("a", Plain), ("b", Plain), ("c", Double)]),
            ("echo ${{ github.x }} ${a:-$b} ${c} a#$d", &[("b", Plain), ("c", Plain), ("d", Plain)]),
            ("awk '{print $NF}' \"it's $a\"", &[("NF", Single), ("a", Double)]),
        ] {
            let expected: Vec<_> =
                expected.iter().map(|(name, quote)| ((*name).to_owned(), *quote)).collect();
            assert_eq!(quotes(command), expected, "{command}");
        }
        // A construct that is not closed extends to the end of the command.
        for open in ["'", "\"", "`", "$(", "cat <<EOF", "cat <<", "\\", "echo ${", "{{", "$"] {
            assert_eq!(quotes(open), [], "{open}");
        }
    }

    #[test]
    fn names_that_command_sets_are_known() {
        let command = "x=1; for f in *; do read -r line rest; done; export Y; z+=2; : ${w:=3}; getopts ab opt; printf -v out 1; a[0]=1";
        let found = read(command);
        for name in ["x", "f", "line", "rest", "Y", "z", "w", "opt", "out", "a"] {
            assert!(found.may_set(name), "{name}");
        }
        assert!(!found.may_set("other") && !read("echo $x = 1").may_set("x"));
        assert!(read(". ./env; echo $x").may_set("x") && read("eval \"$(env)\"").may_set("x"));
    }
}
