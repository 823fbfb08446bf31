//! A separate, empty space on a store for each workload, and the number of bytes in it.

use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use ferrata::store::CheckpointStore;
use sqlx::postgres::PgListener;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection, Row as _,
    SqliteConnection,
};
use tempfile::TempDir;

use crate::objects::Objects;

/// The kinds of store that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Postgres,
    Redis,
    Files,
    Sqlite,
    S3,
    Nats,
}

impl Kind {
    /// Returns the kind of store that a URL names.
    pub(crate) fn of(url: &str) -> Result<Self> {
        match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("postgres" | "postgresql") => Ok(Self::Postgres),
            Some("redis" | "rediss") => Ok(Self::Redis),
            Some("file") => Ok(Self::Files),
            Some("sqlite") => Ok(Self::Sqlite),
            Some("s3") => Ok(Self::S3),
            Some("nats") => Ok(Self::Nats),
            // The rest of the URL may contain a password, so the error does not show it.
            scheme => {
                bail!(
                    "no bench for `{}:` URLs; use postgres, redis, nats, s3, sqlite or file",
                    scheme.unwrap_or("?")
                )
            }
        }
    }

    /// Returns the name with which the rows of this kind begin.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Redis => "redis",
            Self::Files => "fs",
            Self::Sqlite => "sqlite",
            Self::S3 => "s3",
            Self::Nats => "nats",
        }
    }
}

/// A space on a store. The space is empty at first and removed at the end.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) kind: Kind,
    /// The URL of the server, as it was given.
    server: String,
    /// The name of a schema, or the prefix of all keys.
    name: String,
    folder: Option<TempDir>,
    objects: Option<Objects>,
}

impl Space {
    /// Creates a space on the server.
    pub(crate) async fn make(server: &str) -> Result<Self> {
        let kind = Kind::of(server)?;
        let name = format!("bench_{:016x}", RandomState::new().hash_one(kind.name()));
        let mut space = Self { kind, server: server.to_owned(), name, folder: None, objects: None };
        match kind {
            Kind::Files | Kind::Sqlite => {
                let folder = server.split_once(':').map_or(server, |(_, folder)| folder);
                std::fs::create_dir_all(folder)?;
                space.folder = Some(tempfile::tempdir_in(folder)?);
            }
            Kind::S3 => space.objects = Some(Objects::open(server, &space.name).await?),
            Kind::Postgres | Kind::Redis | Kind::Nats => {}
        }
        Ok(space)
    }

    /// Returns the URL of the store in this space.
    pub(crate) fn url(&self) -> String {
        let and = if self.server.contains('?') { '&' } else { '?' };
        match (self.kind, &self.folder, &self.objects) {
            (Kind::Postgres, ..) => format!("{}{and}schema={}", self.server, self.name),
            (Kind::Redis, ..) => format!("{}{and}prefix={}", self.server, self.name),
            (Kind::Nats, ..) => format!("{}{and}namespace={}", self.server, self.name),
            (Kind::Sqlite, Some(folder), _) => format!("sqlite:{}", folder.path().join("runs.db").display()),
            (_, Some(folder), _) => format!("file:{}", folder.path().join("store").display()),
            (_, _, Some(objects)) => objects.url().to_owned(),
            _ => unreachable!("files have a folder, and S3 has objects"),
        }
    }

    /// Opens the store.
    pub(crate) fn open(&self) -> Result<Arc<dyn CheckpointStore>> {
        Ok(ferrata::connect(&self.url())?)
    }

    /// Returns the name of the schema, or the prefix of all keys.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the folder of the files.
    pub(crate) fn folder(&self) -> Result<&Path> {
        Ok(self.folder.as_ref().context("only files lie in a folder")?.path())
    }

    /// Returns the objects in the bucket.
    pub(crate) fn objects(&self) -> Result<&Objects> {
        self.objects.as_ref().context("only S3 has objects")
    }

    /// Opens a connection to Postgres in the way in which the store does.
    pub(crate) async fn postgres(&self) -> Result<PgConnection> {
        Ok(PgConnection::connect(&self.server).await?)
    }

    /// Opens a connection to a SQLite database in this folder, with the settings of the store: a write-ahead log that is synced at each commit.
    pub(crate) async fn sqlite(&self, name: &str) -> Result<SqliteConnection> {
        let options = SqliteConnectOptions::new().filename(self.folder()?.join(name)).create_if_missing(true);
        let options = options.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
        Ok(options.connect().await?)
    }

    /// Opens a connection to Redis.
    pub(crate) async fn redis(&self) -> Result<redis::aio::MultiplexedConnection> {
        Ok(redis::Client::open(self.server.as_str())?.get_multiplexed_async_connection().await?)
    }

    /// Opens a connection to NATS.
    pub(crate) async fn nats(&self) -> Result<async_nats::Client> {
        Ok(async_nats::connect(self.server.as_str()).await?)
    }

    /// Calls the JetStream API.
    pub(crate) async fn jetstream(&self, call: &str, body: &serde_json::Value) -> Result<serde_json::Value> {
        let reply = self.nats().await?.request(format!("$JS.API.{call}"), body.to_string().into()).await?;
        Ok(serde_json::from_slice(&reply.payload)?)
    }

    /// Opens a Postgres connection that listens for notifications.
    pub(crate) async fn listener(&self) -> Result<PgListener> {
        Ok(PgListener::connect(&self.server).await?)
    }

    /// Opens a Redis connection that listens for messages.
    pub(crate) async fn pubsub(&self) -> Result<redis::aio::PubSub> {
        Ok(redis::Client::open(self.server.as_str())?.get_async_pubsub().await?)
    }

    /// Returns the number of bytes that the store uses: tables with their indexes after a vacuum, keys as Redis counts them, files, objects, or
    /// messages.
    pub(crate) async fn bytes(&self) -> Result<u64> {
        match self.kind {
            Kind::Postgres => self.table_bytes().await,
            Kind::Redis => self.key_bytes().await,
            // Only the logs count. The journal of a process has the same size for one step as for a million.
            Kind::Files => file_bytes(&self.folder()?.join("store/runs")),
            Kind::Sqlite => {
                let mut connection = self.sqlite("runs.db").await?;
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").await?;
                connection.close().await?;
                file_bytes(self.folder()?)
            }
            Kind::S3 => self.objects()?.bytes().await,
            Kind::Nats => {
                let logs = format!("STREAM.INFO.FERRATA-LOGS-{}", self.name);
                let info = self.jetstream(&logs, &serde_json::json!({})).await?;
                info["state"]["bytes"].as_u64().context("the stream of logs is not there")
            }
        }
    }

    async fn table_bytes(&self) -> Result<u64> {
        let mut connection = self.postgres().await?;
        let name = &self.name;
        for table in ["runs", "records"] {
            connection.execute(AssertSqlSafe(format!("VACUUM {name}.{table}"))).await?;
        }
        let sql = format!(
            "SELECT (pg_total_relation_size('{name}.runs') + pg_total_relation_size('{name}.records'))::int8"
        );
        let bytes: i64 = connection.fetch_one(AssertSqlSafe(sql)).await?.get(0);
        connection.close().await?;
        Ok(bytes.unsigned_abs())
    }

    async fn keys(&self, connection: &mut redis::aio::MultiplexedConnection) -> Result<Vec<String>> {
        let (mut cursor, mut all) = (0_u64, Vec::new());
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(format!("{}:*", self.name)).arg("COUNT").arg(10_000);
            let (next, keys): (u64, Vec<String>) = scan.query_async(connection).await?;
            all.extend(keys);
            cursor = next;
            if cursor == 0 {
                return Ok(all);
            }
        }
    }

    async fn key_bytes(&self) -> Result<u64> {
        let mut connection = self.redis().await?;
        let mut bytes = 0;
        for key in self.keys(&mut connection).await? {
            let mut usage = redis::cmd("MEMORY");
            usage.arg("USAGE").arg(key).arg("SAMPLES").arg(0);
            bytes += usage.query_async::<Option<u64>>(&mut connection).await?.unwrap_or(0);
        }
        Ok(bytes)
    }

    /// Removes the whole space.
    pub(crate) async fn remove(self) -> Result<()> {
        match self.kind {
            Kind::Postgres => {
                let mut connection = self.postgres().await?;
                let sql =
                    format!("SET client_min_messages = error; DROP SCHEMA IF EXISTS {} CASCADE", self.name);
                connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await?;
                connection.close().await?;
            }
            Kind::Redis => {
                let mut connection = self.redis().await?;
                for key in self.keys(&mut connection).await? {
                    redis::cmd("UNLINK").arg(key).query_async::<u64>(&mut connection).await?;
                }
            }
            Kind::S3 => self.objects()?.remove().await?,
            Kind::Nats => {
                for stream in ["FERRATA-LOGS", "FERRATA-BEATS", "BARE"] {
                    // The stream may not exist.
                    let delete = format!("STREAM.DELETE.{stream}-{}", self.name);
                    self.jetstream(&delete, &serde_json::json!({})).await?;
                }
            }
            Kind::Files | Kind::Sqlite => {}
        }
        Ok(())
    }
}

/// Returns the total size of the files in a folder.
pub(crate) fn file_bytes(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        bytes += if entry.path().is_dir() { file_bytes(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}
