//! Checks raw JSON text inside a value, and converts it to the canonical spelling of records.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use super::path::StrictRefusal;
use super::{MAX_DEPTH, Role};

/// Returns the text of a raw value in the canonical spelling of records, if it can be decoded within `room` levels.
pub(super) fn checked_raw<T: ?Sized + Serialize>(
    value: &T,
    room: u8,
    role: Role,
) -> Result<String, StrictRefusal> {
    debug_assert!(room <= MAX_DEPTH + 1, "room only shrinks");
    let Ok(Value::String(text)) = serde_json::to_value(value) else { return Err(StrictRefusal::BadRaw) };
    match serde_json::from_str(&text) {
        Ok(Value::Null) if role == Role::Held => Err(StrictRefusal::NullInSome),
        Ok(value) if fits(&value, room) => normalize_json(&text).ok_or(StrictRefusal::BadRaw),
        _ => Err(StrictRefusal::BadRaw),
    }
}

fn fits(value: &Value, room: u8) -> bool {
    match value {
        Value::Array(items) => room > 0 && items.iter().all(|item| fits(item, room.saturating_sub(1))),
        Value::Object(map) => room > 0 && map.values().all(|item| fits(item, room.saturating_sub(1))),
        _ => true,
    }
}

/// Rewrites valid JSON in the canonical spelling of records: no space between tokens, and texts as `serde_json` writes them. Numbers keep their
/// digits, and objects keep the order of their keys. Returns `None` for invalid text.
///
/// With one spelling, equal texts have equal bytes in comparisons of answers, in messages with the same key, and in searches.
fn normalize_json(json: &str) -> Option<String> {
    let mut normal = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find(['"', ' ', '\t', '\n', '\r']) {
        normal.push_str(&rest[..at]);
        rest = &rest[at..];
        let len = if rest.starts_with('"') { text_len(rest)? } else { 1 };
        let (token, after) = rest.split_at(len);
        match token {
            token if token.contains('\\') => {
                let text: Cow<'_, str> = serde_json::from_str(token).ok()?;
                normal.push_str(&serde_json::to_string(&text).ok()?);
            }
            token if len > 1 => normal.push_str(token),
            _ => {}
        }
        rest = after;
    }
    normal.push_str(rest);
    Some(normal)
}

/// Returns the length of the text at the start of `json`, including quotes.
fn text_len(json: &str) -> Option<usize> {
    let mut at = 1;
    loop {
        at += json.get(at..)?.find(['"', '\\'])?;
        if json[at..].starts_with('"') {
            return Some(at + 1);
        }
        // A backslash and the escaped character.
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_have_one_spelling_and_numbers_keep_digits() {
        for (came, is) in [
            (r#" { "\u0061" : [ 1 , -0.50e+1 ] } "#, r#"{"a":[1,-0.50e+1]}"#),
            (r#""\/\u002F\u0022\\ \u00e9\ud83d\ude00""#, "\"//\\\"\\\\ é😀\""),
            (r#""\u000a\u001F\b""#, r#""\n\u001f\b""#),
            ("123456789012345678901234567890.10", "123456789012345678901234567890.10"),
            (r#"{"b":1,"a":"","b":2}"#, r#"{"b":1,"a":"","b":2}"#),
            (r#"["\"","\\"]"#, r#"["\"","\\"]"#),
        ] {
            assert_eq!(normalize_json(came).as_deref(), Some(is));
        }
    }

    /// JSON with space between tokens, and each character of a text spelled at random.
    fn spelled(value: &Value, random: &mut impl FnMut(usize) -> usize) -> String {
        let space = [" ", "", "\n\t", ""][random(4)];
        let text = |text: &str, random: &mut dyn FnMut(usize) -> usize| {
            let mut units = [0; 2];
            let spell = |c: char| match random(3) {
                0 => c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
                1 if c == '/' => "\\/".to_owned(),
                _ => {
                    let json = Value::from(c.to_string()).to_string();
                    json[1..json.len() - 1].to_owned()
                }
            };
            format!("\"{}\"", text.chars().map(spell).collect::<String>())
        };
        match value {
            Value::Array(items) => {
                let items: Vec<_> = items.iter().map(|item| spelled(item, random)).collect();
                format!("{space}[{space}{}{space}]", items.join(&format!("{space},{space}")))
            }
            Value::Object(map) => {
                let mut entries = Vec::new();
                for (key, value) in map {
                    entries.push(format!("{}{space}:{}", text(key, random), spelled(value, random)));
                }
                format!("{{{space}{}{space}}}{space}", entries.join(&format!("{space},")))
            }
            Value::String(plain) => text(plain, random),
            plain => plain.to_string(),
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<String>().prop_map(Value::from),
            "[a/\\\\\" \n😀]{0,8}".prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            Just(Value::Null),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_spelling_becomes_that_of_serde_json(value in value(), seed: u64) {
            let mut chance = seed;
            let mut random = |limit: usize| {
                chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                usize::try_from(chance >> 33).unwrap() % limit
            };
            let came = spelled(&value, &mut random);
            let read: Value = serde_json::from_str(&came).unwrap();
            prop_assert_eq!(&read, &value);
            prop_assert_eq!(normalize_json(&came), Some(value.to_string()));
        }
    }
}
