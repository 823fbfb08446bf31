//! Lies about what is read of one run.

use bytes::Bytes;
use ferrata_store::{At, CheckpointStore, ErrorKind, Page, Paged, Record, RecordHeader, Result, RunKey, Seq};

use super::liar::Liar;
use super::lie::Lie;

impl Liar {
    pub(super) async fn load_falsely(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        let store = &self.shared.store;
        let at = match (self.shared.lie, at) {
            (Lie::IgnoresIds, At::Record(_)) => At::Latest,
            (_, at) => at,
        };
        let loaded = match store.load(run, at).await {
            Err(error) if self.tells(Lie::ClampsNumbers) && error.kind() == ErrorKind::NotFound => {
                store.load(run, At::Latest).await?
            }
            loaded => loaded?,
        };
        let Some(mut records) = loaded else {
            return Ok(self.tells(Lie::LoadsNothingAsEmpty).then(Vec::new));
        };
        match self.shared.lie {
            Lie::LoadsFromTheOldest => {
                let first = records[0].header.seq.get();
                for seq in (0..first).rev() {
                    if let Ok(Some(mut before)) = store.load(run, At::Seq(Seq::new(seq))).await {
                        records.insert(0, before.pop().unwrap());
                    }
                }
            }
            Lie::LoadsOneLess => drop(records.pop()),
            Lie::LoadsAHundred => drop(records.drain(..records.len().saturating_sub(100))),
            Lie::DecodesBodies => {
                for record in &mut records {
                    record.body = Bytes::from(String::from_utf8_lossy(&record.body).into_owned());
                }
            }
            Lie::CutsLongBodies => {
                for record in &mut records {
                    record.body.truncate(65_536);
                }
            }
            Lie::ForgetsTheVisit => records.iter_mut().for_each(|record| record.header.visit = None),
            _ => {}
        }
        Ok(Some(records))
    }

    pub(super) async fn history_falsely(&self, run: &RunKey, page: Page) -> Result<Paged<RecordHeader>> {
        let store = &self.shared.store;
        if self.tells(Lie::KeepsTheHistory) {
            let purged = self.shared.notes().purged.get(run).cloned();
            if let Some(items) = purged {
                return Ok(Paged { items, next: None });
            }
        }
        if self.pages_falsely() {
            let first = store.head(run).await?.map_or(0, |head| head.first.get());
            let mut all = Vec::new();
            while let Ok(Some(mut loaded)) =
                store.load(run, At::Seq(Seq::new(first + all.len() as u64))).await
            {
                all.push(loaded.pop().unwrap().header);
            }
            if all.is_empty() {
                return store.history(run, page).await;
            }
            return self.page(all, &page, "seq", |header| header.seq.to_string());
        }
        match store.history(run, page).await {
            Err(error) if self.tells(Lie::ListsNothingAsEmpty) && error.kind() == ErrorKind::NotFound => {
                Ok(Paged { items: Vec::new(), next: None })
            }
            listed => listed,
        }
    }
}
