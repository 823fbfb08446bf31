//! The options of the store, and its URL.

use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::Duration;

use ferrata_store::{Error, ErrorKind, Result, url};

/// Options of a [`FsStore`](crate::FsStore). The defaults suit most applications.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FsOptions {
    /// The number of logs that stay open for appending. The default is 256.
    ///
    /// A higher value lets more runs append without opening and reading the end of their file first, and uses more file descriptors. A lower value
    /// does the reverse. Any number is correct. The store uses at most half of the files that the process may open.
    pub open_files: NonZeroUsize,
    /// The number of runs of one batch written concurrently. The default is 16.
    ///
    /// A higher value finishes large batches sooner, because the file system syncs many files together, and uses more threads of Tokio's blocking
    /// pool. A lower value does the reverse.
    pub parallel: NonZeroUsize,
    /// The timeout for a lock that another process has on a run's file. The default is 10 seconds.
    ///
    /// A process locks a file for one append or one prune. With a higher value, the store detects a stopped process later. With a lower value, it
    /// may mistake a slow disk for a stopped process. At the timeout, the call fails with [`ErrorKind::Unavailable`] and changes nothing.
    pub lock_wait: Duration,
    /// The number of log syncs of an instance before it creates its own journal. The default is 16.
    ///
    /// One sync of the journal makes the appends of many runs durable. A higher value slows more of a process's first appends. With a lower value,
    /// even a process that writes little creates a file of some hundred kilobytes. `usize::MAX` disables the journal: the store writes each append
    /// once, and syncs each run by itself. Any number is equally safe.
    pub journal_after: usize,
}

impl Default for FsOptions {
    fn default() -> Self {
        const fn at_least_one(number: usize) -> NonZeroUsize {
            NonZeroUsize::MIN.saturating_add(number - 1)
        }
        Self {
            open_files: at_least_one(256),
            parallel: at_least_one(16),
            lock_wait: Duration::from_secs(10),
            journal_after: 16,
        }
    }
}

impl FsOptions {
    /// Sets the number of logs that stay open for appending.
    #[must_use]
    pub fn with_open_files(mut self, open_files: NonZeroUsize) -> Self {
        self.open_files = open_files;
        self
    }

    /// Sets the number of runs of one batch written concurrently.
    #[must_use]
    pub fn with_parallel(mut self, parallel: NonZeroUsize) -> Self {
        self.parallel = parallel;
        self
    }

    /// Sets the number of log syncs before the instance creates its own journal.
    #[must_use]
    pub fn with_journal_after(mut self, journal_after: usize) -> Self {
        self.journal_after = journal_after;
        self
    }

    /// Sets the timeout for a lock of another process.
    #[must_use]
    pub fn with_lock_wait(mut self, lock_wait: Duration) -> Self {
        self.lock_wait = lock_wait;
        self
    }
}

/// Parses the directory from a URL: `file:///absolute/path`, or `file:relative/path`.
pub(crate) fn path_of_url(url: &str) -> Result<PathBuf> {
    let path = url::path(url, "file").map_err(|why| {
        let message = format!("the store's URL {why}; write file:///absolute/path or file:relative/path");
        Error::new(ErrorKind::Invalid, message)
    })?;
    Ok(std::ffi::OsString::from_vec(path).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, path: &str) {
        assert_eq!(path_of_url(url).unwrap(), PathBuf::from(path), "{url}");
    }

    #[test]
    fn a_url_names_a_directory() {
        check("file:///var/lib/ferrata", "/var/lib/ferrata");
        check("file://localhost/var", "/var");
        check("file:data", "data");
        check("file:./data", "./data");
        check("file:/data", "/data");
        check("file:///a%20b%2fc%C3%A9", "/a b/cé");
    }

    #[test]
    fn another_url_is_refused() {
        let bad = [
            "",
            "file",
            "file:",
            "http:///x",
            "file://host/x",
            "file://x",
            "file:/%",
            "file:/%2",
            "file:/%zz",
        ];
        for url in bad.into_iter().chain(["file:/%00", "file:/a?b", "file:/a#b", "/var"]) {
            assert_eq!(path_of_url(url).unwrap_err().kind(), ErrorKind::Invalid, "{url}");
        }
    }
}
