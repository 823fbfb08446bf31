//! Changes a pipeline between parsing and checking: variables, the stylesheet, and custom transforms.

mod files;
mod stylesheet;
mod variables;

use std::fmt;

use ferrata_core::Error;

pub use files::PromptFiles;
pub use stylesheet::{Stylesheet, StylesheetError};
pub use variables::Variables;

use crate::pipeline::Pipeline;

/// Changes a pipeline.
pub trait Transform: Send + Sync {
    /// Returns the name for errors.
    fn name(&self) -> &str;

    /// Changes the pipeline.
    ///
    /// # Errors
    ///
    /// Returns any error of the transform; the pipeline is then not used.
    fn apply(&self, pipeline: &mut Pipeline) -> Result<(), Error>;
}

/// The transforms in the order of application: the built-in ones, then added ones in the order of addition.
///
/// # Examples
///
/// ```
/// use ferrata_dot::Pipeline;
/// use ferrata_dot::transform::Transforms;
///
/// let source = br#"digraph G { model_stylesheet = "* { llm_model: small }" a [prompt = "Plan to $goal"] }"#;
/// let mut pipeline = Pipeline::parse(source)?;
/// Transforms::default().apply(&mut pipeline)?;
/// assert_eq!(pipeline.node("a").unwrap().attributes.text("llm_model"), "small");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Transforms {
    transforms: Vec<Box<dyn Transform>>,
}

impl Transforms {
    /// Returns an empty list.
    pub fn none() -> Self {
        Self { transforms: Vec::new() }
    }

    /// Returns the built-in transforms with prompt files from a directory: [`PromptFiles`], then the stylesheet.
    pub fn in_directory(directory: Option<std::path::PathBuf>) -> Self {
        Self::none().then(PromptFiles::in_directory(directory)).then(ApplyStylesheet)
    }

    /// Adds one at the end.
    #[must_use]
    pub fn then(mut self, transform: impl Transform + 'static) -> Self {
        self.transforms.push(Box::new(transform));
        self
    }

    /// Applies them in order.
    ///
    /// # Errors
    ///
    /// Returns the error of the first transform that fails, with its name; the transforms before it have already changed the pipeline.
    pub fn apply(&self, pipeline: &mut Pipeline) -> Result<(), Error> {
        for transform in &self.transforms {
            transform.apply(pipeline).map_err(|error| {
                let message = format!("transform `{}`: {}", transform.name(), error.message());
                Error::new(error.kind(), message).with_operation("dot.transform").with_source(error)
            })?;
        }
        Ok(())
    }
}

impl Default for Transforms {
    /// Returns the built-in transform: the stylesheet.
    fn default() -> Self {
        Self::none().then(ApplyStylesheet)
    }
}

impl fmt::Debug for Transforms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.transforms.iter().map(|transform| transform.name())).finish()
    }
}

/// Applies the graph's `model_stylesheet` to its nodes.
///
/// An invalid stylesheet changes nothing: lint reports it with its location.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApplyStylesheet;

impl Transform for ApplyStylesheet {
    fn name(&self) -> &str {
        "stylesheet"
    }

    fn apply(&self, pipeline: &mut Pipeline) -> Result<(), Error> {
        let text = pipeline.attributes.text("model_stylesheet").into_owned();
        if let Ok(stylesheet) = Stylesheet::parse(&text) {
            stylesheet.apply(pipeline);
        }
        Ok(())
    }
}
