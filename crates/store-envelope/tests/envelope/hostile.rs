//! An attacker who knows the format changes stored data and repairs every checksum.

use bytes::Bytes;
use ferrata_store::{At, CheckpointStore, ErrorKind, MemoryStore, Record, RecordHeader, RunId, RunKey};
use ferrata_store_envelope::{EnvelopeOptions, EnvelopeStore, Key, Keyring};
use ferrata_testing::Log;
use proptest::prelude::*;

use super::{all, encrypting, wrapped, written};

/// Replaces the body of a record, and updates its length and checksum.
fn put(store: &MemoryStore, run: &RunKey, seq: usize, change: impl FnOnce(&RecordHeader, &Bytes) -> Bytes) {
    store.tamper(run, |records| {
        let record = &records[seq];
        let body = change(&record.header, &record.body);
        records[seq] = Record::seal(record.header.clone(), body).unwrap();
    });
}

async fn kind(store: &impl CheckpointStore, run: &RunKey) -> ErrorKind {
    let error = store.load(run, At::Latest).await.unwrap_err();
    assert_eq!((error.run(), error.seq().is_some()), (Some(run), true), "{error}");
    error.kind()
}

async fn stored(store: &MemoryStore, run: &RunKey) -> Vec<Record> {
    store.load(run, At::Latest).await.unwrap().unwrap()
}

/// Guarantees: AT-REST-2, SECURITY-2.
#[tokio::test]
async fn changed_or_cut_envelope_is_always_refused() {
    let (inner, store) = wrapped(all());
    let log = written(&store, "r", 1).await;
    let whole = stored(&inner, &log.key).await[0].body.clone();
    for bit in 0..whole.len() * 8 {
        put(&inner, &log.key, 0, |_, _| {
            let mut body = whole.to_vec();
            body[bit / 8] ^= 1 << (bit % 8);
            body.into()
        });
        let kind = kind(&store, &log.key).await;
        // A changed key name or version may look like that of another process.
        assert!(matches!(kind, ErrorKind::Corrupt | ErrorKind::Unsupported), "bit {bit}: {kind:?}");
        assert!(
            kind == ErrorKind::Corrupt || bit / 8 == 1 || (3..7).contains(&(bit / 8)),
            "bit {bit}: {kind:?}"
        );
    }
    for length in 0..whole.len() {
        put(&inner, &log.key, 0, |_, _| whole.slice(..length));
        assert_eq!(kind(&store, &log.key).await, ErrorKind::Corrupt, "{length} bytes");
    }
    put(&inner, &log.key, 0, |_, _| [&whole, &b"x"[..]].concat().into());
    assert_eq!(kind(&store, &log.key).await, ErrorKind::Corrupt);
    put(&inner, &log.key, 0, |_, _| whole);
    assert_eq!(store.load(&log.key, At::Latest).await.unwrap().unwrap(), log.records);
}

/// Guarantees: AT-REST-2, SECURITY-2.
#[tokio::test]
async fn a_record_in_another_place_is_corrupt() {
    let (inner, store) = wrapped(all());
    let one = written(&store, "one", 4).await;
    let two = written(&store, "two", 4).await;
    let bodies: Vec<Bytes> = stored(&inner, &one.key).await.into_iter().map(|record| record.body).collect();
    // Move a body to another sequence number of the same run, including the newest.
    for (from, to) in [(1, 2), (0, 3), (3, 1)] {
        put(&inner, &one.key, to, |_, _| bodies[from].clone());
        assert_eq!(kind(&store, &one.key).await, ErrorKind::Corrupt);
        put(&inner, &one.key, to, |_, _| bodies[to].clone());
    }
    assert!(store.load(&one.key, At::Latest).await.is_ok());
    // Copy the whole log to another id, with its record ids. Another tenant's run has another id, too.
    let records = stored(&inner, &one.key).await;
    inner.tamper(&two.key, |kept| *kept = records.clone());
    assert_eq!(kind(&store, &two.key).await, ErrorKind::Corrupt);
    // The base that a prune wrote in place of a record.
    let (inner, store) = wrapped(all());
    let log = written(&store, "r", 3).await;
    let before = stored(&inner, &log.key).await[2].clone();
    let mut base = log.records[2].clone();
    base.header.base = true;
    let base = Record::seal(base.header, base.body).unwrap();
    let cut = ferrata_store::PruneCut { at: base.header.seq, base: Some(base) };
    store.prune(&log.key, cut).await.unwrap();
    assert!(store.load(&log.key, At::Latest).await.is_ok());
    put(&inner, &log.key, 0, |_, _| before.body);
    assert_eq!(kind(&store, &log.key).await, ErrorKind::Corrupt);
}

/// Guarantees: AT-REST-3.
#[tokio::test]
async fn plaintext_is_refused_unless_allowed() {
    let inner = MemoryStore::new();
    let plain = written(&inner, "plain", 2).await;
    let compressing =
        EnvelopeStore::new(inner.clone(), EnvelopeOptions::default().with_compress_from(Some(0)));
    let mut long = Log::new(RunId::new("compressed").unwrap());
    let mut append = long.next(2);
    for record in &mut append.records {
        *record =
            Record::seal(record.header.clone(), "{\"prose\":\"and more of it\"}".repeat(9).into()).unwrap();
    }
    compressing.append(vec![append.clone()]).await.remove(0).unwrap();
    long.note_append(&append);
    assert_eq!(stored(&inner, &long.key).await[1].body[..3], [0xFE, 1, 1]);
    let strict = EnvelopeStore::new(inner.clone(), encrypting(&["k"]));
    let lax = EnvelopeStore::new(inner.clone(), encrypting(&["k"]).with_accept_plain(true));
    for log in [&plain, &long] {
        assert_eq!(kind(&strict, &log.key).await, ErrorKind::Corrupt);
        let message = strict.load(&log.key, At::Latest).await.unwrap_err().to_string();
        assert!(message.contains("accept_plain"), "{message}");
        assert_eq!(lax.load(&log.key, At::Latest).await.unwrap().unwrap(), log.records);
    }
    // The run continues with encrypted records in the same log.
    let mut log = plain;
    log.write(&lax, 2).await;
    assert_eq!(lax.load(&log.key, At::Latest).await.unwrap().unwrap().last(), log.records.last());
    let bodies = stored(&inner, &log.key).await;
    assert_eq!(bodies.last().unwrap().body[..3], [0xFE, 1, 2]);
}

#[tokio::test]
async fn a_key_that_is_missing_is_named() {
    let (inner, store) = wrapped(encrypting(&["k"]));
    let log = written(&store, "r", 2).await;
    for (options, remedy) in
        [(EnvelopeOptions::default(), "configure the keys of this process"), (encrypting(&["l"]), "add it")]
    {
        let other = EnvelopeStore::new(inner.clone(), options);
        let error = other.load(&log.key, At::Latest).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("`k`") && error.to_string().contains(remedy), "{error}");
        // The head reports unencrypted records.
        assert_eq!(other.head(&log.key).await.unwrap().unwrap().seq.get(), 1);
    }
    // Another key with the same name.
    let wrong = Keyring::new("k", &Key::from_bytes([9; 32])).unwrap();
    let wrong = EnvelopeStore::new(inner, EnvelopeOptions::default().with_keys(wrong));
    assert_eq!(kind(&wrong, &log.key).await, ErrorKind::Corrupt);
}

#[tokio::test]
async fn body_decompressing_beyond_limit_is_refused() {
    let (inner, store) = wrapped(EnvelopeOptions::default().with_max_body(1 << 20));
    let log = written(&store, "r", 1).await;
    let bomb = |bytes: usize| zstd::bulk::compress(&vec![b'x'; bytes], 19).unwrap();
    for (bytes, is_read) in [(1 << 20, true), ((1 << 20) + 1, false), (1 << 28, false)] {
        put(&inner, &log.key, 0, |_, _| [&[0xFE, 1, 1], &bomb(bytes)[..]].concat().into());
        let loaded = store.load(&log.key, At::Latest).await;
        match is_read {
            true => assert_eq!(loaded.unwrap().unwrap()[0].body.len(), bytes),
            false => {
                let error = loaded.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{bytes}");
                assert!(error.to_string().contains("`EnvelopeOptions::max_body`"), "{error}");
            }
        }
    }
}

/// A body above the limit that was compressed and acknowledged is readable.
#[tokio::test]
async fn written_body_beyond_limit_is_readable() {
    for options in [EnvelopeOptions::default(), encrypting(&["k"])] {
        let (inner, store) = wrapped(options.with_max_body(1 << 12));
        for (bytes, is_compressed) in [(1 << 12, true), ((1 << 12) + 1, false)] {
            let mut log = Log::new(RunId::new(format!("r{bytes}")).unwrap());
            let append = log.next_body(vec![b'1'; bytes]);
            store.append(vec![append.clone()]).await.remove(0).unwrap();
            log.note_append(&append);
            assert_eq!(store.load(&log.key, At::Latest).await.unwrap().unwrap(), log.records, "{bytes}");
            assert_eq!(stored(&inner, &log.key).await[0].body.len() < bytes, is_compressed, "{bytes}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any stored bytes are read, or give an error with run and record.
    #[test]
    fn no_bytes_make_a_reader_panic(flags in 0_u8..6, bytes in prop::collection::vec(any::<u8>(), 0..80), whole in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for options in [all(), all().with_accept_plain(true), EnvelopeOptions::default()] {
                let (inner, store) = wrapped(options);
                let log = written(&inner, "r", 1).await;
                let body = if whole { bytes.clone() } else { [&[0xFE, 1, flags], &bytes[..]].concat() };
                put(&inner, &log.key, 0, |_, _| body.into());
                if let Err(error) = store.load(&log.key, At::Latest).await {
                    assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported), "{error}");
                    assert!(error.run().is_some() && error.seq().is_some());
                }
            }
        });
    }
}
