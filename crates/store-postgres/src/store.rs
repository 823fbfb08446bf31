//! The store. Each method of the contract uses one statement unless its doc says otherwise.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferrata_store::{
    At, Capabilities, CheckpointStore, Clock as _, ExecutorId, HeadRef, HeaderRange, Headers, IdSource as _,
    Notice, Notices, Page, Paged, PruneCut, RandomIds, Record, Relay, RelayTexts, Removed, Resealing, Result,
    RunAppend, RunHead, RunKey, RunQuery, SystemClock, Transactions, check_texts,
};
use sqlx::{PgConnection, PgPool};

use crate::append::{AppendRoute, AppendStatements};
use crate::config::{PostgresOptions, read_url};
use crate::db::{PostgresDb, Sql, query};
use crate::error::{PostgresCallEffect, fault};
use crate::headers::{self, Ranges};
use crate::load::{self, LoadStatements};
use crate::migrations::{Migration, SCRIPTS};
use crate::names::Names;
use crate::notices::{self, Hub};
use crate::prune::{self, PurgeStatements};
use crate::reseal::{self, ResealStatements};
use crate::single::Single;
use crate::statement::Statements;
use crate::stored_run::{HEAD, IS_SOUND, NAMED};
use crate::{heartbeat, list, row, setup, tail};

/// A store that keeps each run as rows of a PostgreSQL database.
///
/// A clone is cheap and shares the connections. Any number of instances, in any number of processes, may use the same tables at the same time.
#[derive(Clone)]
pub struct PostgresStore {
    inner: Arc<PostgresInner>,
}

struct PostgresInner {
    db: PostgresDb,
    names: Names,
    appending: AppendStatements,
    loading: LoadStatements,
    ranges: Ranges,
    removing: PurgeStatements,
    replacing: ResealStatements,
    head: Sql,
    heartbeat: Sql,
    alive: Sql,
    notify_in: Sql,
    hub: Hub,
}

impl PostgresStore {
    /// Creates a store in the database of a URL: `postgres://user:password@host:port/database`. Connects at the first use.
    ///
    /// The URL may set options, as in `?schema=app&prefix=jobs_`: `schema`, `prefix`, `connections`, `acquire_timeout_ms`, `response_timeout_ms`,
    /// `prepared`, `notices`, `listen_url`. Options of the URL override `options`. The URL may also have the driver's own options, such as
    /// `sslmode` and `sslrootcert`. Any other option is an error. The environment provides further settings, as for other clients (`PGPASSWORD`,
    /// `.pgpass`).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](ferrata_store::ErrorKind::Invalid) if the URL does not have this form, or if an option is wrong.
    pub fn from_url(url: &str, options: PostgresOptions) -> Result<Self> {
        let (connect, options) = read_url(url, options)?;
        Self::new(PostgresDb::new(connect, options))
    }

    /// Creates a store on a pool of the application.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](ferrata_store::ErrorKind::Invalid) if an option is wrong.
    pub fn with_pool(pool: PgPool, options: PostgresOptions) -> Result<Self> {
        Self::new(PostgresDb::of_pool(pool, options))
    }

    fn new(db: PostgresDb) -> Result<Self> {
        let options = db.options();
        let names = Names::new(&options.schema, &options.prefix)?;
        let sql = |template: &str| -> Sql { names.fill(template).into() };
        let listen = match (options.notices, &options.listen_url) {
            (false, _) => None,
            (true, Some(url)) => Some(url.parse()?),
            (true, None) => Some(db.connect().clone()),
        };
        // A random tag is enough. If two instances had the same tag, they would not receive each other's notices, and would poll.
        let tag = RandomIds::new().next(SystemClock::new().now()).simple().to_string();
        let hub =
            Hub::new(db.clone(), sql(notices::SQL), [names.channel(), names.said_channel()], tag, listen);
        let head = format!("SELECT {} FROM {NAMED} {HEAD}", row::head_columns(IS_SOUND));
        let inner = PostgresInner {
            appending: AppendStatements {
                statements: Statements::new(&names),
                single: Single::new(&names),
                look: sql(&tail::statement()),
                keys: Arc::default(),
            },
            loading: LoadStatements {
                latest: sql(&load::statement(load::LATEST)),
                by_seq: sql(&load::statement(load::BY_SEQ)),
                by_id: sql(&load::statement(load::BY_ID)),
                since: sql(&load::since()),
            },
            ranges: Ranges {
                from: sql(&headers::statement(headers::FROM)),
                up_to: sql(&headers::statement(headers::UP_TO)),
            },
            removing: PurgeStatements {
                cut: sql(&prune::cut()),
                prune: sql(&prune::prune()),
                find: sql(&prune::find()),
                hold: sql(prune::HOLD_RUN),
                purge: sql(prune::PURGE_RUN),
            },
            replacing: ResealStatements {
                look: sql(&reseal::headers_statement()),
                replace: sql(reseal::REPLACE),
            },
            head: sql(&head),
            heartbeat: sql(heartbeat::SQL),
            alive: sql(heartbeat::ALIVE),
            notify_in: sql(notices::SQL_IN),
            hub,
            db,
            names,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    pub(crate) fn db(&self) -> &PostgresDb {
        &self.inner.db
    }

    #[cfg(feature = "objects")]
    pub(crate) fn names(&self) -> &Names {
        &self.inner.names
    }

    pub(crate) fn appending(&self) -> &AppendStatements {
        &self.inner.appending
    }

    pub(crate) fn replacing(&self) -> &ResealStatements {
        &self.inner.replacing
    }

    /// Notifies all subscribers that a run has this head.
    pub(crate) fn tell(&self, run: &RunKey, head: HeadRef) {
        self.inner.hub.notify([Notice::new(run.clone()).with_head(head)]);
    }

    /// Returns the scripts that create the tables, in order, for users who run migrations with their own tool.
    ///
    /// After these scripts, [`setup`](CheckpointStore::setup) changes nothing. To run a script again changes nothing either.
    pub fn migrations(&self) -> Vec<Migration> {
        SCRIPTS.all(&self.inner.names)
    }

    /// Returns the scripts as one text for `psql`, in one transaction.
    pub fn print_migrations(&self) -> String {
        let scripts = self.migrations().into_iter();
        let scripts: Vec<_> =
            scripts.map(|step| format!("-- {:04} {}\n{}", step.version, step.name, step.sql)).collect();
        format!("BEGIN;\n{}COMMIT;\n", scripts.join("\n"))
    }

    /// Appends to one run within the caller's transaction. The records exist if and only if the transaction commits.
    ///
    /// So a node's writes to this database and its record are committed together or not at all. After `Ok`, the records exist once the transaction
    /// has committed, not before.
    ///
    /// The run is locked against other appends until the transaction ends. Keep the transaction short, and append to several runs in the order of
    /// their names. Otherwise the server may abort one of two such transactions as a deadlock.
    ///
    /// # Errors
    ///
    /// The errors of [`append`](CheckpointStore::append). After a `Conflict` or an `Invalid` of the library, nothing was written, and the
    /// transaction is still usable: roll it back unless its other writes should remain. After an error of the server, the whole transaction has
    /// failed. A transaction of a higher isolation level may fail with [`ErrorKind::Unavailable`](ferrata_store::ErrorKind::Unavailable): start it
    /// again.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: roll the transaction back.
    pub async fn append_in(&self, transaction: &mut PgConnection, append: RunAppend) -> Result<HeadRef> {
        let run = append.run.clone();
        let prepared = self.inner.db.options().prepared;
        let mut results = self
            .inner
            .appending
            .run(
                AppendRoute::Transaction { connection: &mut *transaction, prepared },
                std::slice::from_ref(&append),
            )
            .await;
        let head = results.swap_remove(0)?;
        if let Some(payload) = self.inner.hub.payload(&run) {
            // Send the notice in the transaction, so that no subscriber receives it before the commit.
            query(&self.inner.notify_in)
                .bind(self.inner.names.channel())
                .bind(payload)
                .persistent(prepared)
                .fetch_all(transaction)
                .await
                .map_err(|error| fault(&error, PostgresCallEffect::Write).of_run("store.append", &run))?;
        }
        Ok(head)
    }
}

#[async_trait]
impl Relay for PostgresStore {
    async fn publish(&self, texts: Vec<String>) -> Result<()> {
        check_texts(&texts)?;
        self.inner.hub.publish_texts(texts).await
    }

    async fn listen(&self) -> Result<RelayTexts> {
        self.inner.hub.subscribe_texts().await
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("tables", &self.inner.names.of("*")).finish_non_exhaustive()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl CheckpointStore for PostgresStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("postgres")
            .with_durable(true)
            .with_shared(true)
            .with_notices(self.inner.hub.is_open())
    }

    async fn setup(&self) -> Result<()> {
        setup::run(&self.inner.db, &self.inner.names, SCRIPTS).await
    }

    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        let results = self.inner.appending.run(AppendRoute::Pool(&self.inner.db), &batch).await;
        let changed = batch.iter().zip(&results).filter_map(|(append, result)| {
            result.as_ref().ok().map(|head| Notice::new(append.run.clone()).with_head(*head))
        });
        self.inner.hub.notify(changed);
        results
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        self.inner.loading.run(&self.inner.db, run, at).await
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        self.inner.loading.since(&self.inner.db, run, known).await
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        self.inner.ranges.list(&self.inner.db, run, range).await
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        let make = || query(&self.inner.head).bind(run.tenant.as_str()).bind(run.run.as_str());
        let rows = self.inner.db.read(make).await.map_err(|failed| failed.of_run("store.head", run))?;
        let head = rows.first().map(row::head).transpose();
        head.map_err(|error| error.with_operation("store.head").with_run(run))
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        list::run(&self.inner.db, &self.inner.names, query, &page).await
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        let pruned = self.inner.removing.prune(&self.inner.db, run, &cut).await?;
        self.inner.hub.notify([Notice::new(run.clone())]);
        Ok(pruned)
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        let purged = self.inner.removing.purge(&self.inner.db, run, expected).await?;
        self.inner.hub.notify([Notice::new(run.clone())]);
        Ok(purged)
    }

    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        heartbeat::run(&self.inner.db, &self.inner.heartbeat, executor, ttl).await
    }

    async fn is_alive(&self, executor: &ExecutorId) -> Result<bool> {
        heartbeat::is_alive(&self.inner.db, &self.inner.alive, executor).await
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        Some(self)
    }

    fn part(&self, _run: &RunKey) -> u64 {
        0
    }

    fn resealing(&self) -> Option<&dyn Resealing> {
        Some(self)
    }

    fn relay(&self) -> Option<&dyn Relay> {
        self.inner.hub.is_open().then_some(self)
    }

    fn subscribe(&self) -> Option<Notices> {
        self.inner.hub.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error paths of a call are not part of the future that each call allocates.
    #[test]
    fn a_call_takes_little_memory() {
        let store = PostgresStore::from_url("postgres://u@localhost/db", PostgresOptions::default()).unwrap();
        let run = RunKey::try_from("r").unwrap();
        let sizes = [
            size_of_val(&*store.append(Vec::new())),
            size_of_val(&*store.load(&run, At::Latest)),
            size_of_val(&*store.head(&run)),
            size_of_val(&*store.begin(&run)),
        ];
        assert!(sizes.iter().all(|size| *size <= 4_096), "{sizes:?}");
    }
}
