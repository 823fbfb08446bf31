use ferrata::State;
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize, State)]
struct Review {
    #[serde(alias = "name")]
    title: String,
    #[serde(rename = "text", alias = "body")]
    draft: String,
}

fn main() {}
