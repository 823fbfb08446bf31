//! Opens the store by its URL, and formats the URL without secrets.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferrata::{CheckpointStore, ErrorKind};

use crate::exit::ExitReason;
use crate::failure::CommandFailure;

/// The default store: files in the current directory, next to the pipelines that use them.
pub(crate) const DEFAULT: &str = "file:.ferrata/store";

/// The file in which a file store records its layout.
pub(crate) const MARKER: &str = "ferrata.json";

/// Maximum time that a command waits for a connection. A person at a terminal should learn quickly that a server is down.
const PATIENCE: &str = "acquire_timeout_ms=1500";

/// Opens an existing store by its URL, to read and control its runs.
pub(crate) fn open_existing(url: &str) -> Result<Arc<dyn CheckpointStore>, CommandFailure> {
    unwrapped(open_as_stored(url)?)
}

/// Opens an existing store by its URL. Its records are returned as they are stored, compressed or encrypted.
pub(crate) fn open_as_stored(url: &str) -> Result<Arc<dyn CheckpointStore>, CommandFailure> {
    if file(url).is_some_and(|path| !path.exists()) {
        let message = format!("cannot find a store at `{}`; set FERRATA_STORE or --store", redact_url(url));
        let failure = CommandFailure::new(ExitReason::NotFound, message, "ferrata ls --store URL");
        return Err(failure.with_code(ErrorKind::NotFound));
    }
    connect(&with_connect_limit(url))
}

/// Opens a store by its URL, for a command for which a person waits.
pub(crate) fn open_soon(url: &str) -> Result<Arc<dyn CheckpointStore>, CommandFailure> {
    open(&with_connect_limit(url))
}

/// Returns the URL with the maximum time for a connection added.
pub(crate) fn with_connect_limit(url: &str) -> Cow<'_, str> {
    if is_postgres(url) && !url.contains("acquire_timeout_ms=") {
        return format!("{url}{}{PATIENCE}", if url.contains('?') { '&' } else { '?' }).into();
    }
    url.into()
}

/// Returns whether a URL is that of a Postgres database.
pub(crate) fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres:") || url.starts_with("postgresql:")
}

/// Returns the path in the URL of a file or a folder, without escapes.
fn file(url: &str) -> Option<PathBuf> {
    folder(url).or_else(|| {
        let path = url.strip_prefix("sqlite:")?;
        let path = path.strip_prefix("//").unwrap_or(path).split('?').next()?;
        (!path.contains(['%', ':']) && !path.is_empty()).then(|| path.into())
    })
}

/// Opens a store by its URL.
pub(crate) fn open(url: &str) -> Result<Arc<dyn CheckpointStore>, CommandFailure> {
    unwrapped(connect(url)?)
}

fn connect(url: &str) -> Result<Arc<dyn CheckpointStore>, CommandFailure> {
    ferrata::connect(url).map_err(|error| {
        let scheme = url.split(':').next().unwrap_or_default();
        // If the scheme is known, its feature is disabled in this build.
        let feature = match scheme.to_ascii_lowercase().as_str() {
            "postgres" | "postgresql" => Some("postgres"),
            "nats" | "tls" => Some("nats"),
            "redis" | "rediss" | "redis-cluster" | "rediss-cluster" => Some("redis"),
            "s3" => Some("s3"),
            "sqlite" => Some("sqlite"),
            _ => None,
        };
        let next = match feature.filter(|_| error.kind() == ErrorKind::Unsupported) {
            Some(feature) => format!("cargo install --path crates/cli --features {feature}"),
            None => format!("ferrata ls --store {DEFAULT}"),
        };
        CommandFailure::from(error).or_type(next)
    })
}

/// The command to type next if keys are missing or cannot be read.
#[cfg(feature = "envelope")]
pub(crate) const KEYS: &str = "export FERRATA_KEYS=FILE  # a line for each: name = 64 hex digits";

/// Reads the keys in the file that `FERRATA_KEYS` names; `None` if the variable is not set.
#[cfg(feature = "envelope")]
pub(crate) fn keys() -> Result<Option<ferrata::Keyring>, CommandFailure> {
    let path = std::env::var_os("FERRATA_KEYS").filter(|path| !path.is_empty());
    let read =
        |path| ferrata::Keyring::from_file(path).map_err(|error| CommandFailure::from(error).or_type(KEYS));
    path.map(read).transpose()
}

/// Wraps a store, so that records are decompressed, and decrypted with the keys in `FERRATA_KEYS` and `FERRATA_LABEL_KEY`. If keys are set, new
/// records are encrypted.
#[cfg(feature = "envelope")]
fn unwrapped(store: Arc<dyn CheckpointStore>) -> Result<Arc<dyn CheckpointStore>, CommandFailure> {
    let mut options = ferrata::EnvelopeOptions::default();
    match keys()? {
        Some(keys) => options = options.with_keys(keys),
        // Do not compress new records. The service may not use compression, and must find the format that it expects.
        None => options = options.with_compress_from(None),
    }
    if let Some(path) = std::env::var_os("FERRATA_LABEL_KEY").filter(|path| !path.is_empty()) {
        let key = ferrata::LabelKey::from_file(path).map_err(|error| {
            CommandFailure::from(error).or_type("export FERRATA_LABEL_KEY=FILE  # 64 hex digits")
        })?;
        options = options.with_label_key(key);
    }
    Ok(Arc::new(ferrata::EnvelopeStore::new(store, options)))
}

#[cfg(not(feature = "envelope"))]
#[expect(clippy::unnecessary_wraps, reason = "with the feature it may fail")]
fn unwrapped(store: Arc<dyn CheckpointStore>) -> Result<Arc<dyn CheckpointStore>, CommandFailure> {
    Ok(store)
}

/// Formats a path as a URL.
pub(crate) fn of_folder(path: &Path) -> String {
    use std::fmt::Write as _;
    let mut url = String::from("file:");
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            // Writing to a string never fails.
            let _ = write!(url, "%{byte:02X}");
        }
    }
    // A path that begins with two slashes would name another machine.
    if url.starts_with("file://") { url.replacen("file:/", "file:///", 1) } else { url }
}

/// Returns the folder in the URL of a file store, without escapes.
pub(crate) fn folder(url: &str) -> Option<std::path::PathBuf> {
    let path = url.strip_prefix("file:")?;
    let path = path.strip_prefix("//").map_or(path, |rest| rest);
    (!path.contains(['%', '?'])).then(|| path.into())
}

/// Removes a file store that contains no runs: its folders, and the heartbeats of ended processes. Returns whether the store was removed.
///
/// A listing omits unreadable runs, and a process may start a run at the same time. So only empty folders are removed, until the folder of the logs
/// itself is removed. If a live process uses the store, nothing is removed, because the process would treat a missing folder as a loss of data.
pub(crate) fn remove_empty(store: &Path) -> bool {
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let (runs, executors) = (store.join("runs"), store.join("executors"));
    // A live process holds a lock on its file.
    let is_dead = |path: &Path| std::fs::File::open(path).is_ok_and(|file| file.try_lock().is_ok());
    let journals = store.join("journals");
    // A journal that still exists belongs to a live process, or has records that may not be in a log.
    let is_used = !entries(&executors).all(|executor| is_dead(&executor.path()));
    if is_used || entries(&journals).next().is_some() {
        return false;
    }
    for tenant in entries(&runs) {
        // If the folder is not empty, it stays.
        let _ = std::fs::remove_dir(tenant.path());
    }
    // Remove the marker next. While the marker exists, a missing folder of logs counts as a loss of data.
    if std::fs::remove_dir(&runs).is_err() || std::fs::remove_file(store.join(MARKER)).is_err() {
        return false;
    }
    for executor in entries(&executors) {
        if is_dead(&executor.path()) {
            let _ = std::fs::remove_file(executor.path());
        }
    }
    [&executors, &journals, store].into_iter().all(|folder| std::fs::remove_dir(folder).is_ok())
}

/// Returns the URL in a form that can be shown: without passwords and tokens, and with `***` for secret options of its query.
pub(crate) fn redact_url(url: &str) -> String {
    let unnamed = redact_credentials(url);
    let (main, query) =
        unnamed.split_once('?').map_or((&*unnamed, None), |(main, query)| (main, Some(query)));
    let mut shown = main.to_owned();
    if let Some(query) = query {
        let parts: Vec<String> = query
            .split('&')
            .map(|part| match part.split_once('=') {
                Some((key, _)) if is_secret_key(key) => format!("{key}=***"),
                _ => part.to_owned(),
            })
            .collect();
        shown.push('?');
        shown.push_str(&parts.join("&"));
    }
    shown
}

/// Returns the URL with `***` instead of credentials before an `@`.
///
/// A password may contain an `@`. The user may also not have escaped a `?`, a `/` or a `#` in it. So the password extends to the last `@`.
fn redact_credentials(url: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = url.split_once(':') else { return url.into() };
    let is = |names: &[&str]| names.iter().any(|name| scheme.eq_ignore_ascii_case(name));
    let rest = rest.trim_start_matches('/');
    // The name of a file may contain any character, and is not a credential.
    let Some((who, host)) = rest.rsplit_once('@').filter(|_| !is(&["file", "sqlite", "sharded"])) else {
        return url.into();
    };
    let begin = &url[..url.len() - rest.len()];
    let name = who.split([':', '/', '?', '#', '@']).next().unwrap_or_default();
    if who[name.len()..].starts_with(':') {
        return format!("{begin}{name}:***@{host}").into();
    }
    // A single word is a token in NATS, and a user name in other stores.
    match is(&["nats", "tls"]) {
        true => format!("{begin}***@{host}").into(),
        false => url.into(),
    }
}

/// Returns whether the value of an option may be a secret.
fn is_secret_key(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["pass", "secret", "key", "token", "credential"].iter().any(|word| key.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: CLI-5.
    #[test]
    fn a_url_is_shown_without_its_secrets() {
        for (url, expected) in [
            ("file:runs", "file:runs"),
            ("postgres://me:s3cret@db/app?schema=a", "postgres://me:***@db/app?schema=a"),
            ("postgres://me@db/app?password=s3cret", "postgres://me@db/app?password=***"),
            ("redis://:s3c@ret@host:1/0", "redis://:***@host:1/0"),
            ("postgres://me:s3?c/r#e@t@db/app?schema=a", "postgres://me:***@db/app?schema=a"),
            ("postgres://me:s3?c=r@db/app?password=s3cret", "postgres://me:***@db/app?password=***"),
            ("postgres://me:s3/c:r@db", "postgres://me:***@db"),
            ("postgres://db/app?password=s3:c@ret&schema=a", "postgres://db/app?password=***&schema=a"),
            ("postgres:/me:s3cret@db", "postgres:/me:***@db"),
            // A URL with a token and without a user.
            ("nats://s3cret@host:1?namespace=a", "nats://***@host:1?namespace=a"),
            ("TLS://s3?c@ret@host:1,host:2", "TLS://***@host:1,host:2"),
            ("nats://s3cret@a:1,s3cret@b:2", "nats://***@b:2"),
            ("nats://me:s3cret@host:1", "nats://me:***@host:1"),
            ("nats://host:1,host:2?namespace=a", "nats://host:1,host:2?namespace=a"),
            ("file:/home/a:b@c/runs", "file:/home/a:b@c/runs"),
            (
                "s3://bucket/p?secret_access_key=s3cret&region=x",
                "s3://bucket/p?secret_access_key=***&region=x",
            ),
        ] {
            assert_eq!(redact_url(url), expected);
        }
    }
}
