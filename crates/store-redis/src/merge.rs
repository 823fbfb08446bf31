//! Reads several sorted sets as one: in order, without duplicates, from a position on.

use std::collections::VecDeque;

use bytes::Bytes;
use ferrata_store::{Order, Timestamp};

use crate::error::RedisStoreError;
use crate::layout::{Member, place_in_time};
use crate::link::{RedisCall, RedisLink};
use crate::reply::{ReplyParts, bytes};

/// The maximum number of members to read from a sorted set at once.
const CHUNK: usize = 500;

/// A run that may match a query.
#[derive(Clone, Debug)]
pub(crate) struct RunCandidate {
    pub(crate) member: Member,
    /// The index set in which the run was found.
    pub(crate) place: String,
}

/// The range of members to read, and their order.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    order: Order,
    /// Bounds in the form of `ZRANGE ... BYLEX`: `-`, `+`, `[text` or `(text`.
    lower: String,
    upper: String,
}

impl Range {
    /// `after` is the position at which the previous page ended: creation, tenant and run, in one text.
    pub(crate) fn new(
        order: Order,
        after: Option<&str>,
        from: Option<Timestamp>,
        before: Option<Timestamp>,
    ) -> Self {
        let mut lower = from.map(|from| format!("[{}", place_in_time(from)));
        let mut upper = before.map(|before| format!("({}", place_in_time(before)));
        match (order, after) {
            // In a member, a comma and the generation follow the run's name. A dash is the character after the comma. So this bound is after every
            // generation of the run, and before every longer name with this prefix.
            (Order::OldestFirst | Order::Any, Some(after)) => lower = lower.max(Some(format!("[{after}-"))),
            (Order::NewestFirst, Some(after)) => {
                let bound = format!("({after},");
                upper = Some(upper.map_or(bound.clone(), |upper| upper.min(bound)));
            }
            _ => {}
        }
        Self { order, lower: lower.unwrap_or_else(|| "-".into()), upper: upper.unwrap_or_else(|| "+".into()) }
    }

    fn holds(&self, member: &Member) -> bool {
        let text = member.as_str();
        self.lower.strip_prefix('[').is_none_or(|lower| text >= lower)
            && self.lower.strip_prefix('(').is_none_or(|lower| text > lower)
            && self.upper.strip_prefix('(').is_none_or(|upper| text < upper)
    }

    fn is_before(&self, one: &Member, other: &Member) -> bool {
        match self.order {
            Order::OldestFirst | Order::Any => one < other,
            Order::NewestFirst => one > other,
        }
    }

    /// Moves the range to begin after this member.
    fn continue_after(&mut self, last: &Member) {
        match self.order {
            Order::OldestFirst | Order::Any => self.lower = format!("({}", last.as_str()),
            Order::NewestFirst => self.upper = format!("({}", last.as_str()),
        }
    }
}

/// A sorted set that is being read.
#[derive(Debug)]
struct SortedSet {
    place: String,
    key: Bytes,
    range: Range,
    read: VecDeque<Member>,
    is_over: bool,
}

/// Several sorted sets, read as one.
#[derive(Debug)]
pub(crate) struct SetMerge {
    sources: Vec<SortedSet>,
    order: Range,
    last: Option<Member>,
}

impl SetMerge {
    pub(crate) fn of(sets: impl Iterator<Item = (String, Bytes)>, range: &Range) -> Self {
        let source = |(place, key)| SortedSet {
            place,
            key,
            range: range.clone(),
            read: VecDeque::new(),
            is_over: false,
        };
        Self { sources: sets.map(source).collect(), order: range.clone(), last: None }
    }

    /// Uses candidates that are already read, in any order.
    pub(crate) fn listed(mut candidates: Vec<RunCandidate>, range: &Range) -> Self {
        candidates.retain(|candidate| range.holds(&candidate.member));
        candidates.sort_by(|one, other| match range.order {
            Order::OldestFirst | Order::Any => one.member.cmp(&other.member),
            Order::NewestFirst => other.member.cmp(&one.member),
        });
        let place = candidates.first().map(|candidate| candidate.place.clone()).unwrap_or_default();
        let read = candidates.into_iter().map(|candidate| candidate.member).collect();
        let source = SortedSet { place, key: Bytes::new(), range: range.clone(), read, is_over: true };
        Self { sources: vec![source], order: range.clone(), last: None }
    }

    /// Returns up to `count` more candidates. An empty result means that no more exist.
    pub(crate) async fn next(
        &mut self,
        link: &RedisLink,
        count: usize,
    ) -> Result<Vec<RunCandidate>, RedisStoreError> {
        let mut found = Vec::new();
        while found.len() < count {
            self.fill(link, count).await?;
            let Some(best) = self.best() else { break };
            let source = &mut self.sources[best];
            let Some(member) = source.read.pop_front() else { break };
            // A run that is in two sets is one candidate.
            if self.last.as_ref() != Some(&member) {
                self.last = Some(member.clone());
                found.push(RunCandidate { member, place: source.place.clone() });
            }
        }
        Ok(found)
    }

    /// Returns the set whose next member comes first.
    fn best(&self) -> Option<usize> {
        let mut best: Option<(usize, &Member)> = None;
        for (at, source) in self.sources.iter().enumerate() {
            if let Some(next) = source.read.front()
                && best.is_none_or(|(_, first)| self.order.is_before(next, first))
            {
                best = Some((at, next));
            }
        }
        best.map(|(at, _)| at)
    }

    /// Reads more members of each set that has none left in memory, because its next member may come first.
    async fn fill(&mut self, link: &RedisLink, count: usize) -> Result<(), RedisStoreError> {
        let mut dry: Vec<&mut SortedSet> =
            self.sources.iter_mut().filter(|source| !source.is_over && source.read.is_empty()).collect();
        if dry.is_empty() {
            return Ok(());
        }
        let chunk = count.clamp(1, CHUNK);
        let calls: Vec<RedisCall> = dry
            .iter()
            .map(|source| {
                let Range { order, lower, upper } = source.range.clone();
                let call = RedisCall::plain(&["ZRANGE"], source.key.clone());
                let call = match order {
                    Order::OldestFirst | Order::Any => call.arg(lower).arg(upper).arg("BYLEX"),
                    Order::NewestFirst => call.arg(upper).arg(lower).arg("BYLEX").arg("REV"),
                };
                call.arg("LIMIT").arg("0").arg(chunk.to_string())
            })
            .collect();
        for (source, reply) in dry.iter_mut().zip(link.many(calls, None).await) {
            let mut count = 0;
            for member in ReplyParts::of(reply?)? {
                count += 1;
                match Member::parse(&bytes(member)?) {
                    Some(member) => source.read.push_back(member),
                    None => tracing::warn!(
                        place = source.place,
                        "skipped an entry of the index that is not a run"
                    ),
                }
            }
            source.is_over = count < chunk;
            match source.read.back() {
                Some(last) => source.range.continue_after(last),
                // All entries are foreign, so the position after them is unknown.
                None => source.is_over = true,
            }
        }
        Ok(())
    }
}
