//! Shapes of answers, derived and of the standard library: their law, rejections, messages and stored form.

mod cases;
mod law;
mod types;
