//! Questions that a run asks of people and of other programs, and what they may answer.

mod shape;

pub use shape::Shape;
