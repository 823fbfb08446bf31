//! The names of the tables: checks a schema and a prefix, and inserts them into the statements.

use ferrata_store::{Error, ErrorKind, Result};

/// The maximum length of schema and prefix, so that every name made from them has less than PostgreSQL's limit of 63 bytes.
const MAX_SCHEMA: usize = 32;
const MAX_PREFIX: usize = 20;

/// The tables and views.
const TABLES: [&str; 9] = [
    "runs",
    "records",
    "heartbeats",
    "objects",
    "chunks",
    "migrations",
    "run_list",
    "record_list",
    "failed_today",
];

/// The schema and the prefix of all tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    schema: String,
    prefix: String,
}

impl Names {
    /// Checks both names. They have only lower-case letters, digits and underscores, so that they mean the same with and without quotes, in every
    /// tool.
    pub(crate) fn new(schema: &str, prefix: &str) -> Result<Self> {
        let is_plain =
            |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        let starts = |text: &str| text.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
        if !(is_plain(schema) && starts(schema) && schema.len() <= MAX_SCHEMA && !schema.starts_with("pg_")) {
            let message = format!(
                "the schema must have 1 to {MAX_SCHEMA} of a-z 0-9 _ and must not start with a digit or pg_; use another name"
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        if !(prefix.is_empty() || is_plain(prefix) && starts(prefix) && prefix.len() <= MAX_PREFIX) {
            let message = format!(
                "the table prefix must have at most {MAX_PREFIX} of a-z 0-9 _ and must not start with a digit; use another prefix"
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(Self { schema: schema.to_owned(), prefix: prefix.to_owned() })
    }

    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// Returns the full name of a table or view.
    pub(crate) fn of(&self, name: &str) -> String {
        format!("\"{}\".{}{name}", self.schema, self.prefix)
    }

    /// Returns the channel of notices, the same for every process that uses these tables.
    pub(crate) fn channel(&self) -> String {
        format!("{}.{}runs", self.schema, self.prefix)
    }

    /// Returns the channel for messages between processes.
    pub(crate) fn said_channel(&self) -> String {
        format!("{}.{}said", self.schema, self.prefix)
    }

    /// Fills the names into a statement. `{runs}` is the table of runs, and `{prefix}` is the beginning of index names.
    pub(crate) fn fill(&self, template: &str) -> String {
        let mut sql = template.replace("{prefix}", &self.prefix);
        for name in TABLES {
            sql = sql.replace(&format!("{{{name}}}"), &self.of(name));
        }
        // The server's time in milliseconds. It is constant within a statement, so that an index search can use it.
        sql.replace("{now}", "floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_taken() {
        for (schema, prefix) in [("ferrata", ""), ("_a1", "app_"), (&*"s".repeat(32), &*"p".repeat(20))] {
            assert!(Names::new(schema, prefix).is_ok(), "{schema} {prefix}");
        }
        for schema in ["", "1a", "A", "a-b", "a\"b", "a b", "pg_x", "é", &*"s".repeat(33)] {
            assert_eq!(Names::new(schema, "").unwrap_err().kind(), ErrorKind::Invalid, "{schema}");
        }
        for prefix in ["1", "A", "a.", "a;--", &*"p".repeat(21)] {
            assert_eq!(Names::new("a", prefix).unwrap_err().kind(), ErrorKind::Invalid, "{prefix}");
        }
    }

    #[test]
    fn every_place_in_a_statement_is_filled() {
        let names = Names::new("s", "p_").unwrap();
        assert_eq!(names.fill("{runs} {prefix}x {records}"), "\"s\".p_runs p_x \"s\".p_records");
        for migration in crate::migrations::SCRIPTS.all(&names) {
            assert!(!migration.sql.contains('{'), "{}", migration.name);
        }
    }
}
