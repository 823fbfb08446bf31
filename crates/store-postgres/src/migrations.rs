//! The tables and how they came about: numbered scripts, each run once.

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

/// The scripts in order. One that was released is never edited; a change is a further one.
///
/// Each script ends by writing its version and `usable_by`, the oldest version that can use the tables afterwards. A script that only adds keeps the
/// `usable_by` of the previous one, so old processes continue during an upgrade.
const SCRIPTS: [(&str, &str); 3] = [
    ("runs_and_records", include_str!("../migrations/0001_runs_and_records.sql")),
    ("heads", include_str!("../migrations/0002_heads.sql")),
    ("objects", include_str!("../migrations/0003_objects.sql")),
];

/// The version of the tables that this library makes and uses.
pub(crate) const VERSION: i32 = 3;

/// Returns all scripts.
pub(crate) fn all(names: &Names) -> Vec<Migration> {
    let schema = format!("CREATE SCHEMA IF NOT EXISTS \"{}\";\n", names.schema());
    (1..)
        .zip(SCRIPTS)
        .map(|(version, (name, script))| {
            let sql = names.fill(script);
            Migration { version, name, sql: if version == 1 { schema.clone() + &sql } else { sql } }
        })
        .collect()
}

/// Returns the scripts after a version, without the making of the schema.
pub(crate) fn after(names: &Names, version: i32) -> Vec<String> {
    let done = usize::try_from(version).unwrap_or(0);
    SCRIPTS.iter().skip(done).map(|(_, script)| names.fill(script)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: POSTGRES-8.
    #[test]
    fn the_newest_script_makes_the_version_in_use() {
        assert_eq!(usize::try_from(VERSION), Ok(SCRIPTS.len()));
        let names = Names::new("s", "").unwrap();
        assert!(after(&names, VERSION).is_empty());
        for migration in all(&names) {
            let noted = format!("VALUES ({}, ", migration.version);
            assert!(migration.sql.contains(&noted), "{} notes its version", migration.name);
        }
    }
}
