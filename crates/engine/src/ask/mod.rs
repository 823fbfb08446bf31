//! Questions to people and other systems, the shapes of valid answers, answers, and automatic answerers.

mod answer;
mod answerer;
mod error;
mod question;
mod request;
mod resolution;
mod shape;

pub use answer::Answer;
pub use answerer::{AUTOMATIC, Answerer, AnswererQuestion, AutomaticAnswerer};
pub use error::{AskError, DeclineReason};
pub use question::{Question, QuestionKind};
pub use request::Ask;
pub use resolution::Resolution;
pub use shape::{AnswerShape, Shape, Shapes};

pub use question::prompt_of;
pub use request::{OnDeadline, QuestionRequest};
