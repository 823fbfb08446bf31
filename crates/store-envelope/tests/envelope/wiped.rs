//! Dropped keys leave no trace in the memory of a process.
#![cfg(target_os = "linux")]

use std::fs::{File, read_to_string};
use std::hint::black_box;
use std::os::unix::fs::FileExt as _;

use ferrata_store::{At, CheckpointStore as _, MemoryStore, RunId};
use ferrata_store_envelope::{EnvelopeOptions, EnvelopeStore, Key, Keyring, LabelKey};
use ferrata_testing::{Log, facts};
use zeroize::Zeroizing;

/// A number of keys at which the list of keys is reallocated twice.
const KEYS: u8 = 9;

/// A masked test key, which never occurs unmasked in the test's memory.
fn veiled(key: u8) -> [u8; 32] {
    blake3::derive_key("a key of a test", &[key]).map(|byte| byte ^ VEIL)
}

const VEIL: u8 = 0x5A;

/// A derived key is as valuable as the key itself.
const DERIVED: [&str; 2] = ["ferrata envelope 1 cipher", "ferrata envelope 1 blobs"];

fn veiled_with_derived(key: u8) -> Vec<[u8; 32]> {
    let plain = veiled(key).map(|byte| byte ^ VEIL);
    let derived = DERIVED.map(|context| blake3::derive_key(context, &plain).map(|byte| byte ^ VEIL));
    [veiled(key)].into_iter().chain(derived).collect()
}

/// Creates keys in every way, uses them, and drops them.
#[inline(never)]
fn use_keys() {
    let lines = (0..KEYS).map(|key| {
        let digits: String = veiled(key).iter().map(|byte| format!("{:02x}", byte ^ VEIL)).collect();
        format!("k{key} = {digits}\n")
    });
    let text: String = lines.collect();
    let keys = Keyring::parse(&text).unwrap();
    let label = Key::from_bytes(veiled(0).map(|byte| byte ^ VEIL));
    let options = EnvelopeOptions::default().with_keys(keys.clone()).with_label_key(LabelKey::new(&label));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = EnvelopeStore::new(MemoryStore::new(), options);
        let log = Log::new(RunId::new("r").unwrap());
        let mut append = log.next(3);
        append.facts = Some(facts("w", 0));
        let run = append.run.clone();
        store.append(vec![append]).await.remove(0).unwrap();
        assert_eq!(store.load(&run, At::Latest).await.unwrap().unwrap().len(), 3);
    });
    assert!(black_box(&keys).blob_key("k1").is_some());
}

#[inline(never)]
fn keep_one() -> Zeroizing<Vec<u8>> {
    Zeroizing::new(veiled(0).map(|byte| byte ^ VEIL).to_vec())
}

/// Overwrites the stack below this frame, where calls may have left data.
fn overwrite_stack() {
    // Use frames of several sizes, so that their gaps do not coincide.
    black_box((overwrite::<512>(200), overwrite::<61>(1_500), overwrite::<37>(2_000)));
}

#[inline(never)]
fn overwrite<const WORDS: usize>(depth: usize) -> u64 {
    let filled = black_box([0xA5A5_A5A5 ^ depth as u64; WORDS]);
    if depth == 0 { filled[7] } else { overwrite::<WORDS>(depth - 1) ^ filled[depth % WORDS] }
}

/// Counts the places in this process's writable memory that contain half of one of these keys.
fn found(wanted: &[[u8; 32]]) -> usize {
    let maps = read_to_string("/proc/self/maps").unwrap();
    let memory = File::open("/proc/self/mem").unwrap();
    let mut part = vec![0_u8; 1 << 20];
    let own = part.as_ptr() as u64;
    let own = own..own + part.len() as u64;
    let halves: Vec<[u8; 16]> = wanted.iter().flat_map(|key| key.as_chunks().0).copied().collect();
    // Compare the first two bytes first, because few places match.
    let mut begins = vec![false; 1 << 16];
    let begin = |half: &[u8]| usize::from(u16::from_le_bytes([half[0], half[1]]));
    halves.iter().for_each(|half| begins[begin(&half.map(|byte| byte ^ VEIL))] = true);
    let mut count = 0;
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [mut at, to] = [from, to].map(|address| u64::from_str_radix(address, 16).unwrap());
        while at < to {
            if own.contains(&at) {
                at = own.end;
                continue;
            }
            let end = if at < own.start { to.min(own.start) } else { to };
            let len = usize::try_from((end - at).min(part.len() as u64)).unwrap();
            // Some special ranges are unreadable.
            if memory.read_exact_at(&mut part[..len], at).is_err() {
                break;
            }
            for window in part[..len].windows(16) {
                let is =
                    |half: &[u8; 16]| window.iter().zip(half).all(|(byte, veiled)| byte ^ VEIL == *veiled);
                count += usize::from(begins[begin(window)] && halves.iter().any(is));
            }
            // A match across two parts is read completely with the second part.
            at += if at + len as u64 == end { len as u64 } else { len as u64 - 15 };
        }
    }
    count
}

/// Guarantees: SECURITY-11.
#[test]
fn used_key_leaves_no_copy_in_memory() {
    let wanted: Vec<[u8; 32]> = (0..KEYS).flat_map(veiled_with_derived).collect();
    let kept = keep_one();
    overwrite_stack();
    assert_eq!(found(&wanted), 2, "both halves of an existing key must be found");
    drop(kept);
    use_keys();
    overwrite_stack();
    assert_eq!(found(&wanted), 0);
}
