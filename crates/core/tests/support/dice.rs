//! Random numbers from a seed.

use std::sync::Mutex;

/// Numbers drawn from a seed: the same sequence every time.
pub(crate) struct Dice(Mutex<u64>);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        // Spread neighboring seeds.
        Self(Mutex::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D_4C95_7F2D))
    }

    /// Draws a number below `most`.
    pub(crate) fn below(&self, most: u64) -> u64 {
        let mut state = self.0.lock().unwrap();
        // SplitMix64 (Steele, Lea, Flood 2014).
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % most
    }

    pub(crate) fn pick<'a, T>(&self, of: &'a [T]) -> &'a T {
        &of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }

    /// Yields a random number of times, fewer than `most`.
    pub(crate) async fn give_way(&self, most: u64) {
        for _ in 0..self.below(most) {
            tokio::task::yield_now().await;
        }
    }
}
