//! The forms of records. The tables name each field that stays; `docs/reference/format.md` describes the fields.

use serde_json::Value;

use super::LogRedactor;

/// The form of a part of a record, which decides how the part changes.
#[derive(Clone, Copy)]
pub(super) enum RecordForm {
    /// Structure of the log, which stays.
    Keep,
    /// A text of a person or of the application.
    Text,
    /// The name of a channel.
    Name,
    /// Any JSON of the application.
    AnyValue,
    /// A list.
    Each(&'static Self),
    /// An object with these fields.
    Fields(&'static [(&'static str, Self)]),
    /// A word, which stays, or an object with one of these fields.
    OneOf(&'static [(&'static str, Self)]),
    /// A part with a form that depends on its content.
    With(fn(&mut LogRedactor, Value) -> Value),
}

use RecordForm::{AnyValue, Each, Fields, Keep, Name, OneOf, Text, With};

pub(super) const FAILURE: RecordForm =
    Fields(&[("kind", Keep), ("message", Text), ("causes", Each(&Text)), ("node", Keep), ("not_done", Keep)]);

pub(super) const PATCH: RecordForm = Each(&With(LogRedactor::operation));

pub(super) const RESOLUTION: RecordForm = OneOf(&[("supply", PATCH), ("fail", Text)]);

pub(super) const ANSWER: RecordForm =
    OneOf(&[("accept", AnyValue), ("reject", Text), ("cancel", Text), ("resolve", RESOLUTION)]);

pub(super) const ASK: RecordForm = Fields(&[
    ("question", AnyValue),
    ("expects", With(LogRedactor::shape)),
    ("deadline", Keep),
    ("on_deadline", OneOf(&[("default", AnyValue)])),
    ("problem", Text),
]);

pub(super) const ASKED: RecordForm = Fields(&[("node", Keep), ("visit", Keep), ("name", Keep), ("ask", ASK)]);

pub(super) const MESSAGE: RecordForm =
    Fields(&[("number", Keep), ("body", AnyValue), ("by", Text), ("at", Keep)]);

pub(super) const REPLY: RecordForm =
    OneOf(&[("answered", Fields(&[("answer", ANSWER), ("by", Text), ("at", Keep)])), ("expired", Keep)]);

/// The memos of an activation, except for results, whose form depends on the name.
pub(super) const MEMO: RecordForm =
    OneOf(&[("until", Keep), ("message", MESSAGE), ("asked", Fields(&[("ask", ASK), ("reply", REPLY)]))]);

pub(super) const TOKEN: RecordForm =
    Fields(&[("to", Keep), ("from", Keep), ("visit", Keep), ("output", AnyValue), ("item", AnyValue)]);

pub(super) const ACTIVATION: RecordForm = Fields(&[
    ("node", Keep),
    ("visit", Keep),
    ("since", Keep),
    ("failed", Keep),
    ("retry_at", Keep),
    ("intent", Keep),
    ("in_doubt", Keep),
    ("why", FAILURE),
    ("resolution", RESOLUTION),
    ("item", AnyValue),
    ("inputs", Each(&TOKEN)),
    ("memos", With(LogRedactor::memos)),
]);

pub(super) const UNDELIVERED: RecordForm = Fields(&[
    ("number", Keep),
    ("topic", Keep),
    ("payload", AnyValue),
    ("node", Keep),
    ("visit", Keep),
    ("at", Keep),
    ("tries", Keep),
    ("why", Text),
    ("retry_at", Keep),
    ("dead", Keep),
]);

pub(super) const MACHINE: RecordForm = Fields(&[
    ("start_id", Keep),
    ("status", Keep),
    ("failure", FAILURE),
    ("cancel", Text),
    ("paused", Text),
    ("paused_by_parent", Text),
    ("was_paused", Keep),
    ("children", Keep),
    ("inbox", Each(&MESSAGE)),
    ("messages", Keep),
    ("keys", Each(&With(LogRedactor::message_key))),
    ("config", AnyValue),
    ("secret", Each(&Name)),
    ("letters", Fields(&[("sent", Keep), ("waiting", Each(&UNDELIVERED))])),
    ("receiving", Keep),
    ("receivers", Keep),
    ("looks", Keep),
    ("wake", Keep),
    ("holds", Keep),
    ("fruitless", Keep),
    ("pins", Keep),
    ("answered", Each(&Fields(&[("id", Keep), ("by", Text), ("at", Keep), ("expired", Keep)]))),
    ("begun", Keep),
    ("tick", Keep),
    ("started", Keep),
    ("nodes", Keep),
    ("in_flight", Each(&ACTIVATION)),
    ("stopped_at", Each(&ACTIVATION)),
    ("tokens", Each(&TOKEN)),
    ("overwrites", With(LogRedactor::overwrites)),
    ("history", Keep),
    ("replans", Each(&Fields(&[("from", Keep), ("visit", Keep), ("to", Keep), ("reason", Text)]))),
]);

pub(super) const BASE: RecordForm =
    Fields(&[("state", With(LogRedactor::channels)), ("machine", MACHINE), ("version", Keep)]);

pub(super) const START: RecordForm = Fields(&[
    ("base", BASE),
    ("entry", Keep),
    ("graph", Keep),
    ("start_id", Keep),
    ("effects", Keep),
    ("edges", Keep),
    ("gates", Keep),
    ("config", AnyValue),
    ("secret", Each(&Name)),
    ("messages", Each(&MESSAGE)),
]);

pub(super) const FIRED: RecordForm =
    OneOf(&[("to", Keep), ("items", Each(&AnyValue)), ("back", Keep), ("reason", Text)]);

pub(super) const DONE: RecordForm = Fields(&[
    ("node", Keep),
    ("visit", Keep),
    ("attempts", Keep),
    ("took_ms", Keep),
    ("notes", Text),
    ("failure", FAILURE),
    ("output", AnyValue),
    ("fired", Each(&FIRED)),
    ("bypassed", Keep),
    ("skipped", Keep),
    ("dropped", Keep),
    ("settled", Keep),
    ("wrote", Each(&Name)),
    ("hold", Keep),
    ("cleanup", Keep),
    ("left", Keep),
    ("letters", Each(&Fields(&[("topic", Keep), ("payload", AnyValue), ("at", Keep)]))),
    ("end", OneOf(&[("failed", FAILURE)])),
]);

pub(super) const NODE: RecordForm =
    Fields(&[("base", BASE), ("done", Each(&With(LogRedactor::done))), ("patch", PATCH)]);

pub(super) const ATTEMPT: RecordForm = Fields(&[
    ("base", BASE),
    ("node", Keep),
    ("visit", Keep),
    ("failed", Keep),
    ("failure", FAILURE),
    ("retry_at", Keep),
]);

pub(super) const INTENT: RecordForm = Fields(&[("base", BASE), ("node", Keep), ("visit", Keep)]);

pub(super) const STATUS: RecordForm = Fields(&[
    ("base", BASE),
    ("change", OneOf(&[("failed", FAILURE), ("asked", ASKED), ("expired", Keep), ("rested", Keep)])),
]);

pub(super) const REASON: RecordForm = Fields(&[("reason", Text)]);

pub(super) const LETTERS: RecordForm = OneOf(&[
    ("delivered", Keep),
    ("failed", Fields(&[("number", Keep), ("tries", Keep), ("why", Text), ("retry_at", Keep)])),
    ("retry", Keep),
    ("drop", Keep),
]);

pub(super) const SIGNAL: RecordForm = OneOf(&[
    ("respond", Fields(&[("question", Keep), ("resolution", RESOLUTION)])),
    ("answer", Fields(&[("question", Keep), ("answer", ANSWER)])),
    ("message", Fields(&[("body", AnyValue), ("key", With(LogRedactor::message_key))])),
    ("pin", Keep),
    ("unpin", Keep),
    ("pause", REASON),
    ("cancel", REASON),
    ("letters", Fields(&[("start_id", Keep), ("change", LETTERS)])),
    ("go_to", Fields(&[("nodes", Keep), ("reason", Text)])),
    ("retry", Keep),
]);

pub(super) const SIGNALS: RecordForm = Fields(&[
    ("base", BASE),
    ("change", Fields(&[("what", SIGNAL), ("by", Text), ("at", Keep), ("of_parent", Keep)])),
]);

pub(super) const CLAIM: RecordForm = Fields(&[
    ("base", BASE),
    ("executor", Keep),
    ("graph", Keep),
    ("edges", Keep),
    ("secret", Each(&Name)),
    ("settled", Keep),
]);

pub(super) const RELEASE: RecordForm = Fields(&[
    ("base", BASE),
    ("reason", Text),
    ("wake", Keep),
    ("receiving", Keep),
    ("begun", Keep),
    ("receivers", Keep),
    ("looks", Keep),
    ("orderly", Keep),
]);

pub(super) const EDIT: RecordForm = Fields(&[("base", BASE), ("patch", PATCH), ("by", Text)]);

/// A step, without its result. The name of the step decides the form of the result.
pub(super) const STEP: RecordForm = Fields(&[
    ("base", BASE),
    ("node", Keep),
    ("visit", Keep),
    ("name", Keep),
    (
        "what",
        OneOf(&[
            ("result", Keep),
            ("until", Keep),
            ("took", Keep),
            ("refused", Fields(&[("message", Keep), ("why", Text)])),
        ]),
    ),
    ("first", Keep),
]);

pub(super) const CHILD_NOTE: RecordForm = Fields(&[
    ("run", With(LogRedactor::child)),
    ("workflow", Keep),
    ("attempt", Keep),
    ("bond", Keep),
    ("deadline", Keep),
]);

pub(super) const CHILD_END: RecordForm = OneOf(&[
    ("completed", Fields(&[("state", With(LogRedactor::channels)), ("version", Keep)])),
    ("failed", FAILURE),
    ("cancelled", REASON),
]);

pub(super) const STREAM: RecordForm =
    Fields(&[("attempt", Keep), ("first", Keep), ("chunks", Each(&AnyValue))]);

/// A failed operation of a durable function: the kind of the operation, and its error.
pub(super) const FLOW_FAILURE: RecordForm =
    Each(&OneOf(&[("kind", Keep), ("message", Text), ("causes", Each(&Text)), ("fatal", Keep)]));
