use ferrata::State;
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize, State)]
#[state(versoin = 2)]
struct Review {
    #[state(apend)]
    notes: Vec<String>,
    #[state(overwrite)]
    draft: String,
    #[state(version = 2)]
    attempts: u32,
}

fn main() {}
