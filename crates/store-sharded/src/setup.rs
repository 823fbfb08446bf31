//! Prepares the shards, and compares the map with the maps that other processes wrote into them.

use crate::join_all::join_all;
use crate::map::Generations;
use crate::shard::Shard;
use crate::shard_mark::{ShardMark, map_key};
use crate::store::ShardedStore;
use ferrata_store::{At, Error, ErrorKind, Result};

/// The maximum number of reads of the map while other processes write it. Each of their writes may lack some generations.
const TURNS: u8 = 10;

const OPERATION: &str = "store.setup";

impl ShardedStore {
    pub(crate) async fn prepare(&self) -> Result<()> {
        let generations = self.map.generations();
        let prepared = join_all(self.shards.iter().map(async |shard| {
            shard.store.setup().await.map_err(|error| shard.name_error(error))?;
            write_mark(shard, &generations).await
        }));
        prepared.await.into_iter().collect()
    }
}

/// Writes the map into a shard, unless the shard already has a map that agrees with it.
async fn write_mark(shard: &Shard, generations: &Generations) -> Result<()> {
    let (run, mark) = (map_key()?, ShardMark { shard: shard.name.clone(), generations: generations.clone() });
    for _ in 0..TURNS {
        let loaded = shard.store.load(&run, At::Latest).await.map_err(|error| shard.name_error(error))?;
        let last = loaded.as_ref().and_then(|records| records.last());
        if let Some(record) = last {
            let written = ShardMark::read(record).map_err(|error| shard.name_error(error.with_run(&run)))?;
            if has_same_generations(shard, &mark, &written)? {
                return Ok(());
            }
        }
        let append = mark.append(last.map(|record| record.header.head()))?;
        match shard.append(vec![append]).await.pop() {
            Some(Ok(_)) => return Ok(()),
            Some(Err(error)) if error.kind() == ErrorKind::Conflict => {}
            Some(Err(error)) => return Err(error),
            None => break,
        }
    }
    let busy =
        Error::new(ErrorKind::Unavailable, "other processes keep writing the map of the shards; retry");
    Err(shard.name_error(busy.with_operation(OPERATION)))
}

/// Returns whether the shard already stores these generations. Fails if the two maps contradict each other.
fn has_same_generations(shard: &Shard, ours: &ShardMark, written: &ShardMark) -> Result<bool> {
    let refuse = |message: String| {
        Err(shard.name_error(Error::new(ErrorKind::Invalid, message).with_operation(OPERATION)))
    };
    if ours.shard != written.shard {
        return refuse(format!(
            "its store was set up as the shard `{}`; check whether the addresses of two shards are swapped",
            written.shard
        ));
    }
    let (Generations(ours), Generations(theirs)) = (&ours.generations, &written.generations);
    if let Some(number) = (0..ours.len().min(theirs.len())).find(|n| ours[*n] != theirs[*n]) {
        return refuse(format!(
            "generation {number} is {:?} in this process, and {:?} in the stored map; add generations at the end, and never change \
             one",
            ours[number], theirs[number]
        ));
    }
    if ours.len() < theirs.len() {
        tracing::warn!(
            shard = shard.name,
            known = ours.len(),
            stored = theirs.len(),
            "other processes have newer generations of shards than this one"
        );
    }
    Ok(ours.len() <= theirs.len())
}
