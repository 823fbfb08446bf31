//! Stores a queue in the channels of a run, and its changes as a patch of these channels.

use std::collections::BTreeMap;

use ferrata_core::state::{Channels, Context, Op as PatchOp, Patch};
use ferrata_core::{Epoch, Error, ErrorKind, ExecutorId, Result, RunId, RunKey, TenantId, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::entry::StoredSize;
use super::keys::KeyTable;
use super::tracked_map::TrackedMap;
use super::wait_queue::{RUN, WaitQueue, WaiterKey, is_bare};
use super::{DirtyFlags, QueueState, SlotKind, SlotWaiter};

pub(super) const SETTINGS: &str = "settings";
pub(super) const OVERRIDES: &str = "overrides";
pub(super) const PULSE: &str = "pulse";
pub(super) const HELD: &str = "held";
pub(super) const WAITING: &str = "waiting";
pub(super) const LATE: &str = "late";
pub(super) const REPLACED: &str = "replaced";
pub(super) const KEYS: &str = "keys";
pub(super) const SEEN: &str = "seen";

/// Prefix of a channel name; a process id follows. The channel contains the plain waiting runs that this process requested, by their names. Most runs
/// in a long line are plain. Few bytes for each of them allow a longer line.
const PLAIN: &str = "runs.";

/// The stored form of a plain run that waits.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum PlainWaiter {
    Since(Timestamp),
    For(Timestamp, String, i32),
}

impl QueueState {
    /// Reads a queue.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`]: the state is not the state of a queue, or a newer version wrote it.
    pub(crate) fn read(channels: &Channels) -> Result<Self> {
        let mut ledger = Self::new(read(channels, SETTINGS)?);
        ledger.overrides = read_or_default(channels, OVERRIDES)?;
        ledger.grants = read_or_default(channels, PULSE)?;
        ledger.held = table(channels, HELD)?;
        ledger.waiting = line(channels)?;
        ledger.expired = table(channels, LATE)?;
        ledger.replaced = table(channels, REPLACED)?;
        ledger.keys = KeyTable::new(read_or_default(channels, KEYS)?);
        ledger.once_entries = table(channels, SEEN)?;
        for held in ledger.held.values() {
            ledger.in_use = ledger.in_use.saturating_add(held.places);
            ledger.keys.count_stored_entry(&held.key);
            ledger.keys.count_slots(&held.key, held.places);
        }
        for waiting in ledger.waiting.values() {
            ledger.keys.count_stored_entry(&waiting.key);
        }
        Ok(ledger)
    }

    /// Returns the initial state of a queue's run.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the state cannot be stored.
    pub(crate) fn initial_state(&self) -> Result<Context> {
        let mut state = Context::new();
        state.set(SETTINGS, &self.settings)?;
        Ok(state)
    }

    /// Returns the changes since the last call; an empty patch if nothing has changed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the changes cannot be stored.
    pub(crate) fn take_patch(&mut self) -> Result<Patch> {
        let touched: DirtyFlags = std::mem::take(&mut self.dirty);
        let mut ops = Vec::new();
        if touched.settings {
            ops.push(PatchOp::Set(SETTINGS.to_owned(), to_value(&self.settings)?));
        }
        if touched.overrides {
            ops.push(PatchOp::Set(OVERRIDES.to_owned(), to_value(&self.overrides)?));
        }
        if touched.pulse {
            ops.push(PatchOp::Set(PULSE.to_owned(), to_value(&self.grants)?));
        }
        entries(&mut ops, HELD, &mut self.held)?;
        write_waiters(&mut ops, &mut self.waiting)?;
        entries(&mut ops, LATE, &mut self.expired)?;
        entries(&mut ops, REPLACED, &mut self.replaced)?;
        entries(&mut ops, KEYS, self.keys.notes())?;
        entries(&mut ops, SEEN, &mut self.once_entries)?;
        Patch::from_ops(&ops)
    }
}

/// Changes of a channel: inserted entries and removed entries.
#[derive(Default)]
struct ChannelChange {
    put: Map<String, Value>,
    gone: Vec<String>,
}

impl ChannelChange {
    fn record_change(&mut self, name: String, entry: Option<Value>) {
        match entry {
            Some(entry) => drop(self.put.insert(name, entry)),
            None => self.gone.push(name),
        }
    }

    fn push_to(self, ops: &mut Vec<PatchOp>, channel: &str) {
        if !self.put.is_empty() {
            ops.push(PatchOp::Merge(channel.to_owned(), self.put));
        }
        // An empty list would remove the channel.
        if !self.gone.is_empty() {
            ops.push(PatchOp::Remove(channel.to_owned(), self.gone));
        }
    }
}

/// Writes the changes of a table: inserts the touched entries that exist, and removes the others.
fn entries<T: Serialize + StoredSize>(
    ops: &mut Vec<PatchOp>,
    channel: &str,
    table: &mut TrackedMap<T>,
) -> Result<()> {
    let mut change = ChannelChange::default();
    for id in table.take_touched() {
        let entry = table.get(&id).map(to_value).transpose()?;
        change.record_change(id, entry);
    }
    change.push_to(ops, channel);
    Ok(())
}

/// Writes the changes of the line as [`entries`] does. The plain runs of each process have their own channel, which is removed with its last run.
fn write_waiters(ops: &mut Vec<PatchOp>, line: &mut WaitQueue) -> Result<()> {
    let (mut others, mut plain) = (ChannelChange::default(), BTreeMap::<ExecutorId, ChannelChange>::new());
    for (slot, waiting) in line.take_touched() {
        match slot {
            WaiterKey::Plain(executor, run) => {
                let entry = waiting.map(|waiting| match is_bare(waiting) {
                    true => PlainWaiter::Since(waiting.since),
                    false => PlainWaiter::For(waiting.since, waiting.key.clone(), waiting.priority),
                });
                plain
                    .entry(executor)
                    .or_default()
                    .record_change(run, entry.map(|one| to_value(&one)).transpose()?);
            }
            WaiterKey::Other(id) => others.record_change(id, waiting.map(to_value).transpose()?),
        }
    }
    others.push_to(ops, WAITING);
    for (executor, change) in plain {
        let channel = format!("{PLAIN}{executor}");
        // Name the removed entries in any case: followers find each by its name without a scan.
        change.push_to(ops, &channel);
        if !line.has_plain(&executor) {
            ops.push(PatchOp::Remove(channel, Vec::new()));
        }
    }
    Ok(())
}

fn table<T: DeserializeOwned + StoredSize>(channels: &Channels, name: &str) -> Result<TrackedMap<T>> {
    Ok(TrackedMap::new(read_or_default(channels, name)?))
}

fn line(channels: &Channels) -> Result<WaitQueue> {
    let others: BTreeMap<String, SlotWaiter> = read_or_default(channels, WAITING)?;
    let mut all: Vec<_> =
        others.into_iter().map(|(id, one)| (id.clone(), WaiterKey::Other(id), one)).collect();
    for (channel, runs) in channels {
        let Some(executor) = executor_of(channel)? else { continue };
        for (name, one) in runs.as_object().ok_or_else(|| newer_format_error(channel))? {
            let waiting = read_plain_run(channel, executor, name, one)?;
            all.push((format!("{RUN}{}", waiting.run), WaiterKey::Plain(executor, name.clone()), waiting));
        }
    }
    Ok(WaitQueue::new(all))
}

/// Returns the process whose plain runs a channel contains; `None` for a channel with other content.
pub(super) fn executor_of(channel: &str) -> Result<Option<ExecutorId>> {
    let executor = channel.strip_prefix(PLAIN).map(|executor| serde_json::from_value(executor.into()));
    executor.transpose().map_err(|source| newer_format_error(channel).with_source(source))
}

/// Reads a plain waiting run.
pub(super) fn read_plain_run(
    channel: &str,
    executor: ExecutorId,
    name: &str,
    one: &Value,
) -> Result<SlotWaiter> {
    let (since, key, priority) = match entry(channel, one)? {
        PlainWaiter::Since(since) => (since, String::new(), 0),
        PlainWaiter::For(since, key, priority) => (since, key, priority),
    };
    Ok(SlotWaiter {
        run: run_named(channel, name)?,
        kind: SlotKind::Run,
        places: 1,
        key,
        priority,
        since,
        executor,
        epoch: Epoch::NEVER,
        question: None,
        not_before: None,
        deadline: None,
        debounced: None,
        start_ids: Vec::new(),
        alive: None,
    })
}

/// Parses the name of a plain run. The name includes the tenant unless it is the default tenant.
pub(super) fn run_named(channel: &str, name: &str) -> Result<RunKey> {
    let named = match name.split_once('/') {
        Some((tenant, run)) => {
            TenantId::new(tenant).and_then(|tenant| Ok(RunKey::new(tenant, RunId::new(run)?)))
        }
        None => RunKey::try_from(name),
    };
    named.map_err(|source| newer_format_error(channel).with_source(source))
}

/// Parses an entry of a channel, or the value of a whole channel.
pub(super) fn entry<T: DeserializeOwned>(channel: &str, value: &Value) -> Result<T> {
    T::deserialize(value).map_err(|source| newer_format_error(channel).with_source(source))
}

fn to_value(value: &impl Serialize) -> Result<Value> {
    serde_json::to_value(value).map_err(|source| {
        Error::new(ErrorKind::Invalid, "cannot encode the queue as JSON").with_source(source)
    })
}

fn newer_format_error(channel: &str) -> Error {
    let message = format!(
        "cannot read the channel `{channel}` of the queue; upgrade this process if a newer program wrote it"
    );
    Error::new(ErrorKind::Unsupported, message)
}

fn read<T: DeserializeOwned>(channels: &Channels, name: &str) -> Result<T> {
    entry(name, channels.get(name).unwrap_or(&Value::Null))
}

fn read_or_default<T: DeserializeOwned + Default>(channels: &Channels, name: &str) -> Result<T> {
    match channels.get(name) {
        None | Some(Value::Null) => Ok(T::default()),
        Some(_) => read(channels, name),
    }
}
