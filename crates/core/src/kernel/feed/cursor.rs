//! The position of a watch, which consists of the last record of each run that the watcher has received.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};
use crate::id::{HeadRef, RecordId, RunId, Seq};
use crate::record::RecordHeader;

/// A watcher's position in one log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogCursor {
    /// The last record whose events were all delivered. `None` if there is no such record yet.
    pub(crate) last: Option<Seq>,
    /// The id of the last record, which identifies the start of the run, if it is known. If only a part of the first record was delivered, it is
    /// the id of this record.
    pub(crate) id: Option<RecordId>,
    /// The number of events of the next record that were delivered or skipped.
    pub(crate) part: u32,
}

impl LogCursor {
    /// Returns the number of the next record.
    pub(crate) fn next(&self) -> Seq {
        self.last.map_or(Seq::new(0), Seq::next)
    }

    /// Returns the position after a record.
    pub(crate) fn after(header: &RecordHeader) -> Self {
        Self { last: Some(header.seq), id: Some(header.id), part: 0 }
    }

    /// Returns the position inside the next record, after its first `part` events.
    pub(crate) fn inside(self, next: &RecordHeader, part: u32) -> Self {
        let id = match self.last {
            None => Some(next.id),
            Some(_) => self.id.or(next.prev),
        };
        Self { id, part, ..self }
    }

    /// Returns the position before the oldest remaining record.
    pub(crate) fn before(oldest: Seq, prev: Option<RecordId>) -> Self {
        let last = oldest.get().checked_sub(1).map(Seq::new);
        Self { last, id: prev.filter(|_| last.is_some()), part: 0 }
    }

    /// Returns whether the next record belongs to the same start of the run.
    pub(crate) fn leads_to(&self, next: &RecordHeader) -> bool {
        match (self.last, self.id) {
            (_, None) => true,
            (None, Some(id)) => next.seq != Seq::new(0) || next.id == id,
            (Some(_), Some(id)) => next.prev == Some(id),
        }
    }

    /// Returns whether all events of the record were delivered, and no event of the next record.
    pub(crate) fn is_at(&self, head: HeadRef) -> bool {
        self.last == Some(head.seq) && self.id.is_none_or(|id| id == head.id)
    }
}

impl From<HeadRef> for LogCursor {
    fn from(head: HeadRef) -> Self {
        Self { last: Some(head.seq), id: Some(head.id), part: 0 }
    }
}

/// A cursor: the position of a watch after the last delivered event. A later watch can continue there.
///
/// The cursor contains the number and the id of the last delivered record. So it does not match a later run that has the same run id. If the watch
/// includes children, the cursor also contains the position of each active child. You can use its text as the `id` of a server-sent event, which a
/// browser sends back as `Last-Event-ID`.
///
/// ```
/// use ferrata_core::Seq;
/// use ferrata_core::runtime::WatchCursor;
///
/// let cursor: WatchCursor = "17".parse()?;
/// assert_eq!(cursor.seq(), Some(Seq::new(17)));
/// assert_eq!(cursor, WatchCursor::from(Seq::new(17)));
/// # Ok::<(), ferrata_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchCursor {
    pub(crate) root: LogCursor,
    /// The active children.
    pub(crate) children: BTreeMap<RunId, LogCursor>,
}

impl WatchCursor {
    /// Returns the last record of the watched run whose events were all delivered. Returns `None` if no record was fully delivered yet.
    pub fn seq(&self) -> Option<Seq> {
        self.root.last
    }
}

impl From<Seq> for WatchCursor {
    /// Creates the position after the record with this number, without the id of the record.
    fn from(seq: Seq) -> Self {
        Self { root: LogCursor { last: Some(seq), id: None, part: 0 }, children: BTreeMap::new() }
    }
}

/// The text of the position before the first record.
const NONE: &str = "-";

impl fmt::Display for LogCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last {
            Some(seq) => write!(f, "{seq}")?,
            None => f.write_str(NONE)?,
        }
        match (self.id, self.part) {
            (None, 0) => Ok(()),
            (Some(id), 0) => write!(f, "/{}", id.as_uuid().simple()),
            (None, part) => write!(f, "//{part}"),
            (Some(id), part) => write!(f, "/{}/{part}", id.as_uuid().simple()),
        }
    }
}

impl FromStr for LogCursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || {
            Error::new(
                ErrorKind::Invalid,
                "the text is not a cursor of a watcher; use a cursor that a watcher returned",
            )
        };
        let mut parts = text.split('/');
        let last = match parts.next() {
            Some(NONE) => None,
            Some(seq) if seq.bytes().all(|byte| byte.is_ascii_digit()) => {
                Some(Seq::new(seq.parse().map_err(|_| bad())?))
            }
            _ => return Err(bad()),
        };
        let id = match parts.next() {
            None | Some("") => None,
            Some(id) => Some(id.parse().map_err(|_| bad())?),
        };
        let part = parts.next().map_or(Ok(0), |part| part.parse().map_err(|_| bad()))?;
        match parts.next() {
            None => Ok(Self { last, id, part }),
            Some(_) => Err(bad()),
        }
    }
}

impl fmt::Display for WatchCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.root)?;
        self.children.iter().try_for_each(|(run, place)| write!(f, ",{run}={place}"))
    }
}

impl FromStr for WatchCursor {
    type Err = Error;

    /// Parses the text of a cursor, or the number of a record.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if it is neither.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut parts = text.split(',');
        let root = parts.next().unwrap_or_default().parse()?;
        let child = |part: &str| {
            let (run, place) = part.split_once('=').ok_or_else(|| {
                Error::new(ErrorKind::Invalid, "the text is not a cursor of a watcher: a child has no position; use a cursor that a watcher \
                    returned")
            })?;
            Ok((RunId::new(run)?, place.parse()?))
        };
        Ok(Self { root, children: parts.map(child).collect::<Result<_, Error>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let id = RecordId::from_uuid(uuid::Uuid::from_u128(7));
        let places = [
            LogCursor::default(),
            LogCursor { part: 2, ..LogCursor::default() },
            LogCursor { id: Some(id), part: 2, ..LogCursor::default() },
            LogCursor { last: Some(Seq::new(u64::MAX)), id: None, part: 0 },
            LogCursor { last: Some(Seq::new(0)), id: Some(id), part: 0 },
            LogCursor { last: Some(Seq::new(12)), id: Some(id), part: 9 },
        ];
        for root in places {
            for child in places {
                let children = [(RunId::new("a:b-1.x_y").unwrap(), child), (RunId::new("c").unwrap(), root)];
                for children in [BTreeMap::new(), children.into_iter().collect()] {
                    let cursor = WatchCursor { root, children };
                    let text = cursor.to_string();
                    assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "fit for a header: {text}");
                    assert_eq!(text.parse::<WatchCursor>().unwrap(), cursor, "{text}");
                }
            }
        }
        let wrong = ["", "x", "-1", "1/", "1/x", "1//x", "1///", "1,", "1,a", "1,=2", "1,a=", "1 ", "+1"];
        for text in wrong.into_iter().filter(|text| *text != "1/") {
            let error = text.parse::<WatchCursor>().expect_err(text);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
        }
    }
}
