//! Applies an update to a context. If an operation fails, the context stays unchanged.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::join::{ReducerResult, join, mismatch};
use super::update::KeyChange;
use super::{Context, ContextUpdate};
use crate::error::Result;
use crate::state::channel::ChannelId;
use crate::state::writer::{PatchWriter, Write};

pub(super) fn apply(context: &mut Context, update: &ContextUpdate, patch: &mut PatchWriter) -> Result<()> {
    update.check()?;
    let mut undo = Vec::new();
    for (key, change) in &update.changes {
        if let Err(error) = apply_one(context, key, change, patch, &mut undo) {
            for step in undo.into_iter().rev() {
                step.run(context);
            }
            return Err(error);
        }
    }
    Ok(())
}

/// The inverse of one change.
enum Undo {
    Restore(String, Option<Arc<Value>>),
    /// The array of this key had this length. An undo removes the appended items, so the old array need not be copied.
    Truncate(String, usize),
}

impl Undo {
    fn run(self, context: &mut Context) {
        match self {
            Self::Restore(key, Some(value)) => {
                context.values.insert(key, value);
            }
            Self::Restore(key, None) => {
                context.values.remove(&key);
            }
            Self::Truncate(key, len) => {
                if let Some(Value::Array(items)) = context.get_value_mut(&key) {
                    items.truncate(len);
                }
            }
        }
    }
}

fn apply_one(
    context: &mut Context,
    key: &str,
    change: &KeyChange,
    patch: &mut PatchWriter,
    undo: &mut Vec<Undo>,
) -> Result<()> {
    let channel = ChannelId::new(context.schema.channel_index(key), key.to_owned());
    let current = context.get_value(key);
    match change {
        KeyChange::Set(value) => set(context, &channel, value.clone(), Write::Overwritten, patch, undo),
        KeyChange::Reduce(input) => match join(key, context.schema.reducer(key), current, input)? {
            (ReducerResult::Keep, _) => Ok(()),
            (ReducerResult::Append(items), _) => append(context, &channel, &items, patch, undo),
            (ReducerResult::Merge(entries), _) => merge(context, &channel, &entries, patch, undo),
            (ReducerResult::Replace(value), overwrites) => {
                let write = if overwrites { Write::Overwritten } else { Write::Reduced };
                set(context, &channel, value, write, patch, undo)
            }
        },
        KeyChange::Append(items) => append(context, &channel, items, patch, undo),
        KeyChange::Merge(entries) => merge(context, &channel, entries, patch, undo),
        KeyChange::RemoveKeys(names) => remove_keys(context, &channel, names, patch, undo),
        KeyChange::RemoveChannel => {
            if current.is_some() {
                patch.remove_channel(&channel);
                let old = context.values.remove(key);
                undo.push(Undo::Restore(key.to_owned(), old));
            }
            Ok(())
        }
    }
}

fn set(
    context: &mut Context,
    channel: &ChannelId,
    value: Value,
    write: Write,
    patch: &mut PatchWriter,
    undo: &mut Vec<Undo>,
) -> Result<()> {
    patch.set(channel, &value, write)?;
    let key = channel.name().to_owned();
    let old = context.values.insert(key.clone(), Arc::new(value));
    undo.push(Undo::Restore(key, old));
    Ok(())
}

fn append(
    context: &mut Context,
    channel: &ChannelId,
    items: &[Value],
    patch: &mut PatchWriter,
    undo: &mut Vec<Undo>,
) -> Result<()> {
    let key = channel.name();
    match context.values.get_mut(key) {
        Some(value) => {
            if !value.is_array() {
                return Err(mismatch(key, "append", "an array", value));
            }
            patch.append(channel, items)?;
            if let (false, Value::Array(there)) = (items.is_empty(), Arc::make_mut(value)) {
                undo.push(Undo::Truncate(key.to_owned(), there.len()));
                there.extend_from_slice(items);
            }
        }
        // A patch appends and merges only existing items, so set an empty value.
        None if items.is_empty() => {
            return set(context, channel, Value::Array(Vec::new()), Write::Reduced, patch, undo);
        }
        None => {
            patch.append(channel, items)?;
            context.values.insert(key.to_owned(), Arc::new(Value::Array(items.to_vec())));
            undo.push(Undo::Restore(key.to_owned(), None));
        }
    }
    Ok(())
}

fn merge(
    context: &mut Context,
    channel: &ChannelId,
    entries: &Map<String, Value>,
    patch: &mut PatchWriter,
    undo: &mut Vec<Undo>,
) -> Result<()> {
    let key = channel.name();
    if let Some(other) = context.get_value(key).filter(|value| !value.is_object()) {
        return Err(mismatch(key, "merge", "an object", other));
    }
    if entries.is_empty() {
        return match context.contains_key(key) {
            true => Ok(()),
            false => set(context, channel, Value::Object(Map::new()), Write::Reduced, patch, undo),
        };
    }
    let pairs: Vec<(&String, &Value)> = entries.iter().collect();
    patch.merge(channel, &pairs)?;
    undo.push(Undo::Restore(key.to_owned(), context.values.get(key).cloned()));
    let there = context.values.entry(key.to_owned()).or_insert_with(|| Arc::new(Value::Object(Map::new())));
    if let Value::Object(there) = Arc::make_mut(there) {
        there.extend(entries.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
    Ok(())
}

fn remove_keys(
    context: &mut Context,
    channel: &ChannelId,
    names: &[String],
    patch: &mut PatchWriter,
    undo: &mut Vec<Undo>,
) -> Result<()> {
    let key = channel.name();
    let Some(value) = context.values.get_mut(key) else { return Ok(()) };
    if !value.is_object() {
        return Err(mismatch(key, "removing keys", "an object", value));
    }
    patch.remove_keys(channel, names)?;
    undo.push(Undo::Restore(key.to_owned(), Some(Arc::clone(value))));
    if let Value::Object(there) = Arc::make_mut(value) {
        for name in names {
            there.remove(name);
        }
    }
    Ok(())
}
