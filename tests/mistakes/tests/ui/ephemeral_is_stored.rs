use ferrata::State;
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize, State)]
struct Review {
    #[state(ephemeral)]
    cache: u32,
    #[state(ephemeral, append)]
    #[serde(skip_serializing)]
    notes: Vec<String>,
    #[serde(skip)]
    #[state(ephemeral, append, sum)]
    draft: Vec<String>,
    #[serde(skip)]
    #[state(ephemeral, secret)]
    token: String,
}

fn main() {}
