//! Pipelines in Graphviz DOT files. This crate parses, checks and compiles such pipelines to [Ferrata](ferrata_core) graphs.
//!
//! The dialect follows the Attractor specification. The dialect is a strict subset of DOT. The shape of a node determines its kind of work, edges may
//! have conditions, and attributes have types. `docs/reference/dot.md` describes the dialect.
//!
//! ```
//! use ferrata_dot::Pipeline;
//! use ferrata_dot::lint::Linter;
//! use ferrata_dot::transform::Transforms;
//!
//! let source = br#"
//!     digraph Greet {
//!         goal = "greet the world"
//!         start [shape=Mdiamond]
//!         exit  [shape=Msquare]
//!         greet [prompt="Find a way to $goal"]
//!         start -> greet -> exit
//!     }
//! "#;
//! let mut pipeline = Pipeline::parse(source)?;
//! Transforms::default().apply(&mut pipeline)?;
//! assert_eq!(Linter::default().check(&pipeline)?, []);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! - Parsing takes time and memory proportional to the source, whatever its content, and never panics.
//! - Printing a [`Document`] and parsing the text again returns an equal document.
//! - Each mistake is reported with its location and, wherever possible, with a suggested replacement.

pub mod attribute;
pub mod compile;
pub mod condition;
pub mod entry;
pub mod fidelity;
pub mod handler;
pub mod lint;
pub mod outcome;
mod parse;
pub mod pipeline;
pub mod run_dir;
pub mod select;
mod shell;
pub mod source;
mod suggest;
pub mod syntax;
mod tolerance;
pub mod transform;
pub mod value;
mod variable;

pub use parse::{ParseError, ParseErrorKind};
pub use pipeline::Pipeline;
pub use syntax::Document;
pub use tolerance::Tolerance;
