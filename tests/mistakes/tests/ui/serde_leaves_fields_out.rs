use ferrata::State;
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize)]
struct Inner {
    a: u32,
}

#[derive(Clone, Serialize, Deserialize, State)]
struct Review {
    #[serde(flatten)]
    inner: Inner,
    #[serde(skip)]
    cache: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(rename(serialize = "a", deserialize = "b"))]
    draft: String,
    #[serde(rename = "same")]
    left: u32,
    same: u32,
}

#[derive(Clone, Serialize, Deserialize, State)]
#[serde(transparent)]
struct Through {
    inner: u32,
}

fn main() {}
