//! Relay messages, split into texts that are short enough for stores to pass on.

use crate::claim::StartId;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::id::{Epoch, ExecutorId, NodeName, RunKey, Visit};
use crate::store::MAX_TEXT_BYTES;

/// The prefix of a text. Other versions of the library use another prefix, and ignore texts with this one.
const VERSION: &str = "f1";

/// The maximum number of parts of a message. It is high enough for all chunks that may wait.
const MOST_PARTS: usize = 100;

/// The maximum number of processes with an incomplete message.
const SENDERS: usize = 256;

/// A relay message.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum RelayMessage {
    /// The sending process starts its first stream, and asks other processes which runs they watch.
    Asks,
    /// The sending process watches these runs. This message is repeated while the watch continues.
    Wants { runs: Vec<RunKey> },
    /// Chunks of a stream. `first` is the number of the first chunk.
    Chunks { stream: RelayStream, first: u64, chunks: Vec<Arc<RawValue>> },
}

/// A stream of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RelayStream {
    pub(crate) run: RunKey,
    /// The start of the run, and its claim.
    pub(crate) start_id: StartId,
    pub(crate) epoch: Epoch,
    pub(crate) node: NodeName,
    pub(crate) visit: Visit,
    pub(crate) attempt: u32,
    pub(crate) name: Arc<str>,
    /// A number that grows with each stream that the process starts. It is needed because an attempt may start again with the same number. Older
    /// versions do not send it and ignore it.
    #[serde(default)]
    pub(crate) round: u64,
}

/// Serializes a message into texts.
pub(crate) fn write(by: ExecutorId, message: u64, said: &RelayMessage) -> Vec<String> {
    // Cannot fail: all parts are valid JSON.
    let Ok(body) = serde_json::to_string(said) else { return Vec::new() };
    let room = MAX_TEXT_BYTES - header(by, message, MOST_PARTS, MOST_PARTS).len();
    let mut parts = Vec::with_capacity(body.len() / room + 1);
    let mut rest = &*body;
    while !rest.is_empty() {
        let mut end = room.min(rest.len());
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (part, after) = rest.split_at(end);
        parts.push(part);
        rest = after;
    }
    if parts.len() > MOST_PARTS {
        return Vec::new();
    }
    let count = parts.len();
    parts.iter().enumerate().map(|(part, text)| header(by, message, part, count) + text).collect()
}

fn header(by: ExecutorId, message: u64, part: usize, count: usize) -> String {
    format!("{VERSION} {by} {message} {part} {count} ")
}

/// Joins the parts of messages that were split.
#[derive(Default)]
pub(crate) struct RelayInbox(HashMap<ExecutorId, MessageStart>);

/// An incomplete message.
struct MessageStart {
    message: u64,
    parts: usize,
    body: String,
}

impl RelayInbox {
    /// Reads a text. Returns the message when it is complete. Returns `None` for texts of this process and for unknown texts.
    pub(crate) fn read(&mut self, own: ExecutorId, text: &str) -> Option<RelayMessage> {
        let mut words = text.splitn(6, ' ');
        if words.next() != Some(VERSION) {
            return None;
        }
        let by: ExecutorId = words.next()?.parse().ok().filter(|by| *by != own)?;
        let message: u64 = words.next()?.parse().ok()?;
        let part: usize = words.next()?.parse().ok()?;
        let count: usize =
            words.next()?.parse().ok().filter(|count| part < *count && *count <= MOST_PARTS)?;
        let body = self.join(by, message, part, count, words.next()?)?;
        serde_json::from_str(&body).ok()
    }

    fn join<'t>(
        &mut self,
        by: ExecutorId,
        message: u64,
        part: usize,
        count: usize,
        body: &'t str,
    ) -> Option<Cow<'t, str>> {
        let begun = self.0.remove(&by).filter(|begun| (begun.message, begun.parts) == (message, part));
        let mut begun = match (begun, part) {
            (_, 0) if count == 1 => return Some(Cow::Borrowed(body)),
            (_, 0) => MessageStart { message, parts: 0, body: String::new() },
            (begun, _) => begun?,
        };
        begun.parts += 1;
        begun.body.push_str(body);
        if begun.parts == count {
            return Some(Cow::Owned(begun.body));
        }
        if self.0.len() >= SENDERS {
            self.0.clear();
        }
        self.0.insert(by, begun);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;

    fn by(number: u128) -> ExecutorId {
        ExecutorId::from_uuid(uuid::Uuid::from_u128(number))
    }

    fn said(texts: &[&str]) -> RelayMessage {
        let raw = |text: &&str| Arc::from(serde_json::value::to_raw_value(text).unwrap());
        let stream = RelayStream {
            run: RunId::new("r").unwrap().into(),
            start_id: StartId::NONE,
            epoch: Epoch::new(1),
            node: NodeName::new("n").unwrap(),
            visit: Visit::new(1),
            attempt: 1,
            name: "tokens".into(),
            round: 5,
        };
        RelayMessage::Chunks { stream, first: 7, chunks: texts.iter().map(raw).collect() }
    }

    fn chunks(said: RelayMessage) -> Vec<String> {
        let RelayMessage::Chunks { chunks, .. } = said else { panic!("{said:?}") };
        chunks.iter().map(|chunk| serde_json::from_str(chunk.get()).unwrap()).collect()
    }

    #[test]
    fn relay_message_fits_limit_and_skips_own_process() {
        let (long, wide) = ("x".repeat(100_000), "\u{1f6a2}\0\"\n'".repeat(5_000));
        for all in [vec!["short"], vec![&*long, "\0", &*wide], vec![]] {
            let texts = write(by(1), 3, &said(&all));
            assert!(texts.iter().all(|text| text.len() <= MAX_TEXT_BYTES && !text.contains('\0')));
            let (mut own, mut other) = (RelayInbox::default(), RelayInbox::default());
            let heard: Vec<RelayMessage> = texts.iter().filter_map(|text| other.read(by(2), text)).collect();
            assert!(texts.iter().all(|text| own.read(by(1), text).is_none()));
            let [heard] = <[RelayMessage; 1]>::try_from(heard).unwrap();
            assert_eq!(chunks(heard), all);
        }
        assert!(write(by(1), 3, &said(&[&"x".repeat(MOST_PARTS * MAX_TEXT_BYTES)])).is_empty());
    }

    #[test]
    fn incomplete_relay_message_is_dropped_next_is_read() {
        let (long, next) = (write(by(1), 0, &said(&[&"x".repeat(30_000)])), write(by(1), 1, &said(&["y"])));
        let other = write(by(3), 0, &said(&[&"z".repeat(10_000)]));
        for at in 0..long.len() {
            for doubled in [false, true] {
                let mut texts: Vec<&str> = long.iter().map(String::as_str).collect();
                match doubled {
                    true => texts.insert(at, &long[at]),
                    false => drop(texts.remove(at)),
                }
                // A text of another process in between.
                texts.insert(1, &other[0]);
                texts.push(&other[1]);
                texts.push(&next[0]);
                let mut inbox = RelayInbox::default();
                let heard = texts.iter().filter_map(|text| inbox.read(by(2), text)).flat_map(chunks);
                let lengths: Vec<usize> = heard.map(|chunk| chunk.len()).collect();
                // A duplicate first part restarts the message, and a duplicate last part arrives after its completion.
                let is_whole = doubled && (at == 0 || at + 1 == long.len());
                let expected = if is_whole { vec![30_000, 10_000, 1] } else { vec![10_000, 1] };
                assert_eq!(lengths, expected, "part {at}, doubled: {doubled}");
            }
        }
    }

    #[test]
    fn what_an_older_version_says_is_heard() {
        let [text] = &write(by(1), 3, &said(&["short"]))[..] else { panic!("it fits") };
        let older = text.replace(",\"round\":5", "");
        assert_ne!(older, *text);
        let Some(RelayMessage::Chunks { stream, first: 7, .. }) = RelayInbox::default().read(by(2), &older)
        else {
            panic!("{older}")
        };
        assert_eq!(stream.round, 0);
        // An older version ignores unknown fields, as this one does.
        let newer = text.replace("\"round\"", "\"later\":[1],\"round\"");
        assert!(matches!(
            RelayInbox::default().read(by(2), &newer),
            Some(RelayMessage::Chunks { first: 7, .. })
        ));
    }

    #[test]
    fn what_a_stranger_says_is_passed_over() {
        let mut inbox = RelayInbox::default();
        let id = by(1);
        for text in [
            "",
            " ",
            "f1",
            "f2 x",
            "f1 nobody 0 0 1 \"Asks\"",
            &format!("f1 {id} 0 0 1"),
            &format!("f1 {id} 0 0 1 "),
            &format!("f1 {id} -1 0 1 \"Asks\""),
            &format!("f1 {id} 0 1 1 \"Asks\""),
            &format!("f1 {id} 0 0 0 \"Asks\""),
            &format!("f1 {id} 0 7 3 \"Asks\""),
            &format!("f1 {id} 0 0 18446744073709551616 \"Asks\""),
            &format!("f1 {id} 0 0 1 {{\"Wants\":{{\"runs\":1}}}}"),
            &format!("f1 {id} 0 0 1 {{\"Wants\":{{\"runs\":[{{\"tenant\":\"\",\"run\":\"\"}}]}}}}"),
        ] {
            assert!(inbox.read(by(2), text).is_none(), "{text}");
        }
        assert!(matches!(inbox.read(by(2), &format!("f1 {id} 0 0 1 \"Asks\"")), Some(RelayMessage::Asks)));
    }
}
