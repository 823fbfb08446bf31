//! What is to be read must say how.

use ferrata::AnswerShape;

#[derive(AnswerShape)]
struct Decision {
    amount: u32,
}

fn main() {}
