//! Runs of writers with old and new keys, with random prunes, purges, restarts and forks, even during reads and reseals.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use ferrata_store::{
    At, CheckpointStore, MemoryStore, Page, Paged, PruneCut, Record, RecordHeader, Resealing, Result,
    RunHead, RunId, RunKey, RunQuery, Seq, delegate, for_each_record,
};
use ferrata_store_envelope::{EnvelopeOptions, EnvelopeStore};
use ferrata_testing::Log;
use tokio::sync::Mutex;

use super::encrypting;

/// The stores, the runs, and the operations on them.
pub(crate) struct World {
    pub(crate) store: MemoryStore,
    runs: Mutex<Runs>,
}

struct Runs {
    chance: u64,
    logs: Vec<Log>,
    begun: u64,
    /// The names of all keys, the current one first.
    keys: Vec<String>,
}

impl Runs {
    /// SplitMix64.
    fn below(&mut self, limit: usize) -> usize {
        self.chance = self.chance.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.chance;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % limit as u64).unwrap()
    }

    /// The options of a process. Its keyring has the newest keys first, or is from before the last rotation.
    fn options(&self, is_late: bool) -> EnvelopeOptions {
        let mut names: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        if is_late && names.len() > 1 {
            names.swap(0, 1);
        }
        let options = encrypting(&names).with_accept_plain(true);
        options.with_compress_from(is_late.then_some(0))
    }
}

impl World {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        let runs = Runs { chance: seed, logs: Vec::new(), begun: 0, keys: vec!["k0".into()] };
        Arc::new(Self { store: MemoryStore::new(), runs: Mutex::new(runs) })
    }

    pub(crate) async fn below(&self, limit: usize) -> usize {
        self.runs.lock().await.below(limit)
    }

    /// Gives every process the new key first, as the rules of a rotation require.
    pub(crate) async fn rotate(&self) {
        let mut runs = self.runs.lock().await;
        let name = format!("k{}", runs.keys.len());
        runs.keys.insert(0, name);
    }

    pub(crate) async fn options(&self) -> EnvelopeOptions {
        self.runs.lock().await.options(false)
    }

    /// Keeps only the current key, and returns its name.
    pub(crate) async fn forget_old_keys(&self) -> String {
        let mut runs = self.runs.lock().await;
        runs.keys.truncate(1);
        runs.keys[0].clone()
    }

    /// Performs one operation that a service or an operator may perform at any time.
    pub(crate) async fn stir(&self) {
        let mut runs = self.runs.lock().await;
        let runs = &mut *runs;
        let (what, which, is_late) = (runs.below(10), runs.below(runs.logs.len().max(1)), runs.below(3) == 0);
        let store = EnvelopeStore::new(self.store.clone(), runs.options(is_late));
        match what {
            0 | 1 => {
                runs.begun += 1;
                let key = RunKey::from(RunId::new(format!("r{}", runs.begun)).unwrap());
                let mut log = Log::new(key).with_bases_every(1 + runs.below(4) as u64);
                let records = 1 + runs.below(6);
                log.write(&store, records).await;
                runs.logs.push(log);
            }
            2..=4 => {
                let records = 1 + runs.below(3);
                let Some(log) = runs.logs.get_mut(which) else { return };
                log.write(&store, records).await;
            }
            // Add records from before the encryption.
            5 => {
                let Some(log) = runs.logs.get_mut(which) else { return };
                log.write(&self.store, 1).await;
            }
            6 => {
                let Some(log) = runs.logs.get(which) else { return };
                let (first, last) = (log.records[0].header.seq.get(), log.head().unwrap().seq.get());
                let at = first + runs.below(usize::try_from(last - first + 1).unwrap()) as u64;
                let log = &mut runs.logs[which];
                let kept = &log.records[usize::try_from(at - first).unwrap()];
                let base = (!kept.header.base).then(|| log.as_base(at));
                store.prune(&log.key, PruneCut { at: Seq::new(at), base: base.clone() }).await.unwrap();
                log.note_pruned(at, base);
            }
            7 if !runs.logs.is_empty() => {
                let log = runs.logs.remove(which);
                store.purge(&log.key, None).await.unwrap();
                // Restart the run with new records.
                let mut next = Log::new(log.key).with_bases_every(3);
                next.write(&store, 1 + usize::from(is_late) * 3).await;
                runs.logs.push(next);
            }
            // A fork: its first record has the content of another run's record.
            8 => {
                let Some(log) = runs.logs.get(which) else { return };
                let body = log.records[0].body.clone();
                runs.begun += 1;
                let key = RunKey::from(RunId::new(format!("f{}", runs.begun)).unwrap());
                let mut fork = Log::new(key).with_bases_every(3);
                let mut append = fork.next(1);
                let header: RecordHeader = append.records[0].header.clone();
                append.records[0] = Record::seal(header, body).unwrap();
                store.append(vec![append.clone()]).await.remove(0).unwrap();
                fork.note_append(&append);
                runs.logs.push(fork);
            }
            _ => {}
        }
    }

    /// Reads all stored records with the available keys.
    pub(crate) async fn check(&self) {
        let runs = self.runs.lock().await;
        // Without the old keys, unencrypted records are not affected.
        let store = EnvelopeStore::new(self.store.clone(), runs.options(false));
        for log in &runs.logs {
            let head = store.head(&log.key).await.unwrap().unwrap();
            let mut records = Vec::new();
            let take = |record: &Record| {
                records.push(record.clone());
                Ok(())
            };
            assert!(for_each_record(&store, &head, take).await.unwrap(), "{}", log.key);
            records.sort_by_key(|record| record.header.seq);
            assert_eq!(records, log.records, "{}", log.key);
        }
    }
}

/// A store that runs an operation before each call that reads a run or replaces records. Alternatively, it cannot replace records.
pub(crate) struct Stirred {
    store: MemoryStore,
    world: Option<Arc<World>>,
}

impl Stirred {
    pub(crate) fn by(world: &Arc<World>) -> Self {
        Self { store: world.store.clone(), world: Some(Arc::clone(world)) }
    }

    /// A store that cannot reseal records.
    pub(crate) fn fixed(store: MemoryStore) -> Self {
        Self { store, world: None }
    }

    async fn stir(&self) {
        if let Some(world) = &self.world {
            world.stir().await;
        }
    }
}

impl fmt::Debug for Stirred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stirred")
    }
}

#[async_trait]
impl CheckpointStore for Stirred {
    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        self.stir().await;
        self.store.load(run, at).await
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        self.stir().await;
        CheckpointStore::runs(&self.store, query, page).await
    }

    fn resealing(&self) -> Option<&dyn Resealing> {
        self.world.is_some().then_some(self)
    }

    delegate! { |this| this.store; capabilities, setup, append, headers, head, prune, purge, heartbeat }
}

#[async_trait]
impl Resealing for Stirred {
    async fn reseal(&self, run: &RunKey, records: &[Record]) -> Result<u64> {
        self.stir().await;
        self.store.reseal(run, records).await
    }
}
