//! Resealing of records: one script for each, which replaces only records that are unchanged since they were read.

use ferrata_store::{Record, Result, RunKey, check_reseal, has_place, refusal};

use crate::error::{RedisCallEffect, RedisStoreError};
use crate::header::{header_of, read, write_header};
use crate::link::RedisCall;
use crate::read::ScriptRun;
use crate::scripts::{AT, RESEAL};
use crate::store::RedisInner;

impl RedisInner {
    pub(crate) async fn reseal(&self, run: &RunKey, records: &[Record]) -> Result<u64> {
        const OPERATION: &str = "store.reseal";
        check_reseal(run, records)?;
        let mut replaced = 0;
        for record in records {
            let one = self.reseal_one(run, record).await;
            match one.map_err(|fault| fault.of_run(OPERATION, run, RedisCallEffect::Written))? {
                Some(is_replaced) => replaced += u64::from(is_replaced),
                None => return Err(refusal::no_run(OPERATION, run)),
            }
        }
        Ok(replaced)
    }

    /// Replaces a record. Returns whether it was replaced; `None` if the run does not exist.
    async fn reseal_one(&self, run: &RunKey, record: &Record) -> Result<Option<bool>, RedisStoreError> {
        let (key, seq) = (self.layout.run(run), record.header.seq);
        let look = RedisCall::script(&AT, key.clone()).arg(seq.to_string());
        let found = match self.link.call(look).await.and_then(ScriptRun::of)? {
            ScriptRun::Yes(mut reply) => reply.bytes()?,
            ScriptRun::Absent => return Ok(None),
            _ => return Ok(Some(false)),
        };
        if !has_place(&header_of(&found, Some(seq))?, &record.header) {
            return Ok(Some(false));
        }
        let header = write_header(&record.header, read(&found, Some(seq))?.1)?;
        let call = RedisCall::script(&RESEAL, key).arg(seq.to_string()).arg(found).arg(header);
        match self.link.call(call.arg(record.body.clone())).await.and_then(ScriptRun::of)? {
            ScriptRun::Yes(_) => Ok(Some(true)),
            ScriptRun::Absent => Ok(None),
            // The record was pruned or purged meanwhile, or another call has replaced its envelope.
            _ => Ok(Some(false)),
        }
    }
}
