//! The options of the store, and its URL.

use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use ferrata_store::url::{self, UrlOption};
use ferrata_store::{Error, ErrorKind, Result};
use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;

/// Options of a [`PostgresStore`](crate::PostgresStore). The defaults suit most applications.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// The schema of the tables; `ferrata` by default. A schema has 1 to 32 characters from `a-z 0-9 _`, and does not begin with a digit or `pg_`.
    pub schema: String,
    /// The prefix of all table names. The default is empty. A prefix has at most 20 characters from `a-z 0-9 _`.
    pub prefix: String,
    /// The maximum number of connections. The default is 10. The option has no effect on a pool of the application.
    ///
    /// A higher value allows more concurrent calls, and takes more of the server's connections, in each process. A lower value does the reverse.
    /// The runtime appends on at most four connections.
    pub connections: NonZeroU32,
    /// The timeout for getting a connection. The default is 10 seconds. The option has no effect on a pool of the application.
    ///
    /// With a higher value, the store detects an outage later. With a lower value, it may mistake a burst of calls for an outage. At the timeout,
    /// the call fails with [`ErrorKind::Unavailable`] and changes nothing.
    pub acquire_timeout: Duration,
    /// The timeout for an answer. The default is 10 seconds. The timeout also applies to a pool of the application.
    ///
    /// At the timeout, the store closes the connection. The store sends a read again over another connection, up to four times in all, and then
    /// fails with [`ErrorKind::Unavailable`]. An append fails with [`ErrorKind::Indeterminate`] at once. Without the timeout, a call would hang
    /// forever if the network drops packets.
    ///
    /// `setup` may take ten times as long. A purge may take twice as long, plus one timeout for each 20,000 records of the run. A prune may take
    /// one more timeout for each 20,000 records that it removes.
    ///
    /// With a higher value, the store detects a silent server later. With a lower value, it may mistake a slow server, or a server that waits for a
    /// lock, for a silent one.
    pub response_timeout: Duration,
    /// Whether to keep prepared statements on each connection. The default is true.
    ///
    /// Set it to false for poolers that share connections by transaction and do not support prepared statements (PgBouncer before 1.21). Each call
    /// is then a transaction with four round trips instead of one.
    pub prepared: bool,
    /// Whether to send and receive notices. The default is true.
    ///
    /// Set it to false if no subscriber needs to learn of a change within milliseconds. A process that subscribes keeps one more connection open.
    pub notices: bool,
    /// The URL of the server for listening. Set it if the store connects through a pooler that shares connections by transaction, because such a
    /// pooler supports no listeners. The default is the URL of the store.
    pub listen_url: Option<SecretUrl>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            schema: "ferrata".to_owned(),
            prefix: String::new(),
            connections: NonZeroU32::MIN.saturating_add(9),
            acquire_timeout: Duration::from_secs(10),
            response_timeout: Duration::from_secs(10),
            prepared: true,
            notices: true,
            listen_url: None,
        }
    }
}

impl PostgresOptions {
    /// Sets the schema of the tables.
    #[must_use]
    pub fn with_schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Sets the prefix of all table names.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the maximum number of connections.
    #[must_use]
    pub fn with_connections(mut self, connections: NonZeroU32) -> Self {
        self.connections = connections;
        self
    }

    /// Sets the timeout for getting a connection.
    #[must_use]
    pub fn with_acquire_timeout(mut self, acquire_timeout: Duration) -> Self {
        self.acquire_timeout = acquire_timeout;
        self
    }

    /// Sets the timeout for an answer.
    #[must_use]
    pub fn with_response_timeout(mut self, response_timeout: Duration) -> Self {
        self.response_timeout = response_timeout;
        self
    }

    /// Sets whether to keep prepared statements on each connection.
    #[must_use]
    pub fn with_prepared(mut self, prepared: bool) -> Self {
        self.prepared = prepared;
        self
    }

    /// Sets whether to send and receive notices.
    #[must_use]
    pub fn with_notices(mut self, notices: bool) -> Self {
        self.notices = notices;
        self
    }

    /// Sets the URL of the server for listening to notices.
    #[must_use]
    pub fn with_listen_url(mut self, url: impl Into<String>) -> Self {
        self.listen_url = Some(SecretUrl(url.into()));
        self
    }
}

/// A URL that may contain a password. No output shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretUrl(String);

impl SecretUrl {
    pub(crate) fn parse(&self) -> Result<PgConnectOptions> {
        connect_options(&self.0)
    }
}

impl std::fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Parses the connection settings and the options of a URL. Options of the URL take precedence over `options`.
pub(crate) fn read_url(
    url: &str,
    mut options: PostgresOptions,
) -> Result<(PgConnectOptions, PostgresOptions)> {
    let (place, given) = url::split(url);
    let mut of_driver = Vec::new();
    for option in given {
        let UrlOption { name, pair, .. } = option;
        let bad = |wanted: &str| {
            let message = format!("`{name}` in the store's URL is not {wanted}; correct it, or remove it");
            Error::new(ErrorKind::Invalid, message)
        };
        let text = || option.text().ok_or_else(|| bad("text, with special characters as %26"));
        let time = || option.millis().ok_or_else(|| bad("a number of milliseconds"));
        let truth = || option.truth().ok_or_else(|| bad("true or false"));
        match name {
            "schema" => options.schema = text()?,
            "prefix" => options.prefix = text()?,
            "connections" => {
                options.connections = option.number().ok_or_else(|| bad("a number of at least 1"))?;
            }
            "acquire_timeout_ms" => options.acquire_timeout = time()?,
            "response_timeout_ms" => options.response_timeout = time()?,
            "prepared" => options.prepared = truth()?,
            "notices" => options.notices = truth()?,
            "listen_url" => {
                let url = option.text().ok_or_else(|| bad("a URL, with special characters as %26"))?;
                // Parse the URL here, so that this call reports a mistake; its error does not show the URL.
                connect_options(&url)?;
                options.listen_url = Some(SecretUrl(url));
            }
            name if is_of_driver(name) => of_driver.push(pair),
            // Do not show the name, because it may be a part of a secret. The driver would log an unknown option with its value.
            _ => return Err(unknown()),
        }
    }
    let place =
        if of_driver.is_empty() { place.to_owned() } else { format!("{place}?{}", of_driver.join("&")) };
    Ok((connect_options(&place)?, options))
}

/// The options of a URL that version 0.9 of the driver accepts.
const OF_DRIVER: [&str; 18] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];

fn is_of_driver(name: &str) -> bool {
    // Decode the name as the driver does.
    let name = url::decode(name).and_then(|name| String::from_utf8(name).ok()).unwrap_or_default();
    OF_DRIVER.contains(&&*name) || (name.starts_with("options[") && name.ends_with(']'))
}

fn unknown() -> Error {
    Error::new(
        ErrorKind::Invalid,
        "the store's URL has an unknown option; the options are schema, prefix, connections, acquire_timeout_ms, response_timeout_ms, \
         prepared, notices and listen_url, and the driver's sslmode, sslrootcert, sslcert, sslkey, application_name, options, \
         statement-cache-capacity, host, hostaddr, port, dbname, user and password",
    )
}

fn connect_options(url: &str) -> Result<PgConnectOptions> {
    let names = url.split_once('?').map_or("", |(_, query)| query).split('&');
    let is_known =
        |pair: &str| pair.is_empty() || is_of_driver(pair.split_once('=').map_or(pair, |(name, _)| name));
    if !names.into_iter().all(is_known) {
        return Err(unknown());
    }
    let is_ours = ["postgres://", "postgresql://"]
        .iter()
        .any(|scheme| url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
    // Drop the parser's own error: it may repeat the text that it cannot parse, with a password in it.
    let options = PgConnectOptions::from_str(url).ok().filter(|_| is_ours).ok_or_else(|| {
        let message = "the store's URL is invalid; write postgres://user:password@host:port/database, \
                       with special characters of the password as %41";
        Error::new(ErrorKind::Invalid, message)
    })?;
    let options = match options.get_application_name() {
        Some(_) => options,
        None => options.application_name("ferrata"),
    };
    // Do not log statements: a span around each call already has the same information.
    Ok(options.disable_statement_logging())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_gives_place_and_options() {
        let url = "postgres://me:secret@db.example:6000/app?schema=s&prefix=p_&connections=3&sslmode=disable\
                   &acquire_timeout_ms=250&response_timeout_ms=400&prepared=false&notices=false&options%5Bjit%5D=off";
        let (connect, options) = read_url(url, PostgresOptions::default()).unwrap();
        assert_eq!((connect.get_host(), connect.get_port()), ("db.example", 6000));
        assert_eq!(connect.get_database(), Some("app"));
        let wanted = PostgresOptions::default()
            .with_schema("s")
            .with_prefix("p_")
            .with_connections(NonZeroU32::MIN.saturating_add(2))
            .with_acquire_timeout(Duration::from_millis(250))
            .with_response_timeout(Duration::from_millis(400))
            .with_prepared(false)
            .with_notices(false);
        assert_eq!(options, wanted);
    }

    /// Guarantees: POSTGRES-5.
    #[test]
    fn no_error_and_no_debug_shows_a_secret() {
        for url in [
            "postgres://me:secret@host:port/db",
            "postgres://me:secret@[host/db",
            "mysql://me:secret@host/db",
            "postgres://me:secret@host/db?connections=secret",
            "postgres://me:secret@host/db?prepared=secret",
            "secret",
        ] {
            let error = read_url(url, PostgresOptions::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        }
        // The driver logs unknown options with their values.
        for unknown in [
            "conections=secret",
            "secret",
            "listen%5Furl=postgres://me:secret@host/db",
            "listen_url=secret",
            "listen_url=postgres://me:secret@host/db?schema=secret",
            "listen_url=%zz",
            "response_timeout_ms=secret",
        ] {
            let url = format!("postgres://me:secret@host/db?{unknown}");
            let error = read_url(&url, PostgresOptions::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        }
        let url = "postgres://host/db?listen_url=postgres://me:s%2565cret@direct:7000/db%3Fsslmode=disable%26host=other";
        let (_, options) = read_url(url, PostgresOptions::default()).unwrap();
        let listen = options.listen_url.unwrap().parse().unwrap();
        assert_eq!((listen.get_host(), listen.get_port(), listen.get_username()), ("other", 7000, "me"));
        let options = PostgresOptions::default().with_listen_url("postgres://me:secret@host/db");
        assert!(!format!("{options:?}").contains("secret"), "{options:?}");
    }
}
