//! The errors of a server, and the table that maps them to error kinds and advice.

use ferrata_store::{Error, ErrorKind, RunKey, Seq};
use redis::{RedisError, ServerError};
use thiserror::Error as ThisError;

/// An error of this store.
#[derive(Clone, Debug, ThisError)]
pub(crate) enum RedisStoreError {
    /// There was no connection, so the call sent nothing.
    #[error("cannot reach {server}; check that it runs and that the network allows the connection")]
    Unreachable { server: String, source: RedisError },
    /// The call was sent, but no reply came.
    #[error("the connection to {server} was lost before the reply")]
    Lost { server: String, source: RedisError },
    /// The server refused the command, which had no effect.
    #[error("{server} answered {code}{}; {}", .detail.as_ref().map(|d| format!(" {d}")).unwrap_or_default(), meaning(.code, .detail.as_deref()).1)]
    Refused { server: String, code: String, detail: Option<String> },
    /// The command was executed, but too few replicas have it.
    #[error("the record is stored, but only {found} of {wanted} replicas confirmed it; check the replicas")]
    Replicas { wanted: u32, found: i64 },
    /// The command was executed, and the server does not report how many replicas have it.
    #[error("the record is stored, but it is unknown whether a replica has it: {why}")]
    Unwaited { why: String },
    /// The reply has a form that this command never returns.
    #[error(
        "{what}, which is not a reply of this store's server; check that no other program writes under its prefix"
    )]
    Strange { what: String },
    /// Stored data is damaged.
    #[error("{what}; restore the run from a backup")]
    Corrupt { what: String, seq: Option<Seq> },
    /// A newer version wrote the stored data.
    #[error("{what} of a newer version; upgrade this process")]
    Newer { what: String },
    /// The server cannot fulfill the contract with its settings.
    #[error("{what}")]
    Unfit { what: String },
    /// The process stalled between two steps that belong together.
    #[error("the process stalled during the call, so the call was abandoned; retry")]
    StoodStill,
}

/// Maps the beginning of an error reply to a kind and advice. The first matching row applies.
///
/// A refused command never wrote anything. The scripts write only after all their checks, and the server checks memory, role and disk only before a
/// script's first write.
const MEANINGS: &[(&str, &str, ErrorKind, &str)] = &[
    ("OOM", "", ErrorKind::Unavailable, "its memory is full; raise maxmemory, or prune and purge runs"),
    ("READONLY", "", ErrorKind::Unavailable, "it is a replica; wait for the failover, or correct the URL"),
    ("LOADING", "", ErrorKind::Unavailable, "it is loading its data; retry"),
    ("CLUSTERDOWN", "", ErrorKind::Unavailable, "the cluster lacks a node; check its nodes"),
    ("MASTERDOWN", "", ErrorKind::Unavailable, "its primary is down; retry after the failover"),
    ("TRYAGAIN", "", ErrorKind::Unavailable, "the cluster is moving the run to another node; retry"),
    (
        "BUSY",
        "",
        ErrorKind::Unavailable,
        "it is busy with another client's script; end the script with SCRIPT KILL",
    ),
    (
        "MISCONF",
        "",
        ErrorKind::Unavailable,
        "it cannot write to its disk, so it rejects writes; check its log and the disk",
    ),
    (
        "NOREPLICAS",
        "",
        ErrorKind::Unavailable,
        "it has fewer replicas than min-replicas-to-write; check the replicas",
    ),
    (
        "MOVED",
        "",
        ErrorKind::Invalid,
        "it is part of a cluster; use a redis-cluster:// or rediss-cluster:// URL",
    ),
    ("ASK", "", ErrorKind::Unavailable, "the cluster is moving the run to another node; retry"),
    (
        "CROSSSLOT",
        "",
        ErrorKind::Unsupported,
        "a proxy does not support hash tags; connect to the cluster itself",
    ),
    ("NOAUTH", "", ErrorKind::Invalid, "it requires a password; put user and password into the URL"),
    ("WRONGPASS", "", ErrorKind::Invalid, "user or password is wrong; correct the URL"),
    (
        "NOPERM",
        "",
        ErrorKind::Invalid,
        "the user lacks permission; docs/reference/store-redis.md lists the required ones",
    ),
    ("WRONGTYPE", "", ErrorKind::Corrupt, "a key of this store has a value of another client"),
    ("NOSCRIPT", "", ErrorKind::Unavailable, "its scripts were removed; retry"),
    ("EXECABORT", "", ErrorKind::Unavailable, "it aborted the transaction; retry"),
    (
        "ERR",
        "can't run this command",
        ErrorKind::Invalid,
        "NOPERM: the user lacks permission; docs/reference/store-redis.md lists the required ones",
    ),
    ("ERR", "max number of clients", ErrorKind::Unavailable, "raise maxclients, or use fewer connections"),
    ("ERR", "invalid password", ErrorKind::Invalid, "correct the URL"),
    ("ERR", "without any password", ErrorKind::Invalid, "it has no password; remove it from the URL"),
    ("ERR", "DB index", ErrorKind::Invalid, "the URL names a database that the server does not have"),
    ("ERR", "SELECT is not allowed", ErrorKind::Invalid, "a cluster has only database 0"),
    (
        "ERR",
        "cluster support disabled",
        ErrorKind::Invalid,
        "it is not a cluster; use a redis:// or rediss:// URL",
    ),
    // A script's error for index keys on another node, while a slot moves.
    ("ERR", "non local key", ErrorKind::Unavailable, "the cluster is moving a part of the index; retry"),
    ("ERR", "during rehashing", ErrorKind::Unavailable, "the cluster is moving a part of the index; retry"),
    ("ERR", "Elements are too large", ErrorKind::TooLarge, "make the record smaller"),
    ("ERR", "unknown command", ErrorKind::Unsupported, "the store needs Redis 7 or Valkey, with Lua scripts"),
    ("", "", ErrorKind::Unsupported, "check the server's log"),
];

fn meaning(code: &str, detail: Option<&str>) -> (ErrorKind, &'static str) {
    let fits = |(prefix, part, ..): &&(&str, &str, ErrorKind, &'static str)| {
        (prefix.is_empty() || *prefix == code)
            && (part.is_empty() || detail.is_some_and(|d| d.contains(part)))
    };
    MEANINGS.iter().find(fits).map_or((ErrorKind::Unsupported, ""), |(_, _, kind, remedy)| (*kind, *remedy))
}

/// The possible effect of a call whose reply was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedisCallEffect {
    /// The record may have been written: retry the same append.
    Written,
    /// The call has no effect that matters: call again.
    None,
}

impl RedisStoreError {
    pub(crate) fn refused(server: &str, error: &ServerError) -> Self {
        let detail = error.details().map(str::to_owned);
        Self::Refused { server: server.to_owned(), code: error.code().to_owned(), detail }
    }

    /// Converts an error of the driver during a connection attempt. It is a refusal if the server refused the connection; otherwise nothing was
    /// sent.
    pub(crate) fn connecting(server: &str, source: RedisError) -> Self {
        match source.code() {
            Some(code) => Self::Refused {
                server: server.to_owned(),
                code: code.to_owned(),
                detail: source.detail().map(str::to_owned),
            },
            // The driver wraps refusals of `AUTH` in a separate kind, with the reply in the text.
            None if source.kind() == redis::ErrorKind::AuthenticationFailed => {
                let text = source.to_string();
                let code = ["WRONGPASS", "NOAUTH", "NOPERM"].into_iter().find(|code| text.contains(code));
                let code = code.unwrap_or("WRONGPASS").to_owned();
                Self::Refused { server: server.to_owned(), code, detail: None }
            }
            None => Self::Unreachable { server: server.to_owned(), source },
        }
    }

    pub(crate) fn strange(what: impl Into<String>) -> Self {
        Self::Strange { what: what.into() }
    }

    pub(crate) fn corrupt(seq: Option<Seq>, what: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into(), seq }
    }

    /// Returns the error for a list that belongs to another run than its key says.
    pub(crate) fn wrong_run() -> Self {
        Self::corrupt(None, "the list belongs to another run")
    }

    /// Returns the code of an error reply, such as a code that redirects or postpones the call.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    /// Returns whether the fault concerns only this run, so that a listing or a repair continues with other runs.
    pub(crate) fn is_of_run(&self) -> bool {
        let is_unreadable = matches!(
            self,
            Self::Corrupt { .. } | Self::Newer { .. } | Self::Strange { .. } | Self::Unfit { .. }
        );
        is_unreadable || self.code() == Some("WRONGTYPE")
    }

    pub(crate) fn kind(&self, doubt: RedisCallEffect) -> ErrorKind {
        match self {
            Self::Unreachable { .. } | Self::StoodStill => ErrorKind::Unavailable,
            Self::Lost { .. } if doubt == RedisCallEffect::None => ErrorKind::Unavailable,
            Self::Lost { .. } | Self::Replicas { .. } | Self::Unwaited { .. } => ErrorKind::Indeterminate,
            Self::Refused { code, detail, .. } => meaning(code, detail.as_deref()).0,
            Self::Strange { .. } | Self::Corrupt { .. } => ErrorKind::Corrupt,
            Self::Newer { .. } | Self::Unfit { .. } => ErrorKind::Unsupported,
        }
    }

    pub(crate) fn into_error(self, operation: &'static str, doubt: RedisCallEffect) -> Error {
        let mut error = Error::new(self.kind(doubt), self.to_string()).with_operation(operation);
        if let Self::Corrupt { seq: Some(seq), .. } = &self {
            error = error.with_seq(*seq);
        }
        match self {
            Self::Unreachable { source, .. } | Self::Lost { source, .. } => error.with_source(source),
            _ => error,
        }
    }

    pub(crate) fn of_run(self, operation: &'static str, run: &RunKey, doubt: RedisCallEffect) -> Error {
        self.into_error(operation, doubt).with_run(run)
    }
}
