use ferrata::State;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Notes(Vec<String>);

#[derive(Clone, Serialize, Deserialize, State)]
struct Review {
    #[state(append)]
    notes: Notes,
}

fn main() {}
