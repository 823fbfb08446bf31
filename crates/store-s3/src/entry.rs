//! An index entry: the data of a run that a listing can use without reading the run's log.

use std::fmt;
use std::str::FromStr;

use ferrata_store::index::{IndexEntry, RunStanding};
use ferrata_store::{RecordHeader, RecordId, RunStatus, Seq, Timestamp};

use crate::layout::Tree;

/// The last part of an entry's key. The object itself is empty.
///
/// An entry belongs to the record that brought the run into this state, and no two records share an entry. So the removal of a stale entry never
/// removes the entry of another writer, or of the same state at a later time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexKey {
    pub(crate) generation: u32,
    pub(crate) seq: Seq,
    pub(crate) id: RecordId,
    pub(crate) standing: RunStanding,
}

impl IndexKey {
    pub(crate) fn of(generation: u32, header: &RecordHeader) -> Self {
        Self { generation, seq: header.seq, id: header.id, standing: RunStanding::after(header) }
    }

    pub(crate) fn tree(&self) -> Tree {
        Tree::of(&self.standing)
    }

    #[cfg(test)]
    pub(crate) fn longest() -> Self {
        let id = "018f3a4e-0000-7000-8000-000000000001";
        let standing = RunStanding {
            status: RunStatus::AwaitingInput,
            owner: Some(id.parse().unwrap()),
            wake_at: Some(Timestamp::from_unix_ms(i64::MIN)),
        };
        Self { generation: u32::MAX, seq: Seq::new(u64::MAX), id: id.parse().unwrap(), standing }
    }
}

impl IndexEntry for IndexKey {
    type Generation = u32;

    fn generation(&self) -> &u32 {
        &self.generation
    }

    fn announced_with(&self) -> Option<Seq> {
        Some(self.seq)
    }

    fn holds(&self, standing: &RunStanding) -> bool {
        self.standing == *standing
    }
}

impl fmt::Display for IndexKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { generation, seq, id, standing } = self;
        // The numbers ascend. So if one entry replaces another during a listing, the listing still finds the new entry.
        write!(f, "{generation:08x}.{:016x}.{id}.{}.", seq.get(), standing.status)?;
        match standing.owner {
            Some(owner) => write!(f, "{owner}.")?,
            None => f.write_str("-.")?,
        }
        match standing.wake_at {
            Some(at) => write!(f, "{}", at.unix_ms()),
            None => f.write_str("never"),
        }
    }
}

impl FromStr for IndexKey {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let parse = || {
            let mut parts = text.split('.');
            let generation = u32::from_str_radix(parts.next()?, 16).ok()?;
            let seq = Seq::new(u64::from_str_radix(parts.next()?, 16).ok()?);
            let id = parts.next()?.parse().ok()?;
            let status = parts.next()?;
            let status = RunStatus::ALL.into_iter().find(|known| known.as_str() == status)?;
            let owner = match parts.next()? {
                "-" => None,
                owner => Some(owner.parse().ok()?),
            };
            let wake_at = match parts.next()? {
                "never" => None,
                at => Some(Timestamp::from_unix_ms(at.parse().ok()?)),
            };
            let entry = Self { generation, seq, id, standing: RunStanding { status, owner, wake_at } };
            parts.next().is_none().then_some(entry)
        };
        parse().ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_comes_back() {
        let mut entry = IndexKey::longest();
        assert_eq!(entry.to_string().parse(), Ok(entry));
        for status in RunStatus::ALL {
            entry.standing = RunStanding { status, owner: None, wake_at: None };
            assert_eq!(entry.to_string().parse(), Ok(entry));
        }
        for wake in [0, -1, i64::MAX] {
            entry.standing.wake_at = Some(Timestamp::from_unix_ms(wake));
            assert_eq!(entry.to_string().parse(), Ok(entry));
        }
    }

    #[test]
    fn other_text_is_no_entry() {
        let good = IndexKey::longest().to_string();
        for text in ["", "x", "....", &good[1..20], &format!("{good}."), &good.replace("awaiting", "a")] {
            assert_eq!(text.parse::<IndexKey>(), Err(()), "{text}");
        }
    }
}
