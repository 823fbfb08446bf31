//! What the verbs take that look at pipelines: `lint` and `graph`.

use std::path::PathBuf;

use clap::ValueEnum;

/// Check pipelines, and show the place of each mistake.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ferrata lint release.dot --deny-warnings")]
pub(crate) struct LintArgs {
    /// The files; `-` for stdin.
    #[arg(value_name = "FILE.dot", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Warnings are mistakes, too.
    #[arg(long)]
    pub(crate) deny_warnings: bool,
}

/// How a graph is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Drawing {
    /// Graphviz source, quoted so that Graphviz itself reads it.
    #[default]
    Dot,
    /// A picture.
    Svg,
    /// Mermaid source.
    Mermaid,
}

/// Draw a pipeline, or how a run has gone.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata graph release.dot --format svg > release.svg\n  ferrata graph 019a6f2e --pipeline release.dot --format mermaid"
)]
pub(crate) struct GraphArgs {
    /// A pipeline's file, or a run.
    #[arg(value_name = "FILE.dot|RUN")]
    pub(crate) what: String,
    /// The pipeline that the run is one of, for the nodes it has not come to.
    #[arg(long, value_name = "FILE.dot")]
    pub(crate) pipeline: Option<PathBuf>,
    /// How it is drawn.
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) format: Drawing,
}
