//! Writing and reading values of any length uses bounded memory.
//!
//! `FERRATA_BLOB_BYTES=5368709120 cargo test --release -p ferrata-blobs --all-features --test blobs bounded` takes one of 5 GiB.

use std::pin::Pin;
use std::process::Command;
use std::task::{Context, Poll};

use ferrata_blobs::Blobs;
use futures_util::TryStreamExt as _;
use tokio::io::{AsyncRead, ReadBuf};

use super::keys;

/// The variable that says how long the value is, and how long it is otherwise: many times of what may be in memory.
const BYTES: &str = "FERRATA_BLOB_BYTES";
const SHORT: u64 = 192 << 20;

/// The variable by which the process knows that it is to do the work, alone in its memory.
const ALONE: &str = "FERRATA_BLOB_ALONE";

/// By how much the process may grow: some parts of 8 MiB, as they are read, closed and sent, and what the allocator keeps.
const MOST: u64 = 128 << 20;

/// After how many bytes the value repeats itself: a prime, so that no segment is as the one before.
const TURN: u8 = 251;

/// How much of the value is looked at, at a time.
const STEP: usize = 1 << 16;

/// The value from any place of a turn on.
fn turns() -> Vec<u8> {
    (0..TURN).cycle().take(STEP + usize::from(TURN)).collect()
}

/// Returns what stands at a place of the value.
fn at_place(turns: &[u8], at: u64, len: usize) -> &[u8] {
    &turns[usize::try_from(at % u64::from(TURN)).unwrap()..][..len]
}

/// A reader that gives a value of so many bytes which is nowhere in memory.
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

/// How much memory this process had at most, in bytes.
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
            assert!(found == at_place(&turns, at, found.len()), "what stands at {at}");
            at += found.len() as u64;
        }
    }
    assert_eq!(at, len);
    let grown = peak() - before;
    assert!(grown < MOST && grown < len, "it took {grown} bytes more for a value of {len}");
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
            // The cipher takes its time where nothing is optimised.
            if let Some(len) = len {
                goes_in_and_out(blobs.with_keys(keys(&[1])), len).await;
            }
        });
        return;
    }
    // In a process of its own: others of these tests have memory, too.
    let this = std::env::current_exe().unwrap();
    let name = "bounded::a_value_of_any_length_takes_bounded_memory";
    let output =
        Command::new(this).args(["--exact", name, "--nocapture"]).env(ALONE, "yes").output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
