//! Reads one run: its head, its records, or its headers.

use bytes::Bytes;
use ferrata_store::{
    Anchor, At, HeadRef, HeaderRange, Headers, Record, RecordHeader, Result, RunHead, RunKey, Seq,
    check_asked, check_loaded, check_news, refusal,
};
use redis::Value;

use crate::entry::{StoredHead, records_of};
use crate::error::{RedisCallEffect, RedisStoreError};
use crate::header::header_of;
use crate::link::RedisCall;
use crate::reply::{ReplyParts, bytes};
use crate::scripts::{HEADERS, LOAD, SINCE};
use crate::store::RedisInner;

/// The status of the run in a script's reply. The requested data follows in the reply.
pub(crate) enum ScriptRun {
    Yes(ReplyParts),
    /// The run does not exist.
    Absent,
    /// The run has no such record.
    Missing,
    /// The run is already pruned beyond this record.
    Pruned,
    /// A writer changed the run meanwhile.
    Changed,
    /// The run's head is not the expected head. The header of the actual head follows.
    Differs(ReplyParts),
}

impl ScriptRun {
    pub(crate) fn of(reply: Value) -> Result<Self, RedisStoreError> {
        let mut reply = ReplyParts::of(reply)?;
        Ok(match reply.text()?.as_str() {
            "ok" => Self::Yes(reply),
            "absent" => Self::Absent,
            "missing" => Self::Missing,
            "pruned" => Self::Pruned,
            "changed" => Self::Changed,
            "differs" => Self::Differs(reply),
            "hole" => {
                return Err(RedisStoreError::corrupt(
                    Some(Seq::new(reply.number()?)),
                    "the record is missing",
                ));
            }
            "broken" => return Err(RedisStoreError::corrupt(None, "the run's list has no record")),
            "stranger" => return Err(RedisStoreError::wrong_run()),
            other => return Err(RedisStoreError::strange(format!("a script returned {other:?}"))),
        })
    }
}

impl RedisInner {
    pub(crate) async fn run_head(&self, run: &RunKey) -> Result<Option<RunHead>, RedisStoreError> {
        let reply = self.link.call(self.head_call(run)).await?;
        let Some(head) = StoredHead::read(run, reply)? else { return Ok(None) };
        let is_alive = match &head.last.owner {
            Some(owner) => {
                let reply =
                    self.link.call(RedisCall::plain(&["EXISTS"], self.layout.executor(owner))).await?;
                reply == Value::Int(1)
            }
            None => false,
        };
        Ok(Some(head.into_run_head(run.clone(), is_alive)))
    }

    pub(crate) async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        const OPERATION: &str = "store.load";
        let call = RedisCall::script(&LOAD, self.layout.run(run));
        let call = match at {
            At::Latest => call.arg("latest").arg(""),
            At::Seq(seq) => call.arg("seq").arg(seq.to_string()),
            At::Record(id) => call.arg("id").arg(Bytes::copy_from_slice(id.as_uuid().as_bytes())),
        };
        let found = self.link.call(call).await.and_then(ScriptRun::of);
        let records = match found.map_err(|fault| fault.of_run(OPERATION, run, RedisCallEffect::None))? {
            ScriptRun::Yes(reply) => loaded(reply),
            ScriptRun::Absent => return Ok(None),
            _ => {
                return Err(refusal::no_record(OPERATION, run, at));
            }
        };
        let records = records.map_err(|fault| fault.of_run(OPERATION, run, RedisCallEffect::None))?;
        let (last, records) = records;
        let verified = records.iter().try_for_each(|record| record.verify(run));
        check_loaded(run, &records, last)
            .and(verified)
            .and_then(|()| check_asked(run, at, &records))
            .map_err(|error| error.with_operation(OPERATION))?;
        Ok(Some(records))
    }

    /// Loads the records after `known`. Loads from the newest base on if the run does not have `known` any more.
    pub(crate) async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        const OPERATION: &str = "store.load";
        let call = RedisCall::script(&SINCE, self.layout.run(run)).arg(known.seq.to_string());
        let call = call.arg(Bytes::copy_from_slice(known.id.as_uuid().as_bytes()));
        let found = self.link.call(call).await.and_then(ScriptRun::of);
        let records = match found.map_err(|fault| fault.of_run(OPERATION, run, RedisCallEffect::None))? {
            ScriptRun::Yes(reply) => loaded(reply),
            ScriptRun::Absent => return Ok(None),
            _ => return self.load(run, At::Latest).await,
        };
        let (_, records) = records.map_err(|fault| fault.of_run(OPERATION, run, RedisCallEffect::None))?;
        let verified = records.iter().try_for_each(|record| record.verify(run));
        check_news(run, known, &records).and(verified).map_err(|error| error.with_operation(OPERATION))?;
        Ok(Some(records))
    }

    pub(crate) async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        const OPERATION: &str = "store.headers";
        let (anchor, seq) = match range.anchor() {
            Anchor::From(seq) => ("from", seq),
            Anchor::UpTo(seq) => ("upto", seq),
        };
        let call = RedisCall::script(&HEADERS, self.layout.run(run))
            .arg(anchor)
            .arg(seq.to_string())
            .arg(range.limit().to_string());
        let found = self.link.call(call).await.and_then(ScriptRun::of);
        match found.map_err(|fault| fault.of_run(OPERATION, run, RedisCallEffect::None))? {
            ScriptRun::Yes(reply) => {
                let (kept, items) = listed(reply, range)
                    .map_err(|fault| fault.of_run(OPERATION, run, RedisCallEffect::None))?;
                Headers::checked(run, range, kept, items)
            }
            _ => Err(refusal::no_run(OPERATION, run)),
        }
    }
}

/// Parses the reply after `ok`: the first and the last number, and headers and bodies.
fn loaded(mut reply: ReplyParts) -> Result<(Seq, Vec<Record>), RedisStoreError> {
    let (_, last) = (reply.number()?, reply.number()?);
    Ok((Seq::new(last), records_of(reply.parts()?)?))
}

/// Parses the reply after `ok`: the numbers of the first and the last stored record, and headers from the anchor of the range on.
fn listed(
    mut reply: ReplyParts,
    range: HeaderRange,
) -> Result<((Seq, Seq), Vec<RecordHeader>), RedisStoreError> {
    let kept = (Seq::new(reply.number()?), Seq::new(reply.number()?));
    let Some((begin, end)) = range.within(kept.0, kept.1) else { return Ok((kept, Vec::new())) };
    let is_up = matches!(range.anchor(), Anchor::From(_));
    let mut items = Vec::with_capacity(reply.len());
    let mut expected = if is_up { begin.get() } else { end.get() };
    for header in reply {
        items.push(header_of(&bytes(header)?, Some(Seq::new(expected)))?);
        expected = if is_up { expected + 1 } else { expected.saturating_sub(1) };
    }
    if !is_up {
        items.reverse();
    }
    Ok((kept, items))
}
