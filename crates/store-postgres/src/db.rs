//! The connections: how a statement comes to the server, and when it is tried again.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ferrata_store::{Result, SystemClock, within};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPoolOptions, PgRow};
use sqlx::query::Query;
use sqlx::{Arguments as _, AssertSqlSafe, Connection as _, PgConnection, PgPool, Postgres};
use tokio::runtime::Handle;

use crate::config::PostgresOptions;
use crate::error::{Call, StoreError, fault, is_lost, unreachable};
use crate::idle::{Held, IdleConnections, TRUSTED, give_back};
use crate::tasks::to_its_end;

/// A statement with its names filled in; the same text is prepared once on each connection.
pub(crate) type Sql = Arc<str>;

/// How often a read is tried on another connection when one turns out to be dead: a restart of the server leaves several.
const READS: u32 = 4;

/// A pool, and how statements are sent through it.
#[derive(Clone)]
pub(crate) struct Db {
    pool: Arc<OnceLock<PgPool>>,
    /// Absent for a pool of the application's, which wants its connections back.
    idle: Option<Arc<IdleConnections>>,
    connect: PgConnectOptions,
    options: Arc<PostgresOptions>,
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The settings of the connection hold a password.
        f.debug_struct("Db").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Makes a pool that connects when it is first used.
fn pool(connect: PgConnectOptions, options: &PostgresOptions) -> PgPool {
    let patience = patience(options);
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

/// How long an idle connection may take to say that it is there: so that a call which meets a few dead ones still has the time to make a
/// new one.
fn patience(options: &PostgresOptions) -> Duration {
    options.response_timeout.min(options.acquire_timeout / 4)
}

/// Asks whether the server is there; one that does not answer in time is not.
async fn answers(connection: &mut PgConnection, patience: Duration) -> Result<(), sqlx::Error> {
    within(&SystemClock::new(), patience, connection.ping()).await.unwrap_or_else(|| Err(silent()))
}

/// The error of a server that does not answer: its connection is as good as lost.
fn silent() -> sqlx::Error {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

/// Begins a statement.
pub(crate) fn query<'q>(sql: &Sql) -> Query<'q, Postgres, PgArguments> {
    sqlx::query(AssertSqlSafe(Arc::clone(sql)))
}

/// Begins a statement with room for so many values of so many bytes in all.
pub(crate) fn roomy<'q>(sql: &Sql, values: usize, bytes: usize) -> Query<'q, Postgres, PgArguments> {
    let mut arguments = PgArguments::default();
    arguments.reserve(values, bytes);
    sqlx::query_with(AssertSqlSafe(Arc::clone(sql)), arguments)
}

impl Db {
    /// Makes the connections' place; the pool itself is made by the first call, because it needs a runtime to live on.
    pub(crate) fn new(connect: PgConnectOptions, options: PostgresOptions) -> Self {
        let idle = Some(Arc::new(IdleConnections::new(patience(&options))));
        Self { pool: Arc::default(), idle, connect, options: Arc::new(options) }
    }

    /// Uses a pool of the application's.
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

    /// Waits for a connection, for a bounded time; nothing was sent if this fails.
    pub(crate) async fn acquire(&self) -> Result<PoolConnection<Postgres>, StoreError> {
        self.hold().await.map(|held| held.connection)
    }

    /// The same, of a connection that may stay idle.
    async fn hold(&self) -> Result<Held, StoreError> {
        let _waiting = match self.idle.as_ref().map(|idle| idle.take()) {
            Some(Ok(held)) => return Ok(held),
            waiting => waiting,
        };
        let pool = self.pool.get_or_init(|| pool(self.connect.clone(), &self.options));
        match pool.acquire().await {
            Ok(connection) => Ok(Held::new(connection)),
            Err(sqlx::Error::PoolTimedOut) if pool.size() == 0 => Err(self.why_none().await),
            Err(error) => Err(fault(&error, Call::Read)),
        }
    }

    /// Tries once more to connect, to tell why no attempt of the pool came to anything: the pool keeps it to itself.
    async fn why_none(&self) -> StoreError {
        let attempt = PgConnection::connect_with(&self.connect);
        match within(&SystemClock::new(), patience(&self.options), attempt).await {
            None => unreachable(&silent(), "the server did not answer"),
            Some(Err(error)) => unreachable(&error, "no connection can be made"),
            // It has just come back.
            Some(Ok(_)) => fault(&sqlx::Error::PoolTimedOut, Call::Read),
        }
    }

    /// Reads, on another connection if one turns out to be dead.
    pub(crate) async fn read(
        &self,
        make: impl Fn() -> Query<'static, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, StoreError> {
        self.read_as(make, |row| row).await
    }

    /// Reads, and turns each row into something else while the server sends the next ones.
    pub(crate) async fn read_as<T: Send + Unpin + 'static>(
        &self,
        make: impl Fn() -> Query<'static, Postgres, PgArguments>,
        map: impl FnMut(PgRow) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, StoreError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let held = self.hold().await?;
            match self.send(held, make(), map.clone(), Call::Read).await? {
                Ok(rows) => return Ok(rows),
                Err(error) if is_lost(&error) && tries < READS => {}
                Err(error) => return Err(fault(&error, Call::Read)),
            }
        }
    }

    /// Writes with one statement, which is never sent twice.
    pub(crate) async fn write(
        &self,
        query: Query<'static, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, StoreError> {
        let held = self.hold().await?;
        self.send(held, query, |row| row, Call::Write).await?.map_err(|error| fault(&error, Call::Write))
    }

    /// Sends one statement, in a transaction of its own.
    async fn send<T: Send + Unpin + 'static>(
        &self,
        held: Held,
        query: Query<'static, Postgres, PgArguments>,
        map: impl FnMut(PgRow) -> T + Send + 'static,
        call: Call,
    ) -> Result<Result<Vec<T>, sqlx::Error>, StoreError> {
        let patience = self.options.response_timeout;
        if self.options.prepared {
            let mut asked = Asked::of(held);
            let Some(held) = asked.held.as_mut() else { return Ok(Err(sqlx::Error::WorkerCrashed)) };
            let sent = query.map(map).fetch_all(&mut *held.connection);
            let Some(sent) = within(&SystemClock::new(), patience, sent).await else {
                return Ok(Err(silent()));
            };
            let Some(held) = asked.held.take() else { return Ok(sent) };
            return Ok(match (&self.idle, &sent) {
                (Some(idle), Ok(_)) => {
                    idle.keep(held);
                    sent
                }
                _ => self.put_back(held.connection, sent),
            });
        }
        let (mut connection, db) = (held.connection, self.clone());
        // Without a name kept on the connection, parsing and executing are two messages, and only a transaction makes a pooler
        // send both to the same server process.
        let sent = async move {
            let sent = in_transaction(&mut connection, query.persistent(false), map);
            let sent = within(&SystemClock::new(), patience, sent).await.unwrap_or_else(|| Err(silent()));
            Ok(db.put_back(connection, sent))
        };
        match (to_its_end(sent).await, call) {
            (Err(_), Call::Read) => Ok(Err(sqlx::Error::WorkerCrashed)),
            (sent, _) => sent,
        }
    }

    /// Gives a connection back to the pool, but not one that is dead.
    pub(crate) fn put_back<T>(
        &self,
        mut connection: PoolConnection<Postgres>,
        sent: Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        if sent.as_ref().err().is_some_and(is_lost) {
            connection.close_on_drop();
        } else {
            give_back(connection, patience(&self.options));
        }
        sent
    }

    /// How long a connection may take to say that it is there.
    pub(crate) fn patience(&self) -> Duration {
        patience(&self.options)
    }

    /// Waits for what is done on a connection, for as long as so many answers may take.
    pub(crate) async fn in_time<T>(
        &self,
        answers: u32,
        work: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, sqlx::Error> {
        let patience = self.options.response_timeout.saturating_mul(answers);
        within(&SystemClock::new(), patience, work).await.unwrap_or_else(|| Err(silent()))
    }
}

/// A connection with a statement under way. One that is not taken out, because its answer did not come or its caller was dropped,
/// is closed: the driver would ask it whether it is there, and wait for the answer without a bound.
struct Asked {
    held: Option<Held>,
    runtime: Option<Handle>,
}

impl Asked {
    fn of(held: Held) -> Self {
        Self { held: Some(held), runtime: Handle::try_current().ok() }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let Some(mut held) = self.held.take() else { return };
        // Closing is a task, which needs a runtime also where the call is dropped outside of one.
        let _runtime = self.runtime.as_ref().map(Handle::enter);
        held.connection.close_on_drop();
        drop(held);
    }
}

async fn in_transaction<T: Send + Unpin>(
    connection: &mut PgConnection,
    query: Query<'static, Postgres, PgArguments>,
    map: impl FnMut(PgRow) -> T + Send,
) -> Result<Vec<T>, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let rows = query.map(map).fetch_all(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(rows)
}
