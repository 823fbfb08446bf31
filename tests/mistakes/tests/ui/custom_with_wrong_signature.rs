use ferrata::State;
use serde::{Deserialize, Serialize};

fn join(current: u32, update: u32) -> u32 {
    current + update
}

#[derive(Clone, Serialize, Deserialize, State)]
struct Review {
    #[state(with = join)]
    total: u32,
}

fn main() {}
