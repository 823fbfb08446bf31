//! The persistence of acknowledged writes, as the server reports it.

use redis::Value;

use crate::error::RedisStoreError;
use crate::link::RedisNode;
use crate::reply;

/// The failures that an acknowledged record on the server survives, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Persistence {
    /// The server writes nothing to disk. A restart of the server loses every run.
    Memory,
    /// The server writes only snapshots. A restart of the server loses the writes after the last snapshot, which may be minutes or hours old.
    Snapshots,
    /// The server does not report its persistence. Its operator must know it.
    Unknown,
    /// The server writes to a file and does not report when it syncs. Records survive a restart of the server; a crash of the server may lose 2
    /// seconds, a power failure some 30.
    SyncUnknown,
    /// The server writes to a file, and the system decides when to sync it. Records survive a crash of the server; a power failure loses about 30
    /// seconds.
    Unsynced,
    /// The server syncs its file every second. A power failure loses 1 to 2 seconds. So may a crash of the server, which delays its writes while a
    /// sync is slow.
    EverySecond,
    /// The server syncs each write before it acknowledges it. Records survive a power failure, if the disk does not acknowledge too early.
    Always,
}

impl Persistence {
    /// Returns whether an acknowledged record survives a restart of the server.
    pub fn is_durable(self) -> bool {
        self >= Self::SyncUnknown
    }

    /// Returns a sentence that says which failures an acknowledged record survives.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "the server stores runs in memory only; its restart loses all runs",
            Self::Snapshots => {
                "the server writes only snapshots; its restart loses the records after the last snapshot"
            }
            Self::Unknown => "the server does not report how it stores runs; ask its operator",
            Self::SyncUnknown => {
                "a record survives a restart of the server, which does not say when it syncs its file: its crash may lose 2 seconds, \
                 a power cut 30"
            }
            Self::Unsynced => "a record survives a restart of the server; a power cut loses some 30 seconds",
            Self::EverySecond => {
                "a record survives a restart of the server; its crash or a power cut may lose 2 seconds"
            }
            Self::Always => "a record is synced to disk before it is acknowledged",
        }
    }
}

impl std::fmt::Display for Persistence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The server's settings that the store checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) persistence: Persistence,
    /// The keys that it evicts when its memory is full, if it has a limit and reports the policy.
    pub(crate) eviction: Option<String>,
    /// The version of the server. A server that is not Redis reports here the Redis version with which it is compatible.
    pub(crate) version: Option<String>,
}

/// Reads the settings of a server. If the server refuses (Redis services often forbid `CONFIG`), that is no error, and fewer settings are known.
pub(crate) async fn read_settings(node: &RedisNode) -> Result<Settings, RedisStoreError> {
    let mut info = redis::cmd("INFO");
    info.arg("server").arg("memory").arg("persistence");
    let info = allowed(node.ask(info).await)?.map(reply::text).transpose()?.unwrap_or_default();
    let mut config = redis::cmd("CONFIG");
    config.arg("GET").arg("appendonly").arg("appendfsync").arg("save");
    let config = allowed(node.ask(config).await)?.map(pairs).unwrap_or_default();
    Ok(settings(&info, &config))
}

/// Reads the settings again that an operator may change while the server runs.
pub(crate) async fn reread_settings(node: &RedisNode) -> Result<Option<String>, RedisStoreError> {
    let mut info = redis::cmd("INFO");
    info.arg("memory");
    let info = allowed(node.ask(info).await)?.map(reply::text).transpose()?.unwrap_or_default();
    Ok(settings(&info, &[]).objection())
}

fn allowed(reply: Result<Value, RedisStoreError>) -> Result<Option<Value>, RedisStoreError> {
    match reply {
        Ok(value) => Ok(Some(value)),
        Err(RedisStoreError::Refused { code, .. }) if matches!(code.as_str(), "ERR" | "NOPERM") => Ok(None),
        Err(fault) => Err(fault),
    }
}

fn pairs(value: Value) -> Vec<(String, String)> {
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        _ => String::new(),
    };
    match value {
        Value::Array(list) => list.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect(),
        Value::Map(map) => map.iter().map(|(key, value)| (text(key), text(value))).collect(),
        _ => Vec::new(),
    }
}

fn settings(info: &str, config: &[(String, String)]) -> Settings {
    let said = |key: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.map(|value| value.trim().to_owned())
    };
    let set = |key: &str| config.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
    let is_aof = match set("appendonly") {
        Some(value) => Some(value == "yes"),
        None => said("aof_enabled").map(|value| value == "1"),
    };
    let persistence = match (is_aof, set("appendfsync"), set("save")) {
        (Some(true), Some("always"), _) => Persistence::Always,
        (Some(true), Some("everysec"), _) => Persistence::EverySecond,
        (Some(true), Some(_), _) => Persistence::Unsynced,
        (Some(true), None, _) => Persistence::SyncUnknown,
        (Some(false), _, Some("")) => Persistence::Memory,
        (Some(false), _, Some(_)) => Persistence::Snapshots,
        _ => Persistence::Unknown,
    };
    let has_limit = said("maxmemory").is_none_or(|limit| limit != "0");
    Settings {
        persistence,
        eviction: said("maxmemory_policy").filter(|_| has_limit),
        version: said("redis_version"),
    }
}

impl Settings {
    /// Returns why the store cannot keep its guarantees on this server, with advice.
    pub(crate) fn objection(&self) -> Option<String> {
        if let Some(policy) = self.eviction.as_deref().filter(|policy| *policy != "noeviction") {
            return Some(format!(
                "removes keys when its memory is full (maxmemory-policy {policy}), runs or heartbeats among them; set \
                 maxmemory-policy noeviction"
            ));
        }
        let major =
            self.version.as_deref().and_then(|version| version.split('.').next()?.parse::<u32>().ok());
        major
            .filter(|major| *major < 7)
            .map(|major| format!("is of version {major}; the store needs Redis 7 or Valkey"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(info: &str, config: &[(&str, &str)]) -> Settings {
        let config: Vec<_> = config.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        settings(info, &config)
    }

    /// Guarantees: REDIS-2.
    #[test]
    fn settings_say_what_a_record_survives() {
        for (fsync, expected) in [
            ("always", Persistence::Always),
            ("everysec", Persistence::EverySecond),
            ("no", Persistence::Unsynced),
        ] {
            let config = [("appendonly", "yes"), ("appendfsync", fsync), ("save", "")];
            assert_eq!(read("", &config).persistence, expected);
            assert!(expected.is_durable());
        }
        let off =
            |save| read("", &[("appendonly", "no"), ("appendfsync", "always"), ("save", save)]).persistence;
        assert_eq!((off(""), off("3600 1")), (Persistence::Memory, Persistence::Snapshots));
        // If `CONFIG` is forbidden, only `INFO` provides settings.
        assert_eq!(read("aof_enabled:1\r\n", &[]).persistence, Persistence::SyncUnknown);
        assert!(Persistence::SyncUnknown.is_durable());
        assert!(Persistence::SyncUnknown < Persistence::Unsynced, "the weakest node of a cluster counts");
        assert_eq!(read("aof_enabled:0\r\n", &[]).persistence, Persistence::Unknown);
        assert_eq!(read("", &[]).persistence, Persistence::Unknown);
        assert!(!Persistence::Unknown.is_durable());
    }

    #[test]
    fn evicting_server_configuration_is_rejected() {
        let with = |limit, policy| read(&format!("maxmemory:{limit}\r\nmaxmemory_policy:{policy}\r\n"), &[]);
        assert!(with(100, "allkeys-lru").objection().unwrap().contains("noeviction"));
        assert_eq!(with(0, "allkeys-lru").objection(), None, "without a memory limit, nothing is evicted");
        assert_eq!(with(100, "noeviction").objection(), None);
        for policy in [
            "volatile-ttl",
            "volatile-lru",
            "volatile-lfu",
            "volatile-random",
            "allkeys-random",
            "new-policy",
        ] {
            // Heartbeats have an expiry time. If the server evicts them, live processes look dead.
            assert!(with(100, policy).objection().unwrap().contains(policy));
            assert_eq!(with(0, policy).objection(), None);
        }
        assert!(read("redis_version:6.2.14\r\n", &[]).objection().unwrap().contains("Redis 7"));
        assert_eq!(read("redis_version:7.0.15\r\n", &[]).objection(), None);
    }
}
