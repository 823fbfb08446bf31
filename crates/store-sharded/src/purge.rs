//! Removes a run that may have signposts in other shards.

use ferrata_store::{ErrorKind, HeadRef, RecordId, Removed, Result, RunHead, RunKey, Seq};

use crate::shard::Shard;
use crate::shard_mark::{is_mark, map_key, signpost_to};
use crate::store::{ShardedStore, unknown_generation_error};

/// A head that no run has. A purge that expects it removes the remains of an earlier purge, but no run that was started since.
const NO_HEAD: HeadRef = HeadRef { seq: Seq::new(0), id: RecordId::from_uuid(uuid::Uuid::nil()) };

impl ShardedStore {
    pub(crate) async fn remove(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        if map_key().is_ok_and(|key| key == *run) {
            return Ok(Removed::default());
        }
        let places = self.map.places(run);
        // Remove the signposts last, and the oldest one at the very end: while the run exists, no process may start it in another shard.
        let (mut runs, mut others, mut signposts) = (Vec::new(), Vec::new(), Vec::new());
        let mut is_beyond = false;
        for index in places.shards.iter().rev() {
            let shard = &self.shards[*index];
            match shard.head(run).await {
                Ok(Some(head)) if is_mark(&head) => {
                    is_beyond |= places.shards.last() == Some(index);
                    signposts.push((shard, head.head()));
                }
                Err(error) if !crate::append::exists(&error) => return Err(error),
                // Do this even if no run exists: an interrupted purge may have left something.
                Ok(None) => others.push((shard, expected.unwrap_or(NO_HEAD))),
                _ => runs.push(shard),
            }
        }
        if is_beyond && runs.is_empty() {
            return Err(unknown_generation_error("store.purge", run));
        }
        self.known.remove(run);
        let mut purged = Removed::default();
        // Purge the run first: if its head is refused, nothing has changed.
        for shard in runs {
            let one = shard.store.purge(run, expected).await.map_err(|error| shard.name_error(error))?;
            purged.records += one.records;
            purged.bytes += one.bytes;
        }
        for (shard, head) in others {
            remove_at(shard, run, head).await?;
        }
        if signposts.is_empty() {
            return Ok(purged);
        }
        for (shard, head) in &signposts {
            remove_at(shard, run, *head).await?;
        }
        // A start that met a signpost before the removal has started the run in a later shard.
        for (at, index) in places.shards.iter().enumerate() {
            if let Some(head) = self.shards[*index].head(run).await?.filter(|head| !is_mark(head)) {
                for index in &places.shards[..at] {
                    put_back(&self.shards[*index], &head).await?;
                }
            }
        }
        Ok(purged)
    }
}

/// Removes the run or signpost with this head. A newer run with the same id, which was started there since, stays.
async fn remove_at(shard: &Shard, run: &RunKey, head: HeadRef) -> Result<()> {
    match shard.store.purge(run, Some(head)).await {
        Err(error) if error.kind() != ErrorKind::Conflict => Err(shard.name_error(error)),
        _ => Ok(()),
    }
}

/// Writes a signpost to a run if the shard has nothing under the run's id.
async fn put_back(shard: &Shard, head: &RunHead) -> Result<()> {
    match shard.append(vec![signpost_to(head)?]).await.pop() {
        Some(Err(error)) if error.kind() != ErrorKind::Conflict => Err(error),
        _ => Ok(()),
    }
}
