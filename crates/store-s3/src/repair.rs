//! Repair: rebuilds the index from the logs, and removes the remains of purged runs.

use ferrata_store::RunKey;

use crate::entry::IndexKey;
use crate::error::S3StoreError;
use crate::inner::S3Inner;
use crate::view::RunLookup;

/// The result of a repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// The number of runs that exist.
    pub runs: u64,
    /// The number of runs with a wrong index entry. The repair corrected these entries.
    pub indexed: u64,
    /// The number of purged runs whose remains the repair removed.
    pub cleared: u64,
    /// The number of unreadable runs that the repair skipped. They are damaged, or the server refuses their objects.
    pub unreadable: u64,
}

impl S3Inner {
    /// Repairs all logs.
    pub(crate) async fn repair(&self) -> Result<RepairReport, S3StoreError> {
        let mut repaired = RepairReport::default();
        let logs = self.layout.logs();
        let mut after: Option<String> = None;
        let (mut refused, mut is_any_read) = (None, false);
        loop {
            let listed = self.bucket.list(&logs, after.as_deref(), 1).await?;
            let Some(item) = listed.value.items.into_iter().next() else {
                // If the server refuses the objects of all runs, the cause is not a single run.
                return refused.filter(|_| !is_any_read).map_or(Ok(repaired), Err);
            };
            let Some(run) = self.layout.run_of_log(&item.key) else {
                tracing::warn!(key = item.key, "skipped an object that is not part of a log");
                after = Some(item.key);
                continue;
            };
            // In every key of the run, a digit follows this prefix. The tilde sorts after all digits.
            after = Some(format!("{}~", self.layout.run(&run)));
            match self.repair_run(&run, &mut repaired).await {
                Err(error) if error.is_of_run() || error.may_be_of_run() => {
                    repaired.unreadable += 1;
                    tracing::warn!(%run, %error, "skipped an unreadable run");
                    if error.is_of_run() {
                        is_any_read = true;
                    } else {
                        refused = Some(error);
                    }
                }
                done => {
                    done?;
                    is_any_read = true;
                }
            }
        }
    }

    async fn repair_run(&self, run: &RunKey, repaired: &mut RepairReport) -> Result<(), S3StoreError> {
        let Some(log) = self.open(run).await? else {
            if let RunLookup::Absent { generation: 1.., .. } = self.look_up(run).await? {
                self.clear(run).await?;
                repaired.cleared += 1;
            }
            return Ok(());
        };
        repaired.runs += 1;
        let entry = IndexKey::of(log.generation(), &log.seen.last);
        let prefix = self.layout.entries(entry.tree(), log.first_object.facts.created, run);
        let listed = self.bucket.list(&prefix, None, 1_000).await?;
        let is_shown = listed.value.items.iter().any(|item| {
            let shown = self.layout.entry_of(entry.tree(), &item.key);
            shown.is_some_and(|(_, _, shown)| {
                shown.generation == entry.generation && shown.standing == entry.standing
            })
        });
        if !is_shown {
            let key = self.layout.entry(log.first_object.facts.created, run, &entry);
            self.bucket.put(&key, bytes::Bytes::new()).await?;
            repaired.indexed += 1;
        }
        Ok(())
    }
}
