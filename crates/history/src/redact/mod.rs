//! Redacts a log: replaces the values of the application, so that a run can be shown to others, for example in a bug report.
//!
//! The tables in `form` list the fields of records that stay. The redaction treats every other field as a value of the application, so a new field of
//! a record cannot leak a value.
//!
//! Equal values have equal replacements, in patches as in states. So a replay of the redacted patches results in the redacted state, and each base (a
//! record with the full state) equals the replay of the records before it.

mod form;
mod placeholder;
mod result;

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Number, Value};

use self::form::RecordForm::{Each, Fields, Name};
use self::form::{
    ATTEMPT, BASE, CLAIM, DONE, EDIT, INTENT, NODE, RELEASE, RecordForm, SIGNALS, START, STATUS,
};
use self::placeholder::{PlaceholderTable, is_uuid};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Fingerprint, RunId, RunKey, TenantId};
use crate::record::parent_link::{self, RESERVED};
use crate::record::{Record, RecordKind, RunFacts, codec};

/// The treatment of numbers in a redaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedactedNumbers {
    /// Replaces every number by 0, because a number may be an account or an amount.
    #[default]
    Zero,
    /// Keeps numbers, if they decide the path of the run and are no secret.
    Keep,
}

/// The outcomes of pipeline nodes, which decide the paths of pipelines. They stay as values of the name `outcome`.
const OUTCOMES: [&str; 5] = ["success", "fail", "partial_success", "retry", "skipped"];

/// The texts of shapes that stand for types.
const TYPES: [&str; 17] = [
    "any", "bool", "null", "text", "number", "char", "bytes", "i8", "i16", "i32", "i64", "i128", "u8", "u16",
    "u32", "u64", "u128",
];

/// Replaces the values of the application in the records of one log.
///
/// The redactor keeps the order, kinds, times and ids of records, the kinds of failures, and booleans. It keeps the names of nodes, workflows, steps,
/// questions and topics, and names of channels and fields that look like identifiers. It replaces all other texts. A UUID becomes a UUID, and a date
/// or number in a text keeps its form.
#[derive(Debug, Default)]
pub(crate) struct LogRedactor {
    numbers: RedactedNumbers,
    placeholders: PlaceholderTable,
    runs: BTreeMap<RunId, RunId>,
    tenants: BTreeMap<TenantId, TenantId>,
}

impl LogRedactor {
    pub(crate) fn new(numbers: RedactedNumbers) -> Self {
        Self { numbers, ..Self::default() }
    }

    /// Redacts the key of a run. UUIDs and the default tenant stay.
    ///
    /// # Errors
    ///
    /// No valid key can cause an error.
    pub(crate) fn run_key(&mut self, run: &RunKey) -> Result<RunKey> {
        let tenant = match self.tenants.get(&run.tenant) {
            _ if run.tenant == TenantId::default() => run.tenant.clone(),
            Some(known) => known.clone(),
            None => {
                let placeholder = TenantId::new(format!("tenant-{}", self.tenants.len() + 1))?;
                self.tenants.insert(run.tenant.clone(), placeholder.clone());
                placeholder
            }
        };
        Ok(RunKey::new(tenant, self.run_id(&run.run)?))
    }

    fn run_id(&mut self, run: &RunId) -> Result<RunId> {
        if is_uuid(run.as_str()) {
            return Ok(run.clone());
        }
        if let Some(known) = self.runs.get(run) {
            return Ok(known.clone());
        }
        let placeholder = RunId::new(format!("run-{}", self.runs.len() + 1))?;
        self.runs.insert(run.clone(), placeholder.clone());
        Ok(placeholder)
    }

    /// Redacts the facts of a run: the user, the values of labels, ids of runs, and the fingerprint of the input. An attacker could guess a short input
    /// from its fingerprint.
    ///
    /// # Errors
    ///
    /// No valid facts can cause an error.
    pub(crate) fn facts(&mut self, facts: &RunFacts) -> Result<RunFacts> {
        let mut redacted = facts.clone();
        redacted.input = Fingerprint::of(b"redacted");
        redacted.user = facts.user.as_deref().map(|user| self.placeholders.text(user));
        if let Some(parent) = &mut redacted.parent {
            parent.run = self.run_key(&parent.run)?;
        }
        redacted.labels = Default::default();
        for (key, value) in facts.labels.iter() {
            let value = match key {
                parent_link::PARENT | parent_link::ROOT => self.run_id(&RunId::new(value)?)?.to_string(),
                _ if RESERVED.contains(&key) => value.to_owned(),
                _ => self.placeholders.text(value),
            };
            redacted.labels.insert(self.placeholders.name(key), value)?;
        }
        Ok(redacted)
    }

    /// Redacts the next record of the log, with a new checksum.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Corrupt`] if the record is damaged, and [`ErrorKind::Unsupported`] if this version of Ferrata cannot read it.
    pub(crate) fn record(&mut self, run: &RunKey, record: &Record) -> Result<Record> {
        record.verify(run)?;
        let place = |error: Error| error.with_run(run).with_seq(record.header.seq);
        let form = match record.header.kind {
            RecordKind::Start => START,
            RecordKind::Node => NODE,
            RecordKind::Attempt => ATTEMPT,
            RecordKind::Intent => INTENT,
            RecordKind::Step => RecordForm::With(Self::step),
            RecordKind::Status => STATUS,
            RecordKind::Signal => SIGNALS,
            RecordKind::Claim => CLAIM,
            RecordKind::Release => RELEASE,
            RecordKind::Edit => EDIT,
            RecordKind::Base => Fields(&[("base", BASE)]),
            kind => {
                let message = format!("cannot redact records of kind `{kind:?}`; upgrade this program");
                return Err(place(Error::new(ErrorKind::Unsupported, message)));
            }
        };
        // `decode` explains why it cannot read a body, for example because the body is encrypted.
        codec::decode(run, record)?;
        let body = serde_json::from_str(codec::text(run, record)?).map_err(|source| {
            let message =
                "cannot redact the body of the record; export the run without redaction, or fork it";
            place(Error::new(ErrorKind::Corrupt, message).with_source(source))
        })?;
        let body = Bytes::from(self.apply(form, body).to_string());
        Record::seal(record.header.clone(), body).map_err(place)
    }

    fn apply(&mut self, form: RecordForm, part: Value) -> Value {
        match (form, part) {
            (RecordForm::Keep, part) => part,
            (RecordForm::Name, Value::String(name)) => self.placeholders.name(&name).into(),
            (RecordForm::Each(form), Value::Array(items)) => {
                items.into_iter().map(|item| self.apply(*form, item)).collect()
            }
            (RecordForm::OneOf(_), Value::String(word)) => word.into(),
            (RecordForm::Fields(known) | RecordForm::OneOf(known), Value::Object(fields)) => {
                let redacted = fields.into_iter().map(|(field, part)| {
                    match known.iter().find(|(name, _)| *name == field) {
                        Some((_, form)) => (field, self.apply(*form, part)),
                        None => (self.placeholders.name(&field), self.value(part)),
                    }
                });
                Value::Object(redacted.collect())
            }
            (RecordForm::With(redact), part) => redact(self, part),
            (_, part) => self.value(part),
        }
    }

    /// Redacts any JSON of the application.
    fn value(&mut self, value: Value) -> Value {
        match value {
            Value::String(text) => self.placeholders.text(&text).into(),
            Value::Number(number) if self.numbers == RedactedNumbers::Zero => {
                if number.is_f64() {
                    Number::from_f64(0.0).map_or(Value::Null, Value::Number)
                } else {
                    0.into()
                }
            }
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => self.fields(fields),
            other => other,
        }
    }

    fn fields(&mut self, fields: Map<String, Value>) -> Value {
        let redacted = fields
            .into_iter()
            .map(|(name, value)| (self.placeholders.name(&name), self.value_of(&name, value)));
        Value::Object(redacted.collect())
    }

    /// Redacts the value of a channel or field.
    fn value_of(&mut self, name: &str, value: Value) -> Value {
        let is_outcome = name == "outcome" && value.as_str().is_some_and(|word| OUTCOMES.contains(&word));
        if is_outcome { value } else { self.value(value) }
    }

    /// Redacts the channels of a state.
    fn channels(&mut self, state: Value) -> Value {
        match state {
            Value::Object(channels) => self.fields(channels),
            other => self.value(other),
        }
    }

    /// Redacts an operation of a patch, in the same way as the channel that it changes.
    fn operation(&mut self, operation: Value) -> Value {
        let Value::Object(operation) = operation else { return self.value(operation) };
        let redacted = operation.into_iter().map(|(verb, parts)| {
            let parts = match parts {
                Value::Array(parts) => parts,
                other => return (verb, self.value(other)),
            };
            let channel = parts.first().and_then(Value::as_str).unwrap_or_default().to_owned();
            let redacted = parts.into_iter().enumerate().map(|(at, part)| match (at, part) {
                (0, part) => self.apply(Name, part),
                (_, part) if verb == "remove" => self.apply(Each(&Name), part),
                (_, part) => self.value_of(&channel, part),
            });
            let redacted = redacted.collect();
            (verb, redacted)
        });
        Value::Object(redacted.collect())
    }

    /// Redacts an ended activation. The output of a conversation that ended without a message is a word of Ferrata.
    fn done(&mut self, done: Value) -> Value {
        let output =
            done.get("output").filter(|_| done.get("left").is_some_and(|left| *left == true)).cloned();
        let mut redacted = self.apply(DONE, done);
        if let (Some(output), Some(place)) = (output, redacted.get_mut("output")) {
            *place = output;
        }
        redacted
    }

    /// Redacts the shape of an answer. The choices become the placeholders that the answers have.
    fn shape(&mut self, shape: Value) -> Value {
        match shape {
            Value::String(name) if TYPES.contains(&&*name) => name.into(),
            Value::String(text) => self.placeholders.text(&text).into(),
            Value::Array(items) => items.into_iter().map(|item| self.shape(item)).collect(),
            Value::Object(fields) => {
                let redacted = fields.into_iter().map(|(field, part)| {
                    let is_choice = field == "one_of" || field == "variants" && part.is_array();
                    let part = if is_choice { self.value(part) } else { self.shape(part) };
                    (self.placeholders.name(&field), part)
                });
                Value::Object(redacted.collect())
            }
            other => other,
        }
    }

    /// Redacts the key and the fingerprint of a message. An attacker could guess a short message from its fingerprint.
    fn message_key(&mut self, key: Value) -> Value {
        let Some(name) = key.get("name").and_then(Value::as_str) else { return self.value(key) };
        let name = self.placeholders.text(name);
        let print = Fingerprint::of(name.as_bytes()).to_string();
        serde_json::json!({ "name": name, "print": print })
    }

    fn overwrites(&mut self, overwrites: Value) -> Value {
        let Value::Object(channels) = overwrites else { return self.value(overwrites) };
        Value::Object(
            channels.into_iter().map(|(channel, of)| (self.placeholders.name(&channel), of)).collect(),
        )
    }

    fn child(&mut self, run: Value) -> Value {
        let id = run.as_str().and_then(|run| RunId::new(run).ok());
        match id.map(|id| self.run_id(&id)) {
            Some(Ok(placeholder)) => placeholder.to_string().into(),
            _ => self.value(run),
        }
    }
}
