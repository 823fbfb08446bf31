//! Setup: checks the servers' settings and permissions, and compares the index with the runs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferrata_store::index::RunStanding;
use ferrata_store::{IdSource as _, RandomIds};
use redis::Value;
use tokio::runtime::Handle;

use crate::config::MAX_KEEP;
use crate::entry::StoredHead;
use crate::error::{RedisCallEffect, RedisStoreError};
use crate::index::{Index, Placement};
use crate::layout::{Member, fixed_places, place};
use crate::link::{RedisCall, RedisNode};
use crate::persistence;
use crate::reply::{ReplyParts, bytes};
use crate::scripts::{APPEND, PURGE};
use crate::store::{RedisInner, RedisStore};

/// The number of keys that the server scans in one step: some milliseconds.
const STEP: &str = "1000";

/// The number of slots in the test for a single server. If two servers share the slots, the test wrongly finds all of these on one server in one of
/// 30,000 cases.
const PROBES: u16 = 16;

/// How long a repairing process may be silent before another process may start the repair.
const SILENCE: Duration = Duration::from_secs(600);

impl RedisStore {
    /// Compares the index with the runs, adds missing entries and removes stale entries. Returns the number of runs.
    ///
    /// `setup` does this periodically ([`RedisOptions::repair_every`](crate::RedisOptions::repair_every)). Call it after entries of the index were
    /// lost: after a restore from a backup, or a failover to a lagging replica. It is safe at any time, and runs stay active meanwhile.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`](ferrata_store::ErrorKind::Unavailable): the repair is incomplete; call it again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped repair keeps what it has done so far.
    pub async fn repair(&self) -> ferrata_store::Result<u64> {
        let repair = self.inner.repair().await;
        repair.map_err(|fault| fault.into_error("store.repair", RedisCallEffect::None))
    }
}

impl RedisInner {
    pub(crate) async fn setup(self: &Arc<Self>) -> Result<(), RedisStoreError> {
        let began = self.clock.monotonic();
        let mut found: Option<persistence::Persistence> = None;
        for node in self.link.primaries().await? {
            let settings = persistence::read_settings(&node).await?;
            if let Some(objection) = settings.objection() {
                return Err(RedisStoreError::Unfit { what: format!("{} {objection}", node.name) });
            }
            if self.options.replicas > 0 {
                // This tests only the permission for `WAIT`: zero replicas need no wait.
                node.ask(redis::cmd("WAIT").arg(0).arg(1).to_owned()).await?;
            }
            found = Some(found.map_or(settings.persistence, |found| found.min(settings.persistence)));
        }
        self.record_fit(began);
        let found = found.unwrap_or(persistence::Persistence::Unknown);
        if self.persistence.set(found).is_ok() {
            let replicas = self.options.replicas;
            if found.is_durable() {
                tracing::info!(servers = ?self.link.seeds(), replicas, "{found}");
            } else {
                tracing::warn!(servers = ?self.link.seeds(), replicas, "{found}");
            }
        }
        let index = self.index().await?;
        self.probe(index).await?;
        self.repair_if_due().await
    }

    /// Writes test runs in each shard, adds them to the index and removes them again. A user without the permission for some of this would leave
    /// runs half written, so setup must find out. Also finds out whether one script may use the keys of several runs.
    async fn probe(&self, index: &Index) -> Result<(), RedisStoreError> {
        // Each call uses its own id, because several processes may do this at the same time.
        let id = RandomIds::new().next(self.now().await?);
        let shards = if self.link.is_cluster() { index.shards() } else { PROBES };
        let key = |shard| Bytes::from(format!("{}probe-{id}", self.layout.shard(shard)));
        // No expected head, one empty record, and an expiry of a minute.
        let common = self.common();
        let write = |shard| {
            let call = RedisCall::each(&APPEND, &common, key(shard));
            ["", "1;60000;0", "{}", "probe", ""].into_iter().fold(call, RedisCall::arg)
        };
        if !self.link.is_cluster() && self.are_together((0..shards).map(&write).collect()).await? {
            self.link.record_single_server();
        }
        let writes = (0..shards).map(write).collect();
        let removals =
            (0..shards).map(|shard| RedisCall::script(&PURGE, key(shard)).arg("").arg("")).collect();
        let enter = (0..index.shards()).map(|shard| index.probe("announce", shard)).collect();
        let leave = (0..index.shards()).map(|shard| index.probe("forget", shard)).collect();
        for calls in [writes, removals, enter, leave] {
            for reply in self.link.many(calls, None).await {
                reply?;
            }
        }
        Ok(())
    }

    /// Returns whether one server has the keys of all these calls, which are in distinct slots. One script writes all the keys; then separate
    /// commands must find every write.
    ///
    /// A proxy that distributes keys over servers refuses such a script, or sends all of it to the server of its first key. Misplaced keys expire
    /// after a minute.
    async fn are_together(&self, writes: Vec<RedisCall>) -> Result<bool, RedisStoreError> {
        let keys: Vec<Bytes> = writes.iter().map(|call| call.key().clone()).collect();
        for reply in self.link.many_as_one(&writes).await {
            match reply {
                Ok(_) => {}
                Err(fault) if fault.code() == Some("CROSSSLOT") => return Ok(false),
                Err(fault) => return Err(fault),
            }
        }
        let reads = keys.into_iter().map(|key| RedisCall::plain(&["EXISTS"], key)).collect();
        let mut found = true;
        for reply in self.link.many(reads, None).await {
            found &= reply? == Value::Int(1);
        }
        Ok(found)
    }

    /// If a repair is due, runs it in the background. Only one process does so.
    async fn repair_if_due(self: &Arc<Self>) -> Result<(), RedisStoreError> {
        if self.options.repair_every.is_zero() {
            return self.repair().await.map(drop);
        }
        let silence = SILENCE.as_millis().to_string();
        let claim = RedisCall::plain(&["SET"], self.layout.repaired())
            .arg("running")
            .arg("NX")
            .arg("PX")
            .arg(silence);
        if self.link.call(claim).await? == Value::Nil {
            return Ok(());
        }
        let shared = Arc::clone(self);
        let beside = async move {
            // If the process ends first, or the repair fails, another process may start when the claim has expired.
            match shared.repair_and_mark().await {
                Ok(runs) => tracing::debug!(runs, "checked the index against the runs"),
                Err(fault) => {
                    tracing::warn!(%fault, "could not check the index against the runs; will retry")
                }
            }
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(beside)),
            Err(_) => beside.await,
        }
        Ok(())
    }

    async fn repair_and_mark(&self) -> Result<u64, RedisStoreError> {
        let runs = self.repair().await?;
        let ms = self.options.repair_every.min(MAX_KEEP).as_millis().max(1).to_string();
        // Only while the claim exists.
        let mark = RedisCall::plain(&["SET"], self.layout.repaired()).arg("done").arg("XX").arg("PX").arg(ms);
        self.link.call(mark).await?;
        Ok(runs)
    }

    pub(crate) async fn repair(&self) -> Result<u64, RedisStoreError> {
        let index = self.index().await?;
        let mut runs = 0;
        for node in self.link.primaries().await? {
            let mut cursor = "0".to_owned();
            loop {
                let mut scan = redis::cmd("SCAN");
                scan.arg(&cursor).arg("MATCH").arg(&self.layout.runs()[..]).arg("COUNT").arg(STEP);
                let keys = step(&node, scan, &mut cursor).await?;
                runs += self.enter(index, keys).await?;
                if cursor == "0" {
                    break;
                }
                let alive = RedisCall::plain(&["PEXPIRE"], self.layout.repaired())
                    .arg(SILENCE.as_millis().to_string());
                self.link.call(alive).await?;
            }
        }
        for catalog in index.keys(place::CATALOG) {
            self.clear(index, catalog).await?;
        }
        Ok(runs)
    }

    /// Adds the runs of these keys to their index sets.
    async fn enter(&self, index: &Index, keys: Vec<Value>) -> Result<u64, RedisStoreError> {
        let mut runs = Vec::new();
        for key in keys {
            runs.extend(self.layout.run_of_key(&bytes(key)?));
        }
        let replies = self.link.many(runs.iter().map(|run| self.head_call(run)).collect(), None).await;
        let mut settles = Vec::new();
        for (run, reply) in runs.iter().zip(replies) {
            let head = match reply.and_then(|reply| StoredHead::read(run, reply)) {
                Ok(Some(head)) => head,
                Ok(None) => continue,
                Err(fault) if fault.is_of_run() => {
                    tracing::warn!(%run, %fault, "cannot add an unreadable run to the index");
                    continue;
                }
                Err(fault) => return Err(fault),
            };
            let Some(member) = Member::parse(head.said.member.as_bytes()) else { continue };
            let (fixed, moving) = (fixed_places(run, &head.said.facts), RunStanding::after(&head.last));
            let standing = Placement { run, member: &member, seq: head.last.seq, fixed: &fixed, moving };
            settles.push(index.settle_call(&standing));
        }
        for reply in self.link.many(settles, None).await {
            reply?;
        }
        Ok(runs.len() as u64)
    }

    /// Removes the entries of one shard that name no run.
    async fn clear(&self, index: &Index, catalog: Bytes) -> Result<(), RedisStoreError> {
        let mut cursor = "0".to_owned();
        loop {
            let began = self.clock.monotonic();
            let scan =
                RedisCall::plain(&["HSCAN"], catalog.clone()).arg(cursor.clone()).arg("COUNT").arg("500");
            let mut reply = ReplyParts::of(self.link.call(scan).await?)?;
            cursor = reply.text()?;
            let (mut members, mut fields) = (Vec::new(), reply.parts()?);
            while fields.len() >= 2 {
                members.extend(Member::parse(&fields.bytes()?));
                fields.value()?;
            }
            let named: Vec<_> = members.iter().filter_map(|member| Some((member.run()?, member))).collect();
            let heads = named.iter().map(|(run, _)| self.head_call(run)).collect();
            let mut lapses = Vec::new();
            for ((run, member), reply) in named.into_iter().zip(self.link.many(heads, None).await) {
                let is_there = match reply.and_then(|reply| StoredHead::read(&run, reply)) {
                    Ok(head) => head.is_some_and(|head| head.said.member == member.as_str()),
                    // The fault may concern this run.
                    Err(fault) if fault.is_of_run() => true,
                    Err(fault) => return Err(fault),
                };
                if !is_there {
                    lapses.push(index.lapse(&run, member, self.clock.monotonic().saturating_sub(began)));
                }
            }
            for reply in self.link.many(lapses, None).await {
                reply?;
            }
            if cursor == "0" {
                return Ok(());
            }
        }
    }
}

/// Sends one step of a scan to a node. Returns what it found, and advances the cursor.
async fn step(
    node: &RedisNode,
    scan: redis::Cmd,
    cursor: &mut String,
) -> Result<Vec<Value>, RedisStoreError> {
    let mut reply = ReplyParts::of(node.ask(scan).await?)?;
    *cursor = reply.text()?;
    Ok(reply.parts()?.collect())
}
