//! One run of the memory store: its records, the positions of its bases, and the rules of appends, reads and prunes.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use crate::error::Result;
use crate::id::{HeadRef, RunKey, Seq};
use crate::record::{FORMAT, Record, RecordHeader, RunFacts};
use crate::refusal;
use crate::{
    At, HeaderRange, Headers, PruneCut, Removed, RunAppend, RunHead, check_prune, has_place, is_repeat,
};

/// The log of one run.
#[derive(Debug)]
pub(super) struct MemoryLog {
    pub(super) facts: RunFacts,
    /// The number of the last batch that named this run. It shows that a run has a second entry in a batch, without a set of keys.
    pub(super) batch: u64,
    /// The number of the oldest stored record.
    first: u64,
    /// The records from `first` on, in order.
    records: VecDeque<Record>,
    /// The numbers of the bases, ascending, so that a load needs no scan.
    bases: VecDeque<u64>,
}

impl MemoryLog {
    pub(super) fn new(facts: RunFacts, batch: u64) -> Self {
        Self { facts, batch, first: 0, records: VecDeque::new(), bases: VecDeque::new() }
    }

    /// Adds the records of an append that passed `check_append`, if the head is the expected head.
    pub(super) fn append(&mut self, append: RunAppend) -> Result<HeadRef> {
        let head = self.head_ref(&append.run)?;
        if append.expected != Some(head) {
            return if self.is_repeat(&append) {
                Ok(head)
            } else {
                Err(refusal::conflict(&append.run, append.expected, Some(head)))
            };
        }
        self.extend(append)
    }

    /// Adds records without a check of the head: the records of a new run.
    pub(super) fn extend(&mut self, append: RunAppend) -> Result<HeadRef> {
        for record in append.records {
            if record.header.base {
                self.bases.push_back(record.header.seq.get());
            }
            self.records.push_back(record);
        }
        self.head_ref(&append.run)
    }

    /// Returns the last record's header.
    pub(super) fn head(&self, run: &RunKey) -> Result<&RecordHeader> {
        let Some(last) = self.records.len().checked_sub(1) else {
            return Err(refusal::corrupt(run, Seq::new(self.first), "all records of the run are missing"));
        };
        self.header(run, last)
    }

    /// Returns the run's head for listings.
    pub(super) fn run_head(&self, run: &RunKey, is_alive: impl Fn(&RecordHeader) -> bool) -> Result<RunHead> {
        let head = self.head(run)?;
        Ok(RunHead::after(run.clone(), Seq::new(self.first), head, is_alive(head), self.facts.clone()))
    }

    /// Returns the newest base at or before `at`, and the records from there to `at`.
    pub(super) fn load(&self, run: &RunKey, at: At) -> Result<Vec<Record>> {
        let end = match at {
            At::Latest => self.head(run)?.seq.get(),
            At::Seq(seq) => seq.get(),
            // Search from the head backward: lookups by id are mostly near the head.
            At::Record(id) => match self.headers().rev().find(|header| header.id == id) {
                Some(header) => header.seq.get(),
                None => return Err(refusal::no_record("store.load", run, at)),
            },
        };
        let Some(last) = self.place(end) else {
            let is_hole = self.headers().any(|header| header.seq.get() == end);
            return Err(if is_hole {
                refusal::corrupt(run, Seq::new(end), "an earlier record is missing")
            } else {
                refusal::no_record("store.load", run, at)
            });
        };
        let bases_before = self.bases.partition_point(|base| *base <= end);
        let Some(base) = bases_before.checked_sub(1).and_then(|newest| self.place(self.bases[newest])) else {
            return Err(refusal::corrupt(run, Seq::new(end), "no base exists at or before the record"));
        };
        self.verified(run, base..=last)
    }

    /// Loads the records after the record `known`, or from the newest base on if that record is pruned.
    pub(super) fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Vec<Record>> {
        let place = self.place(known.seq.get()).filter(|place| self.records[*place].header.id == known.id);
        match (place, self.records.len().checked_sub(1)) {
            (Some(place), Some(last)) => self.verified(run, place + 1..=last),
            _ => self.load(run, At::Latest),
        }
    }

    fn verified(&self, run: &RunKey, places: RangeInclusive<usize>) -> Result<Vec<Record>> {
        let verified = |place: usize| {
            self.header(run, place)?;
            self.records[place].verify(run)?;
            Ok(self.records[place].clone())
        };
        places.map(verified).collect()
    }

    /// Lists the headers of a range.
    pub(super) fn range(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        let kept = (Seq::new(self.first), self.head(run)?.seq);
        let items = match range.within(kept.0, kept.1) {
            Some((begin, end)) => {
                let place = |seq: Seq| usize::try_from(seq.get() - self.first).unwrap_or(usize::MAX);
                let places = place(begin)..(place(end) + 1).min(self.records.len());
                places.map(|place| self.header(run, place).cloned()).collect::<Result<_>>()?
            }
            None => Vec::new(),
        };
        Headers::checked(run, range, kept, items)
    }

    /// Turns the record at the cut into a base, and takes out the records before it. The caller drops the returned records.
    pub(super) fn prune(&mut self, run: &RunKey, cut: PruneCut) -> Result<VecDeque<Record>> {
        if cut.at.get() < self.first {
            return Ok(VecDeque::new());
        }
        let Some(place) = self.place(cut.at.get()) else {
            return Err(refusal::no_record("store.prune", run, At::Seq(cut.at)));
        };
        let needed = check_prune(run, self.header(run, place)?, &cut)?.is_some();
        if let Some(base) = cut.base.filter(|_| needed) {
            self.records[place] = base;
        }
        let gone = self.records.drain(..place).collect();
        self.first = cut.at.get();
        while self.bases.front().is_some_and(|base| *base < self.first) {
            self.bases.pop_front();
        }
        if needed {
            self.bases.push_front(self.first);
        }
        Ok(gone)
    }

    /// Replaces the records that are unchanged except for their envelope, and returns their number.
    pub(super) fn reseal(&mut self, records: &[Record]) -> u64 {
        let mut replaced = 0;
        for record in records {
            let place = self.place(record.header.seq.get());
            let kept = place.and_then(|place| self.records.get_mut(place));
            if let Some(kept) = kept.filter(|kept| has_place(&kept.header, &record.header)) {
                *kept = record.clone();
                replaced += 1;
            }
        }
        replaced
    }

    /// Changes the records like a failing disk would, without any check.
    pub(super) fn tamper(&mut self, change: impl FnOnce(&mut Vec<Record>)) {
        let mut records = Vec::from(std::mem::take(&mut self.records));
        change(&mut records);
        self.bases = records.iter().filter(|r| r.header.base).map(|r| r.header.seq.get()).collect();
        self.records = records.into();
    }

    /// Returns all records of the log.
    pub(super) fn into_records(self) -> VecDeque<Record> {
        self.records
    }

    fn is_repeat(&self, append: &RunAppend) -> bool {
        is_repeat(self.headers().rev(), append)
            && append.facts.as_ref().is_none_or(|facts| *facts == self.facts)
    }

    fn headers(&self) -> impl DoubleEndedIterator<Item = &RecordHeader> {
        self.records.iter().map(|record| &record.header)
    }

    fn head_ref(&self, run: &RunKey) -> Result<HeadRef> {
        self.head(run).map(RecordHeader::head)
    }

    /// Returns the index of the record with number `seq`.
    fn place(&self, seq: u64) -> Option<usize> {
        let place = usize::try_from(seq.checked_sub(self.first)?).ok()?;
        (place < self.records.len()).then_some(place)
    }

    /// Returns the header at index `place` after checking its position and format.
    fn header(&self, run: &RunKey, place: usize) -> Result<&RecordHeader> {
        let header = &self.records[place].header;
        let seq = self.first + place as u64;
        if header.format > FORMAT {
            // `verify` has the message for this error.
            self.records[place].verify(run)?;
        }
        if header.seq.get() != seq {
            return Err(refusal::corrupt(
                run,
                Seq::new(seq),
                &format!("record {} is at its position", header.seq),
            ));
        }
        Ok(header)
    }
}

/// Returns the number and the size of the removed records.
pub(super) fn count(gone: &VecDeque<Record>) -> Removed {
    Removed { records: gone.len() as u64, bytes: gone.iter().map(|record| record.body.len() as u64).sum() }
}
