//! A range of a run's headers that a caller requests, and the headers that the store returns. Record numbers are dense, so a range needs no cursor.

use std::num::NonZeroU32;

use crate::error::Result;
use crate::id::{RunKey, Seq};
use crate::record::RecordHeader;
use crate::refusal;

/// A range of a run's headers: up to a number of headers, from one record on or up to one record.
///
/// ```
/// use ferrata_store::{HeaderRange, Seq};
///
/// let (first, last) = (Seq::new(4), Seq::new(99));
/// assert_eq!(HeaderRange::oldest(10).within(first, last), Some((Seq::new(4), Seq::new(13))));
/// assert_eq!(HeaderRange::newest(10).within(first, last), Some((Seq::new(90), Seq::new(99))));
/// assert_eq!(HeaderRange::from(Seq::new(95), 10).within(first, last), Some((Seq::new(95), Seq::new(99))));
/// assert_eq!(HeaderRange::up_to(Seq::new(3), 10).within(first, last), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderRange {
    anchor: Anchor,
    limit: NonZeroU32,
}

/// The record at which a range begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The range begins with this record. If this record is pruned, the range begins with the oldest stored record.
    From(Seq),
    /// The range ends with this record. If this record does not exist yet, the range ends with the head.
    UpTo(Seq),
}

impl HeaderRange {
    /// Maximum number of headers in one answer.
    pub const MAX: u32 = 1_000;

    /// Selects at most `limit` headers from record `seq` on. A limit of 0 counts as 1.
    pub fn from(seq: Seq, limit: u32) -> Self {
        Self::of(Anchor::From(seq), limit)
    }

    /// Selects at most `limit` headers up to and including record `seq`. A limit of 0 counts as 1.
    pub fn up_to(seq: Seq, limit: u32) -> Self {
        Self::of(Anchor::UpTo(seq), limit)
    }

    /// Selects the `limit` oldest stored headers.
    pub fn oldest(limit: u32) -> Self {
        Self::from(Seq::new(0), limit)
    }

    /// Selects the `limit` newest headers.
    pub fn newest(limit: u32) -> Self {
        Self::up_to(Seq::new(u64::MAX), limit)
    }

    fn of(anchor: Anchor, limit: u32) -> Self {
        Self { anchor, limit: NonZeroU32::new(limit).unwrap_or(NonZeroU32::MIN) }
    }

    /// Returns the record at which the range begins or ends.
    pub fn anchor(self) -> Anchor {
        self.anchor
    }

    /// Returns the maximum number of headers that a store may return.
    pub fn limit(self) -> u32 {
        self.limit.get().min(Self::MAX)
    }

    /// Returns the first and the last number that the range selects in a run that stores the records `first` to `last`. Returns `None` if the range
    /// selects no stored record.
    pub fn within(self, first: Seq, last: Seq) -> Option<(Seq, Seq)> {
        let more = u64::from(self.limit() - 1);
        let (begin, end) = match self.anchor {
            Anchor::From(seq) => {
                let begin = seq.max(first);
                (begin, Seq::new(begin.get().saturating_add(more)).min(last))
            }
            Anchor::UpTo(seq) => {
                let end = seq.min(last);
                (Seq::new(end.get().saturating_sub(more)).max(first), end)
            }
        };
        (begin <= end).then_some((begin, end))
    }

    /// Returns the range that continues after `answer`, the answer to this range. Returns `None` if no header follows.
    pub fn after(self, answer: &Headers) -> Option<Self> {
        let (first, last) = (answer.items.first()?.seq, answer.items.last()?.seq);
        match self.anchor {
            Anchor::From(_) => {
                (last < answer.last).then(|| Self { anchor: Anchor::From(last.next()), ..self })
            }
            Anchor::UpTo(_) => (first > answer.first)
                .then(|| Self { anchor: Anchor::UpTo(Seq::new(first.get() - 1)), ..self }),
        }
    }
}

/// The result of [`headers`](crate::CheckpointStore::headers).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers {
    /// The number of the oldest stored record.
    pub first: Seq,
    /// The number of the run's head.
    pub last: Seq,
    /// The headers in the order of their numbers, without a gap.
    pub items: Vec<RecordHeader>,
}

impl Headers {
    /// Creates an answer from the headers that a store has read. Checks that they belong to the range, are in order, and have no gap.
    ///
    /// There may be fewer headers than the range selects, if the missing headers are at the end of the range without the anchor. There must be at
    /// least one if the range selects any.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt), with the first record that is missing.
    pub fn checked(
        run: &RunKey,
        range: HeaderRange,
        (first, last): (Seq, Seq),
        items: Vec<RecordHeader>,
    ) -> Result<Self> {
        if let Some((begin, end)) = range.within(first, last) {
            let from = match (range.anchor, items.first()) {
                (Anchor::UpTo(_), Some(header)) => header.seq.max(begin),
                _ => begin,
            };
            let missing = (from.get()..=end.get())
                .zip(items.iter().map(Some).chain(std::iter::repeat(None)))
                .find(|(seq, header)| header.is_none_or(|header| header.seq.get() != *seq))
                .map(|(seq, _)| Seq::new(seq));
            // A short answer is valid only if it lacks headers at the end without the anchor, and has at least one header.
            let is_whole = match (missing, range.anchor) {
                (None, _) => true,
                (Some(seq), Anchor::From(_)) => {
                    seq > begin && items.last().is_some_and(|header| header.seq < seq)
                }
                (Some(_), Anchor::UpTo(_)) => false,
            };
            if !is_whole {
                let seq = missing.unwrap_or(begin);
                return Err(refusal::gone(run, seq).with_operation("store.headers"));
            }
        }
        Ok(Self { first, last, items })
    }

    /// Creates an answer as [`checked`](Self::checked) does, for a store that reads all headers of a range at once. Fewer headers than the range
    /// selects are an error.
    ///
    /// # Errors
    ///
    /// The errors of [`checked`](Self::checked).
    pub fn whole(
        run: &RunKey,
        range: HeaderRange,
        kept: (Seq, Seq),
        items: Vec<RecordHeader>,
    ) -> Result<Self> {
        let answer = Self::checked(run, range, kept, items)?;
        let Some((begin, end)) = range.within(kept.0, kept.1) else { return Ok(answer) };
        let missing = match (range.anchor, answer.items.first(), answer.items.last()) {
            (Anchor::From(_), _, Some(found)) if found.seq < end => Some(found.seq.next()),
            (Anchor::UpTo(_), Some(found), _) if found.seq > begin => Some(Seq::new(found.seq.get() - 1)),
            _ => None,
        };
        match missing {
            Some(seq) => Err(refusal::gone(run, seq).with_operation("store.headers")),
            None => Ok(answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Epoch, ErrorKind, FORMAT, RecordId, RecordKind, RunId, RunStatus, Timestamp};

    fn headers(seqs: impl IntoIterator<Item = u64>) -> Vec<RecordHeader> {
        let header = |seq| RecordHeader {
            format: FORMAT,
            seq: Seq::new(seq),
            id: RecordId::from_uuid(uuid::Uuid::from_u128(u128::from(seq))),
            prev: None,
            kind: RecordKind::Node,
            status: RunStatus::InProgress,
            node: None,
            visit: None,
            epoch: Epoch::new(1),
            owner: None,
            wake_at: None,
            at: Timestamp::default(),
            base: false,
            body_len: 0,
            body_crc: 0,
        };
        seqs.into_iter().map(header).collect()
    }

    fn seq(of: u64) -> Seq {
        Seq::new(of)
    }

    #[test]
    fn whole_answer_lacks_no_header() {
        let run = RunKey::from(RunId::new("r").unwrap());
        let whole = |range, items| Headers::whole(&run, range, (seq(4), seq(9)), headers(items));
        for (range, items, missing) in [
            (HeaderRange::oldest(100), 4..=9, None),
            (HeaderRange::oldest(100), 4..=6, Some(7)),
            (HeaderRange::oldest(3), 4..=6, None),
            (HeaderRange::newest(100), 4..=9, None),
            (HeaderRange::newest(100), 7..=9, Some(6)),
            (HeaderRange::newest(3), 7..=9, None),
            (HeaderRange::newest(3), 8..=9, Some(7)),
        ] {
            let answer = whole(range, items).map_err(|error| (error.kind(), error.seq()));
            let expected = missing.map(|missing| (ErrorKind::Corrupt, Some(seq(missing))));
            assert_eq!(answer.err(), expected, "{range:?}");
        }
    }

    #[test]
    fn header_range_covers_retained_records_to_its_end() {
        for (first, last) in [(0, 0), (0, 9), (4, 9), (9, 9)] {
            for limit in [0, 1, 3, 10, u32::MAX] {
                for start in [HeaderRange::oldest(limit), HeaderRange::newest(limit)] {
                    let (mut range, mut seen) = (Some(start), Vec::new());
                    while let Some(asked) = range {
                        let (begin, end) =
                            asked.within(seq(first), seq(last)).expect("the range must not be finished");
                        let items = headers(begin.get()..=end.get());
                        assert!(items.len() <= asked.limit() as usize);
                        let answer = Headers { first: seq(first), last: seq(last), items };
                        seen.extend(answer.items.iter().map(|header| header.seq.get()));
                        range = asked.after(&answer);
                    }
                    seen.sort_unstable();
                    assert_eq!(seen, (first..=last).collect::<Vec<_>>(), "{start:?}");
                }
            }
        }
        assert_eq!(HeaderRange::from(seq(10), 5).within(seq(0), seq(9)), None);
        assert_eq!(HeaderRange::up_to(seq(3), 5).within(seq(4), seq(9)), None);
        let end = seq(u64::MAX);
        assert_eq!(HeaderRange::from(end, 5).within(seq(0), end), Some((end, end)));
    }

    #[test]
    fn headers_with_gap_or_foreign_records_are_corrupt() {
        let run = RunKey::from(RunId::new("r").unwrap());
        let check = |range: HeaderRange, seqs: &[u64]| {
            let answer = Headers::checked(&run, range, (seq(2), seq(9)), headers(seqs.iter().copied()));
            answer.map(|_| ()).map_err(|error| (error.kind(), error.seq().map(Seq::get)))
        };
        let gone = |seq| Err((ErrorKind::Corrupt, Some(seq)));
        let (oldest, newest) = (HeaderRange::oldest(4), HeaderRange::newest(4));
        assert_eq!(check(oldest, &[2, 3, 4, 5]), Ok(()));
        assert_eq!(check(oldest, &[2, 3]), Ok(()), "an answer may end early");
        assert_eq!(check(oldest, &[]), gone(2));
        assert_eq!(check(oldest, &[3, 4, 5]), gone(2));
        assert_eq!(check(oldest, &[2, 4, 5]), gone(3));
        assert_eq!(check(oldest, &[2, 3, 5]), gone(4));
        assert_eq!(check(newest, &[6, 7, 8, 9]), Ok(()));
        assert_eq!(check(newest, &[8, 9]), Ok(()), "an answer may begin late");
        assert_eq!(check(newest, &[]), gone(6));
        assert_eq!(check(newest, &[6, 7, 8]), gone(9));
        assert_eq!(check(newest, &[6, 8, 9]), gone(7));
        assert_eq!(check(HeaderRange::from(seq(10), 4), &[]), Ok(()), "the range is empty");
    }
}
