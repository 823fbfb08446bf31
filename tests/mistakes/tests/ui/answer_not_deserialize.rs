//! A type that is read needs `Deserialize`.

use ferrata::AnswerShape;

#[derive(AnswerShape)]
struct Decision {
    amount: u32,
}

fn main() {}
