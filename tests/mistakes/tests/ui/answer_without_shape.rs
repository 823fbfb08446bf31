//! A type without a shape, in a field and in a question.

use ferrata::{AnswerShape, Ask};
use serde::Deserialize;

#[derive(Deserialize)]
struct Foreign;

#[derive(Deserialize, AnswerShape)]
struct Decision {
    by: Foreign,
}

fn main() {
    let _ = Ask::<Foreign>::new("?");
}
