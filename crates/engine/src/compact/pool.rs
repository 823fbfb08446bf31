//! Memory blocks that several small bodies of records share.
//!
//! The pool exists for the benchmark row `core/every-node`: a recorded node takes 4.4 allocations, and a separate body would be one more.

use std::cell::Cell;

use bytes::{Bytes, BytesMut};

/// The size of the blocks that small bodies share.
///
/// Large enough that few bodies need a new block, small enough that one long-lived body does not retain much.
const BLOCK: usize = 4 * 1024;

thread_local! {
    /// The free memory of the current block, for the next small bodies.
    static ROOM: Cell<BytesMut> = Cell::new(BytesMut::new());
}

/// Copies bytes to a shared block, or to their own memory if they are large.
pub(crate) fn share(bytes: &[u8]) -> Bytes {
    if bytes.len() > BLOCK / 4 {
        return Bytes::copy_from_slice(bytes);
    }
    let mut room = ROOM.take();
    if room.capacity() < bytes.len() && !room.try_reclaim(BLOCK) {
        room = BytesMut::with_capacity(BLOCK);
    }
    room.extend_from_slice(bytes);
    let shared = room.split().freeze();
    ROOM.set(room);
    shared
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes stay unchanged, whatever their neighbors do.
    #[test]
    fn pooled_bytes_do_not_overlap() {
        let body = |at: usize| vec![u8::try_from(at % 251).unwrap(); 1 + at * 37 % (BLOCK / 3)];
        let mut kept = Vec::new();
        for at in 0..500 {
            kept.push((at, share(&body(at))));
            if at % 3 == 0 {
                kept.swap_remove(at * 31 % kept.len());
            }
            assert!(kept.iter().all(|(at, kept)| *kept == body(*at)));
        }
    }

    /// The bodies in one block are adjacent. Bodies of two blocks are not, because the allocator adds its own data between the blocks.
    #[test]
    fn what_outlives_its_neighbours_holds_little_memory() {
        let bodies: Vec<_> = (0..10 * BLOCK).map(|_| share(&[1])).collect();
        let (mut stretch, mut longest) = (1, 1);
        for pair in bodies.windows(2) {
            let adjacent = pair[0].as_ptr() as usize + 1 == pair[1].as_ptr() as usize;
            stretch = if adjacent { stretch + 1 } else { 1 };
            longest = longest.max(stretch);
        }
        assert!(longest <= BLOCK, "{longest} adjacent bytes in one block");
    }
}
