//! Faults of reads of one run.

use bytes::Bytes;
use ferrata_store::{
    Anchor, At, CheckpointStore, ErrorKind, HeadRef, HeaderRange, Headers, Record, RecordHeader, Result,
    RunKey, Seq,
};

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

    pub(super) async fn load_since_falsely(
        &self,
        run: &RunKey,
        known: HeadRef,
    ) -> Result<Option<Vec<Record>>> {
        let store = &self.shared.store;
        let Some(mut records) = (match self.shared.lie {
            Lie::Honest | Lie::SkipsWhatCameNext | Lie::LosesWhatCameLast => {
                store.load_since(&self.name(run), known).await?
            }
            Lie::KnowsByNumber | Lie::NothingIsNew => store.load(&self.name(run), At::Latest).await?,
            _ => return self.load(run, At::Latest).await,
        }) else {
            return Ok(None);
        };
        match self.shared.lie {
            Lie::SkipsWhatCameNext if records.len() > 1 => drop(records.remove(0)),
            Lie::LosesWhatCameLast => drop(records.pop()),
            Lie::KnowsByNumber => records.retain(|record| record.header.seq > known.seq),
            Lie::NothingIsNew => records.clear(),
            _ => {}
        }
        Ok(Some(records))
    }

    pub(super) async fn headers_falsely(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        let store = &self.shared.store;
        if self.tells(Lie::KeepsTheHeaders) {
            let purged = self.shared.notes().purged.get(run).cloned();
            if let Some(items) = purged {
                return Ok(Headers { first: Seq::new(0), last: Seq::new(items.len() as u64), items });
            }
        }
        let mut answer = match store.headers(run, range).await {
            Err(error) if self.tells(Lie::ListsNothingAsEmpty) && error.kind() == ErrorKind::NotFound => {
                return Ok(Headers { first: Seq::new(0), last: Seq::new(0), items: Vec::new() });
            }
            answer => answer?,
        };
        let instead = match (self.shared.lie, range.anchor()) {
            (Lie::IgnoresAnchors, Anchor::From(_)) => Some(HeaderRange::oldest(range.limit())),
            (Lie::IgnoresAnchors, Anchor::UpTo(_)) => Some(HeaderRange::newest(range.limit())),
            (Lie::ClampsNumbers, _) if answer.items.is_empty() => Some(HeaderRange::newest(range.limit())),
            // The fault takes the sequence number for a number of retained records.
            (Lie::CountsOffsets, Anchor::From(seq)) if seq.get() > 0 => {
                let seq = Seq::new(answer.first.get() + seq.get());
                Some(HeaderRange::from(seq, range.limit()))
            }
            (Lie::AnchorsPerInstance, Anchor::From(seq)) if self.instance > 0 => {
                Some(HeaderRange::from(seq.next(), range.limit()))
            }
            _ => None,
        };
        if let Some(range) = instead {
            answer.items = store.headers(run, range).await?.items;
        }
        match (self.shared.lie, range.anchor()) {
            (Lie::IgnoresOrder, Anchor::UpTo(_)) => answer.items.reverse(),
            (Lie::ListsTwoGenerations, _) => {
                self.pause().await;
                answer.items = store.headers(run, range).await?.items;
            }
            (Lie::AlwaysHasMore, _) => answer.last = answer.last.next(),
            (Lie::IgnoresLimits, anchor) => answer.items = self.every_header(run, anchor).await?,
            (Lie::HasNoCap, anchor) if range.limit() == HeaderRange::MAX => {
                answer.items = self.every_header(run, anchor).await?;
            }
            _ => {}
        }
        Ok(answer)
    }

    /// All headers from a sequence number on, or up to it, without a limit.
    async fn every_header(&self, run: &RunKey, anchor: Anchor) -> Result<Vec<RecordHeader>> {
        let (mut all, mut range) = (Vec::new(), Some(HeaderRange::oldest(HeaderRange::MAX)));
        while let Some(asked) = range {
            let answer = self.shared.store.headers(run, asked).await?;
            range = asked.after(&answer);
            all.extend(answer.items);
        }
        all.retain(|header| match anchor {
            Anchor::From(seq) => header.seq >= seq,
            Anchor::UpTo(seq) => header.seq <= seq,
        });
        Ok(all)
    }
}
