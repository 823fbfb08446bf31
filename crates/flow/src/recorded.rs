//! The operations that a run recorded before an attempt, by key.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use ferrata_core::Timestamp;
use ferrata_core::node::{NodeContext, RecordedKind};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::entry::{FlowEntry, OperationKind, READ_TAG, STEP_TAG, VALUE_TAG};
use crate::error::{FailureRecord, FlowError};

/// Suffixes of record names. An operation can have several records: the name of an additional record is the key of the operation, a dot and a suffix.
pub(crate) const FAILED: &str = "failed";
pub(crate) const BEGUN: &str = "begun";
pub(crate) const SPAWNED: &str = "spawned";
pub(crate) const OUTCOME: &str = "outcome";
pub(crate) const RETRY: &str = "retry";
pub(crate) const UNDO_RETRY: &str = "undo";

/// One recorded operation.
#[derive(Clone, Debug)]
pub(crate) struct RecordedEntry {
    pub(crate) kind: OperationKind,
    /// Whether the result or the failure of the operation is recorded.
    pub(crate) has_result: bool,
    /// Whether the operation ends without a wait: its result is recorded, its timer has expired, or its child was started.
    pub(crate) has_ended: bool,
    /// The result of a step, a value, a patch or a compensation.
    pub(crate) text: Option<Arc<RawValue>>,
    /// The error of the operation, if the operation failed.
    pub(crate) failure: Option<Arc<FailureRecord>>,
    /// The position of this operation in the recorded order, in which operations ended while others were open.
    pub(crate) place: Option<usize>,
    /// The position in the same order at which the function saw that a child ended or failed.
    pub(crate) end_place: Option<usize>,
    /// Whether the start of a child is recorded.
    pub(crate) has_begun: bool,
    /// The number of failed tries of a step.
    pub(crate) retry_count: u32,
    /// The number of times that an external step started.
    pub(crate) begun_count: u32,
    /// The time at which a timer expires.
    pub(crate) until: Option<Timestamp>,
    /// Whether a later version of the function may omit the operation, because it has no effect or the function retired its name.
    pub(crate) is_safe: bool,
    /// Whether the function requested the operation in this attempt.
    pub(crate) is_claimed: bool,
}

impl RecordedEntry {
    fn new(kind: OperationKind) -> Self {
        Self {
            kind,
            has_result: false,
            has_ended: false,
            text: None,
            failure: None,
            place: None,
            end_place: None,
            has_begun: false,
            retry_count: 0,
            begun_count: 0,
            until: None,
            is_safe: kind.is_safe(),
            is_claimed: false,
        }
    }
}

/// All recorded operations of an activation.
#[derive(Debug, Default)]
pub(crate) struct RecordedEntries {
    pub(crate) by_key: HashMap<String, RecordedEntry>,
    /// The recorded positions with results that the function has not received in this attempt.
    pub(crate) open_places: BTreeSet<usize>,
    /// The number of recorded operations that the function has not requested in this attempt.
    pub(crate) unclaimed: usize,
    /// The number of unclaimed operations that have an effect.
    pub(crate) unclaimed_effects: usize,
    /// The number of unclaimed operations that are compensations.
    pub(crate) unclaimed_undos: usize,
}

impl RecordedEntries {
    /// Reads the records of the activation of `node`.
    pub(crate) fn read(node: &NodeContext) -> Self {
        let operations = node.recorded_operations();
        let by_key = HashMap::with_capacity(operations.len());
        let mut entries = Self { by_key, ..Self::default() };
        for operation in operations {
            let (key, part) = split(&operation.name);
            match operation.kind {
                RecordedKind::Step(text) => match (part, plain_kind(&text)) {
                    (None, Some(kind)) => entries.add_result(operation.name, kind, text, operation.place),
                    _ => entries.add_step(key, part, &text, operation.place),
                },
                RecordedKind::Timer { until } => entries.add_timer(key, part, until, operation.place),
                // Questions about the outcome of an external step belong to the step.
                RecordedKind::Question { .. } if part.is_some() => {}
                RecordedKind::Question { is_closed } => {
                    let entry = entries.entry(key, OperationKind::Question);
                    entry.has_result |= is_closed;
                    if entry.failure.is_none() {
                        entry.place = operation.place;
                    }
                }
                RecordedKind::Message { has_ended } => {
                    let entry = entries.entry(key, OperationKind::Message);
                    entry.has_result |= has_ended;
                    entry.place = operation.place;
                }
                RecordedKind::Child { has_begun, has_ended, end_place, .. } => {
                    let entry = entries.entry(key, OperationKind::Child);
                    entry.has_begun = has_begun;
                    entry.has_result |= has_ended;
                    entry.place = operation.place;
                    entry.end_place = entry.end_place.or(end_place);
                }
                _ => {}
            }
        }
        let now = node.now();
        let mut places = Vec::new();
        entries.unclaimed = entries.by_key.len();
        for entry in entries.by_key.values_mut() {
            entry.has_ended =
                entry.has_result || entry.has_begun || entry.until.is_some_and(|until| until <= now);
            places.extend(entry.place.into_iter().chain(entry.end_place));
            entries.unclaimed_undos += usize::from(entry.kind == OperationKind::Undo);
            entries.unclaimed_effects += usize::from(!entry.is_safe);
        }
        entries.open_places = places.into_iter().collect();
        entries
    }

    fn entry(&mut self, key: &str, kind: OperationKind) -> &mut RecordedEntry {
        self.by_key.entry(key.to_owned()).or_insert_with(|| RecordedEntry::new(kind))
    }

    /// Adds the result of an operation of this kind, and whether it has no effect.
    fn add_result(
        &mut self,
        key: String,
        (kind, is_safe): (OperationKind, bool),
        text: Arc<RawValue>,
        place: Option<usize>,
    ) {
        let entry = self.by_key.entry(key).or_insert_with(|| RecordedEntry::new(kind));
        (entry.kind, entry.is_safe, entry.has_result, entry.place) = (kind, is_safe, true, place);
        entry.text = Some(text);
    }

    fn add_step(&mut self, key: &str, part: Option<&str>, text: &Arc<RawValue>, place: Option<usize>) {
        // A record that is no `FlowEntry` may come from a later version, for example. No operation of the function can request such a record.
        let Ok(record) = serde_json::from_str::<FlowEntry<IgnoredAny>>(text.get()) else {
            let entry = self.entry(key, OperationKind::Step);
            (entry.has_result, entry.text) = (true, Some(Arc::clone(text)));
            return;
        };
        match (record, part) {
            (FlowEntry::Failed(kind, failure), Some(FAILED)) => {
                let entry = self.entry(key, kind);
                (entry.kind, entry.is_safe) = (kind, kind.is_safe());
                entry.failure = Some(Arc::new(failure));
                entry.has_result = true;
                // The function saw the failure when the failure was recorded. Results that came after the end of the wait may precede that record.
                match kind {
                    OperationKind::Child => entry.end_place = place,
                    _ => entry.place = place,
                }
            }
            (FlowEntry::Value(_), Some(SPAWNED)) => {
                let entry = self.entry(key, OperationKind::Child);
                (entry.has_result, entry.end_place) = (true, place);
            }
            (FlowEntry::Begun(count), Some(_)) => {
                let entry = self.entry(key, OperationKind::Step);
                entry.begun_count = entry.begun_count.max(count);
            }
            (record, None) => {
                let (kind, is_safe) = match record {
                    FlowEntry::Read(_) => (OperationKind::Step, true),
                    FlowEntry::Value(_) => (OperationKind::Value, true),
                    FlowEntry::Patch(_) => (OperationKind::Patch, true),
                    FlowEntry::Undo(_) => (OperationKind::Undo, false),
                    _ => (OperationKind::Step, false),
                };
                self.add_result(key.to_owned(), (kind, is_safe), Arc::clone(text), place);
            }
            _ => {}
        }
    }

    fn add_timer(&mut self, key: &str, part: Option<&str>, until: Timestamp, place: Option<usize>) {
        let Some(part) = part else {
            let entry = self.entry(key, OperationKind::Timer);
            (entry.place, entry.until, entry.has_result) = (place, Some(until), place.is_some());
            return;
        };
        let count = |prefix| part.strip_prefix(prefix).and_then(|count: &str| count.parse::<u32>().ok());
        let (kind, count) = match (count(RETRY), count(UNDO_RETRY)) {
            (Some(count), _) => (OperationKind::Step, count),
            (_, Some(count)) => (OperationKind::Undo, count),
            _ => return,
        };
        let entry = self.entry(key, kind);
        entry.retry_count = entry.retry_count.max(count);
    }

    /// Marks the operation as requested by the function. Returns the recorded operation, if there is one.
    pub(crate) fn claim(&mut self, key: &str) -> Option<RecordedEntry> {
        let entry = self.by_key.get_mut(key)?;
        if !std::mem::replace(&mut entry.is_claimed, true) {
            self.unclaimed -= 1;
            self.unclaimed_effects -= usize::from(!entry.is_safe);
            self.unclaimed_undos -= usize::from(entry.kind == OperationKind::Undo);
        }
        // An operation is requested once in an attempt, and takes its result.
        let (text, failure) = (entry.text.take(), entry.failure.take());
        Some(RecordedEntry { text, failure, ..entry.clone() })
    }

    /// Declares that the function may omit the operations of this name.
    pub(crate) fn retire(&mut self, slug: &str) {
        for (key, entry) in &mut self.by_key {
            if slug_of(key) == slug && !entry.is_safe {
                entry.is_safe = true;
                self.unclaimed_effects -= usize::from(!entry.is_claimed);
            }
        }
    }

    /// Returns the first recorded operation with an effect that the function did not request, except operations of the kind `skip`. The order is by
    /// position, then by key.
    pub(crate) fn first_unclaimed(&self, skip: Option<OperationKind>) -> Option<(OperationKind, &str)> {
        let unclaimed = self
            .by_key
            .iter()
            .filter(|(_, entry)| !entry.is_claimed && !entry.is_safe && Some(entry.kind) != skip);
        let first = unclaimed.min_by_key(|(key, entry)| (entry.place.unwrap_or(usize::MAX), key.as_str()));
        first.map(|(key, entry)| (entry.kind, key.as_str()))
    }
}

impl RecordedEntry {
    /// Returns the error that the operation failed with.
    pub(crate) fn error(&self) -> Option<FlowError> {
        self.failure.as_deref().cloned().map(FlowError::of_record)
    }
}

/// Returns the kind of a result, and whether it has no effect, by the first bytes of its record. Most records are results, and a run may have
/// thousands. Returns `None` for other records.
fn plain_kind(text: &RawValue) -> Option<(OperationKind, bool)> {
    let is = |tag: &str| text.get().starts_with(tag);
    match () {
        () if is(STEP_TAG) => Some((OperationKind::Step, false)),
        () if is(READ_TAG) => Some((OperationKind::Step, true)),
        () if is(VALUE_TAG) => Some((OperationKind::Value, true)),
        () => None,
    }
}

/// Splits the name of a record into the key of its operation and the suffix, if there is one.
fn split(name: &str) -> (&str, Option<&str>) {
    let Some((slug, rest)) = name.split_once('.') else { return (name, None) };
    let number = rest.split('.').next().unwrap_or_default();
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return (slug, Some(rest));
    }
    let key = &name[..slug.len() + 1 + number.len()];
    (key, rest.get(number.len() + 1..).filter(|part| !part.is_empty()))
}

/// Returns the name of an operation without its number.
fn slug_of(key: &str) -> &str {
    key.split_once('.').map_or(key, |(slug, _)| slug)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_split_into_key_and_part() {
        assert_eq!(split("pay"), ("pay", None));
        assert_eq!(split("pay.2"), ("pay.2", None));
        assert_eq!(split("pay.retry3"), ("pay", Some("retry3")));
        assert_eq!(split("pay.12.begun"), ("pay.12", Some("begun")));
        assert_eq!(slug_of("pay.12"), "pay");
    }
}
