//! The format of envelopes, byte for byte: every version reads existing records.

use bytes::Bytes;
use ferrata_store::{
    At, CheckpointStore, ErrorKind, MemoryStore, Record, RecordHeader, RecordId, RunId, RunKey,
};
use ferrata_store_envelope::{EnvelopeOptions, EnvelopeStore, Key, Keyring};
use ferrata_testing::Log;
use proptest::prelude::*;

use super::all;

const BODY: &str = r#"{"entry":"write","text":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}"#;

/// The key 000102.., as in `docs/how-to/at-rest.md`.
fn options(is_encrypted: bool, compress_from: Option<usize>) -> EnvelopeOptions {
    let key = Key::from_bytes(std::array::from_fn(|at| u8::try_from(at).unwrap()));
    let options = EnvelopeOptions::default().with_compress_from(compress_from);
    if is_encrypted { options.with_keys(Keyring::new("2026-11", &key).unwrap()) } else { options }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first record of the run `default/r-1`, with the id 01020304-....
fn record(body: &Bytes) -> (RunKey, Record, ferrata_store::RunAppend) {
    let log = Log::new(RunId::new("r-1").unwrap());
    let mut append = log.next(1);
    let id = RecordId::from_uuid(uuid::Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10));
    let header = RecordHeader { id, ..append.records[0].header.clone() };
    append.records[0] = Record::seal(header, body.clone()).unwrap();
    (append.run.clone(), append.records[0].clone(), append)
}

async fn stored(options: EnvelopeOptions, body: &Bytes) -> Bytes {
    let inner = MemoryStore::new();
    let (run, _, append) = record(body);
    EnvelopeStore::new(inner.clone(), options).append(vec![append]).await.remove(0).unwrap();
    inner.load(&run, At::Latest).await.unwrap().unwrap()[0].body.clone()
}

/// Guarantees: SECURITY-12.
#[tokio::test]
async fn envelope_formats_are_stable() {
    let body = Bytes::from(BODY);
    assert_eq!(stored(options(false, None), &body).await, body);
    assert_eq!(stored(options(false, Some(BODY.len() + 1)), &body).await, body);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/envelope/golden.txt");
    let file = std::fs::read_to_string(file).unwrap();
    // zstd may compress a text differently in another version, but earlier output is readable.
    for (name, is_made, options) in [
        ("compressed", false, options(false, Some(0))),
        ("encrypted", true, options(true, None)),
        ("compressed and encrypted", false, options(true, Some(BODY.len()))),
    ] {
        let found = hex(&stored(options.clone(), &body).await);
        let golden = file.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        let golden = golden.unwrap_or_else(|| panic!("{name}: {found}"));
        if is_made {
            assert_eq!(found, golden);
        }
        let bytes: Vec<u8> = (0..golden.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&golden[at..at + 2], 16).unwrap())
            .collect();
        let inner = MemoryStore::new();
        let (run, record, append) = record(&body);
        inner.append(vec![append]).await.remove(0).unwrap();
        inner.tamper(&run, |records| {
            records[0] = Record::seal(records[0].header.clone(), bytes.clone().into()).unwrap();
        });
        let loaded = EnvelopeStore::new(inner, options).load(&run, At::Latest).await.unwrap().unwrap();
        assert_eq!(loaded, [record], "{name}");
    }
}

/// An envelope of a later version is refused without reading its other bytes.
#[tokio::test]
async fn envelope_of_a_later_version_is_unsupported() {
    for rest in [&[2][..], &[0xFF; 40]] {
        let (run, _, append) = record(&Bytes::from(BODY));
        let inner = MemoryStore::new();
        inner.append(vec![append]).await.remove(0).unwrap();
        inner.tamper(&run, |records| {
            let body = [&[0xFE, 2], rest].concat();
            records[0] = Record::seal(records[0].header.clone(), body.into()).unwrap();
        });
        let refused =
            EnvelopeStore::new(inner, options(true, None)).load(&run, At::Latest).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
        assert!(refused.message().contains("upgrade this process"), "{refused}");
    }
}

#[tokio::test]
async fn what_does_not_get_smaller_is_not_compressed() {
    let mut state = 1_u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    let noise: Bytes = (0..400).map(|_| byte()).collect::<Vec<u8>>().into();
    assert_eq!(stored(options(false, Some(0)), &noise).await, noise);
    let empty = Bytes::new();
    assert_eq!(stored(options(false, Some(0)), &empty).await, empty);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any bytes can be a body, including bytes that begin like an envelope.
    #[test]
    fn what_goes_in_comes_out(bytes in prop::collection::vec(any::<u8>(), 0..3_000), repeated in 1_usize..4, marked in any::<bool>()) {
        let mut body = bytes.repeat(repeated);
        if marked {
            body.splice(0..0, [0xFE, 1, 3]);
        }
        let body = Bytes::from(body);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (run, record, append) = record(&body);
            for options in [all(), options(false, Some(0)), options(false, None)] {
                let store = EnvelopeStore::new(MemoryStore::new(), options);
                store.append(vec![append.clone()]).await.remove(0).unwrap();
                assert_eq!(store.load(&run, At::Latest).await.unwrap().unwrap(), std::slice::from_ref(&record));
            }
        });
    }
}
