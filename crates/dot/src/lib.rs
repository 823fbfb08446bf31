//! x
pub mod condition;
pub mod lint;
pub mod parse;
pub mod pipeline;
pub mod source;
mod suggest;
pub mod syntax;
pub mod transform;
pub mod value;
pub use parse::{ParseError, ParseErrorKind};
pub use pipeline::Pipeline;
pub use syntax::Document;
