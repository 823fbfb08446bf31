//! Mutations of inputs: cut, repeated, joined, and with tokens of the language inserted.

/// Tokens of the language, and edge cases.
const PIECES: &[&str] = &[
    "digraph",
    "subgraph",
    "graph",
    "node",
    "edge",
    "strict",
    "{",
    "}",
    "[",
    "]",
    "->",
    "--",
    "=",
    ",",
    ";",
    "\"",
    "\\",
    "\\\"",
    "//",
    "/*",
    "*/",
    "\n",
    "a",
    "start",
    "exit",
    "label",
    "condition",
    "outcome=success",
    "context.x",
    "&&",
    "||",
    "!",
    "(",
    ")",
    "<",
    ">=",
    "contains",
    "matches",
    "weight",
    "0",
    "-1",
    "0.5",
    ".5",
    "9223372036854775807",
    "9223372036854775808",
    "1e9",
    "15m",
    "250ms",
    "1d",
    "18446744073709551615d",
    "true",
    "false",
    "shape",
    "Mdiamond",
    "component",
    "tripleoctagon",
    "hexagon",
    "house",
    "type",
    "parallel",
    "parallel.fan_in",
    "wait.human",
    "fidelity",
    "summary:high",
    "selection",
    "random",
    "join_policy",
    "quorum",
    "k",
    "loop_restart",
    "freeform",
    "goal_gate",
    "retry_target",
    "model_stylesheet",
    "* { llm_model: m }",
    ".c",
    "#a",
    "$goal",
    "$",
    "\u{feff}",
    "\u{0}",
    "\u{e4}",
    "\u{1f980}",
    "human.default_choice",
    "class",
    "a.b",
    "..",
    "_",
];

/// Maximum length of an input: a compromise between coverage and speed.
const LONGEST: usize = 4096;

pub(crate) struct Mutator(u64);

impl Mutator {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64 (Steele, Lea, Flood 2014).
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.next() % (most as u64).max(1)).unwrap()
    }

    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let (one, other) = (self.below(length + 1), self.below(length + 1));
        // Prefer short ranges, because a long one leaves nothing.
        let (from, to) = (one.min(other), one.max(other));
        from..to.min(from + 1 + self.below(40))
    }

    /// Creates an input from those in the pool.
    pub(crate) fn input(&mut self, pool: &[Vec<u8>]) -> Vec<u8> {
        let mut input = pool[self.below(pool.len())].clone();
        for _ in 0..=self.below(6) {
            self.mutate(&mut input, pool);
        }
        input.truncate(LONGEST);
        input
    }

    fn mutate(&mut self, input: &mut Vec<u8>, pool: &[Vec<u8>]) {
        let at = self.below(input.len() + 1);
        match self.below(9) {
            0 => drop(input.drain(self.range_of(input))),
            1 => {
                let part = input[self.range_of(input)].to_vec();
                input.splice(at..at, part);
            }
            2 | 3 => {
                let piece = PIECES[self.below(PIECES.len())];
                input.splice(at..at, piece.bytes());
            }
            4 => {
                let piece = PIECES[self.below(PIECES.len())];
                let range = self.range_of(input);
                input.splice(range, piece.bytes());
            }
            5 if at < input.len() => input[at] ^= 1 << self.below(8),
            6 if at < input.len() => input[at] = self.next().to_le_bytes()[0],
            7 => {
                let other = &pool[self.below(pool.len())];
                let part = other[self.range_of(other)].to_vec();
                input.splice(at..at, part);
            }
            _ => {
                let other = &pool[self.below(pool.len())];
                let from = self.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
    }

    fn range_of(&mut self, input: &[u8]) -> std::ops::Range<usize> {
        self.range(input.len())
    }
}
