//! The scripts that make the tables: one for each version, each run once.

use crate::names::Names;

/// One migration of the tables, for users who run migrations with their own tool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migration {
    /// Its number; they are run in this order, each once.
    pub version: u32,
    /// Its effect, as a name.
    pub name: &'static str,
    /// The statements, with schema and prefix filled in. They record the version in the table `migrations` themselves.
    pub sql: String,
}

/// The scripts by version, each a name and the statements. A released script is never edited: a change of the tables is another script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MigrationScripts(pub(crate) &'static [(&'static str, &'static str)]);

/// The scripts of this library.
pub(crate) const SCRIPTS: MigrationScripts =
    MigrationScripts(&[("tables", include_str!("../migrations/0001_tables.sql"))]);

impl MigrationScripts {
    /// Returns the version of the tables after all scripts.
    pub(crate) fn version(self) -> i32 {
        i32::try_from(self.0.len()).unwrap_or(i32::MAX)
    }

    /// Returns all scripts.
    pub(crate) fn all(self, names: &Names) -> Vec<Migration> {
        let schema = format!("CREATE SCHEMA IF NOT EXISTS \"{}\";\n", names.schema());
        (1..)
            .zip(self.0)
            .map(|(version, (name, script))| {
                let sql = names.fill(script);
                Migration { version, name, sql: if version == 1 { schema.clone() + &sql } else { sql } }
            })
            .collect()
    }

    /// Returns the statements of the scripts after a version, without the making of the schema.
    pub(crate) fn after(self, names: &Names, version: i32) -> Vec<String> {
        let done = usize::try_from(version).unwrap_or(0);
        self.0.iter().skip(done).map(|(_, script)| names.fill(script)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: POSTGRES-8.
    #[test]
    fn every_script_records_its_version() {
        let names = Names::new("s", "").unwrap();
        let all = SCRIPTS.all(&names);
        assert_eq!(all.len(), SCRIPTS.after(&names, 0).len());
        assert!(SCRIPTS.after(&names, SCRIPTS.version()).is_empty());
        for Migration { version, name, sql } in all {
            let recorded = format!("(version, name) VALUES ({version}, '{name}')");
            assert!(sql.contains(&recorded), "{name}");
        }
    }
}
