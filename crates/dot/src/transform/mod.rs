//! Transforms change a pipeline after parsing and before lint: prompt files, variables, the stylesheet, and custom transforms.

mod files;
mod stylesheet;
mod variables;

use std::fmt;

use ferrata_core::Error;

pub use files::PromptFiles;
pub use stylesheet::{Stylesheet, StylesheetError};
pub use variables::Variables;

use crate::pipeline::Pipeline;

/// A change of a pipeline before it is checked and compiled.
pub trait Transform: Send + Sync {
    /// Returns the name of the transform. Errors contain it.
    fn name(&self) -> &str;

    /// Applies the transform to a pipeline.
    ///
    /// # Errors
    ///
    /// Returns any error of the transform. The pipeline is then not used.
    fn apply(&self, pipeline: &mut Pipeline) -> Result<(), Error>;
}

/// A list of transforms. The built-in transforms are applied first, and then the added ones in the order in which they were added.
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
    /// Returns a list without transforms.
    pub fn none() -> Self {
        Self { transforms: Vec::new() }
    }

    /// Returns the built-in transforms: [`PromptFiles`] with files from a directory, and then the stylesheet.
    pub fn in_directory(directory: Option<std::path::PathBuf>) -> Self {
        Self::none().then(PromptFiles::in_directory(directory)).then(ApplyStylesheet)
    }

    /// Adds a transform at the end of the list.
    #[must_use]
    pub fn then(mut self, transform: impl Transform + 'static) -> Self {
        self.transforms.push(Box::new(transform));
        self
    }

    /// Applies the transforms in order.
    ///
    /// # Errors
    ///
    /// Returns the error of the first transform that fails, with its name. The transforms before it have already changed the pipeline.
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
    /// Returns a list with the stylesheet as the only transform.
    fn default() -> Self {
        Self::none().then(ApplyStylesheet)
    }
}

impl fmt::Debug for Transforms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.transforms.iter().map(|transform| transform.name())).finish()
    }
}

/// Applies the stylesheet in the graph's attribute `model_stylesheet` to the nodes.
///
/// An invalid stylesheet changes nothing. Lint reports it with its location.
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
