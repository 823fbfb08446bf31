//! The position of a watch of many runs. It consists of a time, and of positions in runs with events after this time.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::super::cursor::LogCursor;
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind};
use crate::id::{RunId, RunKey, TenantId};
use crate::store::RunPlace;

/// A cursor: the position of a watch of many runs after the last delivered event. A later watch can continue there.
///
/// The cursor consists of a time, and of a position in each run that has delivered later events. Its size does not depend on the total number of
/// runs: it grows by about 90 bytes for each run that was active in the last minute. [`RunsWatchRequest`](super::RunsWatchRequest) describes its
/// guarantees.
///
/// The cursor does not contain the query. If you continue with another query, the watch delivers events of the runs that this query selects, from the
/// same time on.
///
/// ```
/// use ferrata_core::runtime::RunsCursor;
///
/// let cursor: RunsCursor = "1732000000000,default/o-1=17".parse()?;
/// assert_eq!(cursor.to_string(), "1732000000000,default/o-1=17");
/// # Ok::<(), ferrata_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunsCursor {
    /// The time up to which all records were delivered, for runs that have no position of their own in the cursor.
    pub(super) low: Timestamp,
    /// The catch-up that is in progress, if there is one.
    pub(super) catch_up: Option<CatchUp>,
    /// The positions of runs with later or partial deliveries.
    pub(super) places: BTreeMap<RunKey, LogCursor>,
}

/// A catch-up: a pass over all runs in the order of their creation, which delivers all records up to a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CatchUp {
    /// The time up to which the catch-up delivers records.
    pub(super) high: Timestamp,
    /// The last run for which the catch-up is complete.
    pub(super) behind: Option<RunPlace>,
}

impl fmt::Display for RunsCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.low.unix_ms())?;
        if let Some(CatchUp { high, behind }) = &self.catch_up {
            write!(f, ";{}", high.unix_ms())?;
            if let Some(RunPlace { created, run }) = behind {
                write!(f, ";{};{run}", created.unix_ms())?;
            }
        }
        self.places.iter().try_for_each(|(run, place)| write!(f, ",{run}={place}"))
    }
}

impl FromStr for RunsCursor {
    type Err = Error;

    /// Parses the text of a cursor.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the text is not a cursor.
    fn from_str(text: &str) -> Result<Self, Error> {
        read(text).ok_or_else(|| {
            let message = "the text is not a cursor of a watcher of many runs; use a cursor that such a watcher returned";
            Error::new(ErrorKind::Invalid, message)
        })
    }
}

fn read(text: &str) -> Option<RunsCursor> {
    let time = |text: &str| text.parse().ok().map(Timestamp::from_unix_ms);
    let run = |text: &str| {
        let (tenant, run) = text.split_once('/')?;
        Some(RunKey::new(TenantId::new(tenant).ok()?, RunId::new(run).ok()?))
    };
    let mut parts = text.split(',');
    let mut times = parts.next()?.split(';');
    let low = time(times.next()?)?;
    let catch_up = match (times.next(), times.next(), times.next(), times.next()) {
        (None, ..) => None,
        (Some(high), None, ..) => Some(CatchUp { high: time(high)?, behind: None }),
        (Some(high), Some(created), Some(last), None) => {
            let behind = RunPlace { created: time(created)?, run: run(last)? };
            Some(CatchUp { high: time(high)?, behind: Some(behind) })
        }
        _ => return None,
    };
    let place = |part: &str| {
        let (key, place) = part.split_once('=')?;
        Some((run(key)?, place.parse().ok()?))
    };
    Some(RunsCursor { low, catch_up, places: parts.map(place).collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{RecordId, Seq};

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let key = |run: &str| RunKey::new(TenantId::new("t:.-_").unwrap(), RunId::new(run).unwrap());
        let id = RecordId::from_uuid(uuid::Uuid::from_u128(7));
        let place = LogCursor { last: Some(Seq::new(12)), id: Some(id), part: 9 };
        let (early, late) = (Timestamp::from_unix_ms(i64::MIN), Timestamp::from_unix_ms(i64::MAX));
        let behind = RunPlace { created: Timestamp::from_unix_ms(-5), run: key("a:b-1.x_y") };
        let ways = [
            None,
            Some(CatchUp { high: late, behind: None }),
            Some(CatchUp { high: late, behind: Some(behind) }),
        ];
        for catch_up in ways {
            for places in
                [BTreeMap::new(), BTreeMap::from([(key("a"), place), (key("b:1"), LogCursor::default())])]
            {
                let cursor = RunsCursor { low: early, catch_up: catch_up.clone(), places };
                let text = cursor.to_string();
                assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "fit for a header: {text}");
                assert_eq!(text.parse::<RunsCursor>().unwrap(), cursor, "{text}");
            }
        }
        for text in
            ["", "x", "1;", "1;2;3", "1;2;3;a", "1;2;3;t/a;5", "1,", "1,t/a", "1,a=2", "1,t/a=x", "1 "]
        {
            let error = text.parse::<RunsCursor>().expect_err(text);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
        }
    }
}
