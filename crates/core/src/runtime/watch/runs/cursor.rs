//! Where a watcher of many runs goes on: up to when it was told, and the place in each run that says more than that.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::super::cursor::LogCursor;
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind};
use crate::id::{RunId, RunKey, TenantId};
use crate::store::RunPlace;

/// Where a watcher of many runs goes on: behind what it was told.
///
/// It is a time, and the place in each run that was told of later than that: as large as the runs are many that did something in the last
/// minute, some 90 bytes for each, however many runs there are. [`RunsWatchRequest`](super::RunsWatchRequest) says what that promises.
///
/// It holds no conditions: with another query, a watcher goes on with the runs that this one selects, from the same time on.
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
    /// Of runs that are not named, everything was told that was recorded up to then.
    pub(super) low: Timestamp,
    /// What is under way to catch up.
    pub(super) catch_up: Option<CatchUp>,
    /// Where the runs stand of which more was told, or a part of a record.
    pub(super) places: BTreeMap<RunKey, LogCursor>,
}

/// Going through all runs, in the order of their creation, to tell of each what was recorded up to some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CatchUp {
    /// Up to when.
    pub(super) high: Timestamp,
    /// The last run of which that was told.
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

    /// Reads the text of a cursor.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it is none.
    fn from_str(text: &str) -> Result<Self, Error> {
        read(text).ok_or_else(|| {
            let message = "not a cursor of a watcher of many runs; take one that such a watcher gave";
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
