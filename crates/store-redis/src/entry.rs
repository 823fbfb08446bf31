//! The stored form of runs: the facts, the records, and the head, which is both.

use ferrata_store::{Record, RecordHeader, RunFacts, RunHead, RunKey, Seq};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::header::{header_of, read};
use crate::layout::{LAYOUT, Member};
use crate::reply::Parts;

/// The facts of a run: the first element of its list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunFactsEntry {
    layout: u64,
    /// Its name in the index.
    pub(crate) member: String,
    pub(crate) facts: RunFacts,
}

/// The field that is read first, in every version.
#[derive(Deserialize)]
struct Version {
    layout: u64,
}

impl RunFactsEntry {
    pub(crate) fn write(member: &Member, facts: &RunFacts) -> Result<String, StoreError> {
        let said = Self { layout: LAYOUT, member: member.as_str().to_owned(), facts: facts.clone() };
        serde_json::to_string(&said)
            .map_err(|error| StoreError::strange(format!("facts without JSON ({error})")))
    }

    /// Reads a run's facts from its list, and refuses the facts of another run.
    pub(crate) fn read(run: &RunKey, text: &[u8]) -> Result<Self, StoreError> {
        let said = Self::read_any(text)?;
        match Member::parse(said.member.as_bytes()).and_then(|member| member.run()) {
            Some(named) if named == *run => Ok(said),
            _ => Err(StoreError::stranger()),
        }
    }

    fn read_any(text: &[u8]) -> Result<Self, StoreError> {
        let fault =
            |error| StoreError::corrupt(None, format!("what is said of the run cannot be read ({error})"));
        let Version { layout } = serde_json::from_slice(text).map_err(fault)?;
        check_layout(layout, "the run has")?;
        serde_json::from_slice(text).map_err(fault)
    }
}

/// Refuses a layout that this version does not read.
pub(crate) fn check_layout(layout: u64, whose: &str) -> Result<(), StoreError> {
    match layout {
        LAYOUT => Ok(()),
        newer if newer > LAYOUT => Err(StoreError::Newer { what: format!("{whose} layout {newer},") }),
        older => Err(StoreError::Unfit {
            what: format!(
                "{whose} layout {older}, this version reads {LAYOUT} and no older one; use another prefix, or remove the keys"
            ),
        }),
    }
}

/// A run without its log.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) last: RecordHeader,
    /// The number of the newest base.
    pub(crate) base: Seq,
    pub(crate) first: Seq,
    pub(crate) said: RunFactsEntry,
}

impl Head {
    /// Reads the reply to the script of heads; `None` if there is no such run.
    pub(crate) fn read(run: &RunKey, reply: redis::Value) -> Result<Option<Self>, StoreError> {
        if matches!(reply, redis::Value::Int(_)) {
            return Ok(None);
        }
        let mut reply = Parts::of(reply)?;
        let said = RunFactsEntry::read(run, &reply.bytes()?)?;
        let first = header_of(&reply.bytes()?, None)?.seq;
        let (last, base) = read(&reply.bytes()?, None)?;
        Ok(Some(Self { last, base, first, said }))
    }

    pub(crate) fn into_run_head(self, run: RunKey, owner_alive: bool) -> RunHead {
        RunHead::after(run, self.first, &self.last, owner_alive, self.said.facts)
    }
}

/// Reads headers and bodies in turns.
pub(crate) fn records_of(mut parts: Parts) -> Result<Vec<Record>, StoreError> {
    let mut records = Vec::with_capacity(parts.len() / 2);
    while parts.len() >= 2 {
        let (header, body) = (parts.bytes()?, parts.bytes()?);
        records.push(Record { header: header_of(&header, None)?, body });
    }
    Ok(records)
}
