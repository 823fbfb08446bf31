//! One run of a watched run tree, with its position, its undelivered records, and its state if the watch includes states.

use crate::kernel::feed::run_feed::LogReads;
use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{broadcast, watch};

use super::request::WatchFilter;
use crate::error::Result;
use crate::id::{RunId, RunKey};
use crate::kernel::feed::cursor::LogCursor;
use crate::kernel::feed::record_events::{ChildRelation, WatchedRecord};
use crate::kernel::feed::run_feed::{LiveSignal, RunFeed, TailRead};
use crate::kernel::feed::watch_event::{RecordedEvent, WatchEvent, WatchEventKind};
use crate::kernel::inner::RuntimeInner;
use crate::past::{folded_at, secrets};
use crate::state::{Channels, Patch, Secrets, strict};
use crate::store::At;

/// A watched run.
pub(super) struct WatchedRun {
    pub(super) run: RunKey,
    /// The path from the watched run to this run.
    pub(super) path: Arc<str>,
    pub(super) cursor: LogCursor,
    feed: Arc<RunFeed>,
    pub(super) wakeups: watch::Receiver<u64>,
    pub(super) live: broadcast::Receiver<LiveSignal>,
    /// Records that are loaded but not delivered.
    batch: VecDeque<MemberRecord>,
    /// The number of live events that must be delivered before the loaded records, because they arrived before the load.
    live_before_batch: usize,
    /// Whether the log may have further records.
    pub(super) is_due: bool,
    /// Whether the run exists and is the expected start.
    pub(super) is_known: bool,
    /// Whether the labels of the run match the filter.
    pub(super) is_wanted: bool,
    /// Whether the run had ended at the last check.
    pub(super) has_ended: bool,
    /// Whether the log of the parent shows that the run has ended. The run is then checked once more.
    pub(super) is_ending: bool,
    /// The parent of the run. `None` for the watched run itself.
    pub(super) parent: Option<RunId>,
    /// The known part of the run's state.
    known: MemberState,
}

/// The state of a run, if the watch requests it.
#[derive(Default)]
struct MemberState {
    /// The state and its version, at the last loaded record.
    state: Option<(Channels, u32)>,
    /// The channels with hidden values.
    secrets: Option<Secrets>,
}

/// A record, its change of the state, and the state after it if requested.
type MemberRecord = (Arc<WatchedRecord>, Option<Patch>, Option<Arc<RawValue>>);

/// The next step in the delivery of one run's events.
#[expect(clippy::large_enum_variant, reason = "it is made to be taken apart by the caller at once")]
pub(super) enum MemberStep {
    /// The run delivers an event, or has no event for a record. With this record, a child may begin.
    Tells { event: Option<WatchEvent>, child: Option<(String, RunId)> },
    /// The run waits until all events of this child are delivered. Then it delivers the end of the child.
    WaitsFor(String),
    /// All loaded records of the run are delivered.
    Nothing,
}

impl WatchedRun {
    pub(super) fn new(shared: &RuntimeInner, run: RunKey, path: Arc<str>, place: LogCursor) -> Self {
        let feed = shared.feeds().feed(&run);
        let (woken, live) = (feed.woken(), feed.live());
        Self {
            run,
            path,
            cursor: place,
            feed,
            wakeups: woken,
            live,
            batch: VecDeque::new(),
            live_before_batch: 0,
            is_due: true,
            is_known: false,
            is_wanted: true,
            has_ended: false,
            is_ending: false,
            parent: None,
            known: MemberState::default(),
        }
    }

    /// Requests chunks of streams, even from other processes.
    pub(super) fn request_chunks(&self) {
        self.feed.request_chunks();
    }

    /// Builds an event of this run.
    pub(super) fn event(&self, entry: Option<&WatchedRecord>, what: WatchEventKind) -> WatchEvent {
        let (seq, at) = (entry.map(|entry| entry.header.seq), entry.map(|entry| entry.header.at));
        WatchEvent { run: self.run.clone(), path: Arc::clone(&self.path), seq, at, what }
    }

    /// Returns whether all loaded records are delivered.
    pub(super) fn is_drained(&self) -> bool {
        self.batch.is_empty()
    }

    /// Takes the next live event to deliver now.
    pub(super) fn take_live(&mut self) -> Option<WatchEventKind> {
        if !self.batch.is_empty() && self.live_before_batch == 0 {
            return None;
        }
        let (what, heard) = match self.live.try_recv() {
            Ok(heard) => (WatchEventKind::from(heard), 1),
            Err(broadcast::error::TryRecvError::Lagged(missed)) => {
                (WatchEventKind::Lagged { missed }, usize::try_from(missed).unwrap_or(usize::MAX))
            }
            Err(_) => {
                self.live_before_batch = 0;
                return None;
            }
        };
        self.live_before_batch = self.live_before_batch.saturating_sub(heard);
        Some(what)
    }

    /// Reads the next records. If the future is dropped, the next call reads them again.
    pub(super) async fn read(&mut self, shared: &RuntimeInner, want: &WatchFilter) -> Result<TailRead> {
        self.wakeups.mark_unchanged();
        let log =
            LogReads { store: &*shared.store, committer: &shared.committer, now: shared.clock.monotonic() };
        let read = self.feed.read(log, &self.cursor, shared.watch_pause() / 2).await?;
        if let TailRead::Records(entries) = &read {
            let heard = self.live.len();
            let mut batch = Vec::with_capacity(entries.len());
            let mut secrets = self.hidden(shared, want).await?;
            let mut state = self.known.state.take();
            for entry in entries {
                if !want.reveals {
                    secrets.add(&entry.secrets);
                }
                let value = match want.values && apply_record(shared, &self.run, &mut state, entry).await? {
                    true => {
                        state.as_ref().map(|(channels, _)| render_state(channels, &secrets)).transpose()?
                    }
                    false => None,
                };
                let patch = entry.patch.as_ref().filter(|_| want.updates);
                let patch = patch.map(|patch| patch.hiding(&secrets)).transpose()?;
                batch.push((Arc::clone(entry), patch, value));
            }
            self.known = MemberState { state, secrets: Some(secrets) };
            self.live_before_batch = heard;
            self.batch.extend(batch);
        }
        Ok(read)
    }

    /// Returns the channels with hidden values, as of the newest record, whatever the position.
    async fn hidden(&self, shared: &RuntimeInner, want: &WatchFilter) -> Result<Secrets> {
        if want.reveals || !(want.values || want.updates) {
            return Ok(Secrets::default());
        }
        match &self.known.secrets {
            Some(known) => Ok(known.clone()),
            None => shared.committer.read(|| secrets(&*shared.store, &self.run)).await,
        }
    }

    /// Takes the next step from the loaded records, and applies the filter. `is_told` returns whether all events of a child are delivered.
    pub(super) fn next(
        &mut self,
        is_told: impl Fn(&str) -> bool,
        wants: impl Fn(&WatchEventKind) -> bool,
    ) -> MemberStep {
        let Some((entry, patch, value)) = self.batch.front() else { return MemberStep::Nothing };
        if let Some(ChildRelation::Told { way }) = &entry.kin
            && self.cursor.part == 0
            && !is_told(way)
        {
            return MemberStep::WaitsFor(way.clone());
        }
        let mut wanted = (self.cursor.part as usize..entry.parts()).filter_map(|part| {
            let what = WatchEventKind::Recorded(part_of(entry, part, patch.as_ref(), value.as_ref())?);
            wants(&what).then_some((part, what))
        });
        let event = wanted.next().map(|(_, what)| self.event(Some(entry), what));
        if let Some((part, _)) = wanted.next() {
            self.cursor = self.cursor.inside(&entry.header, u32::try_from(part).unwrap_or(u32::MAX));
            return MemberStep::Tells { event, child: None };
        }
        drop(wanted);
        let child = match &entry.kin {
            Some(ChildRelation::Begins { way, run }) => Some((way.clone(), run.clone())),
            _ => None,
        };
        self.cursor = LogCursor::after(&entry.header);
        self.batch.pop_front();
        MemberStep::Tells { event, child }
    }
}

/// Returns the event of a record with this index, if there is one.
fn part_of(
    entry: &WatchedRecord,
    part: usize,
    patch: Option<&Patch>,
    value: Option<&Arc<RawValue>>,
) -> Option<RecordedEvent> {
    match part.checked_sub(entry.told.len()) {
        None => entry.told.get(part).cloned(),
        Some(0) => patch.map(|patch| RecordedEvent::Update { patch: patch.clone() }),
        Some(1) => value.map(|state| RecordedEvent::Value { state: Arc::clone(state) }),
        Some(_) => entry.status.map(|status| RecordedEvent::Status { status }),
    }
}

/// Serializes a state without hidden values.
fn render_state(channels: &Channels, secrets: &Secrets) -> Result<Arc<RawValue>> {
    if secrets.is_empty() {
        return Ok(strict::state_to_raw_value(channels)?.into());
    }
    let mut state = Value::from(channels.clone());
    secrets.hide(&mut state);
    Ok(strict::state_to_raw_value(&state)?.into())
}

/// Applies a record to the state. Returns whether the record replaces or changes the state.
async fn apply_record(
    shared: &RuntimeInner,
    run: &RunKey,
    state: &mut Option<(Channels, u32)>,
    entry: &WatchedRecord,
) -> Result<bool> {
    match (&mut *state, &entry.base) {
        (Some((channels, version)), base) => match base {
            // The base is of a newer type, which converted the channels, or only the full state is known.
            Some((of, text)) if entry.begins || of != version => {
                (*channels, *version) = (Channels::from_json(text.get())?, *of);
            }
            _ => {
                if let Some(patch) = &entry.patch {
                    channels.apply(patch)?;
                }
            }
        },
        (None, Some((version, text))) => *state = Some((Channels::from_json(text.get())?, *version)),
        (None, None) => {
            let read = || folded_at(&*shared.store, run, At::Seq(entry.header.seq), None);
            let folded = shared.committer.read(read).await?;
            *state = Some((folded.channels, folded.version));
        }
    }
    Ok(entry.patch.is_some() || entry.begins)
}
