//! The options of the store, and its URL.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use ferrata_store::{Error, ErrorKind, Result, url};

/// The maximum length of a namespace, which every subject contains.
const MAX_NAMESPACE: usize = 32;

/// The maximum number of replicas of a stream.
const MAX_REPLICAS: u32 = 5;

/// Options of a [`NatsStore`](crate::NatsStore). The defaults suit a single server.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NatsOptions {
    /// The common part of the names of streams and subjects. The default is `ferrata`; `?namespace=` in a URL.
    ///
    /// A namespace has 1 to 32 characters from `A-Z a-z 0-9 _ -`. Stores with different namespaces on the same servers do not see each other's
    /// data.
    pub namespace: String,
    /// The number of servers that store each record. The default is 1 and the maximum 5; `?replicas=` in a URL.
    ///
    /// `setup` creates the streams with this number of replicas. It refuses streams with fewer replicas. It also refuses servers before version
    /// 2.11 if the number is more than one. With 3 replicas, any one server may be lost with all its data. With a higher number, every append waits
    /// for a majority of the servers.
    pub replicas: u32,
    /// The timeout for a connection. The default is 5 seconds.
    ///
    /// With a higher value, the store detects unavailable servers later. With a lower value, it may mistake a slow network for unavailable servers.
    pub connect_timeout: Duration,
    /// The timeout for a reply. The default is 10 seconds; `?response_timeout_ms=` in a URL.
    ///
    /// At the timeout, an append fails with [`ErrorKind::Indeterminate`]. With a higher value, the store detects a hanging server later. With a
    /// lower value, the election of a new leader, which takes some seconds, causes unknown outcomes and repeated appends.
    pub response_timeout: Duration,
    /// Whether to send and receive notices of changed runs. The default is true.
    ///
    /// Each append costs one additional small message, which no stream stores. Without notices, executors find each other's records by polling.
    pub notices: bool,
    /// The text of a credentials file (`.creds`), a JWT and its key. The default is `None`.
    pub credentials: Option<String>,
    /// A file (PEM) with the authorities to trust for `tls:` URLs, in addition to those of the system. The default is `None`.
    pub root_certificates: Option<PathBuf>,
}

impl Default for NatsOptions {
    fn default() -> Self {
        Self {
            namespace: "ferrata".to_owned(),
            replicas: 1,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(10),
            notices: true,
            credentials: None,
            root_certificates: None,
        }
    }
}

impl NatsOptions {
    /// Sets the common part of the names of streams and subjects.
    #[must_use]
    pub fn with_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets the number of servers that store each record. More than one needs NATS 2.11 or later.
    #[must_use]
    pub fn with_replicas(mut self, replicas: u32) -> Self {
        self.replicas = replicas;
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

    /// Sets whether to send and receive notices.
    #[must_use]
    pub fn with_notices(mut self, notices: bool) -> Self {
        self.notices = notices;
        self
    }

    /// Sets the text of a credentials file (`.creds`).
    #[must_use]
    pub fn with_credentials(mut self, credentials: impl Into<String>) -> Self {
        self.credentials = Some(credentials.into());
        self
    }

    /// Sets the file with the authorities to trust.
    #[must_use]
    pub fn with_root_certificates(mut self, pem: impl Into<PathBuf>) -> Self {
        self.root_certificates = Some(pem.into());
        self
    }

    fn check(&self) -> Result<()> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let Self { namespace, replicas, connect_timeout, response_timeout, .. } = self;
        if namespace.is_empty() || namespace.len() > MAX_NAMESPACE || !namespace.chars().all(is_plain) {
            return Err(invalid(format!(
                "the namespace is invalid; use 1 to {MAX_NAMESPACE} of A-Z a-z 0-9 _ -"
            )));
        }
        if !(1..=MAX_REPLICAS).contains(replicas) {
            return Err(invalid(format!("{replicas} replicas are not supported; use 1 to {MAX_REPLICAS}")));
        }
        match connect_timeout.is_zero() || response_timeout.is_zero() {
            true => Err(invalid("a timeout is zero; use a longer one")),
            false => Ok(()),
        }
    }
}

/// Hides the credentials, which are secret.
impl fmt::Debug for NatsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsOptions")
            .field("namespace", &self.namespace)
            .field("replicas", &self.replicas)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("notices", &self.notices)
            .field("credentials", &self.credentials.as_ref().map(|_| "***"))
            .field("root_certificates", &self.root_certificates)
            .finish()
    }
}

/// The user of the connection.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum ConnectionUser {
    None,
    Token(String),
    Named(String, String),
}

/// The contents of a URL: servers, user, and options.
#[derive(Clone)]
pub(crate) struct NatsTarget {
    /// The addresses with their scheme, without a user.
    pub(crate) servers: Vec<String>,
    pub(crate) user: ConnectionUser,
    pub(crate) options: NatsOptions,
}

/// Parses a URL. The URL overrides `options`. No error shows any part of it, because it may contain a password.
pub(crate) fn target(url: &str, mut options: NatsOptions) -> Result<NatsTarget> {
    let bad =
        |why: &str| invalid(format!("the store's URL {why}; write nats://host:port, or tls:// for TLS"));
    let (scheme, rest) = url.split_once("://").ok_or_else(|| bad("has no `://`"))?;
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "nats" => "nats",
        "tls" => "tls",
        _ => return Err(bad("has the scheme of another kind of store")),
    };
    if rest.contains('#') {
        return Err(bad("has a fragment, which this store does not support (write %23 in a password)"));
    }
    let (rest, given) = url::split(rest);
    for option in given {
        match option.name {
            "namespace" => {
                options.namespace =
                    option.text().ok_or_else(|| bad("has a percent sign without two hex digits"))?;
            }
            "replicas" => {
                options.replicas = option.number().ok_or_else(|| bad("has an invalid number of replicas"))?;
            }
            "response_timeout_ms" => {
                options.response_timeout =
                    option.millis().ok_or_else(|| bad("has a timeout that is not a number"))?;
            }
            _ => {
                return Err(bad(
                    "has an unknown option; the options are namespace, replicas and response_timeout_ms",
                ));
            }
        }
    }
    options.check()?;
    let authority = match rest.split_once('/') {
        Some((authority, "")) => authority,
        Some(_) => {
            return Err(bad(
                "has a path, which this store does not support; set the namespace with its option",
            ));
        }
        None => rest,
    };
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (Some(user), hosts),
        None => (None, authority),
    };
    let text = |part: &str| {
        let text = url::decode(part).and_then(|bytes| String::from_utf8(bytes).ok());
        text.ok_or_else(|| bad("has a percent sign without two hex digits in user or password"))
    };
    let user = match user.map(|user| user.split_once(':').ok_or(user)) {
        None => ConnectionUser::None,
        Some(Ok((name, password))) => ConnectionUser::Named(text(name)?, text(password)?),
        Some(Err(token)) => ConnectionUser::Token(text(token)?),
    };
    let servers = hosts.split(',').map(|host| {
        let server = format!("{scheme}://{host}");
        // Drop the parser's error, which may repeat the text.
        let is_address = !host.is_empty() && server.parse::<async_nats::ServerAddr>().is_ok();
        is_address.then_some(server).ok_or_else(|| bad("names no host"))
    });
    Ok(NatsTarget { servers: servers.collect::<Result<_>>()?, user, options })
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_servers_and_options() {
        let read = |url: &str| target(url, NatsOptions::default()).unwrap();
        let plain = read("nats://localhost");
        assert_eq!((plain.servers, plain.options), (vec!["nats://localhost".into()], NatsOptions::default()));
        assert!(plain.user == ConnectionUser::None);
        let full = read("tls://u:p%40ss@a:1,[::1]:2/?namespace=my_app-1&replicas=3&response_timeout_ms=3000");
        assert_eq!(full.servers, ["tls://a:1", "tls://[::1]:2"]);
        assert!(full.user == ConnectionUser::Named("u".into(), "p@ss".into()));
        let NatsOptions { namespace, replicas, response_timeout, .. } = full.options;
        assert_eq!((&*namespace, replicas, response_timeout), ("my_app-1", 3, Duration::from_secs(3)));
        assert!(read("nats://secret@host").user == ConnectionUser::Token("secret".into()));
    }

    /// Guarantees: NATS-13.
    #[test]
    fn another_url_is_refused_without_showing_it() {
        for url in [
            "",
            "nats",
            "nats:secret",
            "http://secret",
            "nats://",
            "nats://:secret@",
            "nats://:secret@host:x",
            "nats://:secret@host/x",
            "nats://:secret%@host",
            "nats://:secret@a,,b",
            "nats://:secret@host?namespace=a.b",
            "nats://:secret@host?namespace=",
            "nats://:secret@host?replicas=x",
            "nats://:secret@host?replicas=0",
            "nats://:secret@host?response_timeout_ms=0",
            "nats://:secret@host?secret=1",
            "nats://:secret@host#secret",
        ] {
            let error = target(url, NatsOptions::default()).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
        let options = NatsOptions::default().with_credentials("secret");
        assert!(!format!("{options:?}").contains("secret"));
    }
}
