//! Makes machines comparable.

use serde_json::{Value, json};

use crate::engine::machine::Machine;

/// Returns the machine's base with names for numbers, so that machines with different numbers compare equal.
pub(super) fn normal(machine: &Machine) -> Value {
    let mut stored: Value = serde_json::from_str(machine.snapshot().unwrap().get()).unwrap();
    let names: Vec<Value> = machine.names().map(|name| json!(name.as_str())).collect();
    rename(&mut stored, &names);
    for list in ["nodes", "in_flight", "stopped_at", "tokens"] {
        if let Some(list) = stored[list].as_array_mut() {
            // Stable: the tokens of one node stay in the order of their arrival.
            let visit =
                |item: &Value| if item["to"].is_null() { place(&item["visit"]) } else { String::new() };
            list.sort_by_key(|item| ([&item["name"], &item["to"], &item["node"]].map(place), visit(item)));
        }
    }
    stored
}

fn place(value: &Value) -> String {
    value.as_str().map_or_else(|| format!("{:>9}", value.to_string()), str::to_owned)
}

fn rename(value: &mut Value, names: &[Value]) {
    let named = |number: &Value| names[usize::try_from(number.as_u64().unwrap()).unwrap()].clone();
    let Value::Object(map) = value else { return };
    for (key, value) in map {
        match (key.as_str(), value) {
            ("from" | "to" | "node", number @ Value::Number(_)) => *number = named(number),
            ("history", Value::Array(ended)) => {
                ended.iter_mut().for_each(|ended| ended[0] = named(&ended[0]))
            }
            ("overwrites", Value::Object(all)) => {
                all.values_mut().for_each(|write| write[1] = named(&write[1]))
            }
            (_, Value::Array(items)) => items.iter_mut().for_each(|item| rename(item, names)),
            _ => {}
        }
    }
}
