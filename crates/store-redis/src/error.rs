//! The errors of a server, and the table that maps them to error kinds and advice.

use ferrata_store::{Error, ErrorKind, RunKey, Seq};
use redis::{RedisError, ServerError};
use thiserror::Error as ThisError;

/// An error of this store.
#[derive(Clone, Debug, ThisError)]
pub(crate) enum RedisStoreError {
    /// There was no connection, so the call sent nothing.
    #[error("{server} cannot be reached; see that it runs and that the network lets this process in")]
    Unreachable { server: String, source: RedisError },
    /// The call was sent, but no reply came.
    #[error("the connection to {server} was lost before the reply")]
    Lost { server: String, source: RedisError },
    /// The server refused the command, which had no effect.
    #[error("{server} answered {code}{}; {}", .detail.as_ref().map(|d| format!(" {d}")).unwrap_or_default(), meaning(.code, .detail.as_deref()).1)]
    Refused { server: String, code: String, detail: Option<String> },
    /// The command was executed, but too few replicas have it.
    #[error(
        "the record is stored, but {found} of {wanted} replicas have said that they have it; see to the replicas"
    )]
    Replicas { wanted: u32, found: i64 },
    /// The command was executed, and the server does not report how many replicas have it.
    #[error("the record is stored, and it is not known whether a replica has it: {why}")]
    Unwaited { why: String },
    /// The reply has a form that this command never returns.
    #[error(
        "{what}, which no server of this store answers; see that no other program writes below its prefix"
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
    #[error("the process stood still for too long in the midst of the call, and gave it up; retry")]
    StoodStill,
}

/// Maps the beginning of an error reply to a kind and advice. The first matching row applies.
///
/// A refused command never wrote anything. The scripts write only after all their checks, and the server checks memory, role and disk only before a
/// script's first write.
const MEANINGS: &[(&str, &str, ErrorKind, &str)] = &[
    ("OOM", "", ErrorKind::Unavailable, "its memory is full: raise maxmemory, or prune and purge runs"),
    (
        "READONLY",
        "",
        ErrorKind::Unavailable,
        "it is a replica: a failover is under way, or the URL names the wrong server",
    ),
    ("LOADING", "", ErrorKind::Unavailable, "it is reading its data after a start; retry"),
    ("CLUSTERDOWN", "", ErrorKind::Unavailable, "the cluster lacks a node; see to its nodes"),
    ("MASTERDOWN", "", ErrorKind::Unavailable, "its primary is away; retry when the failover is done"),
    ("TRYAGAIN", "", ErrorKind::Unavailable, "the cluster is moving the run to another node; retry"),
    ("BUSY", "", ErrorKind::Unavailable, "another client's script keeps it busy; end it with SCRIPT KILL"),
    (
        "MISCONF",
        "",
        ErrorKind::Unavailable,
        "it cannot write to its disk and so takes no writes; see its log and the disk",
    ),
    (
        "NOREPLICAS",
        "",
        ErrorKind::Unavailable,
        "it has fewer replicas than min-replicas-to-write; see to the replicas",
    ),
    (
        "MOVED",
        "",
        ErrorKind::Invalid,
        "it is part of a cluster: use a redis-cluster:// or rediss-cluster:// URL",
    ),
    ("ASK", "", ErrorKind::Unavailable, "the cluster is moving the run to another node; retry"),
    (
        "CROSSSLOT",
        "",
        ErrorKind::Unsupported,
        "a proxy in between does not follow hash tags; connect to the cluster itself",
    ),
    ("NOAUTH", "", ErrorKind::Invalid, "it wants a password: give user and password in the URL"),
    ("WRONGPASS", "", ErrorKind::Invalid, "user or password is wrong: correct the URL"),
    (
        "NOPERM",
        "",
        ErrorKind::Invalid,
        "the user may not do this: docs/reference/store-redis.md lists what it needs",
    ),
    ("WRONGTYPE", "", ErrorKind::Corrupt, "another client's value stands at a key of this store"),
    ("NOSCRIPT", "", ErrorKind::Unavailable, "its scripts were removed; retry"),
    ("EXECABORT", "", ErrorKind::Unavailable, "it gave the transaction up; retry"),
    (
        "ERR",
        "can't run this command",
        ErrorKind::Invalid,
        "NOPERM: the user may not do this: docs/reference/store-redis.md lists what it needs",
    ),
    ("ERR", "max number of clients", ErrorKind::Unavailable, "raise maxclients, or use fewer connections"),
    ("ERR", "invalid password", ErrorKind::Invalid, "correct the URL"),
    ("ERR", "without any password", ErrorKind::Invalid, "it has no password: leave it out of the URL"),
    ("ERR", "DB index", ErrorKind::Invalid, "the URL names a database it does not have"),
    ("ERR", "SELECT is not allowed", ErrorKind::Invalid, "a cluster has only database 0"),
    (
        "ERR",
        "cluster support disabled",
        ErrorKind::Invalid,
        "it is no cluster: use a redis:// or rediss:// URL",
    ),
    // A script's error for index keys on another node, while a slot moves.
    ("ERR", "non local key", ErrorKind::Unavailable, "the cluster is moving a part of the index; retry"),
    ("ERR", "during rehashing", ErrorKind::Unavailable, "the cluster is moving a part of the index; retry"),
    ("ERR", "Elements are too large", ErrorKind::TooLarge, "make the record smaller"),
    ("ERR", "unknown command", ErrorKind::Unsupported, "the store needs Redis 7 or Valkey, with Lua scripts"),
    ("", "", ErrorKind::Unsupported, "see the server's log"),
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
        Self::corrupt(None, "the run's list is that of another run")
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
