//! Random choices from a seed.

/// A sequence of random choices that is the same for the same seed: SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug)]
pub(super) struct RandomChoices(u64);

impl RandomChoices {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a random number below `end`. The remainder has a slight bias, which does not matter for small numbers.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.word() % end.max(1)
    }

    /// Returns a random index below `end`.
    pub(super) fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).expect("it is below a usize")
    }

    /// Returns true with a probability of `times` percent.
    pub(super) fn happens(&mut self, times: u64) -> bool {
        self.below(100) < times
    }

    /// Returns one of the choices.
    pub(super) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }

    /// Returns one of the choices, or `None`.
    pub(super) fn maybe<T: Clone>(&mut self, choices: &[T]) -> Option<T> {
        if self.happens(70) { None } else { Some(self.pick(choices).clone()) }
    }
}
