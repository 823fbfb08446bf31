use ferrata::State;
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize, State)]
struct Review {
    #[state(union)]
    seen: std::collections::HashSet<String>,
}

fn main() {}
