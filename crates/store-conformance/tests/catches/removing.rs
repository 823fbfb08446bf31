//! Faults of prunes, purges and reseals.

use ferrata_store::{
    At, CheckpointStore, Error, ErrorKind, HeadRef, HeaderRange, Page, PruneCut, Record, Removed, Result,
    RunKey, RunQuery, Seq, Timestamp, check_reseal,
};

use super::liar::Liar;
use super::lie::Lie;

impl Liar {
    pub(super) async fn prune_falsely(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        let store = &self.shared.store;
        let first = store.head(run).await.ok().flatten().map_or(0, |head| head.first.get());
        let before =
            store.load(run, At::Seq(cut.at)).await.ok().flatten().and_then(|mut loaded| loaded.pop());
        match self.shared.lie {
            Lie::NeverDrops => return Ok(Removed::default()),
            Lie::RefusesToPruneTwice if first > 0 && cut.at.get() <= first => {
                return Err(Error::new(ErrorKind::NotFound, "it was pruned").with_run(run));
            }
            Lie::DropsBeforeItWrites if cut.at.get() > first => {
                // Drop the old records, including the one at the cut, before the base is written.
                let mut all = Vec::new();
                store.tamper(run, |records| {
                    all.clone_from(records);
                    records.retain(|record| record.header.seq > cut.at);
                });
                self.pause().await;
                store.tamper(run, |records| *records = all);
            }
            Lie::PrunesWhatItLookedAt if before.is_some() => {
                self.pause().await;
                store.tamper(run, |records| {
                    records.retain(|record| record.header.seq >= cut.at);
                    if let (Some(first), Some(base)) = (records.first_mut(), &cut.base) {
                        *first = base.clone();
                    }
                });
                return Ok(Removed { records: cut.at.get() - first, bytes: 0 });
            }
            _ => {}
        }
        let pruned = store.prune(run, cut.clone()).await;
        match (self.shared.lie, pruned) {
            (Lie::PrunesNothingGladly, Err(error)) if error.kind() == ErrorKind::NotFound => {
                Ok(Removed::default())
            }
            (Lie::PrunesAnything, Err(error)) if error.kind() == ErrorKind::Invalid => Ok(Removed::default()),
            (Lie::CountsNothing, Ok(_)) => Ok(Removed::default()),
            (Lie::ForgetsTheBase, Ok(pruned)) if cut.base.is_some() => {
                store.tamper(run, |records| records[0] = before.unwrap());
                Ok(pruned)
            }
            (Lie::RewritesTheHead, Ok(pruned)) => {
                store.tamper(run, |records| {
                    records.last_mut().unwrap().header.at = Timestamp::from_unix_ms(0);
                });
                Ok(pruned)
            }
            (Lie::DropsTheCut, Ok(mut pruned)) => {
                let next = cut.at.next();
                let has_next = matches!(store.load(run, At::Seq(next)).await, Ok(Some(_)));
                if has_next {
                    store.tamper(run, |records| records[1].header.base = true);
                    pruned.records += store.prune(run, PruneCut { at: next, base: None }).await?.records;
                }
                Ok(pruned)
            }
            (Lie::ReplacesBases, Ok(pruned)) => {
                if let Some(base) = cut.base {
                    store.tamper(run, |records| records[0] = base);
                }
                Ok(pruned)
            }
            (_, pruned) => pruned,
        }
    }

    pub(super) async fn reseal_falsely(&self, run: &RunKey, records: &[Record]) -> Result<u64> {
        let store = &self.shared.store;
        match self.shared.lie {
            Lie::ForgetsTheEnvelope => return Ok(records.len() as u64),
            Lie::ResealsAnything => {
                let mut replaced = 0;
                store.tamper(run, |kept| {
                    for record in records {
                        let seq = record.header.seq;
                        if let Some(kept) = kept.iter_mut().find(|kept| kept.header.seq == seq) {
                            *kept = record.clone();
                            replaced += 1;
                        }
                    }
                });
                return Ok(replaced);
            }
            Lie::ResealsUnchecked if check_reseal(run, records).is_err() => return Ok(0),
            Lie::ResealsFromMemory => {
                let mut all = Vec::new();
                store.tamper(run, |records| all.clone_from(records));
                self.pause().await;
                store.tamper(run, |records| *records = all);
            }
            Lie::ResealsByRemoving => {
                let mut all = Vec::new();
                store.tamper(run, |records| {
                    all.clone_from(records);
                    records.truncate(1);
                });
                self.pause().await;
                store.tamper(run, |records| *records = all);
            }
            _ => {}
        }
        store.resealing().unwrap().reseal(run, records).await
    }

    pub(super) async fn purge_falsely(&self, run: &RunKey, mut expected: Option<HeadRef>) -> Result<Removed> {
        let store = &self.shared.store;
        if self.tells(Lie::KeepsTheDamaged) {
            store.load(run, At::Latest).await?;
            store.load(run, At::Seq(<_>::default())).await?;
            for seq in 0..9 {
                match store.load(run, At::Seq(Seq::new(seq))).await {
                    Err(error) if error.kind() == ErrorKind::Corrupt => return Err(error),
                    _ => {}
                }
            }
        }
        let exists = !matches!(store.head(run).await, Ok(None));
        if exists {
            let history = store.headers(run, HeaderRange::oldest(1_000)).await;
            let history = history.map(|answer| answer.items).unwrap_or_default();
            self.shared.notes().purged.insert(run.clone(), history);
        }
        match self.shared.lie {
            Lie::MissesWhatIsMissing if !exists => {
                return Err(Error::new(ErrorKind::NotFound, "the run does not exist").with_run(run));
            }
            Lie::LocksWhilePurging => {
                let is_free = self.shared.notes().locked.insert(run.clone());
                if !is_free {
                    return Err(Error::new(ErrorKind::Unavailable, "locked").with_run(run));
                }
                self.pause().await;
                self.shared.notes().locked.remove(run);
            }
            Lie::PurgesAnyHead => expected = None,
            Lie::PurgesWhatItRefuses if expected.is_some() => {
                if let Err(error) = store.load(run, At::Latest).await {
                    store.purge(run, None).await?;
                    return Err(error);
                }
            }
            Lie::PurgesLate if expected.is_some() => {
                self.shared.notes().late.push(run.clone());
                self.pause().await;
                // The purge of a caller that was dropped stays pending, and runs with the next append.
                self.shared.notes().late.pop();
            }
            Lie::PurgesByNumber => {
                let there = store.head(run).await.ok().flatten().map(|head| head.head());
                expected =
                    expected.map(|wanted| there.filter(|there| there.seq == wanted.seq).unwrap_or(wanted));
            }
            Lie::LooksBeforePurging if expected.is_some() => {
                let there = store.head(run).await.ok().flatten().map(|head| head.head());
                self.pause().await;
                if there == expected {
                    expected = None;
                }
            }
            Lie::PurgesWhatItListed => {
                let last = store.head(run).await.ok().flatten().map(|head| head.seq);
                self.pause().await;
                let mut is_rest = false;
                store.tamper(run, |records| {
                    records.retain(|record| last.is_none_or(|last| record.header.seq > last));
                    is_rest = !records.is_empty();
                });
                if is_rest {
                    return Ok(Removed::default());
                }
                expected = None;
            }
            Lie::PurgesByPrefix => {
                let runs = store.runs(&RunQuery::default(), Page::first(1_000)).await?;
                for head in runs.items.iter().filter(|head| head.run.tenant == run.tenant) {
                    if head.run != *run && head.run.run.as_str().starts_with(run.run.as_str()) {
                        store.purge(&head.run, None).await?;
                    }
                }
            }
            _ => {}
        }
        let purged = store.purge(run, expected).await?;
        if !self.tells(Lie::RestoresOnReopening) {
            self.shared.notes().written.remove(run);
        }
        Ok(if self.tells(Lie::CountsNothing) { Removed::default() } else { purged })
    }
}
