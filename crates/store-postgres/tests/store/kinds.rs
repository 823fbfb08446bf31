//! The error kind and message for each SQLSTATE code, through the driver.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::common::Schema;
use crate::common::author::{Author, append, is_kept};
use ferrata_store::{At, CheckpointStore, Error, ErrorKind, ExecutorId, HeaderRange, Page, Result, RunQuery};
use ferrata_store_postgres::PostgresStore;
use ferrata_test_servers::{PostgresServer, PostgresServerOptions};

/// Every code that the table of the store names, or that stands for its class, and what an append makes of it.
const CODES: [(&str, ErrorKind, &str); 42] = [
    ("08006", ErrorKind::Indeterminate, "lost"),
    ("0A000", ErrorKind::Unsupported, "PostgreSQL 14"),
    ("22001", ErrorKind::Invalid, "value"),
    ("22021", ErrorKind::Invalid, "value"),
    ("23505", ErrorKind::Corrupt, "backup"),
    ("23514", ErrorKind::Corrupt, "backup"),
    ("25006", ErrorKind::Unavailable, "standby"),
    ("25P02", ErrorKind::Invalid, "roll it back"),
    ("25P03", ErrorKind::Indeterminate, "start a new one"),
    ("25P04", ErrorKind::Indeterminate, "start a new one"),
    ("26000", ErrorKind::Unavailable, "`prepared`"),
    ("28000", ErrorKind::Invalid, "pg_hba.conf"),
    ("28P01", ErrorKind::Invalid, "password"),
    ("3D000", ErrorKind::Invalid, "database"),
    ("3F000", ErrorKind::Invalid, "`setup`"),
    ("40001", ErrorKind::Unavailable, "retry"),
    ("40P01", ErrorKind::Unavailable, "deadlock"),
    ("40002", ErrorKind::Unavailable, "retry"),
    ("42501", ErrorKind::Invalid, "grant"),
    ("42P01", ErrorKind::Invalid, "`setup`"),
    ("42703", ErrorKind::Unsupported, "column"),
    ("42P05", ErrorKind::Unavailable, "`prepared`"),
    ("42601", ErrorKind::Unsupported, "migrations"),
    ("53100", ErrorKind::Unavailable, "disk is full"),
    ("53200", ErrorKind::Unavailable, "memory"),
    ("53300", ErrorKind::Unavailable, "maximum of connections"),
    ("53400", ErrorKind::Unavailable, "limit"),
    ("53000", ErrorKind::Unavailable, "resource"),
    ("54000", ErrorKind::TooLarge, "smaller"),
    ("55P03", ErrorKind::Unavailable, "lock"),
    ("55000", ErrorKind::Unavailable, "retry"),
    ("57014", ErrorKind::Unavailable, "cancelled"),
    ("57P01", ErrorKind::Indeterminate, "ended the session"),
    ("57P02", ErrorKind::Indeterminate, "ended the session"),
    ("57P03", ErrorKind::Unavailable, "starting or stopping"),
    ("57P04", ErrorKind::Invalid, "dropped"),
    ("58030", ErrorKind::Unavailable, "log"),
    ("F0000", ErrorKind::Unavailable, "configuration"),
    ("XX000", ErrorKind::Unavailable, "log"),
    ("XX001", ErrorKind::Corrupt, "damaged"),
    ("XX002", ErrorKind::Corrupt, "index"),
    ("P0001", ErrorKind::Unavailable, "log"),
];

/// Guarantees: POSTGRES-22.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn every_code_has_its_kind_and_its_remedy() {
    let schema = Schema::new();
    let store = schema.store();
    store.setup().await.unwrap();
    schema
        .execute(
            "CREATE TABLE {schema}.refusal (code text);
             CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
             DECLARE code text := (SELECT max(r.code) FROM {schema}.refusal r); BEGIN
                 IF code IS NOT NULL THEN
                     RAISE EXCEPTION 'refused' USING ERRCODE = code, DETAIL = 'a secret of the run: ' || NEW.body::text;
                 END IF;
                 RETURN NEW; END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON {schema}.records FOR EACH ROW EXECUTE FUNCTION {schema}.refuse()",
        )
        .await;
    let mut author = Author::new("r");
    append(&store, author.next(1)).await.unwrap();
    for (code, kind, remedy) in CODES {
        schema.execute(&format!("INSERT INTO {{schema}}.refusal VALUES ('{code}')")).await;
        let entry = author.clone().next(1);
        let error = append(&store, entry).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{code}: {error:?}");
        assert!(error.message().contains(remedy) && error.message().contains(code), "{code}: {error}");
        assert_eq!((error.operation(), error.run()), (Some("store.append"), Some(&author.key)), "{code}");
        assert!(
            !all_of(&error).contains("secret"),
            "{code}: a detail may hold what was to be stored: {error:?}"
        );
        schema.execute("DELETE FROM {schema}.refusal").await;
        is_kept(&store, &author).await;
    }
    append(&store, author.next(1)).await.unwrap();
    is_kept(&store, &author).await;
    schema.remove().await;
}

fn all_of(error: &Error) -> String {
    let mut text = format!("{error} {error:?}");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text += &format!(" {cause} {cause:?}");
        source = cause.source();
    }
    text
}

/// A value that the server refuses for one entry does not keep the others of the batch out.
///
/// Guarantees: POSTGRES-19.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn a_refused_value_harms_no_other_entry() {
    let schema = Schema::new();
    let store = schema.store();
    store.setup().await.unwrap();
    schema
        .execute("SET client_min_messages = error; DROP VIEW {schema}.run_list, {schema}.record_list CASCADE")
        .await;
    schema.execute("ALTER TABLE {schema}.runs ALTER COLUMN run TYPE varchar(4)").await;
    let mut authors = ["a", "too-long", "b"].map(Author::new);
    let results = store.append(authors.iter_mut().map(|author| author.next(2)).collect()).await;
    assert_eq!(kind(&results[1]), Some(ErrorKind::Invalid), "{results:?}");
    for place in [0, 2] {
        results[place].as_ref().unwrap();
        is_kept(&store, &authors[place]).await;
    }
    schema.remove().await;
}

fn kind<T>(result: &Result<T>) -> Option<ErrorKind> {
    result.as_ref().err().map(Error::kind)
}

/// The tables are not there: every call says so and names the remedy.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn without_setup_every_call_says_to_set_up() {
    let schema = Schema::new();
    let store = schema.store();
    let mut author = Author::new("r");
    let run = author.key.clone();
    let errors = [
        append(&store, author.next(1)).await.unwrap_err(),
        store.head(&run).await.unwrap_err(),
        store.load(&run, At::Latest).await.unwrap_err(),
        store.headers(&run, HeaderRange::newest(50)).await.unwrap_err(),
        store.runs(&RunQuery::default(), Page::default()).await.unwrap_err(),
        store.purge(&run, None).await.unwrap_err(),
        store.heartbeat(&ExecutorId::from_uuid(uuid::Uuid::nil()), Duration::ZERO).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
        assert!(error.message().contains("`setup`"), "{error}");
    }
}

/// Settings of the session that a URL may carry, and what the server then answers.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn read_only_server_and_lock_timeout_differ() {
    let schema = Schema::new();
    let store = schema.store();
    store.setup().await.unwrap();
    let mut author = Author::new("r");
    append(&store, author.next(1)).await.unwrap();
    let with = |setting: &str| {
        let joint = if schema.url.contains('?') { '&' } else { '?' };
        let url = format!("{}{joint}options=-c%20{setting}", schema.url);
        PostgresStore::from_url(&url, schema.options()).unwrap()
    };
    let reader = with("default_transaction_read_only%3Don");
    let refused = append(&reader, author.clone().next(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    assert!(refused.message().contains("25006"), "{refused}");
    is_kept(&reader, &author).await;

    let pool = schema.pool(1);
    let mut holder = pool.begin().await.unwrap();
    store.append_in(&mut holder, author.clone().next(1)).await.unwrap();
    for (setting, code) in [("statement_timeout%3D50", "57014"), ("lock_timeout%3D50", "55P03")] {
        let refused = append(&with(setting), author.clone().next(1)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
        assert!(refused.message().contains(code), "{refused}");
    }
    holder.rollback().await.unwrap();
    is_kept(&store, &author).await;
    schema.remove().await;
}

/// The server ends a session in the middle of a write: whether it was done is not known. In the middle of a read: it is
/// read again on another connection.
///
/// Guarantees: POSTGRES-22.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn ended_session_is_indeterminate_only_for_writes() {
    let schema = Schema::new();
    let store = schema.store();
    store.setup().await.unwrap();
    let mut author = Author::new("r");
    append(&store, author.next(1)).await.unwrap();
    let lock = async |mode: &str| {
        let mut holder = schema.pool(1).begin().await.unwrap();
        let sql = format!("LOCK TABLE {0}.records IN {mode} MODE", schema.name);
        sqlx::Executor::execute(&mut *holder, sqlx::raw_sql(sqlx::AssertSqlSafe(sql))).await.unwrap();
        holder
    };
    let end_the_waiting = async || {
        let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                   WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'";
        crate::common::until("a session that waits", async || {
            let mut connection = schema.connection().await;
            let ended = sqlx::query(sql).bind(&schema.name).fetch_one(&mut connection).await.unwrap();
            sqlx::Row::get::<i64, _>(&ended, 0) > 0
        })
        .await;
    };
    let holder = lock("EXCLUSIVE").await;
    let entry = author.next(1);
    let (ended, ()) = tokio::join!(append(&store, entry.clone()), end_the_waiting());
    assert_eq!(kind(&ended), Some(ErrorKind::Indeterminate), "{ended:?}");
    holder.rollback().await.unwrap();
    append(&store, entry).await.unwrap();

    let holder = lock("ACCESS EXCLUSIVE").await;
    let (head, ()) = tokio::join!(store.head(&author.key), async {
        end_the_waiting().await;
        holder.rollback().await.unwrap();
    });
    assert_eq!(head.unwrap().map(|head| head.head()), author.head());
    is_kept(&store, &author).await;
    schema.remove().await;
}

/// Two transactions append to two runs in opposite orders: the server ends one of them, which gets an error that requests a new transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn caller_deadlock_is_unavailable_for_one() {
    let schema = Schema::new();
    let (store, pool) = (schema.store(), schema.pool(2));
    store.setup().await.unwrap();
    let [mut a, mut b] = ["a", "b"].map(Author::new);
    append(&store, a.next(1)).await.unwrap();
    append(&store, b.next(1)).await.unwrap();
    let (mut first, mut second) = (pool.begin().await.unwrap(), pool.begin().await.unwrap());
    store.append_in(&mut first, a.clone().next(1)).await.unwrap();
    store.append_in(&mut second, b.clone().next(1)).await.unwrap();
    let (one, other) =
        tokio::join!(store.append_in(&mut first, b.next(1)), store.append_in(&mut second, a.next(1)));
    let kinds = [kind(&one), kind(&other)];
    assert!(
        kinds.contains(&Some(ErrorKind::Unavailable)) && kinds.iter().flatten().count() >= 1,
        "{kinds:?}"
    );
    drop((first, second));
    schema.remove().await;
}

/// A password that is wrong, a database that is not there, a user who may not, and one who may not connect any more.
///
/// Guarantees: POSTGRES-22.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn whoever_is_not_let_in_is_told_why() {
    let folder = std::env::temp_dir();
    let hba = folder.join(format!("{}.hba", Schema::new().name));
    std::fs::write(&hba, "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
        .unwrap();
    let path = hba.display().to_string();
    let options = PostgresServerOptions::default().with_fsync(false).with_setting("hba_file", path);
    let server = tokio::task::spawn_blocking(|| PostgresServer::start(options)).await.unwrap().unwrap();
    std::fs::remove_file(hba).unwrap();
    let schema = Schema::at(server.url());
    schema.store().setup().await.unwrap();
    schema
        .execute(
            "CREATE ROLE guest LOGIN PASSWORD 'right'; CREATE ROLE late LOGIN PASSWORD 'right' CONNECTION LIMIT 0",
        )
        .await;
    let port = server.port();
    // On a busy machine a refusal may take its time, too.
    let patience = Duration::from_secs(60);
    for (who, patience, kind, code) in [
        ("guest:wrong-secret@127.0.0.1:PORT/postgres", patience, ErrorKind::Invalid, "28P01"),
        ("nobody:secret@127.0.0.1:PORT/postgres", patience, ErrorKind::Invalid, "28P01"),
        ("guest:right@127.0.0.1:PORT/missing", patience, ErrorKind::Invalid, "3D000"),
        ("guest:right@127.0.0.1:PORT/postgres", patience, ErrorKind::Invalid, "42501"),
        // The pool waits for a connection to come free, as far as it may; then the server is asked why, for as long again.
        ("late:right@127.0.0.1:PORT/postgres", Duration::from_secs(5), ErrorKind::Unavailable, "connection"),
    ] {
        let url = format!("postgres://{}", who.replace("PORT", &port.to_string()));
        let options = schema.options().with_acquire_timeout(patience).with_connections(NonZeroU32::MIN);
        let store = PostgresStore::from_url(&url, options).unwrap();
        let error = append(&store, Author::new("r").next(1)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{who}: {error:?}");
        assert!(error.message().contains(code), "{who}: {error}");
        assert!(!all_of(&error).contains("secret"), "{error:?}");
    }
    drop(tokio::task::spawn_blocking(move || drop(server)).await);
}
