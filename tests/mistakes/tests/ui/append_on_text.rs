use ferrata::State;
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize, State)]
struct Review {
    #[state(append)]
    draft: String,
}

fn main() {}
