//! The bare references: clients that commit one record after another with the store's own client library, and do nothing else.

use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use redis::aio::MultiplexedConnection;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, SqliteConnection};
use tokio::task::JoinSet;

use crate::objects::Objects;
use crate::space::{Kind, Space};

/// The bytes of a record's header in a line of the file store, in addition to its body.
const HEADER_IN_LINE: usize = 130;

/// Connected clients. Each writes a run of its own.
#[derive(Debug)]
pub(crate) struct Bare {
    clients: Vec<Client>,
    body: Arc<[u8]>,
}

#[derive(Debug)]
enum Client {
    /// Single-row `INSERT`s with a prepared statement on one connection. Each is a commit.
    Postgres { connection: PgConnection, sql: Arc<str>, run: i64, seq: i64 },
    /// `XADD` to a stream of the client's own, on one connection.
    Redis { connection: MultiplexedConnection, stream: String },
    /// `write` and `fdatasync` to a file of the client's own.
    Files { file: File },
    /// Single-row `INSERT`s with a prepared statement. Each is a commit. All runs share one connection: of several connections, only one can write at
    /// a time, and the others would poll.
    Sqlite { connection: SqliteConnection, runs: i64, seq: i64 },
    /// `PUT`s with `If-None-Match`, as the store makes them.
    S3 { objects: Objects, run: usize, seq: usize },
    /// Acknowledged publishes to a subject of the client's own, on one connection. The stream is on disk.
    Nats { connection: async_nats::Client, subject: String },
}

impl Bare {
    /// Describes in words what [`commits`](Self::commits) does.
    pub(crate) fn in_words(kind: Kind, clients: usize) -> String {
        let what = match kind {
            Kind::Postgres | Kind::Sqlite => "single-row `INSERT` commits",
            Kind::Redis => "`XADD`",
            Kind::Files => "`write` + `fdatasync`",
            Kind::S3 => "`PUT`",
            Kind::Nats => "acknowledged publishes",
        };
        match (kind, clients) {
            (_, 1) => what.to_owned(),
            (Kind::Files, _) => format!("{what} on {clients} files"),
            (Kind::Sqlite, _) => format!("{what} of {clients} runs by one client"),
            _ => format!("{what} by {clients} clients"),
        }
    }

    /// Connects `clients` clients that commit bodies of `body` bytes.
    pub(crate) async fn open(space: &Space, clients: usize, body: usize) -> Result<Self> {
        let mut bare = Self { clients: Vec::new(), body: vec![b'x'; body].into() };
        match space.kind {
            Kind::Postgres => bare.connect_postgres(space, clients).await?,
            Kind::Redis => {
                for at in 0..clients {
                    let stream = format!("{}:bare:{at}", space.name());
                    bare.clients.push(Client::Redis { connection: space.redis().await?, stream });
                }
            }
            Kind::Nats => {
                let (name, subjects) = (format!("BARE-{}", space.name()), format!("bare.{}.*", space.name()));
                let stream = json!({ "name": name, "subjects": [subjects], "storage": "file" });
                let made = space.jetstream(&format!("STREAM.CREATE.{name}"), &stream).await?;
                anyhow::ensure!(made["error"].is_null(), "cannot make the reference's stream: {made}");
                for at in 0..clients {
                    let subject = format!("bare.{}.{at}", space.name());
                    bare.clients.push(Client::Nats { connection: space.nats().await?, subject });
                }
            }
            Kind::Sqlite => {
                let mut connection = space.sqlite("bare.db").await?;
                connection.execute(SQLITE_TABLE).await?;
                bare.clients.push(Client::Sqlite { connection, runs: i64::try_from(clients)?, seq: 0 });
            }
            Kind::Files => {
                let folder = space.folder()?.join("bare");
                std::fs::create_dir_all(&folder)?;
                for at in 0..clients {
                    let file = File::options().create(true).append(true).open(folder.join(at.to_string()))?;
                    bare.clients.push(Client::Files { file });
                }
                bare.body = vec![b'x'; body + HEADER_IN_LINE].into();
            }
            Kind::S3 => {
                let objects = space.objects()?;
                bare.clients.extend((0..clients).map(|run| Client::S3 {
                    objects: objects.clone(),
                    run,
                    seq: 0,
                }));
            }
        }
        Ok(bare)
    }

    async fn connect_postgres(&mut self, space: &Space, clients: usize) -> Result<()> {
        let table = table(space).await?;
        let sql: Arc<str> = format!("INSERT INTO {table} (run, seq, body) VALUES ($1, $2, $3)").into();
        for run in 0..clients {
            let connection = space.postgres().await?;
            let run = i64::try_from(run)?;
            self.clients.push(Client::Postgres { connection, sql: Arc::clone(&sql), run, seq: 0 });
        }
        Ok(())
    }

    /// Makes each client commit `each` records, one after the other. The clients work concurrently.
    pub(crate) async fn commits(&mut self, each: usize) -> Result<()> {
        let mut tasks = JoinSet::new();
        for mut client in self.clients.drain(..) {
            let body = Arc::clone(&self.body);
            if let Client::Files { mut file } = client {
                tasks.spawn_blocking(move || {
                    for _ in 0..each {
                        file.write_all(&body)?;
                        file.sync_data()?;
                    }
                    anyhow::Ok(Client::Files { file })
                });
                continue;
            }
            tasks.spawn(async move {
                for _ in 0..each {
                    client.commit(&body).await?;
                }
                Ok(client)
            });
        }
        while let Some(ended) = tasks.join_next().await {
            self.clients.push(ended??);
        }
        Ok(())
    }

    /// Closes the connections.
    pub(crate) async fn close(self) -> Result<()> {
        for client in self.clients {
            match client {
                Client::Postgres { connection, .. } => connection.close().await?,
                Client::Sqlite { connection, .. } => connection.close().await?,
                Client::Redis { .. } | Client::Files { .. } | Client::S3 { .. } | Client::Nats { .. } => {}
            }
        }
        Ok(())
    }
}

impl Client {
    async fn commit(&mut self, body: &[u8]) -> Result<()> {
        match self {
            Self::Postgres { connection, sql, run, seq } => {
                *seq += 1;
                let insert = sqlx::query(AssertSqlSafe(Arc::clone(sql))).bind(*run).bind(*seq).bind(body);
                connection.execute(insert).await?;
            }
            Self::Sqlite { connection, runs, seq } => {
                *seq += 1;
                for run in 0..*runs {
                    let insert = sqlx::query("INSERT INTO bare (run, seq, body) VALUES (?, ?, ?)");
                    connection.execute(insert.bind(run).bind(*seq).bind(body)).await?;
                }
            }
            Self::Redis { connection, stream } => {
                let mut add = redis::cmd("XADD");
                add.arg(stream.as_str()).arg("*").arg("b").arg(body);
                add.query_async::<String>(connection).await?;
            }
            Self::Nats { connection, subject } => {
                let stored = connection.request(subject.clone(), body.to_vec().into()).await?;
                let stored: serde_json::Value = serde_json::from_slice(&stored.payload)?;
                anyhow::ensure!(stored["error"].is_null(), "not stored: {stored}");
            }
            Self::S3 { objects, run, seq } => {
                *seq += 1;
                objects.put(&format!("bare/{run}/{seq:08}"), body.to_vec()).await?;
            }
            Self::Files { file } => {
                file.write_all(body)?;
                file.sync_data()?;
            }
        }
        Ok(())
    }
}

/// The SQLite table that corresponds to the table of [`table`].
const SQLITE_TABLE: &str = "CREATE TABLE bare (run INTEGER NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL, \
     PRIMARY KEY (run, seq)) STRICT, WITHOUT ROWID";

/// Creates an empty table for rows like those of records: a key of two numbers, and a body.
pub(crate) async fn table(space: &Space) -> Result<String> {
    let mut connection = space.postgres().await?;
    let table = format!("{}.bare", space.name());
    let sql = format!(
        "SET client_min_messages = error; DROP TABLE IF EXISTS {table}; \
         CREATE TABLE {table} (run bigint NOT NULL, seq bigint NOT NULL, body bytea NOT NULL, PRIMARY KEY (run, seq))"
    );
    connection
        .execute(sqlx::raw_sql(AssertSqlSafe(sql)))
        .await
        .context("cannot make the reference's table")?;
    connection.close().await?;
    Ok(table)
}
