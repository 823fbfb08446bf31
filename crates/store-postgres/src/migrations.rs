//! The scripts that create the tables: one for each version. Each script runs once.

use crate::names::Names;

/// One migration of the tables, for users who run migrations with their own tool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migration {
    /// The number of the migration. Migrations run in this order, each once.
    pub version: u32,
    /// A short name for the effect of the migration.
    pub name: &'static str,
    /// The SQL statements, with schema and prefix filled in. They also record the version in the table `migrations`.
    pub sql: String,
}

/// The scripts in the order of their versions. A script is a name and SQL statements. A released script never changes: a change of the tables is a
/// new script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MigrationScripts(pub(crate) &'static [(&'static str, &'static str)]);

/// The scripts of this library.
pub(crate) const SCRIPTS: MigrationScripts =
    MigrationScripts(&[("tables", include_str!("../migrations/0001_tables.sql"))]);

impl MigrationScripts {
    /// Returns the version of the tables after the last script.
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

    /// Returns the statements of the scripts after `version`, without the statement that creates the schema.
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
