//! The text of one or more SQL statements with its values. The driver executes it in one command.

use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{AssertSqlSafe, Sqlite};

/// If a text has at most this many rows of values, the driver keeps it prepared, because the same text is likely to come again.
const KEPT: usize = 128;

/// A value of a statement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SqlValue {
    Text(Option<String>),
    Number(Option<i64>),
    Bytes(Vec<u8>),
}

impl From<&str> for SqlValue {
    fn from(text: &str) -> Self {
        Self::Text(Some(text.to_owned()))
    }
}

impl From<String> for SqlValue {
    fn from(text: String) -> Self {
        Self::Text(Some(text))
    }
}

impl From<i64> for SqlValue {
    fn from(number: i64) -> Self {
        Self::Number(Some(number))
    }
}

/// SQL statements, and their values in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct SqlStatement {
    text: String,
    values: Vec<SqlValue>,
    rows: usize,
}

impl SqlStatement {
    /// Creates a statement from a text without values.
    pub(crate) fn new(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }

    /// Appends text.
    #[must_use]
    pub(crate) fn and(mut self, text: &str) -> Self {
        self.text.push_str(text);
        self
    }

    /// Appends a value.
    #[must_use]
    pub(crate) fn bind(mut self, value: impl Into<SqlValue>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Appends another statement, which runs after this one.
    #[must_use]
    pub(crate) fn join(mut self, other: Self) -> Self {
        self.text.push_str(&other.text);
        self.values.extend(other.values);
        self.rows += other.rows;
        self
    }

    /// Returns the statement with `EXPLAIN` before it.
    #[cfg(test)]
    pub(crate) fn explained(mut self) -> Self {
        self.text.insert_str(0, "EXPLAIN QUERY PLAN ");
        self
    }

    /// Returns the number of rows of values.
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// Adds a value and returns the numbered name by which the text refers to it. Use it only in a text of one statement.
    pub(crate) fn name(&mut self, value: impl Into<SqlValue>) -> String {
        self.values.push(value.into());
        format!("?{}", self.values.len())
    }

    /// Appends `before`, then the rows of values, then `after`. Appends nothing if there are no rows.
    pub(crate) fn rows<const N: usize>(
        &mut self,
        before: &str,
        rows: impl IntoIterator<Item = [SqlValue; N]>,
        after: &str,
    ) {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return;
        }
        self.text.push_str(before);
        for (place, row) in rows.enumerate() {
            self.text.push_str(if place == 0 { "(" } else { ",(" });
            self.text.push_str(&["?"; N].join(","));
            self.text.push(')');
            self.values.extend(row);
            self.rows += 1;
        }
        self.text.push_str(after);
    }

    /// Creates the driver's query.
    pub(crate) fn query(self) -> Query<'static, Sqlite, SqliteArguments> {
        let is_kept = self.rows <= KEPT;
        let query = sqlx::query(AssertSqlSafe(self.text)).persistent(is_kept);
        self.values.into_iter().fold(query, |query, value| match value {
            SqlValue::Text(text) => query.bind(text),
            SqlValue::Number(number) => query.bind(number),
            SqlValue::Bytes(bytes) => query.bind(bytes),
        })
    }
}
