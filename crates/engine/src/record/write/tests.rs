//! The handwritten form equals that of serde for the same fields.

use proptest::prelude::*;
use serde::Serialize;

use super::*;
use crate::clock::Timestamp;
use crate::compact::small_vec::SmallVec;
use crate::failure::{Failure, FailureKind};
use crate::id::Visit;
use crate::record::body::{ActivationStart, FanOutItem, RunEnd, TokenChanges};
use crate::record::codec::to_raw;
use crate::record::done::Fields as DoneFields;
use crate::record::outbox::OutboxRecord;
use crate::state::{Artifact, ChannelId, MemoryRead, NodeNotes, Patch, PatchWriter, Write};

/// The body as serde writes it.
#[derive(Serialize)]
// Large: the stored form of a result; its fields are a format.
struct Fields<'a> {
    done: Vec<DoneFields>,
    #[serde(skip_serializing_if = "Patch::is_empty")]
    patch: &'a Patch,
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<&'a RecordBase>,
}

fn node() -> impl Strategy<Value = NodeName> {
    "[A-Za-z0-9_:-][A-Za-z0-9._:-]{0,20}".prop_map(|name| NodeName::new(name).unwrap())
}

fn nodes_of() -> impl Strategy<Value = Vec<NodeName>> {
    prop::collection::vec(node(), 0..3)
}

fn number_of() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), 0..12u64, any::<u64>(), Just(u64::MAX)]
}

fn failure() -> impl Strategy<Value = Failure> {
    (any::<String>(), prop::collection::vec(any::<String>(), 0..2), prop::option::of(node())).prop_map(
        |(message, causes, node)| Failure { causes, node, ..Failure::new(FailureKind::Node, message) },
    )
}

fn edge_of() -> impl Strategy<Value = FiredEdge> {
    let items = prop::collection::vec(any::<Vec<u8>>(), 0..3);
    let items =
        items.prop_map(|all| all.iter().map(|item| FanOutItem(to_raw(item).unwrap().into())).collect());
    (
        node(),
        prop::option::weighted(0.3, items),
        prop::bool::weighted(0.2),
        prop::option::weighted(0.2, any::<String>()),
    )
        .prop_map(|(to, items, back, reason)| FiredEdge { to, items, back, reason })
}

fn settled() -> impl Strategy<Value = TokenChanges> {
    let start = (node(), any::<bool>()).prop_map(|(each, joins)| {
        if joins { ActivationStart::Joined(each) } else { ActivationStart::Each { each } }
    });
    let start = prop::option::of(prop::collection::vec(start, 0..3));
    (start, nodes_of(), nodes_of()).prop_map(|(start, spent, fresh)| TokenChanges { start, spent, fresh })
}

prop_compose! {
    fn done()(
        node in node(),
        visit in any::<u32>(),
        attempts in number_of(),
        took_ms in number_of(),
        output in prop::option::of(any::<String>()),
        fired in prop::collection::vec(edge_of(), 0..3),
        rare in prop::option::of((
            prop::option::of(failure()),
            prop::option::of(any::<String>()),
            [nodes_of(), nodes_of(), nodes_of()],
            settled(),
            prop::collection::vec(any::<String>(), 0..3),
            [any::<bool>(), any::<bool>()],
            prop::collection::vec((any::<String>(), any::<String>(), any::<i32>()), 0..3),
            prop::option::of(prop_oneof![Just(RunEnd::Completed), failure().prop_map(RunEnd::Failed)]),
        )),
    ) -> NodeDone {
        let mut done = NodeDone::new(node, Visit::new(visit));
        done.attempts = u32::try_from(attempts).unwrap_or(1);
        done.took_ms = took_ms;
        done.output = output.map(|output| to_raw(&output).unwrap().into());
        done.fired = fired.into_iter().collect::<SmallVec<_>>();
        if let Some((failure, notes, [bypassed, skipped, dropped], settled, wrote, [hold, left], letters, end)) = rare {
            let sent = |(topic, text, at): (String, String, i32)| OutboxRecord {
                topic: topic.into(),
                payload: to_raw(&text).unwrap().into(),
                at: Timestamp::from_unix_ms(i64::from(at)),
            };
            let letters: Vec<OutboxRecord> = letters.into_iter().map(sent).collect();
            let noted = NodeNotes {
                artifacts: letters.iter().map(|letter| Artifact::new(&*letter.topic, letter.payload.get())).collect(),
                reads: letters.iter().map(|letter| MemoryRead::new(&*letter.topic, "x", 0.5).with("n", 1)).collect(),
            };
            *done = RareFields { failure, notes, bypassed, skipped, dropped, settled, wrote, hold, left, cleanup: left, letters, noted, end };
        }
        done
    }
}

/// Patches in the forms that updates create, and merged ones.
fn patch() -> impl Strategy<Value = Patch> {
    let name =
        prop_oneof![3 => Just("notes".to_owned()), 1 => Just("a\"b\\c".to_owned()), 1 => any::<String>()];
    let part =
        (0..5u8, name, prop::collection::vec(any::<String>(), 0..3)).prop_map(|(verb, name, words)| {
            let mut writer = PatchWriter::recording();
            let channel = ChannelId::new(None, name);
            match verb {
                0 => writer.set(&channel, &words, Write::Overwritten).unwrap(),
                1 => writer.append(&channel, &words).unwrap(),
                2 => {
                    let pairs: Vec<_> = words.iter().map(|word| (word, 1)).collect();
                    writer.merge(&channel, &pairs).unwrap();
                }
                3 => writer.remove_keys(&channel, &words).unwrap(),
                _ => writer.remove_channel(&channel),
            }
            writer.finish().patch.unwrap()
        });
    (prop::collection::vec(part, 0..4), any::<bool>()).prop_map(|(parts, read)| {
        let merged = parts.into_iter().try_fold(Patch::default(), Patch::merge).unwrap();
        if read { serde_json::from_str(&serde_json::to_string(&merged).unwrap()).unwrap() } else { merged }
    })
}

proptest! {
    #[test]
    fn it_is_what_serde_writes(done in prop::collection::vec(done(), 0..3), patch in patch(), based in any::<bool>()) {
        let base = based.then(|| RecordBase { state: to_raw(&"s").unwrap(), machine: to_raw(&[1]).unwrap(), version: 2 });
        let fields = Fields { done: done.iter().map(DoneFields::from).collect(), patch: &patch, base: base.as_ref() };
        let event = NodesDone { done, patch: patch.clone() };
        let mut out = Vec::new();
        nodes(&event, base.as_ref(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        prop_assert_eq!(&text, &serde_json::to_string(&fields).unwrap());
        let mut again = Vec::new();
        nodes(&serde_json::from_str(&text).unwrap(), base.as_ref(), &mut again).unwrap();
        prop_assert_eq!(text.as_bytes(), again);
    }
}

/// The usual record has no rare field, so it needs no box: absent fields are not written and are read as absent.
#[test]
fn what_is_usual_has_no_box() {
    let text = r#"{"done":[{"node":"a","visit":1,"took_ms":7,"output":1,"fired":["b"]}]}"#;
    let read: NodesDone = serde_json::from_str(text).unwrap();
    assert!(read.done[0].is_usual());
    let mut out = Vec::new();
    nodes(&read, None, &mut out).unwrap();
    assert_eq!(text.as_bytes(), out);
}

/// Same as serde: unknown fields are skipped, duplicate or missing ones are rejected.
#[test]
fn each_field_is_read_once() {
    let read = |done: &str| serde_json::from_str::<NodesDone>(&format!(r#"{{"done":[{done}]}}"#));
    let usual = read(r#"{"node":"a","newer":[{}],"visit":1,"failure":null,"newer":1,"wrote":[]}"#).unwrap();
    assert!(usual.done[0].is_usual());
    for wrong in [
        r#"{"node":"a"}"#,
        r#"{"visit":1}"#,
        r#"{"node":"a","visit":1,"node":"a"}"#,
        r#"{"node":"a","visit":1,"end":"completed","end":"completed"}"#,
        r#"["a",1]"#,
    ] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}
