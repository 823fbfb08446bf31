//! A queue as the channels of a run, and what was changed as a patch of them.

use std::collections::{BTreeMap, BTreeSet};

use ferrata_core::state::{Channels, Context, Op as PatchOp, Patch};
use ferrata_core::{Error, ErrorKind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Ledger, Touched};

const SETTINGS: &str = "settings";
const OVERRIDES: &str = "overrides";
const PULSE: &str = "pulse";
const HELD: &str = "held";
const WAITING: &str = "waiting";
const LATE: &str = "late";
const REPLACED: &str = "replaced";
const KEYS: &str = "keys";
const SEEN: &str = "seen";

impl Ledger {
    /// Reads a queue.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`]: it is none, or was written by a newer program.
    pub(crate) fn read(channels: &Channels) -> Result<Self> {
        let mut ledger = Self::new(read(channels, SETTINGS)?);
        ledger.overrides = read_or_default(channels, OVERRIDES)?;
        ledger.pulse = read_or_default(channels, PULSE)?;
        ledger.held = read_or_default(channels, HELD)?;
        ledger.waiting = read_or_default(channels, WAITING)?;
        ledger.late = read_or_default(channels, LATE)?;
        ledger.replaced = read_or_default(channels, REPLACED)?;
        ledger.keys = read_or_default(channels, KEYS)?;
        ledger.seen = read_or_default(channels, SEEN)?;
        for held in ledger.held.values() {
            ledger.in_use = ledger.in_use.saturating_add(held.places);
            let load = ledger.loads.entry(held.key.clone()).or_default();
            load.places = load.places.saturating_add(held.places);
            load.entries += 1;
        }
        for waiting in ledger.waiting.values() {
            ledger.loads.entry(waiting.key.clone()).or_default().entries += 1;
        }
        for key in ledger.keys.keys() {
            ledger.loads.entry(key.clone()).or_default();
        }
        ledger.deadline = ledger.waiting.values().filter_map(|waiting| waiting.deadline).min();
        Ok(ledger)
    }

    /// Returns the state in which the log of a queue begins.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it cannot be stored.
    pub(crate) fn first(&self) -> Result<Context> {
        let mut state = Context::new();
        state.set(SETTINGS, &self.settings)?;
        Ok(state)
    }

    /// Returns what was changed since this was called last; empty if nothing was.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it cannot be stored.
    pub(crate) fn patch(&mut self) -> Result<Patch> {
        let touched: Touched = std::mem::take(&mut self.touched);
        let mut ops = Vec::new();
        for (name, is_touched, value) in [
            (SETTINGS, touched.settings, to_value(&self.settings)?),
            (OVERRIDES, touched.overrides, to_value(&self.overrides)?),
            (PULSE, touched.pulse, to_value(&self.pulse)?),
        ] {
            if is_touched {
                ops.push(PatchOp::Set(name.to_owned(), value));
            }
        }
        entries(&mut ops, HELD, &self.held, touched.held)?;
        entries(&mut ops, WAITING, &self.waiting, touched.waiting)?;
        entries(&mut ops, LATE, &self.late, touched.late)?;
        entries(&mut ops, REPLACED, &self.replaced, touched.replaced)?;
        entries(&mut ops, KEYS, &self.keys, touched.keys)?;
        entries(&mut ops, SEEN, &self.seen, touched.seen)?;
        Patch::from_ops(&ops)
    }
}

/// Puts in entries that are there, and takes out those that are not.
fn entries<T: Serialize>(
    ops: &mut Vec<PatchOp>,
    name: &str,
    all: &BTreeMap<String, T>,
    touched: BTreeSet<String>,
) -> Result<()> {
    let (mut put, mut gone) = (Map::new(), Vec::new());
    for id in touched {
        match all.get(&id) {
            Some(entry) => drop(put.insert(id, to_value(entry)?)),
            None => gone.push(id),
        }
    }
    if !put.is_empty() {
        ops.push(PatchOp::Merge(name.to_owned(), put));
    }
    // An empty list would take the channel away.
    if !gone.is_empty() {
        ops.push(PatchOp::Remove(name.to_owned(), gone));
    }
    Ok(())
}

fn to_value(value: &impl Serialize) -> Result<Value> {
    serde_json::to_value(value)
        .map_err(|source| Error::new(ErrorKind::Invalid, "the queue cannot be stored").with_source(source))
}

fn read<T: DeserializeOwned>(channels: &Channels, name: &str) -> Result<T> {
    serde_json::from_value(channels.get(name).cloned().unwrap_or_default()).map_err(|source| {
        let message = format!("its channel `{name}` is no queue's, or was written by a newer program");
        Error::new(ErrorKind::Unsupported, message).with_source(source)
    })
}

fn read_or_default<T: DeserializeOwned + Default>(channels: &Channels, name: &str) -> Result<T> {
    match channels.get(name) {
        None | Some(Value::Null) => Ok(T::default()),
        Some(_) => read(channels, name),
    }
}
