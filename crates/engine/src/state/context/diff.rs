//! Compares two contexts, key by key.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::join::{compare, difference, mismatch};
use super::update::KeyChange;
use super::{Context, ContextUpdate};
use crate::error::Result;
use crate::state::json_equality::{begins_with, is_same_json};
use crate::state::schema::Reducer;

pub(super) fn diff(before: &Context, after: Context) -> Result<ContextUpdate> {
    let mut update = ContextUpdate::default();
    for key in before.values.keys().filter(|key| !after.values.contains_key(*key)) {
        update = update.with(key.clone(), KeyChange::RemoveChannel);
    }
    for (key, value) in after.values {
        let old = before.values.get(&key);
        // Unedited values are still shared, so most keys cost one comparison of pointers.
        if old.is_some_and(|old| Arc::ptr_eq(old, &value) || is_same_json(old, &value)) {
            continue;
        }
        let value = Arc::unwrap_or_clone(value);
        let reducer = before.schema.reducer(&key);
        update = compare_key(update, key, reducer, old.map(|old| &**old), value)?;
    }
    Ok(update)
}

/// Converts the change of an edited key to an input of its reducer. If the reducer cannot produce the change, the new value overwrites the key.
fn compare_key(
    update: ContextUpdate,
    key: String,
    reducer: &Reducer,
    before: Option<&Value>,
    after: Value,
) -> Result<ContextUpdate> {
    let change = match (reducer, before, after) {
        (Reducer::Append, None, Value::Array(items)) => KeyChange::Append(items),
        (Reducer::Union, None, items @ Value::Array(_)) => KeyChange::Reduce(items),
        (Reducer::Append, Some(Value::Array(old)), Value::Array(mut new)) if begins_with(&new, old) => {
            KeyChange::Append(new.split_off(old.len()))
        }
        (Reducer::Union, Some(Value::Array(old)), Value::Array(mut new)) if new.starts_with(old) => {
            KeyChange::Reduce(Value::Array(new.split_off(old.len())))
        }
        (Reducer::Merge, None, Value::Object(entries)) => KeyChange::Merge(entries),
        (Reducer::Merge, Some(Value::Object(old)), Value::Object(new)) => {
            let removed: Vec<String> = old.keys().filter(|name| !new.contains_key(*name)).cloned().collect();
            let changed: Map<String, Value> = new
                .into_iter()
                .filter(|(name, value)| !old.get(name).is_some_and(|old| is_same_json(old, value)))
                .collect();
            // An empty merge would recreate a channel that a concurrent node has removed.
            let update =
                if changed.is_empty() { update } else { update.with(key.clone(), KeyChange::Merge(changed)) };
            return Ok(update.remove_keys(key, removed));
        }
        (Reducer::Max | Reducer::Min, old, new) => {
            let joins = match old {
                None | Some(Value::Null) => true,
                Some(old) => {
                    compare(&new, old).is_some_and(|order| order.is_gt() == (*reducer == Reducer::Max))
                }
            };
            if joins { KeyChange::Reduce(new) } else { KeyChange::Set(new) }
        }
        (Reducer::Sum, None | Some(Value::Null), new @ Value::Number(_)) => KeyChange::Reduce(new),
        (Reducer::Sum, Some(Value::Number(old)), Value::Number(new)) => {
            KeyChange::Reduce(difference(&key, old, &new)?)
        }
        (Reducer::Sum, _, other) => return Err(mismatch(&key, "sum", "numbers", &other)),
        (Reducer::First, None | Some(Value::Null), new) => KeyChange::Reduce(new),
        (_, _, new) => KeyChange::Set(new),
    };
    Ok(update.with(key, change))
}
