//! The stored form of runs: the facts, the records, and the head, which consists of both.

use ferrata_store::{Record, RecordHeader, RunFacts, RunHead, RunKey, Seq};
use serde::{Deserialize, Serialize};

use crate::error::RedisStoreError;
use crate::header::{header_of, read};
use crate::layout::{Member, VERSION};
use crate::reply::ReplyParts;

/// The facts of a run: the first element of its list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunFactsEntry {
    version: u64,
    /// The run's name in the index.
    pub(crate) member: String,
    pub(crate) facts: RunFacts,
}

/// The version field of an entry, which every version of the layout has.
#[derive(Deserialize)]
struct EntryVersion {
    version: Option<u64>,
    /// The version of unreleased layouts.
    layout: Option<u64>,
}

impl EntryVersion {
    /// Reads the version. Returns 0 for an unreleased layout.
    fn read(text: &[u8]) -> serde_json::Result<u64> {
        let Self { version, layout } = serde_json::from_slice(text)?;
        version.or(layout.map(|_| 0)).ok_or_else(|| serde::de::Error::missing_field("version"))
    }
}

/// The contents of the marker.
#[derive(Serialize, Deserialize)]
pub(crate) struct LayoutMarker {
    version: u64,
    /// The number of shards of the index.
    pub(crate) shards: u16,
}

impl LayoutMarker {
    pub(crate) fn write(shards: u16) -> String {
        // Numbers always have a JSON form.
        serde_json::to_string(&Self { version: VERSION, shards }).unwrap_or_default()
    }

    pub(crate) fn read(text: &str) -> Result<Self, RedisStoreError> {
        let fault = |error| RedisStoreError::strange(format!("the marker is unreadable ({error})"));
        // Unreleased versions wrote two numbers.
        let is_unreleased = text.split(' ').all(|number| number.parse::<u64>().is_ok());
        let version = match is_unreleased {
            true => 0,
            false => EntryVersion::read(text.as_bytes()).map_err(fault)?,
        };
        check_version(version, "the prefix")?;
        serde_json::from_str(text).map_err(fault)
    }
}

impl RunFactsEntry {
    pub(crate) fn write(member: &Member, facts: &RunFacts) -> Result<String, RedisStoreError> {
        let said = Self { version: VERSION, member: member.as_str().to_owned(), facts: facts.clone() };
        serde_json::to_string(&said)
            .map_err(|error| RedisStoreError::strange(format!("facts without JSON ({error})")))
    }

    /// Parses the facts in a run's list. Refuses the facts of another run.
    pub(crate) fn read(run: &RunKey, text: &[u8]) -> Result<Self, RedisStoreError> {
        let said = Self::read_any(text)?;
        match Member::parse(said.member.as_bytes()).and_then(|member| member.run()) {
            Some(named) if named == *run => Ok(said),
            _ => Err(RedisStoreError::wrong_run()),
        }
    }

    fn read_any(text: &[u8]) -> Result<Self, RedisStoreError> {
        let fault =
            |error| RedisStoreError::corrupt(None, format!("the facts of the run are unreadable ({error})"));
        check_version(EntryVersion::read(text).map_err(fault)?, "the run")?;
        serde_json::from_slice(text).map_err(fault)
    }
}

/// Refuses a version that this library does not read.
fn check_version(version: u64, whose: &str) -> Result<(), RedisStoreError> {
    match version {
        VERSION => Ok(()),
        0 => Err(RedisStoreError::Unfit {
            what: format!(
                "an unreleased version created {whose}, which no release reads; use another prefix, or remove the keys"
            ),
        }),
        newer => Err(RedisStoreError::Newer { what: format!("{whose} has version {newer},") }),
    }
}

/// The head of a run, without the run's log.
#[derive(Debug)]
pub(crate) struct StoredHead {
    pub(crate) last: RecordHeader,
    /// The number of the newest base.
    pub(crate) base: Seq,
    pub(crate) first: Seq,
    pub(crate) said: RunFactsEntry,
}

impl StoredHead {
    /// Parses the reply of the script that reads a run's head. Returns `None` if the run does not exist.
    pub(crate) fn read(run: &RunKey, reply: redis::Value) -> Result<Option<Self>, RedisStoreError> {
        if matches!(reply, redis::Value::Int(_)) {
            return Ok(None);
        }
        let mut reply = ReplyParts::of(reply)?;
        let said = RunFactsEntry::read(run, &reply.bytes()?)?;
        let first = header_of(&reply.bytes()?, None)?.seq;
        let (last, base) = read(&reply.bytes()?, None)?;
        Ok(Some(Self { last, base, first, said }))
    }

    pub(crate) fn into_run_head(self, run: RunKey, owner_alive: bool) -> RunHead {
        RunHead::after(run, self.first, &self.last, owner_alive, self.said.facts)
    }
}

/// Parses alternating headers and bodies.
pub(crate) fn records_of(mut parts: ReplyParts) -> Result<Vec<Record>, RedisStoreError> {
    let mut records = Vec::with_capacity(parts.len() / 2);
    while parts.len() >= 2 {
        let (header, body) = (parts.bytes()?, parts.bytes()?);
        records.push(Record { header: header_of(&header, None)?, body });
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marker_of_this_version_is_read() {
        assert_eq!(LayoutMarker::write(16), r#"{"version":1,"shards":16}"#);
        assert_eq!(LayoutMarker::read(&LayoutMarker::write(16)).unwrap().shards, 16);
        for (text, words) in [
            (r#"{"version":2,"parts":[1]}"#, "upgrade this process"),
            ("2 16", "use another prefix"),
            ("1 1", "use another prefix"),
            ("{}", "unreadable"),
            ("sixteen", "unreadable"),
        ] {
            let refused = LayoutMarker::read(text).err().unwrap().to_string();
            assert!(refused.contains(words), "{text}: {refused}");
        }
    }

    #[test]
    fn runs_of_other_versions_are_refused() {
        for (text, words) in [
            (r#"{"layout":2,"member":"m"}"#, "use another prefix"),
            (r#"{"version":2}"#, "upgrade this process"),
            ("{}", "unreadable"),
        ] {
            let refused = RunFactsEntry::read_any(text.as_bytes()).err().unwrap().to_string();
            assert!(refused.contains(words), "{text}: {refused}");
        }
    }
}
