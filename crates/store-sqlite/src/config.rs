//! The options of the store, and its URL.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use ferrata_store::{Error, ErrorKind, Result, url};

/// The failure that an acknowledged record survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Synchronous {
    /// A crash of the process, and a power failure. The store syncs the write-ahead log before it acknowledges an append.
    #[default]
    Full,
    /// A crash of the process. A power failure may lose the transactions since the last checkpoint, because only checkpoints sync the log. The lost
    /// transactions are always the newest, and a transaction is never lost in part.
    Normal,
}

/// Options of a [`SqliteStore`](crate::SqliteStore). The defaults suit most applications.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// The failure that an acknowledged record survives. The default is [`Synchronous::Full`].
    pub synchronous: Synchronous,
    /// The timeout for the lock of another process or instance. The default is 10 seconds.
    ///
    /// A writer locks the file for one transaction. With a higher value, the store detects a stopped process later. With a lower value, it may
    /// mistake a busy process for a stopped process. At the timeout, the call fails with [`ErrorKind::Unavailable`] and changes nothing.
    pub lock_wait: Duration,
    /// The number of concurrent reads. The default is 4.
    ///
    /// Each reader has a connection with a cache of up to 2 MB. A higher value uses more of them. With a lower value, long listings delay short
    /// reads.
    pub readers: NonZeroUsize,
    /// Whether to open the file read-only. The default is false. Use it for a backup that must not change.
    ///
    /// Every write then fails with [`ErrorKind::Unavailable`]. If the file system is mounted read-only and the write-ahead log of the file has
    /// records, every call fails with [`ErrorKind::Unsupported`].
    pub read_only: bool,
    /// The size up to which this process lets the database grow, in bytes. The default is no limit.
    ///
    /// An append that needs more space fails with [`ErrorKind::Unavailable`]. The size counts whole pages of 4,096 bytes, and does not include the
    /// write-ahead log.
    pub max_bytes: Option<u64>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::Full,
            lock_wait: Duration::from_secs(10),
            readers: NonZeroUsize::MIN.saturating_add(3),
            read_only: false,
            max_bytes: None,
        }
    }
}

impl SqliteOptions {
    /// Sets the failure that an acknowledged record survives.
    #[must_use]
    pub fn with_synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// Sets the timeout for the lock of another process or instance.
    #[must_use]
    pub fn with_lock_wait(mut self, lock_wait: Duration) -> Self {
        self.lock_wait = lock_wait;
        self
    }

    /// Sets the number of concurrent reads.
    #[must_use]
    pub fn with_readers(mut self, readers: NonZeroUsize) -> Self {
        self.readers = readers;
        self
    }

    /// Sets whether to open the file read-only.
    #[must_use]
    pub fn with_read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets the size up to which this process lets the database grow, in bytes; `None` means no limit.
    #[must_use]
    pub fn with_max_bytes(mut self, max_bytes: Option<u64>) -> Self {
        self.max_bytes = max_bytes;
        self
    }
}

/// Parses the path and the options of a URL.
pub(crate) fn read_url(url: &str, mut options: SqliteOptions) -> Result<(PathBuf, SqliteOptions)> {
    let bad = |why: &str| Error::new(ErrorKind::Invalid, format!("the store's URL {why}"));
    let bad_place = |why: &str| {
        bad(&format!(
            "{why}; write sqlite:///absolute/path.db or sqlite:relative/path.db, with a question mark as %3F"
        ))
    };
    let (place, given) = url::split(url);
    let path = String::from_utf8(url::path(place, "sqlite").map_err(bad_place)?)
        .map_err(|_| bad_place("names a path that is not UTF-8"))?;
    if path.starts_with(':') {
        return Err(bad_place("names no file; for a store in memory use `memory:`"));
    }
    for option in given {
        let now = options;
        let (read, wanted) = match option.name {
            "synchronous" => {
                let read = match option.value {
                    "full" => Some(now.with_synchronous(Synchronous::Full)),
                    "normal" => Some(now.with_synchronous(Synchronous::Normal)),
                    _ => None,
                };
                (read, "full or normal")
            }
            "lock_wait_ms" => {
                (option.millis().map(|wait| now.with_lock_wait(wait)), "a number of milliseconds")
            }
            "readers" => (option.number().map(|readers| now.with_readers(readers)), "a number of at least 1"),
            "read_only" => (option.truth().map(|read_only| now.with_read_only(read_only)), "true or false"),
            "max_bytes" => {
                (option.number().map(|bytes| now.with_max_bytes(Some(bytes))), "a number of bytes")
            }
            _ => {
                return Err(bad(
                    "has an unknown option; the options are synchronous, lock_wait_ms, readers, read_only and max_bytes",
                ));
            }
        };
        options = read.ok_or_else(|| {
            bad(&format!("has a wrong value for the option `{}`: write {wanted}", option.name))
        })?;
    }
    Ok((path.into(), options))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<(PathBuf, SqliteOptions)> {
        read_url(url, SqliteOptions::default())
    }

    #[test]
    fn a_url_names_a_file_and_options() {
        for (url, path) in [
            ("sqlite:runs.db", "runs.db"),
            ("sqlite:./a/runs.db", "./a/runs.db"),
            ("sqlite:///var/runs.db", "/var/runs.db"),
            ("sqlite:/a%20b/c%3Fd%25%C3%A9#.db".replace('#', "%23").as_str(), "/a b/c?d%é#.db"),
        ] {
            assert_eq!(read(url).unwrap(), (PathBuf::from(path), SqliteOptions::default()), "{url}");
        }
        let all = "sqlite:r?synchronous=normal&lock_wait_ms=5&readers=2&read_only=true&max_bytes=9";
        let options = SqliteOptions::default()
            .with_synchronous(Synchronous::Normal)
            .with_lock_wait(Duration::from_millis(5))
            .with_readers(NonZeroUsize::MIN.saturating_add(1))
            .with_read_only(true)
            .with_max_bytes(Some(9));
        assert_eq!(read(all).unwrap(), (PathBuf::from("r"), options));
    }

    #[test]
    fn another_url_is_refused() {
        let urls = [
            "",
            "sqlite",
            "sqlite:",
            "file:r",
            "sqlite://r.db",
            "sqlite::memory:",
            "sqlite:%ff",
            "sqlite:a%00",
        ];
        let options = ["x=1", "readers=0", "readers=", "read_only=yes", "synchronous=off", "max_bytes=-1"];
        let options = options.map(|option| format!("sqlite:r?{option}"));
        for url in urls.into_iter().chain(options.iter().map(String::as_str)) {
            assert_eq!(read(url).unwrap_err().kind(), ErrorKind::Invalid, "{url}");
        }
        for (option, remedy) in [
            ("db", "has an unknown option; the options are synchronous,"),
            ("synchronous=off", "for the option `synchronous`: write full or normal"),
            ("readers=0", "for the option `readers`: write a number of at least 1"),
        ] {
            let error = read(&format!("sqlite:r?{option}")).unwrap_err().to_string();
            assert!(error.contains(remedy), "{error}");
        }
    }
}
