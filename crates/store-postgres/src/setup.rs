//! Setup: one process at a time runs the migrations, and checks the server's settings.

use std::sync::Arc;

use ferrata_store::{ErrorKind, Result};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Row as _};

use crate::db::{PostgresDb, Sql, query};
use crate::error::{PostgresCallEffect, PostgresStoreError, fault, is_lost};
use crate::migrations::MigrationScripts;
use crate::names::Names;
use crate::tasks::to_its_end;

const OPERATION: &str = "store.setup";

/// The maximum number of attempts of a setup that meets dead connections.
const TRIES: u32 = 3;

/// The oldest server that the statements work on.
const OLDEST_SERVER: i32 = 140_000;

/// Reads the server's version and settings, and whether the tables and the schema exist.
const LOOK: &str = "SELECT current_setting('server_version_num')::int4, current_setting('server_encoding'), \
    current_setting('fsync'), current_setting('synchronous_commit'), \
    to_regclass($1) IS NOT NULL, EXISTS (SELECT FROM pg_namespace WHERE nspname = $2)";

/// Reads the newest version, and whether an unreleased version created the tables: `migrations` has the column `usable_by`, or `runs` does not have
/// the column `first_seq`.
const VERSION: &str = "SELECT (SELECT max(version) FROM {migrations}), EXISTS (SELECT FROM pg_attribute \
    WHERE attrelid = '{migrations}'::regclass AND attname = 'usable_by' AND NOT attisdropped) \
    OR NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('{runs}') AND attname = 'first_seq' AND NOT attisdropped)";

/// The number of response timeouts that a setup may take. A script may scan a whole table, and a second caller waits for the first.
const ANSWERS: u32 = 10;

/// Runs the scripts that were not run yet.
pub(crate) async fn run(db: &PostgresDb, names: &Names, scripts: MigrationScripts) -> Result<()> {
    let (db, names) = (db.clone(), names.clone());
    to_its_end(async move { set_up_on_any(&db, &names, scripts).await })
        .await
        .map_err(|failed| failed.into_error(OPERATION))
}

async fn set_up_on_any(
    db: &PostgresDb,
    names: &Names,
    scripts: MigrationScripts,
) -> Result<(), PostgresStoreError> {
    // If a connection is dead, the setup starts again on another connection. It never repeats a change.
    let mut tries = 0;
    loop {
        tries += 1;
        let mut held = db.acquire().await?;
        held.send();
        let sent = db.in_time(ANSWERS, set_up(&mut held, names, scripts)).await;
        match PostgresDb::return_to_pool(held, sent) {
            Ok(done) => return done,
            Err(error) if is_lost(&error) && tries < TRIES => {}
            Err(error) => return Err(fault(&error, PostgresCallEffect::Read)),
        }
    }
}

async fn set_up(
    connection: &mut PgConnection,
    names: &Names,
    scripts: MigrationScripts,
) -> Result<Result<(), PostgresStoreError>, sqlx::Error> {
    // Do everything in one transaction: with a pooler that shares connections by transaction, all statements then reach one server process.
    let mut transaction = connection.begin().await?;
    let look = read_settings(&mut transaction, names).await?;
    if let Err(refused) = look.check() {
        return Ok(Err(refused));
    }
    match version(&mut transaction, names, &look, scripts).await? {
        Ok(done) if done == scripts.version() => return transaction.commit().await.map(Ok),
        Ok(_) => {}
        Err(refused) => return Ok(Err(refused)),
    }
    // Concurrent callers wait here, and then find the tables that the first caller created.
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))")
        .persistent(false)
        .bind(format!("ferrata setup {}", names.channel()))
        .execute(&mut *transaction)
        .await?;
    let look = self::read_settings(&mut transaction, names).await?;
    let done = match version(&mut transaction, names, &look, scripts).await? {
        Ok(done) => done,
        Err(refused) => return Ok(Err(refused)),
    };
    if !look.has_schema {
        // Check first whether the schema exists, because `CREATE SCHEMA` needs the permission even if the schema exists.
        let sql = format!("CREATE SCHEMA IF NOT EXISTS \"{}\"", names.schema());
        transaction.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await?;
    }
    for script in scripts.after(names, done) {
        transaction.execute(sqlx::raw_sql(AssertSqlSafe(script))).await?;
    }
    transaction.commit().await.map(Ok)
}

struct ServerSettings {
    server: i32,
    encoding: String,
    fsync: String,
    synchronous_commit: String,
    has_tables: bool,
    has_schema: bool,
}

async fn read_settings(connection: &mut PgConnection, names: &Names) -> Result<ServerSettings, sqlx::Error> {
    let row = sqlx::query(LOOK)
        .persistent(false)
        .bind(names.of("migrations"))
        .bind(names.schema())
        .fetch_one(connection)
        .await?;
    Ok(ServerSettings {
        server: row.try_get(0)?,
        encoding: row.try_get(1)?,
        fsync: row.try_get(2)?,
        synchronous_commit: row.try_get(3)?,
        has_tables: row.try_get(4)?,
        has_schema: row.try_get(5)?,
    })
}

impl ServerSettings {
    fn check(&self) -> Result<(), PostgresStoreError> {
        if self.server < OLDEST_SERVER {
            let message = format!("the server is PostgreSQL {}; use 14 or later", self.server / 10_000);
            return Err(PostgresStoreError::new(ErrorKind::Unsupported, message));
        }
        if self.encoding != "UTF8" {
            let message =
                format!("the database is encoded in {}; create one with ENCODING 'UTF8'", self.encoding);
            return Err(PostgresStoreError::new(ErrorKind::Unsupported, message));
        }
        if self.fsync == "off" || self.synchronous_commit == "off" {
            tracing::warn!(
                fsync = self.fsync,
                synchronous_commit = self.synchronous_commit,
                "with these settings, a crash of the server loses acknowledged records"
            );
        }
        Ok(())
    }
}

/// Returns the version of the tables, or 0 if there are none. Fails with `Unsupported` if a newer or an unreleased version created the tables.
async fn version(
    connection: &mut PgConnection,
    names: &Names,
    look: &ServerSettings,
    scripts: MigrationScripts,
) -> Result<Result<i32, PostgresStoreError>, sqlx::Error> {
    if !look.has_tables {
        return Ok(Ok(0));
    }
    let sql: Sql = Arc::from(names.fill(VERSION));
    let row = query(&sql).persistent(false).fetch_one(connection).await?;
    let version = row.try_get::<Option<i32>, _>(0)?.unwrap_or(0);
    let refuse = |message: String| Ok(Err(PostgresStoreError::new(ErrorKind::Unsupported, message)));
    if row.try_get(1)? {
        return refuse(format!(
            "an unreleased version created the tables of schema `{}`, which no release reads; drop the schema, or use another",
            names.schema()
        ));
    }
    let known = scripts.version();
    if version > known {
        return refuse(format!(
            "the tables have version {version}, and this version reads {known}; upgrade this process"
        ));
    }
    Ok(Ok(version))
}

#[cfg(test)]
mod tests;
