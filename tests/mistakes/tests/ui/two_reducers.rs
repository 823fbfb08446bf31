use ferrata::State;
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize, State)]
struct Review {
    #[state(append, union)]
    notes: Vec<String>,
    #[state(max)]
    #[state(min)]
    attempts: u32,
}

fn main() {}
