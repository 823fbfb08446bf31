//! Headers with many different values, for tests of layouts. They come from the table of fields, so a new field is tested in every layout.

use ferrata_store::codec::{Field, Shape, Value};
use ferrata_store::{FORMAT, NodeName, RecordHeader, RecordKind, RunStatus, Timestamp};
use uuid::Uuid;

/// Returns headers that differ from a typical header in one field. They include each value of the field that a layout may handle wrongly.
#[doc(hidden)]
pub fn headers_by_field() -> Vec<(Field, RecordHeader)> {
    let one = |field: Field, value: &Option<Value>| {
        let read = |other: Field| if other == field { value.clone() } else { usual(other) };
        (field, header(read))
    };
    let each = |field: Field| values(field).into_iter().map(move |value| one(field, &value));
    Field::ALL.into_iter().flat_map(each).collect()
}

/// Returns headers that cover the values of each field. The same seed returns the same headers.
#[doc(hidden)]
pub fn any_headers(seed: u64, count: usize) -> Vec<RecordHeader> {
    let mut state = seed;
    let mut next = move || {
        // SplitMix64, as in the ids of `ferrata-store`.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) >> 33).unwrap_or(0)
    };
    let mut any = move |field: Field| {
        let mut values = values(field);
        values.swap_remove(next() % values.len())
    };
    (0..count).map(|_| header(&mut any)).collect()
}

fn header(mut read: impl FnMut(Field) -> Option<Value>) -> RecordHeader {
    let wrong = |field: Field| panic!("{field:?} does not hold what is tried");
    RecordHeader::from_fields(|field| Ok(read(field)), wrong).unwrap_or_else(|never: Never| match never {})
}

enum Never {}

/// Returns the typical value of a field.
fn usual(field: Field) -> Option<Value> {
    let value = match field {
        Field::Seq => Value::Number(300),
        Field::Format => Value::Number(FORMAT.into()),
        Field::Kind => Value::Kind(RecordKind::Node),
        Field::At => Value::Time(Timestamp::from_unix_ms(1_763_700_000_000)),
        Field::WakeAt => return None,
        Field::Base => Value::Flag(false),
        field => return values(field).into_iter().next_back().flatten(),
    };
    Some(value)
}

fn values(field: Field) -> Vec<Option<Value>> {
    // The largest number that every tool handles exactly, including JSON parsers that use floating-point numbers.
    const LARGE: i64 = (1 << 53) - 1;
    const TIMES: [i64; 7] = [-LARGE, -62_135_596_800_001, -1, 0, 1, 1_763_700_000_000, LARGE];
    let mut values: Vec<Value> = match (field, field.shape()) {
        (Field::Format, _) => vec![Value::Number(FORMAT.into())],
        // The number of a record in a database table is below 2^63.
        (Field::Seq, _) => [1, 127, 128, 16_384, 1 << 60].map(Value::Number).into(),
        (_, Shape::Number) => [0, 1, 127, 128, 1 << 31, u32::MAX.into(), 2].map(Value::Number).into(),
        (_, Shape::Time) => TIMES.map(|ms| Value::Time(Timestamp::from_unix_ms(ms))).into(),
        // An id of version 7 with a time in it, and ids of no version.
        (_, Shape::Id) => [0, u128::MAX, 1_763_700_000_000 << 80 | 7 << 76 | field as u128]
            .map(|id| Value::Id(Uuid::from_u128(id)))
            .into(),
        (_, Shape::Kind) => RecordKind::ALL.map(Value::Kind).into(),
        (_, Shape::Status) => RunStatus::ALL.map(Value::Status).into(),
        (_, Shape::Name) => ["-", &"n".repeat(128), "a:b/c_d", "write"]
            .map(|name| Value::Name(NodeName::new(name).unwrap_or_else(|error| panic!("{error}"))))
            .into(),
        (_, Shape::Flag) => [false, true].map(Value::Flag).into(),
        (field, shape) => unreachable!("{field:?} is a {shape:?}, which has no values here"),
    };
    if field == Field::Status {
        // The typical value comes last.
        values.reverse();
    }
    let absent = field.is_optional().then_some(None);
    absent.into_iter().chain(values.into_iter().map(Some)).collect()
}
