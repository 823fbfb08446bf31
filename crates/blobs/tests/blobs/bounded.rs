//! Writing and reading values of any length uses bounded memory.
//!
//! `FERRATA_BLOB_BYTES=5368709120 cargo test --release -p ferrata-blobs --all-features --test blobs bounded` tests a value of 5 GiB.

use std::pin::Pin;
use std::process::Command;
use std::task::{Context, Poll};

use ferrata_blobs::Blobs;
use futures_util::TryStreamExt as _;
use tokio::io::{AsyncRead, ReadBuf};

use super::keys;

/// The environment variable for the length of the value, and its default: many times the permitted memory.
const BYTES: &str = "FERRATA_BLOB_BYTES";
const SHORT: u64 = 192 << 20;

/// The environment variable that selects the process that does the work, so that it is alone in its memory.
const ALONE: &str = "FERRATA_BLOB_ALONE";

/// Maximum growth of the process: a few parts of 8 MiB that are read, sealed and sent, and the allocator's reserve.
const MOST: u64 = 128 << 20;

/// The period of the value: a prime, so that no two successive segments are equal.
const TURN: u8 = 251;

/// Number of bytes of the value that are compared at a time.
const STEP: usize = 1 << 16;

/// The value from any position of a period on.
fn turns() -> Vec<u8> {
    (0..TURN).cycle().take(STEP + usize::from(TURN)).collect()
}

/// Returns the part of the value at a position.
fn at_place(turns: &[u8], at: u64, len: usize) -> &[u8] {
    &turns[usize::try_from(at % u64::from(TURN)).unwrap()..][..len]
}

/// A reader that yields a value of this length without storing it.
struct Pattern {
    turns: Vec<u8>,
    at: u64,
    end: u64,
}

impl AsyncRead for Pattern {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let many = into.remaining().min(STEP).min(usize::try_from(self.end - self.at).unwrap_or(usize::MAX));
        into.put_slice(at_place(&self.turns, self.at, many));
        self.at += many as u64;
        Poll::Ready(Ok(()))
    }
}

/// Returns the peak memory of this process in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

async fn goes_in_and_out(blobs: Blobs, len: u64) {
    let before = peak();
    let blob = blobs.put_reader(Pattern { turns: turns(), at: 0, end: len }).await.unwrap();
    assert_eq!(blob.len(), len);
    let (turns, mut at) = (turns(), 0);
    let mut parts = Box::pin(blobs.stream(&blob));
    while let Some(part) = parts.try_next().await.unwrap() {
        for found in part.chunks(STEP) {
            assert!(found == at_place(&turns, at, found.len()), "the bytes at {at}");
            at += found.len() as u64;
        }
    }
    assert_eq!(at, len);
    let grown = peak() - before;
    assert!(grown < MOST && grown < len, "the process grew by {grown} bytes for a value of {len}");
}

/// Guarantees: BLOB-9.
#[test]
#[cfg(target_os = "linux")]
fn a_value_of_any_length_takes_bounded_memory() {
    let len = std::env::var(BYTES).ok().map(|text| text.parse().unwrap());
    if std::env::var_os(ALONE).is_some() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        runtime.block_on(async {
            let blobs = Blobs::in_folder(folder.path()).unwrap();
            goes_in_and_out(blobs.clone(), len.unwrap_or(SHORT)).await;
            // Encryption is slow in a debug build.
            if let Some(len) = len {
                goes_in_and_out(blobs.with_keys(keys(&[1])), len).await;
            }
        });
        return;
    }
    // Run in a separate process, because other tests also use memory.
    let this = std::env::current_exe().unwrap();
    let name = "bounded::a_value_of_any_length_takes_bounded_memory";
    let output =
        Command::new(this).args(["--exact", name, "--nocapture"]).env(ALONE, "yes").output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
