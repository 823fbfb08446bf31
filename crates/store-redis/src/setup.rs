//! Setting up: what the servers promise, whether they let the store do its work, and the index compared with the runs.

use std::time::Duration;

use bytes::Bytes;
use redis::Value;

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

/// How long a process that compares the index with the runs may be silent before another may begin.
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
    pub(crate) async fn setup(&self) -> Result<(), Fault> {
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
        self.index().await?;
        self.probe().await?;
        self.repair_if_due().await
    }

    /// Writes a run that is none and removes it again: a user who may not do all of it would leave runs half written.
    async fn probe(&self) -> Result<(), Fault> {
        let key = |end: &str| Bytes::from(format!("{}probe-{end}", self.layout.shard(0)));
        let keys = vec![key("head"), key("log")];
        let channel = if self.options.notices { self.layout.channel() } else { Bytes::new() };
        let write = Call::script(&APPEND, keys.clone())
            .arg("")
            .arg("")
            .arg("")
            .arg("{}")
            .arg("{}")
            .arg("60000")
            .arg(channel)
            .arg("")
            .arg("")
            .arg("1")
            .arg("0")
            .arg("probe")
            .arg("1")
            .arg("{}")
            .arg("");
        self.link.call(write).await?;
        self.link.call(Call::script(&PURGE, keys).arg("").arg("")).await.map(drop)
    }

    /// Lets one process do it for all, and not again before it is due.
    async fn repair_if_due(&self) -> Result<(), Fault> {
        let every = self.options.repair_every;
        let claim = Call::plain(&["SET"], self.layout.repaired())
            .arg("running")
            .arg("NX")
            .arg("PX")
            .arg(SILENCE.as_millis().to_string());
        if !every.is_zero() && self.link.call(claim).await? == Value::Nil {
            return Ok(());
        }
        let repaired = self.repair().await;
        let key = self.layout.repaired();
        let mark = match &repaired {
            Ok(_) if !every.is_zero() => {
                let ms = every.min(crate::config::MAX_KEEP).as_millis().max(1).to_string();
                Call::plain(&["SET"], key).arg("done").arg("PX").arg(ms)
            }
            _ => Call::plain(&["DEL"], key),
        };
        let runs = repaired?;
        self.link.call(mark).await?;
        tracing::debug!(runs, "compared the index with the runs");
        Ok(())
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
