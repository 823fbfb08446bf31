//! The options of the store, and its URL.

use std::fmt;
use std::time::Duration;

use ferrata_store::{Error, ErrorKind, Result, url};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// The maximum length of a prefix: every key contains it, and the index contains it twice for each key of a run.
const MAX_PREFIX: usize = 64;

/// Options of a [`RedisStore`](crate::RedisStore). The defaults suit most applications.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisOptions {
    /// The prefix of every key and of the channel of notices. The default is `ferrata`; `?prefix=` in a URL.
    ///
    /// A prefix has 1 to 64 characters from `A-Z a-z 0-9 . _ : -`. Stores with different prefixes on the same server do not see each other's data.
    pub prefix: String,
    /// The timeout for a connection. The default is 5 seconds.
    ///
    /// With a higher value, the store detects a dead server later. With a lower value, it may mistake a slow network for a dead server.
    pub connect_timeout: Duration,
    /// The timeout for a reply. The default is 10 seconds; `?response_timeout_ms=` in a URL.
    ///
    /// At the timeout, an append fails with [`ErrorKind::Indeterminate`]. With a higher value, the store detects a hanging server later. With a
    /// lower value, a busy server (a long script, saving on a slow disk) causes unknown outcomes and repeated appends.
    pub response_timeout: Duration,
    /// The number of replicas that must have a record before the store acknowledges it (`WAIT`). The default is 0; `?replicas=` in a URL.
    ///
    /// With a higher value, a failover loses less, and every append waits for the slowest of these replicas. A replica confirms that it has received
    /// a record, not that it has written it to disk.
    pub replicas: u32,
    /// The timeout for the confirmations of the [`replicas`](Self::replicas). The default is 2 seconds. At the timeout, the append fails with
    /// [`ErrorKind::Indeterminate`].
    ///
    /// Other calls of this instance to the same server also wait for that time. The value must be at most the response timeout.
    pub replica_timeout: Duration,
    /// How long the server keeps finished runs. The default is forever; `?keep_secs=` in a URL.
    ///
    /// The server removes a run when this time has passed since the record that finished the run, as if the run were purged. A record that makes
    /// the run active again (a retry) cancels the removal.
    pub keep_finished: Option<Duration>,
    /// Whether to send and receive notices of changed runs. The default is true.
    ///
    /// Each append costs one `PUBLISH` inside its script, which a cluster sends to all of its nodes. Without notices, executors find each other's
    /// records by polling.
    pub notices: bool,
    /// How often `setup` compares the index with the runs. The default is every 6 hours.
    ///
    /// One process compares the index for all processes, in a background task. The task scans every key of the server and reads the head of every
    /// run, some thousands per second. With zero, each `setup` compares the index before it returns.
    pub repair_every: Duration,
    /// How long an index entry without a run remains before it is removed. The default is 1 hour.
    ///
    /// An entry without a run remains if a process dies while it starts a run, or if a run expires. It costs a reader one lookup. The value must be
    /// longer than a process can stall in the middle of an append.
    pub stale_after: Duration,
    /// The certificates (PEM) of the authorities to trust for `rediss:` URLs. The default is `None`: the authorities of the system.
    pub root_certificates: Option<Vec<u8>>,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            prefix: "ferrata".to_owned(),
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(10),
            replicas: 0,
            replica_timeout: Duration::from_secs(2),
            keep_finished: None,
            notices: true,
            repair_every: Duration::from_secs(6 * 3_600),
            stale_after: Duration::from_secs(3_600),
            root_certificates: None,
        }
    }
}

impl RedisOptions {
    /// Sets the prefix of every key and of the channel of notices.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the timeout for a connection.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the timeout for a reply.
    #[must_use]
    pub fn with_response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Sets the number of replicas that must have a record before the store acknowledges it, and the timeout for them.
    #[must_use]
    pub fn with_replicas(mut self, replicas: u32, timeout: Duration) -> Self {
        self.replicas = replicas;
        self.replica_timeout = timeout;
        self
    }

    /// Sets how long the server keeps finished runs.
    #[must_use]
    pub fn with_keep_finished(mut self, keep: Duration) -> Self {
        self.keep_finished = Some(keep);
        self
    }

    /// Sets whether to send and receive notices.
    #[must_use]
    pub fn with_notices(mut self, notices: bool) -> Self {
        self.notices = notices;
        self
    }

    /// Sets how often the index is compared with the runs.
    #[must_use]
    pub fn with_repair_every(mut self, every: Duration) -> Self {
        self.repair_every = every;
        self
    }

    /// Sets how long an index entry without a run remains.
    #[must_use]
    pub fn with_stale_after(mut self, after: Duration) -> Self {
        self.stale_after = after;
        self
    }

    /// Sets the certificates (PEM) of the authorities to trust.
    #[must_use]
    pub fn with_root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.root_certificates = Some(pem.into());
        self
    }

    fn check(&self) -> Result<()> {
        let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-');
        if self.prefix.is_empty() || self.prefix.len() > MAX_PREFIX || !self.prefix.chars().all(is_safe) {
            return Err(invalid(format!(
                "the prefix {:?} is invalid; use 1 to {MAX_PREFIX} of A-Z a-z 0-9 . _ : -",
                self.prefix.chars().take(MAX_PREFIX).collect::<String>()
            )));
        }
        if self.replicas > 0
            && (self.replica_timeout.is_zero() || self.replica_timeout >= self.response_timeout)
        {
            return Err(invalid(
                "the timeout for replicas must be more than zero and less than the response timeout",
            ));
        }
        // If the text has no certificate, the driver takes it for an empty list, and then trusts no server.
        let is_pem = |pem: &Vec<u8>| {
            let mut certificates = CertificateDer::pem_slice_iter(pem).peekable();
            certificates.peek().is_some() && certificates.all(|certificate| certificate.is_ok())
        };
        if !self.root_certificates.as_ref().is_none_or(is_pem) {
            return Err(invalid(
                "the root certificates are not in PEM format; pass the certificates of the trusted authorities",
            ));
        }
        if self.keep_finished.is_some_and(|keep| keep.as_millis() == 0 || keep > MAX_KEEP) {
            return Err(invalid(
                "the time to keep finished runs must be 1 ms to 100 years; omit it to keep them forever",
            ));
        }
        Ok(())
    }
}

/// The longest expiry time sent to the server. The server adds the time to its clock, and refuses a sum that overflows.
pub(crate) const MAX_KEEP: Duration = Duration::from_secs(100 * 366 * 24 * 3_600);

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("prefix", &self.prefix)
            .field("replicas", &self.replicas)
            .field("keep_finished", &self.keep_finished)
            .field("notices", &self.notices)
            .finish_non_exhaustive()
    }
}

/// The contents of a URL: the servers, whether they form a cluster, and options.
pub(crate) struct RedisTarget {
    pub(crate) seeds: Vec<ConnectionInfo>,
    pub(crate) is_cluster: bool,
    pub(crate) options: RedisOptions,
}

/// Parses a URL. No error shows any part of it, because it may contain a password.
pub(crate) fn target(url: &str, mut options: RedisOptions) -> Result<RedisTarget> {
    const FORMS: &str =
        "write redis://host:port/db, rediss:// for TLS, or redis-cluster://host:port,host:port";
    let bad = |why: &str| invalid(format!("the store's URL {why}; {FORMS}"));
    let (scheme, rest) = url.split_once("://").ok_or_else(|| bad("has no `://`"))?;
    let (single, is_cluster) = match scheme.to_ascii_lowercase().as_str() {
        "redis" => ("redis", false),
        "rediss" => ("rediss", false),
        "redis-cluster" => ("redis", true),
        "rediss-cluster" => ("rediss", true),
        _ => return Err(bad("has the scheme of another kind of store")),
    };
    if rest.contains('#') {
        return Err(bad("has a fragment, which this store does not support (write %23 in a password)"));
    }
    let (rest, given) = url::split(rest);
    for option in given {
        let number = || option.number::<u32>().ok_or_else(|| bad("has an option that is not a number"));
        match option.name {
            "prefix" => {
                options.prefix =
                    option.text().ok_or_else(|| bad("has a percent sign without two hex digits"))?;
            }
            "replicas" => options.replicas = number()?,
            "keep_secs" => options.keep_finished = Some(Duration::from_secs(number()?.into())),
            "response_timeout_ms" => options.response_timeout = Duration::from_millis(number()?.into()),
            _ => {
                return Err(bad(
                    "has an unknown option; the options are prefix, replicas, keep_secs and response_timeout_ms",
                ));
            }
        }
    }
    options.check()?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if is_cluster && !matches!(path, "" | "0") {
        return Err(bad("names a database, and a cluster has only database 0"));
    }
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), authority),
    };
    if !is_cluster && hosts.contains(',') {
        return Err(bad("names several servers, which needs redis-cluster:// or rediss-cluster://"));
    }
    let seeds = hosts.split(',').map(|host| {
        if host.is_empty() {
            return Err(bad("names no host"));
        }
        let info = format!("{single}://{user}{host}/{path}").into_connection_info();
        // Drop the parser's error, which may repeat the text.
        info.map_err(|_| bad("cannot be read"))
    });
    Ok(RedisTarget { seeds: seeds.collect::<Result<_>>()?, is_cluster, options })
}

/// Returns the address of a server in a form that may be displayed.
pub(crate) fn address(info: &ConnectionInfo) -> (String, u16) {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => (host.clone(), *port),
        // No accepted URL names another kind of address.
        other => (other.to_string(), 0),
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> (Vec<(String, u16)>, bool, RedisOptions) {
        let target = target(url, RedisOptions::default()).unwrap();
        (target.seeds.iter().map(address).collect(), target.is_cluster, target.options)
    }

    #[test]
    fn a_url_names_servers_and_options() {
        assert_eq!(
            read("redis://localhost"),
            (vec![("localhost".into(), 6379)], false, RedisOptions::default())
        );
        assert_eq!(read("rediss://:p%40ss@host:7000/3").0, [("host".to_owned(), 7000)]);
        assert_eq!(read("redis://[::1]:7000").0, [("::1".to_owned(), 7000)]);
        let (hosts, is_cluster, options) = read(
            "redis-cluster://u:p@a:1,b:2?prefix=my.app&replicas=1&keep_secs=60&response_timeout_ms=3000",
        );
        assert_eq!((hosts, is_cluster), (vec![("a".into(), 1), ("b".into(), 2)], true));
        assert_eq!(
            (options.prefix.as_str(), options.replicas, options.keep_finished, options.response_timeout),
            ("my.app", 1, Some(Duration::from_secs(60)), Duration::from_secs(3))
        );
    }

    #[test]
    fn url_password_reaches_only_server() {
        let target = target("redis://me:sec%2Fret@host/2", RedisOptions::default()).unwrap();
        let settings = target.seeds[0].redis_settings();
        assert_eq!(
            (settings.username(), settings.password(), settings.db()),
            (Some("me"), Some("sec/ret"), 2)
        );
        assert!(!format!("{:?}", target.options).contains("ret"));
    }

    /// Guarantees: REDIS-18.
    #[test]
    fn another_url_is_refused_without_showing_it() {
        for url in [
            "",
            "redis",
            "redis:secret",
            "http://secret",
            "redis://",
            "redis://:secret@",
            "redis://:secret@host:x",
            "redis://:secret@host/x",
            "redis://:secret@a,b",
            "redis-cluster://:secret@a,,b",
            "redis-cluster://:secret@a/1",
            "redis://:secret@host?prefix=a{b}",
            "redis://:secret@host?prefix=",
            "redis://:secret@host?replicas=x",
            "redis://:secret@host?keep_secs=0",
            "redis://:secret@host?secret=1",
            "redis://:secret@host#secret",
        ] {
            let error = target(url, RedisOptions::default()).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
    }
}
