//! All keys of the store, and the index sets of a run. Only this module of the crate builds keys.
//!
//! # Keys
//!
//! `P` is the prefix. Keys contain tenant and run id unchanged.
//!
//! | Key | Type | Content |
//! |---|---|---|
//! | `P:{tenant,run}` | list | a run: its facts, then the header and the body of each record |
//! | `P:executor:<id>` | string `1` | the heartbeat of a process; expires with it |
//! | `P:layout` | string `{"version":1,"shards":S}` | the layout version, and the number of shards of the index: 1, or 16 if a cluster's URL came first |
//! | `P:repaired` | string | `running` or `done`; expires when the next repair of the index is due |
//! | `P:{index-N}:catalog` | hash | by member, in JSON: `g`, the newest record number announced; `t`, its time by the server's clock in ms; `p`, the index sets with scores |
//! | `P:{index-N}:<set>` | sorted set | the members of an index set |
//! | `P:{index-N}:owners` | set | the owners that have runs |
//! | `P:notices` | channel | `tenant,run` of changed runs, separated by spaces; after an append, a last word that begins with `=`, the mark of its store |
//! | `P:said` | channel | watched runs, and chunks of their streams |
//!
//! The keys of a shard share a slot. A run's shard is CRC-16 of `tenant,run`, modulo 16384, modulo `S`.
//!
//! # A run
//!
//! The first element of the list is JSON and never changes: `version` (1), `member`, the run's name in the index, and `facts`. Two elements follow for
//! each record: its header in the form of [`binary`](ferrata_store::codec::binary), and its body. If finished runs expire, the key of a finished run
//! expires. A later record removes the expiry.
//!
//! # The index
//!
//! A member is `<creation>,<tenant>,<run>,<generation>`. The creation is in ms since the Unix epoch with its sign bit flipped, in 16 hex digits. The
//! generation is the last 8 digits of the first record's id. So members sort as listings do.
//!
//! | Set | Members | Score |
//! |---|---|---|
//! | `all`, `t:<tenant>`, `w:<workflow>` | every run; those of a tenant, of a workflow | 0 |
//! | `l:<hash>` | those with a label: 128 bits of BLAKE3 of key, zero byte, value | 0 |
//! | `p:<tenant>,<run>` | the forks of a run | 0 |
//! | `s:<status>` | by status | 0 |
//! | `o:<executor>`, `o:-` | by owner; in progress without an owner | 0 |
//! | `due` | those with a wake-up time | `wake_at` |
//!
//! In a cluster, the store adds the new sets before it appends, and removes the old sets afterwards.

use bytes::Bytes;
use ferrata_store::index::RunStanding;
use ferrata_store::{
    ExecutorId, Fingerprint, RecordId, RunFacts, RunId, RunKey, RunStatus, TenantId, Timestamp, WorkflowName,
};

/// The version of the layout.
pub(crate) const VERSION: u64 = 1;

/// The number of shards of the index in a cluster. With several shards, no node holds the whole index.
///
/// A listing asks every shard, so more shards would make listings slower. With fewer shards, some nodes of a large cluster would hold no part of
/// the index.
pub(crate) const CLUSTER_SHARDS: u16 = 16;

/// The sign bit. Flipping it makes signed numbers sort like unsigned numbers.
const SIGN: u64 = 1 << 63;

/// Builds keys with one prefix.
#[derive(Clone, Debug)]
pub(crate) struct RedisKeys {
    prefix: String,
}

impl RedisKeys {
    pub(crate) fn new(prefix: String) -> Self {
        Self { prefix }
    }

    /// Returns the key of the marker, which holds the layout's version and the number of index shards.
    pub(crate) fn marker(&self) -> Bytes {
        format!("{}:layout", self.prefix).into()
    }

    /// Returns the key of the time of the last index repair. It expires when the next repair is due.
    pub(crate) fn repaired(&self) -> Bytes {
        format!("{}:repaired", self.prefix).into()
    }

    /// Returns the channel of notices.
    pub(crate) fn channel(&self) -> Bytes {
        format!("{}:notices", self.prefix).into()
    }

    /// Returns the channel for messages between processes.
    pub(crate) fn said_channel(&self) -> Bytes {
        format!("{}:said", self.prefix).into()
    }

    /// Returns the key of an executor's heartbeat. The key expires with the heartbeat.
    pub(crate) fn executor(&self, executor: &ExecutorId) -> Bytes {
        format!("{}:executor:{executor}", self.prefix).into()
    }

    /// Returns the key of a run.
    pub(crate) fn run(&self, run: &RunKey) -> Bytes {
        let (tenant, id) = (run.tenant.as_str(), run.run.as_str());
        let mut key = Vec::with_capacity(self.prefix.len() + tenant.len() + id.len() + 4);
        for part in [&self.prefix, ":{", tenant, ",", id, "}"] {
            key.extend_from_slice(part.as_bytes());
        }
        key.into()
    }

    /// Returns the offset of the run's name in its key, counted from 1 as in Lua. A brace follows the name.
    pub(crate) fn name_at(&self) -> usize {
        self.prefix.len() + 3
    }

    /// Returns a pattern that the key of every run matches. It matches almost no other key.
    pub(crate) fn runs(&self) -> Bytes {
        format!("{}:{{*,*}}", self.prefix).into()
    }

    /// Returns the run of a key.
    pub(crate) fn run_of_key(&self, key: &[u8]) -> Option<RunKey> {
        let key = std::str::from_utf8(key).ok()?;
        parse_name(key.strip_prefix(&self.prefix)?.strip_prefix(":{")?.strip_suffix('}')?)
    }

    /// Returns the prefix of all keys of a shard of the index. The name of an index set follows the prefix.
    pub(crate) fn shard(&self, shard: u16) -> String {
        format!("{}:{{index-{shard}}}:", self.prefix)
    }
}

/// Returns tenant and run in one text. The comma sorts before every character of either, so that names sort by tenant, then run.
pub(crate) fn name(run: &RunKey) -> String {
    format!("{},{}", run.tenant, run.run)
}

pub(crate) fn parse_name(text: &str) -> Option<RunKey> {
    let (tenant, run) = text.split_once(',')?;
    Some(RunKey::new(TenantId::new(tenant).ok()?, RunId::new(run).ok()?))
}

/// Returns the shard that has a run's index entries.
pub(crate) fn shard_of(run: &RunKey, shards: u16) -> u16 {
    crate::link::slot(name(run).as_bytes()) % shards.max(1)
}

/// A generation of a run in the index. Members sort by time of creation, tenant and run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Member(String);

impl Member {
    /// Creates the member of a run. `first` is the id of the run's first record.
    pub(crate) fn new(run: &RunKey, created: Timestamp, first: RecordId) -> Self {
        // The last digits of a UUIDv7 are random.
        let first = first.to_string();
        let generation = &first[first.len() - 8..];
        Self(format!("{},{},{generation}", place_in_time(created), name(run)))
    }

    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let member = Self(std::str::from_utf8(text).ok()?.to_owned());
        member.run().map(|_| member)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn run(&self) -> Option<RunKey> {
        let (created, rest) = self.0.split_at_checked(16)?;
        u64::from_str_radix(created, 16).ok()?;
        parse_name(rest.strip_prefix(',')?.rsplit_once(',')?.0)
    }
}

/// Returns the beginning of all members with this time of creation.
pub(crate) fn place_in_time(created: Timestamp) -> String {
    format!("{:016x}", created.unix_ms().cast_unsigned() ^ SIGN)
}

/// The names of the index sets. A name says what the runs of the set have in common.
pub(crate) mod place {
    use super::*;

    pub(crate) const CATALOG: &str = "catalog";
    pub(crate) const OWNERS: &str = "owners";
    pub(crate) const ALL: &str = "all";
    pub(crate) const DUE: &str = "due";
    /// The name that replaces the owner for runs in progress without an owner.
    pub(crate) const NOBODY: &str = "-";

    pub(crate) fn status(status: RunStatus) -> String {
        format!("s:{status}")
    }

    pub(crate) fn owner(owner: &str) -> String {
        format!("o:{owner}")
    }

    pub(crate) fn tenant(tenant: &TenantId) -> String {
        format!("t:{tenant}")
    }

    pub(crate) fn workflow(workflow: &WorkflowName) -> String {
        format!("w:{workflow}")
    }

    pub(crate) fn parent(parent: &RunKey) -> String {
        format!("p:{}", name(parent))
    }

    /// Labels may contain any text, so the name contains their hash. No label contains a control character, so the text to hash is unambiguous.
    pub(crate) fn label(key: &str, value: &str) -> String {
        format!("l:{}", Fingerprint::of(format!("{key}\0{value}").as_bytes()))
    }
}

/// Returns the index sets of a run in this state, each with the run's score in it.
pub(crate) fn moving_places(standing: &RunStanding) -> impl Iterator<Item = (String, String)> {
    let RunStanding { status, owner, wake_at } = *standing;
    let owner = match owner {
        Some(owner) => Some(place::owner(&owner.to_string())),
        None => (status == RunStatus::InProgress).then(|| place::owner(place::NOBODY)),
    };
    let due = wake_at.map(|wake| (place::DUE.to_owned(), wake.unix_ms().to_string()));
    let others = [Some(place::status(status)), owner].into_iter().flatten();
    others.map(|place| (place, "0".to_owned())).chain(due)
}

/// Returns the index sets of a run that its facts determine.
pub(crate) fn fixed_places(run: &RunKey, facts: &RunFacts) -> Vec<String> {
    let mut places =
        vec![place::ALL.to_owned(), place::tenant(&run.tenant), place::workflow(&facts.workflow)];
    places.extend(facts.parent.as_ref().map(|parent| place::parent(&parent.run)));
    places.extend(facts.labels.iter().map(|(key, value)| place::label(key, value)));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(tenant: &str, run: &str) -> RunKey {
        RunKey::new(TenantId::new(tenant).unwrap(), RunId::new(run).unwrap())
    }

    fn id() -> RecordId {
        "019aa4b6-4500-768c-931c-6e7d5b8ea912".parse().unwrap()
    }

    #[test]
    fn members_sort_by_creation_tenant_and_run() {
        let ordered = [
            (i64::MIN, "z", "z"),
            (-1_000, "z", "z"),
            (-1, "b", "b"),
            (5, "A", "b"),
            (5, "a", "-"),
            (5, "a", "9"),
            (5, "a", "a"),
            (5, "a", "a-"),
            (5, "a", "a."),
            (5, "a", "aa"),
            (5, "a-", "a"),
            (5, "a.", "a"),
            (5, "aa", "a"),
            (i64::MAX, "a", "a"),
        ];
        let member = |(at, tenant, id_of): &(i64, &str, &str)| {
            Member::new(&run(tenant, id_of), Timestamp::from_unix_ms(*at), id())
        };
        let members: Vec<_> = ordered.iter().map(member).collect();
        assert!(members.is_sorted(), "{members:?}");
        for (member, (_, tenant, id_of)) in members.iter().zip(ordered) {
            assert_eq!(Member::parse(member.as_str().as_bytes()).unwrap().run(), Some(run(tenant, id_of)));
        }
    }

    #[test]
    fn run_key_parses_back_to_run() {
        let layout = RedisKeys::new("app".into());
        let key = run("acme", "r:1");
        let text = layout.run(&key);
        assert_eq!(text, "app:{acme,r:1}");
        assert_eq!(text[layout.name_at() - 1..text.len() - 1], *name(&key).as_bytes());
        assert_eq!(layout.run_of_key(&text), Some(key));
        for other in ["app:{acme}", "app:{a,b}:log", "b:{a,b}", "app:{a,b,c}", "app:{,b}", "app:{a,b"] {
            assert_eq!(layout.run_of_key(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn what_is_no_member_is_not_read() {
        for text in
            ["", "x", "000000000000000g,a,b,01234567", "0000000000000000,a,01234567", "0000000000000000"]
        {
            assert_eq!(Member::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(
            Member::parse(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff,a,b,c"),
            None
        );
    }
}
