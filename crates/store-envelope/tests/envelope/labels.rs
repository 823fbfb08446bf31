//! Encrypted labels and users: found with the key, and unreadable without it.

use std::collections::BTreeMap;

use ferrata_store::{
    CheckpointStore, ErrorKind, Labels, MemoryStore, Page, RunAppend, RunFacts, RunHead, RunId, RunQuery,
};
use ferrata_store_envelope::{EnvelopeOptions, EnvelopeStore, Key, LabelKey};
use ferrata_testing::{Log, facts};

use super::{all, wrapped};

const MARKER: &str = "Ann Fowler";

fn with_labels(key: u8) -> EnvelopeOptions {
    all().with_label_key(LabelKey::new(&Key::from_bytes([key; 32])))
}

fn labelled(user: &str, labels: &[(&str, &str)]) -> RunFacts {
    let mut all = Labels::default();
    labels.iter().for_each(|(key, value)| all.insert(*key, *value).unwrap());
    facts("review", 7).with_user(user).unwrap().with_labels(all)
}

fn started(run: &str, facts: RunFacts) -> RunAppend {
    Log::new(RunId::new(run).unwrap()).with_facts(facts).next(1)
}

/// Writes runs with every combination of a user, a patient and a ward.
async fn fill(store: &dyn CheckpointStore) {
    for n in 0..8 {
        let pick = |bit: u8| if n & bit == 0 { MARKER } else { "Bo" };
        let labels = [("patient", pick(1)), ("ward", pick(2)), ("ferrata.parent", "p-1"), ("empty", "")];
        let append = started(&format!("r{n}"), labelled(pick(4), &labels));
        store.append(vec![append.clone()]).await.remove(0).unwrap();
        // Repeat it, as after a lost reply.
        store.append(vec![append]).await.remove(0).unwrap();
    }
}

async fn listed(store: &dyn CheckpointStore, query: &RunQuery) -> BTreeMap<String, RunFacts> {
    let (mut found, mut page) = (BTreeMap::new(), Page::first(3));
    loop {
        let part = store.runs(query, page).await.unwrap();
        found.extend(part.items.into_iter().map(|head| (head.run.run.to_string(), head.facts)));
        match part.next {
            Some(next) => page = Page::first(3).with_cursor(next),
            None => return found,
        }
    }
}

fn query(user: Option<&str>, labels: &[(&str, &str)]) -> RunQuery {
    let mut query = RunQuery::default();
    query.user = user.map(str::to_owned);
    query.labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    query
}

/// Guarantees: AT-REST-6.
#[tokio::test]
async fn encrypted_listing_matches_plain_listing() {
    let (inner, store) = wrapped(with_labels(1));
    let plain = MemoryStore::new();
    fill(&store).await;
    fill(&plain).await;
    for asked in [
        query(None, &[]),
        query(Some(MARKER), &[]),
        query(None, &[("patient", MARKER)]),
        query(None, &[("patient", MARKER), ("ward", "Bo")]),
        query(Some("Bo"), &[("ward", MARKER)]),
        query(None, &[("ferrata.parent", "p-1")]),
        query(None, &[("empty", "")]),
        query(None, &[("patient", "nobody")]),
        query(Some("nobody"), &[]),
        query(None, &[("other", MARKER)]),
        // No encrypted run can have such a label.
        query(None, &[("patient", &"x".repeat(149))]),
        query(Some(&"x".repeat(149)), &[]),
    ] {
        assert_eq!(listed(&store, &asked).await, listed(&plain, &asked).await, "{asked:?}");
    }
    assert_eq!(listed(&store, &query(None, &[("patient", MARKER)])).await.len(), 4);
    let run = started("r0", facts("review", 7)).run;
    let head = store.head(&run).await.unwrap().unwrap();
    assert_eq!(head.facts, plain.head(&run).await.unwrap().unwrap().facts);
    // The inner store contains none of the texts, except label names and the labels of Ferrata itself.
    let kept = format!("{:?}", inner.runs(&RunQuery::default(), Page::first(100)).await.unwrap().items);
    assert!(!kept.contains("Fowler") && !kept.contains("\"Bo\""), "{kept}");
    assert!(kept.contains("patient") && kept.contains("p-1"), "{kept}");
}

async fn only(store: &dyn CheckpointStore) -> RunHead {
    store.runs(&RunQuery::default(), Page::first(2)).await.unwrap().items.remove(0)
}

#[tokio::test]
async fn label_text_encrypts_differently_per_label_and_key() {
    let (inner, store) = wrapped(with_labels(1));
    let facts = labelled(MARKER, &[("a", MARKER), ("b", MARKER)]);
    store.append(vec![started("r", facts.clone())]).await.remove(0).unwrap();
    let kept = only(&inner).await.facts;
    let (a, b) = (kept.labels.get("a").unwrap(), kept.labels.get("b").unwrap());
    assert!(a != b && kept.user.as_deref() != Some(a) && kept.user.as_deref() != Some(b));
    let other = EnvelopeStore::new(inner.clone(), with_labels(2));
    assert_eq!(only(&other).await.facts, kept, "with another key, they are shown as stored");
    assert!(listed(&other, &query(Some(MARKER), &[])).await.is_empty());
    assert_eq!(only(&EnvelopeStore::new(inner.clone(), all())).await.facts, kept);
    // A value that was moved to another label, changed or never encrypted is shown as stored.
    let mut changed = b.to_owned();
    changed.pop();
    let wrong = labelled("enc1:plain", &[("a", b), ("b", &changed), ("c", "enc1:"), ("d", "plain")]);
    let inner = MemoryStore::new();
    inner.append(vec![started("r", wrong.clone())]).await.remove(0).unwrap();
    assert_eq!(only(&EnvelopeStore::new(inner, with_labels(1))).await.facts, wrong);
    let shown = format!("{:?}", with_labels(1));
    assert!(!shown.contains("[1, 1") && shown.contains("LabelKey(..)"), "{shown}");
}

#[tokio::test]
async fn overlong_label_is_refused_before_write() {
    let (inner, store) = wrapped(with_labels(1));
    for (length, fits) in [(148, true), (149, false)] {
        let text = "x".repeat(length);
        for facts in [labelled("u", &[("k", &text)]), labelled(&text, &[])] {
            let run = format!("r{length}-{}", facts.labels.len());
            let written = store.append(vec![started(&run, facts)]).await.remove(0);
            match written {
                Ok(_) => assert!(fits),
                Err(error) => {
                    assert!(!fits && error.kind() == ErrorKind::Invalid, "{error}");
                    assert!(!error.to_string().contains("xxx"), "{error}");
                }
            }
        }
    }
    assert_eq!(inner.runs(&RunQuery::default(), Page::first(9)).await.unwrap().items.len(), 2);
}
