//! Connections: sends statements to the server, and retries reads.

use std::fmt;
use std::future::pending;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ferrata_store::{Result, SystemClock, within};
use futures_util::TryStreamExt as _;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPoolOptions, PgRow};
use sqlx::query::Query;
use sqlx::{Arguments as _, AssertSqlSafe, Connection as _, PgConnection, PgPool, Postgres};
use tokio::sync::oneshot;

use crate::config::PostgresOptions;
use crate::detached_connection::DetachedConnection;
use crate::error::{PostgresCallEffect, PostgresStoreError, fault, is_lost, unreachable};
use crate::idle::{IdleConnections, TRUSTED};
use crate::tasks::to_its_end;

/// A statement with the table names filled in. The driver prepares each text once for each connection.
pub(crate) type Sql = Arc<str>;

/// The maximum number of attempts of a read. Each attempt uses another connection, because a restart of the server leaves several dead connections.
const READS: u32 = 4;

/// A pool of connections, and the settings for sending statements through it.
#[derive(Clone)]
pub(crate) struct PostgresDb {
    pool: Arc<OnceLock<PgPool>>,
    /// The idle connections. `None` for a pool of the application, which wants its connections back.
    idle: Option<Arc<IdleConnections>>,
    connect: PgConnectOptions,
    options: Arc<PostgresOptions>,
}

impl fmt::Debug for PostgresDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The settings of the connection hold a password.
        f.debug_struct("Db").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Creates a pool that connects at the first use.
fn pool(connect: PgConnectOptions, options: &PostgresOptions) -> PgPool {
    let patience = check_timeout(options);
    PgPoolOptions::new()
        .max_connections(options.connections.get())
        .acquire_timeout(options.acquire_timeout)
        .test_before_acquire(false)
        .before_acquire(move |connection, meta| {
            Box::pin(
                async move { Ok(meta.idle_for < TRUSTED || answers(connection, patience).await.is_ok()) },
            )
        })
        .connect_lazy_with(connect)
}

/// Returns the time limit for checking an idle connection. It is short enough that a call can still open a new connection after a few dead ones.
fn check_timeout(options: &PostgresOptions) -> Duration {
    options.response_timeout.min(options.acquire_timeout / 4)
}

/// Checks that the server answers within `patience`.
async fn answers(connection: &mut PgConnection, patience: Duration) -> Result<(), sqlx::Error> {
    within(&SystemClock::new(), patience, connection.ping()).await.unwrap_or_else(|| Err(silent()))
}

/// Returns the error for a server that does not answer. Its connection counts as lost.
fn silent() -> sqlx::Error {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

/// Begins a statement.
pub(crate) fn query<'q>(sql: &Sql) -> Query<'q, Postgres, PgArguments> {
    sqlx::query(AssertSqlSafe(Arc::clone(sql)))
}

/// Begins a statement with capacity for `values` values of `bytes` bytes in total.
pub(crate) fn roomy<'q>(sql: &Sql, values: usize, bytes: usize) -> Query<'q, Postgres, PgArguments> {
    let mut arguments = PgArguments::default();
    arguments.reserve(values, bytes);
    sqlx::query_with(AssertSqlSafe(Arc::clone(sql)), arguments)
}

impl PostgresDb {
    /// Creates the handle to a database. The first call over it creates the pool, because the pool needs a runtime.
    pub(crate) fn new(connect: PgConnectOptions, options: PostgresOptions) -> Self {
        let idle = Some(Arc::default());
        Self { pool: Arc::default(), idle, connect, options: Arc::new(options) }
    }

    /// Uses a pool of the application.
    pub(crate) fn of_pool(pool: PgPool, options: PostgresOptions) -> Self {
        let mut db = Self::new(PgConnectOptions::clone(&pool.connect_options()), options);
        db.idle = None;
        db.pool.get_or_init(|| pool);
        db
    }

    pub(crate) fn connect(&self) -> &PgConnectOptions {
        &self.connect
    }

    pub(crate) fn options(&self) -> &PostgresOptions {
        &self.options
    }

    /// Waits for a connection, for a limited time. If this fails, nothing was sent.
    pub(crate) async fn acquire(&self) -> Result<DetachedConnection, PostgresStoreError> {
        let pool = self.pool.get_or_init(|| pool(self.connect.clone(), &self.options));
        let is_full = pool.size() >= self.options.connections.get();
        let comes = match self.idle.as_ref().map(|idle| idle.take(is_full)) {
            Some(Ok(held)) => return Ok(held),
            Some(Err(comes)) => Some(comes),
            None => None,
        };
        // Boxed, because opening a connection takes more memory than all other work of a call.
        Box::pin(self.wait_for(pool, comes)).await
    }

    /// Waits for a connection of the pool, or for one that another caller releases.
    async fn wait_for(
        &self,
        pool: &PgPool,
        comes: Option<oneshot::Receiver<DetachedConnection>>,
    ) -> Result<DetachedConnection, PostgresStoreError> {
        tokio::select! {
            biased;
            held = wait_for_connection(comes) => Ok(held),
            acquired = pool.acquire() => match acquired {
                Ok(connection) => Ok(DetachedConnection::new(connection, check_timeout(&self.options))),
                Err(sqlx::Error::PoolTimedOut) if pool.size() == 0 => Err(self.explain_no_connection().await),
                Err(error) => Err(fault(&error, PostgresCallEffect::Read)),
            },
        }
    }

    /// Connects once more to find the reason why every attempt of the pool failed, because the pool does not report it.
    async fn explain_no_connection(&self) -> PostgresStoreError {
        let attempt = PgConnection::connect_with(&self.connect);
        match within(&SystemClock::new(), check_timeout(&self.options), attempt).await {
            None => unreachable(&silent(), "the server did not answer"),
            Some(Err(error)) => unreachable(&error, "no connection was established"),
            // The server has just become reachable again.
            Some(Ok(_)) => fault(&sqlx::Error::PoolTimedOut, PostgresCallEffect::Read),
        }
    }

    /// Executes a read. If a connection turns out to be dead, repeats the read on another connection.
    pub(crate) async fn read(
        &self,
        make: impl Fn() -> Query<'static, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, PostgresStoreError> {
        self.read_as(make, |row| row).await
    }

    /// Executes a read, and converts each row while the server sends the next rows.
    pub(crate) async fn read_as<T: Send + Unpin + 'static>(
        &self,
        make: impl Fn() -> Query<'static, Postgres, PgArguments>,
        map: impl FnMut(PgRow) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, PostgresStoreError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let held = self.acquire().await?;
            match self.send(held, make(), map.clone(), PostgresCallEffect::Read, 1).await? {
                Ok(rows) => return Ok(rows),
                Err(error) if is_lost(&error) && tries < READS => {}
                Err(error) => return Err(fault(&error, PostgresCallEffect::Read)),
            }
        }
    }

    /// Executes a write with one statement, which is sent only once.
    pub(crate) async fn write(
        &self,
        query: Query<'static, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, PostgresStoreError> {
        self.write_in_time(1, query).await
    }

    /// Executes a write with one statement, which may take up to `answers` response timeouts.
    pub(crate) async fn write_in_time(
        &self,
        answers: u32,
        query: Query<'static, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, PostgresStoreError> {
        let held = self.acquire().await?;
        let sent = self.send(held, query, |row| row, PostgresCallEffect::Write, answers).await?;
        sent.map_err(|error| fault(&error, PostgresCallEffect::Write))
    }

    /// Sends one statement in its own transaction.
    async fn send<T: Send + Unpin + 'static>(
        &self,
        held: DetachedConnection,
        query: Query<'static, Postgres, PgArguments>,
        map: impl FnMut(PgRow) -> T + Send + 'static,
        call: PostgresCallEffect,
        answers: u32,
    ) -> Result<Result<Vec<T>, sqlx::Error>, PostgresStoreError> {
        let (mut held, patience) = (held, self.options.response_timeout.saturating_mul(answers));
        held.send();
        if self.options.prepared {
            let sent = rows(&mut held, query, map);
            return Ok(match within(&SystemClock::new(), patience, sent).await {
                Some(Ok(rows)) => {
                    self.release(held);
                    Ok(rows)
                }
                Some(failed) => Self::return_to_pool(held, failed),
                None => Err(silent()),
            });
        }
        // Without a prepared statement, parsing and executing are two messages. Only a transaction makes a pooler send both messages to the same
        // server process.
        let sent = async move {
            let sent = in_transaction(&mut held, query.persistent(false), map);
            let sent = within(&SystemClock::new(), patience, sent).await.unwrap_or_else(|| Err(silent()));
            Ok(Self::return_to_pool(held, sent))
        };
        match (to_its_end(sent).await, call) {
            (Err(_), PostgresCallEffect::Read) => Ok(Err(sqlx::Error::WorkerCrashed)),
            (sent, _) => sent,
        }
    }

    /// Releases a finished connection to the next caller; a connection of the application's pool goes back to that pool.
    pub(crate) fn release(&self, mut held: DetachedConnection) {
        held.mark_idle();
        if let Some(idle) = &self.idle {
            idle.release(held);
        }
    }

    /// Returns a connection to the pool, unless it is dead.
    pub(crate) fn return_to_pool<T>(
        mut held: DetachedConnection,
        sent: Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        if sent.as_ref().err().is_none_or(|error| !is_lost(error)) {
            held.mark_idle();
        }
        sent
    }

    /// Waits for work on a connection, for at most the given number of response timeouts.
    pub(crate) async fn in_time<T>(
        &self,
        answers: u32,
        work: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, sqlx::Error> {
        let patience = self.options.response_timeout.saturating_mul(answers);
        within(&SystemClock::new(), patience, work).await.unwrap_or_else(|| Err(silent()))
    }
}

/// Waits for a connection that another caller releases.
async fn wait_for_connection(comes: Option<oneshot::Receiver<DetachedConnection>>) -> DetachedConnection {
    match comes {
        Some(comes) => match comes.await {
            Ok(held) => held,
            Err(_) => pending().await,
        },
        None => pending().await,
    }
}

/// Converts each row as it arrives.
async fn rows<T>(
    connection: &mut PgConnection,
    query: Query<'static, Postgres, PgArguments>,
    mut map: impl FnMut(PgRow) -> T,
) -> Result<Vec<T>, sqlx::Error> {
    let (mut rows, mut read) = (query.fetch(connection), Vec::new());
    while let Some(row) = rows.try_next().await? {
        read.push(map(row));
    }
    Ok(read)
}

async fn in_transaction<T: Send + Unpin>(
    connection: &mut PgConnection,
    query: Query<'static, Postgres, PgArguments>,
    map: impl FnMut(PgRow) -> T + Send,
) -> Result<Vec<T>, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let rows = rows(&mut transaction, query, map).await?;
    transaction.commit().await?;
    Ok(rows)
}
