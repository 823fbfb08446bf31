//! Changes of the index: which calls announce where a run will stand, and settle where it stands.

use bytes::Bytes;
use ferrata_core::{RunKey, Seq};

use crate::layout::{Layout, Member, place, shard_of};
use crate::link::Call;
use crate::scripts::INDEX;

/// Makes calls to the index.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    layout: Layout,
    shards: u16,
    grace_ms: Bytes,
}

/// What a caller knows of a run's place in the index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing<'a> {
    pub(crate) run: &'a RunKey,
    pub(crate) member: &'a Member,
    /// The record that brings it there.
    pub(crate) seq: Seq,
    /// Where it stands for good.
    pub(crate) fixed: &'a [String],
    /// Where it stands with that record, as `moving_places` says.
    pub(crate) moving: &'a str,
}

impl Index {
    pub(crate) fn new(layout: Layout, shards: u16, stale_after: std::time::Duration) -> Self {
        Self { layout, shards, grace_ms: stale_after.as_millis().to_string().into() }
    }

    fn call(&self, operation: &'static str, run: &RunKey, member: &Member, seq: Seq) -> Call {
        let shard = self.layout.shard(shard_of(run, self.shards));
        Call::script(&INDEX, vec![format!("{shard}{}", place::CATALOG).into()])
            .arg(Bytes::from_static(operation.as_bytes()))
            .arg(member.as_str().to_owned())
            .arg(seq.to_string())
            .arg(shard)
            .arg(self.grace_ms.clone())
    }

    fn with_places(mut call: Call, standing: &Standing<'_>) -> Call {
        for fixed in standing.fixed {
            call.push(fixed.clone());
            call.push(Bytes::from_static(b"0"));
        }
        for moving in standing.moving.split(' ') {
            let (place, score) = moving.split_once('=').unwrap_or((moving, "0"));
            call.push(place.to_owned());
            call.push(score.to_owned());
        }
        call
    }

    /// Takes these places, before the record is written.
    pub(crate) fn announce(&self, standing: &Standing<'_>) -> Call {
        Self::with_places(self.call("announce", standing.run, standing.member, standing.seq), standing)
    }

    /// Keeps these places and gives up the others, unless somebody announced a later record.
    pub(crate) fn settle(&self, standing: &Standing<'_>) -> Call {
        Self::with_places(self.call("settle", standing.run, standing.member, standing.seq), standing)
    }

    /// Gives up every place of a life that has ended, or never began.
    pub(crate) fn forget(&self, run: &RunKey, member: &Member) -> Call {
        self.call("forget", run, member, Seq::new(0))
    }

    /// Gives up every place of a member that no run was found for, unless it was announced lately.
    pub(crate) fn lapse(&self, run: &RunKey, member: &Member) -> Call {
        self.call("lapse", run, member, Seq::new(0))
    }

    /// Into how many shards it is divided.
    pub(crate) fn shards(&self) -> u16 {
        self.shards
    }

    /// The key of a place in each shard.
    pub(crate) fn keys(&self, place: &str) -> impl Iterator<Item = Bytes> {
        (0..self.shards.max(1)).map(move |shard| Bytes::from(format!("{}{place}", self.layout.shard(shard))))
    }
}
