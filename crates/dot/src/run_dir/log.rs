//! Reads the log of a run. `docs/reference/format.md` describes the format; this module reads only the parts that the views need.

use std::sync::Arc;

use ferrata_core::record::{Record, RecordHeader};
use ferrata_core::state::Patch;
use ferrata_core::store::{At, CheckpointStore, HeaderRange};
use ferrata_core::{Error, ErrorKind, RunKey, Seq};
use serde::Deserialize;
use serde_json::Value as Json;
use serde_json::value::RawValue;

/// The body of a record.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LoggedBody {
    pub(super) done: Vec<StageEnd>,
    pub(super) patch: Option<Patch>,
    pub(super) base: Option<LoggedBase>,
    pub(super) node: Option<String>,
    pub(super) visit: Option<u32>,
    pub(super) name: Option<String>,
    pub(super) failed: u32,
    pub(super) failure: Option<LoggedCause>,
    pub(super) retry_at: Option<i64>,
    pub(super) executor: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) by: Option<String>,
    pub(super) what: Json,
    pub(super) change: Json,
}

/// The complete state after the record.
#[derive(Debug, Deserialize)]
pub(super) struct LoggedBase {
    pub(super) state: Box<RawValue>,
}

/// An activation that has ended.
#[derive(Debug, Deserialize)]
pub(super) struct StageEnd {
    pub(super) node: String,
    pub(super) visit: u32,
    #[serde(default = "one")]
    pub(super) attempts: u32,
    #[serde(default)]
    pub(super) took_ms: u64,
    #[serde(default)]
    pub(super) failure: Option<LoggedCause>,
    #[serde(default)]
    pub(super) output: Option<Arc<RawValue>>,
    #[serde(default)]
    pub(super) notes: Option<String>,
    #[serde(default)]
    pub(super) fired: Vec<Json>,
    #[serde(default)]
    pub(super) end: Option<Json>,
}

/// The cause of a failure.
#[derive(Debug, Deserialize)]
pub(super) struct LoggedCause {
    pub(super) message: String,
}

fn one() -> u32 {
    1
}

impl StageEnd {
    /// Returns the first nodes of the branches that began. A node with items occurs once for each item.
    pub(super) fn branches(&self) -> Vec<String> {
        let mut branches = Vec::new();
        for to in &self.fired {
            match (to.as_str().or_else(|| to.get("to")?.as_str()), to.get("items").and_then(Json::as_array)) {
                (Some(node), Some(items)) => {
                    branches.extend((0..items.len()).map(|at| format!("{node}:{at}")))
                }
                (Some(node), None) => branches.push(node.to_owned()),
                _ => {}
            }
        }
        branches
    }

    /// Returns the nodes to which the run returned on purpose, each with the reason.
    pub(super) fn replans(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fired.iter().filter_map(|to| Some((to.get("to")?.as_str()?, to.get("reason")?.as_str()?)))
    }

    /// Returns the nodes to which the run went next.
    pub(super) fn led_to(&self) -> Vec<&str> {
        self.fired.iter().filter_map(|to| to.as_str().or_else(|| to.get("to")?.as_str())).collect()
    }
}

impl LoggedBody {
    /// Parses the body of a record.
    ///
    /// # Errors
    ///
    /// The errors of [`Record::verify`], and [`ErrorKind::Corrupt`] if the body does not match the format.
    pub(super) fn of(run: &RunKey, record: &Record) -> Result<Self, Error> {
        record.verify(run)?;
        serde_json::from_slice(&record.body).map_err(|source| {
            let RecordHeader { seq, kind, .. } = record.header;
            let message =
                format!("the body does not match the record kind {kind:?}; restore the run from a backup");
            Error::new(ErrorKind::Corrupt, message).with_run(run).with_seq(seq).with_source(source)
        })
    }

    /// Returns the name of the change or signal. If the change is an object with one key, also returns the value of this key.
    pub(super) fn change_name(&self) -> (&str, &Json) {
        const NOTHING: &Json = &Json::Null;
        match self.change.get("what").unwrap_or(&self.change) {
            Json::String(word) => (word, NOTHING),
            Json::Object(what) => what.iter().next().map_or(("", NOTHING), |(word, more)| (word, more)),
            _ => ("", NOTHING),
        }
    }
}

/// Reads the records after a position, in order. Without a position, reads from the oldest existing record, which is a base.
///
/// # Errors
///
/// The errors of [`CheckpointStore::load`] and [`CheckpointStore::headers`], and [`ErrorKind::NotFound`] if the run does not exist.
pub(super) async fn after(
    store: &dyn CheckpointStore,
    run: &RunKey,
    seen: Option<Seq>,
) -> Result<Vec<Record>, Error> {
    let latest = store
        .load(run, At::Latest)
        .await?
        .ok_or_else(|| Error::new(ErrorKind::NotFound, "the run does not exist").with_run(run))?;
    let from = seen.map_or(0, |seen| seen.get() + 1);
    let begins = latest.first().map_or(0, |first| first.header.seq.get());
    let mut records = Vec::new();
    if begins > from {
        for end in ends(store, run, begins).await?.into_iter().filter(|end| end.get() >= from) {
            match store.load(run, At::Seq(end)).await {
                Ok(part) => records.extend(part.unwrap_or_default()),
                // The records were pruned after they were listed.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    records.extend(latest);
    records.retain(|record| record.header.seq.get() >= from);
    Ok(records)
}

/// Lists the last record before each base, beginning with the oldest.
async fn ends(store: &dyn CheckpointStore, run: &RunKey, last: u64) -> Result<Vec<Seq>, Error> {
    let mut ends = Vec::new();
    let mut before = None;
    let mut range = Some(HeaderRange::oldest(HeaderRange::MAX));
    while let Some(asked) = range {
        let found = store.headers(run, asked).await?;
        range = asked.after(&found);
        for header in found.items {
            if header.base {
                ends.extend(before);
            }
            if header.seq.get() >= last {
                return Ok(ends);
            }
            before = Some(header.seq);
        }
    }
    Ok(ends)
}
