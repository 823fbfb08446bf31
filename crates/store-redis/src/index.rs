//! Calls that change the index. An index set is a sorted set of the runs that have something in common, such as a status. One call announces a
//! run's new index sets before an append; another call settles them after the append.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferrata_store::index::RunStanding;
use ferrata_store::{RunKey, Seq};

use crate::layout::{Member, RedisKeys, moving_places, place, shard_of};
use crate::link::RedisCall;
use crate::scripts::INDEX;

/// Creates calls to the index.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    layout: RedisKeys,
    shards: u16,
    /// The script argument that all changes share: the grace in milliseconds.
    common: Arc<[Bytes]>,
}

/// The index sets of a run, as a caller knows them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement<'a> {
    pub(crate) run: &'a RunKey,
    pub(crate) member: &'a Member,
    /// The record after which the run has this state.
    pub(crate) seq: Seq,
    /// The index sets that depend on the run's facts and never change.
    pub(crate) fixed: &'a [String],
    /// The state of the run after that record.
    pub(crate) moving: RunStanding,
}

impl Index {
    pub(crate) fn new(layout: RedisKeys, shards: u16, stale_after: Duration) -> Self {
        Self { layout, shards, common: Arc::from([stale_after.as_millis().to_string().into()]) }
    }

    fn catalog(&self, run: &RunKey) -> Bytes {
        format!("{}{}", self.layout.shard(shard_of(run, self.shards)), place::CATALOG).into()
    }

    fn call(
        &self,
        operation: &'static str,
        run: &RunKey,
        member: &Member,
        seq: Seq,
        places: Vec<Bytes>,
    ) -> RedisCall {
        let mut call = RedisCall::each(&INDEX, &self.common, self.catalog(run))
            .with_more_keys()
            .arg(Bytes::from_static(operation.as_bytes()))
            .arg(member.as_str().to_owned())
            .arg(seq.to_string())
            .arg((places.len() / 2).to_string());
        places.into_iter().for_each(|part| call.push(part));
        call
    }

    fn places(standing: &Placement<'_>) -> Vec<Bytes> {
        let fixed = standing.fixed.iter().flat_map(|place| [place.clone().into(), Bytes::from_static(b"0")]);
        let moving = moving_places(&standing.moving).flat_map(|(place, score)| [place.into(), score.into()]);
        fixed.chain(moving).collect()
    }

    /// Returns the arguments with which the append's script keeps the run in these sets and removes it from other sets, in the same step.
    pub(crate) fn append_arguments(&self, standing: &Placement<'_>) -> Vec<Bytes> {
        let member = standing.member.as_str().to_owned();
        let mut parts = vec![self.catalog(standing.run), member.into(), standing.seq.to_string().into()];
        parts.extend(Self::places(standing));
        parts
    }

    /// Adds the run to these sets, before the append of the record.
    pub(crate) fn announce(&self, standing: &Placement<'_>) -> RedisCall {
        self.call("announce", standing.run, standing.member, standing.seq, Self::places(standing))
    }

    /// Keeps the run in these sets and removes it from other sets, unless a writer has announced a later record.
    pub(crate) fn settle_call(&self, standing: &Placement<'_>) -> RedisCall {
        self.call("settle", standing.run, standing.member, standing.seq, Self::places(standing))
    }

    /// Removes all entries of a generation of the run that has ended, or that never started.
    pub(crate) fn remove_call(&self, run: &RunKey, member: &Member) -> RedisCall {
        self.call("forget", run, member, Seq::new(0), Vec::new())
    }

    /// Removes all entries of a member if a reader did not find its run after `waited`. Keeps the member if its announcement was recent when the
    /// reader started, because its record may exist by now.
    pub(crate) fn lapse(&self, run: &RunKey, member: &Member, waited: Duration) -> RedisCall {
        let waited = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        self.call("lapse", run, member, Seq::new(waited), Vec::new())
    }

    /// Runs an operation as a test, in one shard, with keys that belong to no run.
    pub(crate) fn probe(&self, operation: &'static str, shard: u16) -> RedisCall {
        let catalog = format!("{}{}", self.layout.shard(shard), place::CATALOG);
        let call = RedisCall::each(&INDEX, &self.common, catalog.into()).with_more_keys();
        [operation, "probe", "0", "1", "o:probe", "0"].into_iter().fold(call, RedisCall::arg)
    }

    /// Returns the number of shards of the index.
    pub(crate) fn shards(&self) -> u16 {
        self.shards
    }

    /// Returns the key of an index set in each shard.
    pub(crate) fn keys(&self, place: &str) -> impl Iterator<Item = Bytes> {
        (0..self.shards.max(1)).map(move |shard| Bytes::from(format!("{}{place}", self.layout.shard(shard))))
    }
}
