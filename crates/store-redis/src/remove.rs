//! Prunes and purges. Each is one script, so that it is never half done.

use bytes::Bytes;
use ferrata_store::codec::binary::beginning;
use ferrata_store::{Error, ErrorKind, HeadRef, PruneCut, Removed, Result, RunKey, check_prune, refusal};

use crate::entry::RunFactsEntry;
use crate::error::{RedisCallEffect, RedisStoreError};
use crate::header::{header_of, write_header};
use crate::index::Index;
use crate::layout::{Member, name};
use crate::link::RedisCall;
use crate::read::ScriptRun;
use crate::reply::ReplyParts;
use crate::scripts::{AT, PRUNE, PURGE};
use crate::store::RedisInner;

/// The maximum number of attempts of a prune. A new attempt is needed if another caller pruned the same run meanwhile.
const ATTEMPTS: usize = 16;

impl RedisInner {
    pub(crate) async fn prune(&self, run: &RunKey, cut: &PruneCut) -> Result<Removed> {
        const OPERATION: &str = "store.prune";
        let fail = |fault: RedisStoreError| fault.of_run(OPERATION, run, RedisCallEffect::Written);
        let key = self.layout.run(run);
        for _ in 0..ATTEMPTS {
            let look = RedisCall::script(&AT, key.clone()).arg(cut.at.to_string());
            let found = match self.link.call(look).await.and_then(ScriptRun::of) {
                Ok(ScriptRun::Yes(mut reply)) => reply.bytes().map_err(fail)?,
                Ok(ScriptRun::Pruned) => return Ok(Removed::default()),
                Ok(ScriptRun::Absent) => return Err(refusal::no_run(OPERATION, run)),
                Ok(_) => {
                    let message = format!("the run has no record {}; it was never written", cut.at);
                    return Err(Error::new(ErrorKind::NotFound, message)
                        .with_operation(OPERATION)
                        .with_run(run));
                }
                // The call sent no write.
                Err(fault) => return Err(fault.of_run(OPERATION, run, RedisCallEffect::None)),
            };
            let kept = header_of(&found, Some(cut.at)).map_err(fail)?;
            let base = check_prune(run, &kept, cut)?;
            let (header, body) = match base {
                Some(base) => (write_header(&base.header, base.header.seq).map_err(fail)?, base.body.clone()),
                None => (Bytes::new(), Bytes::new()),
            };
            let call = RedisCall::script(&PRUNE, key.clone())
                .arg(cut.at.to_string())
                .arg(found)
                .arg(header)
                .arg(body);
            let said = self.link.call(self.with_notice(call, run)).await.and_then(ScriptRun::of);
            match said.map_err(fail)? {
                ScriptRun::Yes(mut reply) => {
                    let (records, bytes) = (reply.number().map_err(fail)?, reply.number().map_err(fail)?);
                    return Ok(Removed { records, bytes });
                }
                ScriptRun::Absent => return Err(refusal::no_run(OPERATION, run)),
                _ => {}
            }
        }
        let message = "other processes kept cutting the run; retry";
        Err(Error::new(ErrorKind::Unavailable, message).with_operation(OPERATION).with_run(run))
    }

    pub(crate) async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        const OPERATION: &str = "store.purge";
        let fail = |fault: RedisStoreError| fault.of_run(OPERATION, run, RedisCallEffect::None);
        let index = self.index().await.map_err(fail)?;
        let beginning = expected.as_ref().map(beginning).unwrap_or_default();
        let call = RedisCall::script(&PURGE, self.layout.run(run)).arg(beginning);
        let reply = self.link.call(self.with_notice(call, run)).await;
        match reply.and_then(ScriptRun::of).map_err(fail)? {
            ScriptRun::Yes(reply) => self.purged(run, index, reply).await.map_err(fail),
            ScriptRun::Differs(mut reply) => {
                let head = reply.bytes().and_then(|head| header_of(&head, None)).map_err(fail)?;
                Err(refusal::conflict(run, expected, Some(head.head())).with_operation(OPERATION))
            }
            _ => Err(fail(RedisStoreError::strange("the purge script returned an unknown reply"))),
        }
    }

    /// Removes the index entries of a run after the removal of its key.
    async fn purged(
        &self,
        run: &RunKey,
        index: &Index,
        mut reply: ReplyParts,
    ) -> Result<Removed, RedisStoreError> {
        let purged = Removed { records: reply.number()?, bytes: reply.number()? };
        self.known.remove(run);
        // Without a readable member, the run was damaged or did not exist. Readers later remove its index entries.
        let said = RunFactsEntry::read(run, &reply.bytes()?).ok();
        if let Some(member) = said.and_then(|said| Member::parse(said.member.as_bytes())) {
            self.link.call(index.remove_call(run, &member)).await?;
        }
        Ok(purged)
    }

    fn with_notice(&self, call: RedisCall, run: &RunKey) -> RedisCall {
        let channel = if self.options.notices { self.layout.channel() } else { Bytes::new() };
        call.arg(channel).arg(name(run))
    }
}
