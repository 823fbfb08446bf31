//! Opens a store by its URL.

use std::sync::Arc;

use ferrata_core::store::{CheckpointStore, MemoryStore};
use ferrata_core::{Error, ErrorKind, Result};

/// Opens a store by its URL. The store reads and writes nothing before its first use. With a `sharded:` URL, the call reads the file that the URL
/// names.
///
/// - `memory:` stores runs in memory until the process ends. Each call creates a separate store.
/// - `file:///path` and `file:relative/path` store runs as files on this machine, with the feature `fs`.
/// - `sqlite:///path` and `sqlite:relative/path` store runs in an SQLite database, one file on this machine, with the feature `sqlite`. Options
///   follow as in `?synchronous=normal`.
/// - `postgres://user:password@host:port/database` stores runs in a PostgreSQL database, with the feature `postgres`. Options follow as in
///   `?schema=app&connections=20`.
/// - `nats://host:port,host:port?namespace=name&replicas=3` and `tls://` (with TLS) store runs in a stream of NATS JetStream, with the feature
///   `nats`.
/// - `redis://host:port/database`, `rediss://` (with TLS), `redis-cluster://host:port,host:port` and `rediss-cluster://` store runs on a Redis or
///   Valkey server or cluster, with the feature `redis`. Options follow after `?`: `prefix`, `replicas`, `keep_secs`.
/// - `s3://bucket/prefix?endpoint=https://host:port&region=name&path_style=true` stores runs as objects in a bucket, with the feature `s3`. The query
///   is for servers other than AWS. Credentials come from the environment, never from the URL.
/// - `sharded:///path/of/a/file` and `sharded:relative/path` distribute runs over the stores in this file, with the feature `sharded`. Each store
///   has a URL of one of the other kinds. `docs/how-to/sharding.md` describes the file.
///
/// # Errors
///
/// - [`ErrorKind::Unsupported`]: the kind of store is unknown, or its feature is disabled. The message names the kind or the feature.
/// - [`ErrorKind::Invalid`]: the text is not a URL, or not a valid URL for its kind of store.
///
/// # Examples
///
/// ```
/// let store = ferrata::connect("memory:")?;
/// assert_eq!(store.capabilities().name, "memory");
///
/// let error = ferrata::connect("carrier-pigeon:loft").unwrap_err();
/// assert_eq!(error.kind(), ferrata::ErrorKind::Unsupported);
/// # Ok::<(), ferrata::Error>(())
/// ```
pub fn connect(url: &str) -> Result<Arc<dyn CheckpointStore>> {
    // Errors show only the scheme, because the other parts of a URL may contain a password.
    let Some((scheme, rest)) = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
        let message = "what names the store is no URL; use `memory:`, `file:///path` or `s3://bucket/prefix`";
        return Err(Error::new(ErrorKind::Invalid, message));
    };
    match scheme.to_ascii_lowercase().as_str() {
        "memory" if rest.is_empty() => Ok(Arc::new(MemoryStore::new())),
        "memory" => Err(Error::new(ErrorKind::Invalid, "a memory store has no name; use `memory:`")),
        "file" => file(url),
        "sqlite" => sqlite(url),
        "postgres" | "postgresql" => postgres(url),
        "nats" | "tls" => nats(url),
        "redis" | "rediss" | "redis-cluster" | "rediss-cluster" => redis(url),
        "s3" => s3(url),
        "sharded" => sharded(url),
        _ => {
            let message = format!(
                "there is no store for `{scheme}:` URLs; use `memory:`, `file:`, `sqlite:`, `postgres:`, `nats:`, `redis:`, `s3:` or `sharded:`"
            );
            Err(Error::new(ErrorKind::Unsupported, message))
        }
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

#[cfg(feature = "fs")]
fn file(url: &str) -> Result<Arc<dyn CheckpointStore>> {
    let store = ferrata_store_fs::FsStore::from_url(url, ferrata_store_fs::FsOptions::default())?;
    Ok(Arc::new(store))
}

#[cfg(not(feature = "fs"))]
fn file(_url: &str) -> Result<Arc<dyn CheckpointStore>> {
    let message = "`file:` URLs need the feature `fs` of the crate `ferrata`, which is off; turn it on";
    Err(Error::new(ErrorKind::Unsupported, message))
}

#[cfg(feature = "sqlite")]
fn sqlite(url: &str) -> Result<Arc<dyn CheckpointStore>> {
    let options = ferrata_store_sqlite::SqliteOptions::default();
    Ok(Arc::new(ferrata_store_sqlite::SqliteStore::from_url(url, options)?))
}

#[cfg(not(feature = "sqlite"))]
fn sqlite(_url: &str) -> Result<Arc<dyn CheckpointStore>> {
    let message = "`sqlite:` URLs need the feature `sqlite` of the crate `ferrata`, which is off; turn it on";
    Err(Error::new(ErrorKind::Unsupported, message))
}

#[cfg(feature = "postgres")]
fn postgres(url: &str) -> Result<Arc<dyn CheckpointStore>> {
    let options = ferrata_store_postgres::PostgresOptions::default();
    Ok(Arc::new(ferrata_store_postgres::PostgresStore::from_url(url, options)?))
}

#[cfg(not(feature = "postgres"))]
fn postgres(_url: &str) -> Result<Arc<dyn CheckpointStore>> {
    let message =
        "`postgres:` URLs need the feature `postgres` of the crate `ferrata`, which is off; turn it on";
    Err(Error::new(ErrorKind::Unsupported, message))
}

#[cfg(feature = "nats")]
fn nats(url: &str) -> Result<Arc<dyn CheckpointStore>> {
    let options = ferrata_store_nats::NatsOptions::default();
    Ok(Arc::new(ferrata_store_nats::NatsStore::from_url(url, options)?))
}

#[cfg(not(feature = "nats"))]
fn nats(_url: &str) -> Result<Arc<dyn CheckpointStore>> {
    let message = "NATS URLs need the feature `nats` of the crate `ferrata`, which is off; turn it on";
    Err(Error::new(ErrorKind::Unsupported, message))
}

#[cfg(feature = "redis")]
fn redis(url: &str) -> Result<Arc<dyn CheckpointStore>> {
    Ok(Arc::new(ferrata_store_redis::RedisStore::from_url(
        url,
        ferrata_store_redis::RedisOptions::default(),
    )?))
}

#[cfg(not(feature = "redis"))]
fn redis(_url: &str) -> Result<Arc<dyn CheckpointStore>> {
    let message = "Redis URLs need the feature `redis` of the crate `ferrata`, which is off; turn it on";
    Err(Error::new(ErrorKind::Unsupported, message))
}

#[cfg(feature = "s3")]
fn s3(url: &str) -> Result<Arc<dyn CheckpointStore>> {
    let store = ferrata_store_s3::S3Store::from_url(url, ferrata_store_s3::S3Options::default())?;
    Ok(Arc::new(store))
}

#[cfg(not(feature = "s3"))]
fn s3(_url: &str) -> Result<Arc<dyn CheckpointStore>> {
    let message = "`s3:` URLs need the feature `s3` of the crate `ferrata`, which is off; turn it on";
    Err(Error::new(ErrorKind::Unsupported, message))
}

#[cfg(feature = "sharded")]
fn sharded(url: &str) -> Result<Arc<dyn CheckpointStore>> {
    Ok(Arc::new(ferrata_store_sharded::ShardedStore::from_url(url, connect)?))
}

#[cfg(not(feature = "sharded"))]
fn sharded(_url: &str) -> Result<Arc<dyn CheckpointStore>> {
    let message =
        "`sharded:` URLs need the feature `sharded` of the crate `ferrata`, which is off; turn it on";
    Err(Error::new(ErrorKind::Unsupported, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_shows_more_than_the_scheme() {
        for (url, kind) in [
            ("pigeon://me:secret@host/db", ErrorKind::Unsupported),
            ("memory:secret", ErrorKind::Invalid),
            ("secret", ErrorKind::Invalid),
            ("/secret:/x", ErrorKind::Invalid),
            ("", ErrorKind::Invalid),
        ] {
            let error = connect(url).unwrap_err();
            assert_eq!(error.kind(), kind, "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[cfg(feature = "fs")]
    #[test]
    fn a_file_url_is_a_store_of_files() {
        for url in ["file:///nowhere/runs", "file:runs"] {
            assert_eq!(connect(url).unwrap().capabilities().name, "file", "{url}");
        }
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn sqlite_url_opens_store_in_new_file() {
        for url in ["sqlite:///nowhere/runs.db", "sqlite:runs.db?synchronous=normal"] {
            assert_eq!(connect(url).unwrap().capabilities().name, "sqlite", "{url}");
        }
        assert_eq!(connect("sqlite::memory:").unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[cfg(not(feature = "sqlite"))]
    #[test]
    fn disabled_sqlite_feature_is_named() {
        let error = connect("sqlite:runs.db").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("feature `sqlite`"), "{error}");
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn postgres_url_opens_store_that_connects_lazily() {
        for url in ["postgres://me:secret@nowhere.invalid/db?schema=a", "postgresql://nowhere.invalid/db"] {
            let store = connect(url).unwrap();
            assert_eq!(store.capabilities().name, "postgres", "{url}");
            assert!(!format!("{store:?}").contains("secret"), "{store:?}");
        }
        let error = connect("postgres://me:secret@host:secret/db").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }

    #[cfg(not(feature = "postgres"))]
    #[test]
    fn disabled_postgres_feature_is_named() {
        let error = connect("postgres://me:secret@host/db").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("feature `postgres`"), "{error}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }

    #[cfg(feature = "nats")]
    #[test]
    fn nats_url_opens_store_that_connects_lazily() {
        for url in ["nats://me:secret@nowhere.invalid?namespace=a", "tls://a:1,b:2/?replicas=3"] {
            let store = connect(url).unwrap();
            assert_eq!(store.capabilities().name, "nats", "{url}");
            assert!(!format!("{store:?}").contains("secret"), "{store:?}");
        }
        let error = connect("nats://me:secret@host:secret").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }

    #[cfg(not(feature = "nats"))]
    #[test]
    fn disabled_nats_feature_is_named() {
        let error = connect("nats://me:secret@host").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("feature `nats`"), "{error}");
    }

    #[cfg(feature = "redis")]
    #[test]
    fn redis_url_opens_store_that_connects_lazily() {
        for url in [
            "redis://:secret@nowhere",
            "rediss://nowhere:1/2?prefix=a",
            "redis-cluster://a:1,b:2",
            "rediss-cluster://a",
        ] {
            let store = connect(url).unwrap();
            assert_eq!(store.capabilities().name, "redis", "{url}");
            assert!(!format!("{store:?}").contains("secret"), "{store:?}");
        }
        let error = connect("redis://:secret@host?what=1").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }

    #[cfg(not(feature = "redis"))]
    #[test]
    fn disabled_redis_feature_is_named() {
        let error = connect("rediss://:secret@host").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("feature `redis`"), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[cfg(feature = "s3")]
    #[test]
    fn s3_url_opens_store_and_hides_secret() {
        let url = "s3://runs/a/b?endpoint=http://127.0.0.1:9&region=here&path_style=true";
        let store = connect(url).unwrap();
        assert_eq!(store.capabilities().name, "s3");
        assert!(format!("{store:?}").contains("runs"), "{store:?}");
        for url in ["s3://key:secret@runs", "s3://runs?endpoint=http://key:secret@host", "s3://runs?secret"] {
            let error = connect(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
    }

    #[cfg(not(feature = "s3"))]
    #[test]
    fn disabled_s3_feature_is_named() {
        let error = connect("s3://key:secret@runs").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(
            error.to_string().contains("feature `s3`") && !error.to_string().contains("secret"),
            "{error}"
        );
    }

    #[cfg(all(feature = "sharded", feature = "fs"))]
    #[test]
    fn sharded_url_opens_file_of_non_sharded_stores() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("fleet");
        let url = format!("sharded:{}", file.display());
        let open = |shards: &str| {
            std::fs::write(&file, shards).unwrap();
            connect(&url)
        };
        let store = open("shard a file:a\nshard b memory:\ngeneration a b\n").unwrap();
        assert_eq!(store.capabilities().name, "sharded");
        for (shard, kind) in [
            ("pigeon://me:secret@host", ErrorKind::Unsupported),
            ("file:secret?x", ErrorKind::Invalid),
            ("sharded:secret", ErrorKind::Invalid),
        ] {
            let error = open(&format!("shard a {shard}\ngeneration a\n")).unwrap_err();
            assert_eq!(error.kind(), kind, "{shard}");
            assert!(error.to_string().contains("line 1 of "), "{error}");
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
    }

    #[cfg(not(feature = "sharded"))]
    #[test]
    fn disabled_shards_feature_is_named() {
        let error = connect("sharded:fleet").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("feature `sharded`"), "{error}");
    }

    #[cfg(not(feature = "fs"))]
    #[test]
    fn a_feature_that_is_off_is_named() {
        let error = connect("file:runs").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("feature `fs`"), "{error}");
    }
}
