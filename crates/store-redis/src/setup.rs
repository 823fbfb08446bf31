//! Setting up: what the servers promise, whether they let the store do its work, and the index compared with the runs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::Value;
use tokio::runtime::Handle;

use crate::config::MAX_KEEP;
use crate::entry::Head;
use crate::error::{Doubt, Fault};
use crate::index::{Index, Standing};
use crate::layout::{Member, fixed_places, moving_places, place};
use crate::link::{Call, Node};
use crate::persistence;
use crate::reply::{Parts, bytes, text};
use crate::scripts::{APPEND, PURGE};
use crate::store::{RedisStore, Shared};

/// How many keys the server looks at in one step of a walk over all of them: some milliseconds.
const STEP: &str = "1000";

/// How long a process that compares the index with the runs may be silent until another may begin.
const SILENCE: Duration = Duration::from_secs(600);

impl RedisStore {
    /// Compares the index with the runs, adds what is missing and takes out what is there no more; returns how many runs
    /// there are.
    ///
    /// `setup` does this by itself now and then ([`RedisOptions::repair_every`](crate::RedisOptions::repair_every)). To be
    /// called after entries of the index were lost: after a restore from a backup, or a failover to a replica that was behind.
    /// Safe at any time; runs go on meanwhile.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`](ferrata_core::ErrorKind::Unavailable): part of it is done; call it again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what was repaired stays repaired.
    pub async fn repair(&self) -> ferrata_core::Result<u64> {
        let repair = self.shared.repair().await;
        repair.map_err(|fault| fault.into_error("store.repair", Doubt::None))
    }
}

impl Shared {
    pub(crate) async fn setup(self: &Arc<Self>) -> Result<(), Fault> {
        let mut found: Option<persistence::Persistence> = None;
        for node in self.link.primaries().await? {
            let settings = persistence::ask(&node).await?;
            if let Some(objection) = settings.objection() {
                return Err(Fault::Unfit { what: format!("{} {objection}", node.name) });
            }
            found = Some(found.map_or(settings.persistence, |found| found.min(settings.persistence)));
        }
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

    /// Writes a run that is none and removes it again, in each shard: a user who may not do all of it would leave runs half
    /// written.
    async fn probe(&self, index: &Index) -> Result<(), Fault> {
        let channel = if self.options.notices { self.layout.channel() } else { Bytes::new() };
        let (mut writes, mut removals) = (Vec::new(), Vec::new());
        for shard in 0..index.shards() {
            let key = |end: &str| Bytes::from(format!("{}probe-{end}", self.layout.shard(shard)));
            let keys = vec![key("head"), key("log")];
            let write = Call::script(&APPEND, keys.clone());
            // No expected head, no places, some facts and header, a minute to live, and one record that is a base.
            let before = ["", "", "", "{}", "{}", "60000"].map(|text| Bytes::from_static(text.as_bytes()));
            let after =
                ["", "", "1", "0", "probe", "1", "{}", ""].map(|text| Bytes::from_static(text.as_bytes()));
            let args = before.into_iter().chain([channel.clone()]).chain(after);
            writes.push(args.fold(write, Call::arg));
            removals.push(Call::script(&PURGE, keys).arg("").arg(""));
        }
        for calls in [writes, removals] {
            for reply in self.link.many(calls, None).await {
                reply?;
            }
        }
        Ok(())
    }

    /// Lets one process do it for all, beside its other work, and not again before it is due.
    async fn repair_if_due(self: &Arc<Self>) -> Result<(), Fault> {
        if self.options.repair_every.is_zero() {
            return self.repair().await.map(drop);
        }
        let silence = SILENCE.as_millis().to_string();
        let claim =
            Call::plain(&["SET"], self.layout.repaired()).arg("running").arg("NX").arg("PX").arg(silence);
        if self.link.call(claim).await? == Value::Nil {
            return Ok(());
        }
        let shared = Arc::clone(self);
        let beside = async move {
            // If the process ends before, or this fails, another one may begin when the claim has expired.
            match shared.repair_and_mark().await {
                Ok(runs) => tracing::debug!(runs, "compared the index with the runs"),
                Err(fault) => {
                    tracing::warn!(%fault, "could not compare the index with the runs; it is done again later")
                }
            }
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(beside)),
            Err(_) => beside.await,
        }
        Ok(())
    }

    async fn repair_and_mark(&self) -> Result<u64, Fault> {
        let runs = self.repair().await?;
        let ms = self.options.repair_every.min(MAX_KEEP).as_millis().max(1).to_string();
        // Only while the claim is there.
        let mark = Call::plain(&["SET"], self.layout.repaired()).arg("done").arg("XX").arg("PX").arg(ms);
        self.link.call(mark).await?;
        Ok(runs)
    }

    pub(crate) async fn repair(&self) -> Result<u64, Fault> {
        let index = self.index().await?;
        let mut runs = 0;
        for node in self.link.primaries().await? {
            let mut cursor = "0".to_owned();
            loop {
                let mut scan = redis::cmd("SCAN");
                scan.arg(&cursor).arg("MATCH").arg(&self.layout.heads()[..]).arg("COUNT").arg(STEP);
                let keys = step(&node, scan, &mut cursor).await?;
                runs += self.enter(index, keys).await?;
                if cursor == "0" {
                    break;
                }
                let alive =
                    Call::plain(&["PEXPIRE"], self.layout.repaired()).arg(SILENCE.as_millis().to_string());
                self.link.call(alive).await?;
            }
        }
        for catalog in index.keys(place::CATALOG) {
            self.clear(index, catalog).await?;
        }
        Ok(runs)
    }

    /// Enters the runs of these keys where they belong.
    async fn enter(&self, index: &Index, keys: Vec<Value>) -> Result<u64, Fault> {
        let mut runs = Vec::new();
        for key in keys {
            runs.extend(self.layout.run_of_head(&bytes(key)?));
        }
        let replies = self.link.many(runs.iter().map(|run| self.head_call(run)).collect(), None).await;
        let mut settles = Vec::new();
        for (run, reply) in runs.iter().zip(replies) {
            let head = match Head::read(Parts::of(reply?)?) {
                Ok(Some(head)) => head,
                Ok(None) => continue,
                Err(fault) => {
                    tracing::warn!(%run, %fault, "cannot enter an unreadable run in the index");
                    continue;
                }
            };
            let Some(member) = Member::parse(&head.member) else { continue };
            let (fixed, moving) = (fixed_places(run, &head.facts), moving_places(&head.last));
            let standing =
                Standing { run, member: &member, seq: head.last.seq, fixed: &fixed, moving: &moving };
            settles.push(index.settle(&standing));
        }
        for reply in self.link.many(settles, None).await {
            reply?;
        }
        Ok(runs.len() as u64)
    }

    /// Takes out of one shard what names no run.
    async fn clear(&self, index: &Index, catalog: Bytes) -> Result<(), Fault> {
        let mut cursor = "0".to_owned();
        loop {
            let scan = Call::plain(&["HSCAN"], catalog.clone()).arg(cursor.clone()).arg("COUNT").arg("500");
            let mut reply = Parts::of(self.link.call(scan).await?)?;
            cursor = reply.text()?;
            let (mut members, mut fields) = (Vec::new(), reply.parts()?);
            while fields.len() >= 2 {
                members.extend(Member::parse(&fields.bytes()?));
                fields.value()?;
            }
            let named: Vec<_> = members.iter().filter_map(|member| Some((member.run()?, member))).collect();
            let read = |(run, _): &(_, &Member)| Call::plain(&["HGET"], self.layout.head(run)).arg("member");
            let replies = self.link.many(named.iter().map(read).collect(), None).await;
            let mut lapses = Vec::new();
            for ((run, member), reply) in named.into_iter().zip(replies) {
                let is_there = match reply? {
                    Value::Nil => false,
                    found => text(found)? == member.as_str(),
                };
                if !is_there {
                    lapses.push(index.lapse(&run, member));
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

/// Sends one step of a walk to a node; returns what it found and moves the cursor on.
async fn step(node: &Node, scan: redis::Cmd, cursor: &mut String) -> Result<Vec<Value>, Fault> {
    let mut reply = Parts::of(node.ask(scan).await?)?;
    *cursor = reply.text()?;
    Ok(reply.parts()?.collect())
}
