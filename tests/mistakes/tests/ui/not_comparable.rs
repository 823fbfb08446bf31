use ferrata::State;
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize)]
struct Opaque(u32);

#[derive(Clone, Serialize, Deserialize, State)]
struct Review {
    opaque: Opaque,
}

fn main() {}
