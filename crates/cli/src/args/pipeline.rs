//! Arguments of the commands about pipelines: `lint` and `graph`.

use std::path::PathBuf;

use clap::ValueEnum;

/// Check pipeline files, and show the position of each mistake.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ferrata lint release.dot --deny-warnings")]
pub(crate) struct LintArgs {
    /// Files; `-` for stdin.
    #[arg(value_name = "FILE.dot", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Fail on warnings, too.
    #[arg(long)]
    pub(crate) deny_warnings: bool,
}

/// Format of the drawing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DrawingFormat {
    /// Graphviz source.
    #[default]
    Dot,
    /// SVG picture.
    Svg,
    /// Mermaid source.
    Mermaid,
}

/// Draw a pipeline, or the path of a run.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata graph release.dot --format svg > release.svg\n  ferrata graph 019a6f2e --pipeline release.dot --format mermaid"
)]
pub(crate) struct GraphArgs {
    /// Pipeline file, or run.
    #[arg(value_name = "FILE.dot|RUN")]
    pub(crate) what: String,
    /// Pipeline file of the run, for nodes that it has not reached.
    #[arg(long, value_name = "FILE.dot")]
    pub(crate) pipeline: Option<PathBuf>,
    /// Format of the drawing.
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) format: DrawingFormat,
}
