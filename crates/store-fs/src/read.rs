//! What is asked of one run: its records from a base on, the headers of its history, its head.

use std::path::Path;
use std::sync::Arc;

use ferrata_store::{At, Listing, Order, Page, Paged, Record, RecordHeader, RunHead, RunKey};

use crate::cursor::RecordPlace;
use crate::error::Fault;
use crate::folder::Folder;
use crate::line;
use crate::log::Log;
use crate::tail::flawed;
use crate::walk::{Onward, Walk, complete};

/// A page of headers, and the place after which the next goes on.
type Headers = (Vec<RecordHeader>, Option<RecordPlace>);

impl Folder {
    /// Loads the newest base at or before `at` and what follows it up to there.
    pub(crate) fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>, Fault> {
        self.look(run, |log, path| self.load_from(log, path, at))
    }

    fn load_from(&self, log: &Log, path: &Path, wanted: At) -> Result<Vec<Record>, Fault> {
        let (first, last) = (log.opening.first, log.head().seq);
        let absent = || Fault::NoRecord { at: wanted, first, last };
        if matches!(wanted, At::Seq(seq) if seq < first || seq > last) {
            return Err(absent());
        }
        let mut records: Vec<Record> = Vec::new();
        let mut walk = Walk::new(&*self.disk, log, path);
        while let Some((at, line)) = walk.previous()? {
            let header = &line.header;
            let is_wanted = match wanted {
                At::Latest => true,
                At::Seq(seq) => header.seq == seq,
                At::Record(id) => header.id == id,
            };
            if records.is_empty() && !is_wanted {
                continue;
            }
            let seq = header.seq;
            complete(records.last_mut().map(|record| &mut record.header), header.id);
            let body = line.body().map_err(|flaw| flawed(path, at, flaw).with_seq(seq))?;
            let record = Record { header: line.header, body };
            record
                .verify(&log.opening.run)
                .map_err(|error| Fault::damaged(path, at, error.message()).with_seq(seq))?;
            let is_base = record.header.base;
            records.push(record);
            if is_base {
                records.reverse();
                return Ok(records);
            }
        }
        if records.is_empty() {
            return Err(absent());
        }
        Err(Fault::damaged(path, log.floor, "there is no base").with_seq(first))
    }

    /// Lists headers of records.
    pub(crate) fn history(&self, run: &RunKey, page: &Page) -> Result<Paged<RecordHeader>, Fault> {
        let listing = Listing::of_history(run, page.order);
        let after = page
            .cursor
            .as_ref()
            .map(|cursor| RecordPlace::read(listing, cursor))
            .transpose()
            .map_err(|_| Fault::Cursor)?;
        let found = self.look(run, |log, path| match page.order {
            Order::NewestFirst => self.newest_first(log, path, after, page.len()),
            Order::OldestFirst => self.oldest_first(log, path, after, page.len()),
        })?;
        let (items, next) = found.ok_or(Fault::NoRun)?;
        Ok(Paged { items, next: next.map(|place| place.cursor(listing)) })
    }

    fn newest_first(
        &self,
        log: &Log,
        path: &Path,
        after: Option<RecordPlace>,
        limit: usize,
    ) -> Result<Headers, Fault> {
        let mut headers: Vec<RecordHeader> = Vec::new();
        let mut place = None;
        let mut walk = match after {
            Some(place) if self.is_at(log, path, place)? => {
                Walk::before(&*self.disk, log, path, place.seq, place.at)
            }
            _ => Walk::new(&*self.disk, log, path),
        };
        while let Some((at, line)) = walk.previous()? {
            let header = line.header;
            if after.is_some_and(|place| header.seq >= place.seq) {
                continue;
            }
            complete(headers.last_mut(), header.id);
            if headers.len() == limit {
                return Ok((headers, place));
            }
            place = Some(RecordPlace { seq: header.seq, at });
            headers.push(header);
        }
        Ok((headers, None))
    }

    fn oldest_first(
        &self,
        log: &Log,
        path: &Path,
        after: Option<RecordPlace>,
        limit: usize,
    ) -> Result<Headers, Fault> {
        let mut walk = match after {
            Some(place) if self.is_at(log, path, place)? => Onward::at(&*self.disk, log, path, place.at),
            _ => Onward::new(&*self.disk, log, path),
        };
        let mut headers: Vec<RecordHeader> = Vec::new();
        let mut place = None;
        while let Some((at, header)) = walk.next()? {
            if after.is_some_and(|place| header.seq <= place.seq) {
                continue;
            }
            if headers.len() == limit {
                return Ok((headers, place));
            }
            place = Some(RecordPlace { seq: header.seq, at });
            headers.push(header);
        }
        Ok((headers, None))
    }

    /// Tells whether the record's line begins where the cursor says; the log may have been pruned since.
    fn is_at(&self, log: &Log, path: &Path, place: RecordPlace) -> Result<bool, Fault> {
        if place.at < log.floor || place.at >= log.tail.end {
            return Ok(false);
        }
        let source = log.source(&*self.disk, path);
        let mut before = [0];
        source.read(&mut before, place.at - 1)?;
        // No line holds a newline, so what follows one is a line.
        Ok(before == *b"\n"
            && matches!(
                log.forward(&*self.disk, path, place.at).next()?,
                Some((_, bytes)) if line::read_record(bytes).is_ok_and(|line| line.header.seq == place.seq)
            ))
    }

    /// Returns the run's head.
    pub(crate) fn head(&self, run: &RunKey) -> Result<Option<RunHead>, Fault> {
        let Some((opening, head)) =
            self.look(run, |log, _| Ok((Arc::clone(&log.opening), log.tail.head.clone())))?
        else {
            return Ok(None);
        };
        let alive = head.owner.map_or(Ok(false), |owner| self.is_alive(&owner))?;
        Ok(Some(RunHead::after(run.clone(), opening.first, &head, alive, opening.facts.clone())))
    }
}
