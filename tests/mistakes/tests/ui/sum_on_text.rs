use ferrata::State;
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize, State)]
struct Review {
    #[state(sum)]
    draft: String,
}

fn main() {}
