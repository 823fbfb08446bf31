//! Pipelines from files. Each pipeline is parsed and checked, and each mistake is shown with its location.

use std::path::{Path, PathBuf};

use ferrata::{Context as State, Graph};
use ferrata_dot::Pipeline;
use ferrata_dot::compile::Compiler;
use ferrata_dot::handler::{Manager, Registry};
pub(crate) use ferrata_dot::lint::Severity;
use ferrata_dot::source::{Snippet, Span};
use ferrata_dot::transform::Transforms;
use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, NamedSource, Report};

use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::input;

/// A pipeline's file.
pub(crate) struct PipelineFile {
    /// The name of the file.
    pub(crate) name: String,
    /// The content of the file.
    pub(crate) source: Vec<u8>,
    /// The content in a form that is safe for a terminal. All byte positions stay the same.
    shown: String,
}

/// Maximum length of a line that is shown completely. Of a longer line, the part around the location is shown.
const LINE: usize = 400;

/// A finding of lint, or an error of compilation, in a pipeline file.
pub(crate) struct PipelineFinding {
    /// The id of the rule.
    pub(crate) rule: String,
    /// The severity.
    pub(crate) severity: Severity,
    /// The problem.
    pub(crate) message: String,
    /// The node that the finding is about.
    pub(crate) node: Option<String>,
    /// The edge that the finding is about.
    pub(crate) edge: Option<(String, String)>,
    /// The number of the line, if the finding has a location.
    pub(crate) line: Option<usize>,
    /// The number of the character in the line, from 1.
    pub(crate) column: Option<usize>,
    /// How to correct the problem; `None` if there is no suggestion.
    pub(crate) fix: Option<String>,
    labels: Vec<(Span, String)>,
}

/// Reads a pipeline file.
pub(crate) fn read(path: &Path) -> Result<PipelineFile, CommandFailure> {
    let name = path.to_string_lossy().into_owned();
    let source = input::bytes(&name)?;
    let shown = match std::str::from_utf8(&source) {
        Ok(text) => text.chars().map(visible).collect(),
        Err(_) => {
            source.iter().map(|&byte| if byte.is_ascii() { visible(byte.into()) } else { '?' }).collect()
        }
    };
    Ok(PipelineFile { name, source, shown })
}

/// Creates the compiler that `ferrata run` uses. The pipelines of children are in the folder of the file.
fn compiler(folder: Option<PathBuf>) -> Compiler {
    let transforms = Transforms::in_directory(folder.clone());
    let manager = Manager::with(Registry::default(), transforms, folder);
    Compiler::new(Registry::default().with("stack.manager_loop", manager))
}

impl PipelineFile {
    /// Returns the folder in which the files that the pipeline names are.
    fn folder(&self) -> Option<PathBuf> {
        Path::new(&self.name).parent().map(Path::to_owned)
    }
}

/// Checks a pipeline. Returns the findings, the most severe first, and the pipeline if it could be parsed.
pub(crate) fn check(read: &PipelineFile) -> (Option<Pipeline>, Vec<PipelineFinding>) {
    let mut pipeline = match Pipeline::parse(&read.source) {
        Ok(pipeline) => pipeline,
        Err(error) => {
            let at = error.position();
            let mark = PipelineFinding {
                rule: "syntax".into(),
                severity: Severity::Error,
                message: error.message().to_owned(),
                node: None,
                edge: None,
                line: Some(at.line),
                column: Some(at.column),
                fix: error.suggestion().map(str::to_owned),
                labels: error.labels().iter().map(|label| (label.span, label.label.clone())).collect(),
            };
            return (None, vec![mark]);
        }
    };
    if let Err(error) = Transforms::in_directory(read.folder()).apply(&mut pipeline) {
        let mark = PipelineFinding {
            rule: "transform".into(),
            severity: Severity::Error,
            message: error.to_string(),
            node: None,
            edge: None,
            line: None,
            column: None,
            fix: None,
            labels: Vec::new(),
        };
        return (Some(pipeline), vec![mark]);
    }
    let mut marks: Vec<PipelineFinding> = compiler(read.folder())
        .diagnose(&pipeline)
        .into_iter()
        .map(|found| {
            let placed = found.span != Span::default();
            let at = placed.then(|| Snippet::of(&read.source, found.span, "").position);
            PipelineFinding {
                rule: found.rule.into_owned(),
                severity: found.severity,
                message: found.message,
                node: found.node,
                edge: found.edge,
                line: at.map(|at| at.line),
                column: at.map(|at| at.column),
                fix: found.fix,
                labels: if placed { vec![(found.span, String::new())] } else { Vec::new() },
            }
        })
        .collect();
    marks.sort_by_key(|mark| mark.severity);
    (Some(pipeline), marks)
}

/// Parses a pipeline that can run. If it contains mistakes, writes them to stderr and fails.
pub(crate) fn load(context: &CommandContext, path: &Path) -> Result<Pipeline, CommandFailure> {
    let read = read(path)?;
    let (pipeline, marks) = check(&read);
    // A pipeline that does not compile can still be drawn. The compiler reports its errors later.
    let is_mistake = |mark: &&PipelineFinding| mark.severity == Severity::Error && mark.rule != "runs";
    let errors: Vec<&PipelineFinding> = marks.iter().filter(is_mistake).collect();
    match pipeline {
        Some(pipeline) if errors.is_empty() => Ok(pipeline),
        _ => {
            for mark in &errors {
                context.out.note(mark.render(&read, context.out.color_notes).trim_end());
            }
            let message = format!("cannot run `{}`; mistakes: {}", read.name, errors.len());
            Err(CommandFailure::new(ExitReason::InvalidFile, message, format!("ferrata lint {}", read.name)))
        }
    }
}

/// Compiles a pipeline with the built-in handlers.
pub(crate) fn compile(context: &CommandContext, path: &Path) -> Result<Graph<State>, CommandFailure> {
    let pipeline = load(context, path)?;
    compiler(path.parent().map(Path::to_owned)).compile(&pipeline).map_err(|error| {
        let message = format!("cannot run `{}`: {error}", path.display());
        CommandFailure::new(ExitReason::InvalidFile, message, format!("ferrata lint {}", path.display()))
    })
}

impl PipelineFinding {
    /// Formats a finding together with its location.
    pub(crate) fn render(&self, read: &PipelineFile, color: bool) -> String {
        let severity = match self.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
            Severity::Info => miette::Severity::Advice,
        };
        let mut diagnostic =
            MietteDiagnostic::new(&self.message).with_severity(severity).with_code(&self.rule);
        if let Some(fix) = &self.fix {
            diagnostic = diagnostic.with_help(fix);
        }
        let text = &read.shown;
        let long = self.labels.iter().any(|(span, _)| line_around(text, span.start).len() > LINE);
        let report = if long {
            let parts: Vec<Snippet> = self
                .labels
                .iter()
                .map(|(span, label)| Snippet::of(&read.source, *span, label.as_str()))
                .collect();
            let lines: Vec<String> = parts.iter().map(|part| format!("{part}\n")).collect();
            Report::new(diagnostic.with_help(format!(
                "at {}:\n{}{}",
                parts.first().map(|part| part.position.to_string()).unwrap_or_default(),
                lines.concat(),
                self.fix.as_deref().unwrap_or_default()
            )))
        } else {
            for (span, label) in &self.labels {
                let start = span.start.min(text.len());
                let label = Some(label.clone()).filter(|label| !label.is_empty());
                let length = span.end.min(text.len()).saturating_sub(start).min(first_line(text, start));
                diagnostic = diagnostic.and_label(LabeledSpan::new(label, start, length));
            }
            Report::new(diagnostic).with_source_code(NamedSource::new(&read.name, text.clone()))
        };
        let theme = if color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
        let mut shown = String::new();
        let handler = GraphicalReportHandler::new_themed(theme).with_width(100).with_links(false);
        match handler.render_report(&mut shown, report.as_ref()) {
            Ok(()) => format!("{}\n", shown.trim_end()),
            // Even if the location cannot be shown, the message must be.
            Err(_) => format!("{} [{}]: {}\n", self.severity, self.rule, self.message),
        }
    }
}

/// Returns a visible replacement for a character that a terminal does not show. The replacement has the same number of bytes.
fn visible(c: char) -> char {
    if c.is_ascii_control() && !matches!(c, '\n' | '\t') { ' ' } else { c }
}

/// Returns the line that contains a location.
fn line_around(text: &str, at: usize) -> &str {
    let at = (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    let start = text[..at].rfind('\n').map_or(0, |before| before + 1);
    &text[start..at + first_line(text, at)]
}

/// Returns the number of bytes from `start` to the end of its line. Without this limit, a span over several lines would show all of them.
fn first_line(text: &str, start: usize) -> usize {
    text.get(start..).map_or(0, |rest| rest.find('\n').unwrap_or(rest.len()))
}
