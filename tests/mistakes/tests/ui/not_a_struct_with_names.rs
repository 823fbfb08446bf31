use ferrata::State;
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize, State)]
struct Pair(u32, u32);

#[derive(Clone, Serialize, Deserialize, State)]
enum Choice {
    One,
}

#[derive(Clone, Serialize, Deserialize, State)]
struct Holder<T> {
    value: T,
}

fn main() {}
