//! Pipelines from files: parsed, checked, and shown with the location of each mistake.

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
    /// Its name.
    pub(crate) name: String,
    /// Its content.
    pub(crate) source: Vec<u8>,
    /// The content made safe for a terminal, with the same byte positions.
    shown: String,
}

/// Maximum length of a line that is shown whole; of a longer one, the part around the location appears.
const LINE: usize = 400;

/// A finding in a pipeline's file.
pub(crate) struct PipelineFinding {
    /// The rule.
    pub(crate) rule: String,
    /// The severity.
    pub(crate) severity: Severity,
    /// The problem.
    pub(crate) message: String,
    /// The node it is about.
    pub(crate) node: Option<String>,
    /// The edge it is about.
    pub(crate) edge: Option<(String, String)>,
    /// The line, if it has a location.
    pub(crate) line: Option<usize>,
    /// The character in the line, from 1.
    pub(crate) column: Option<usize>,
    /// The remedy.
    pub(crate) fix: Option<String>,
    labels: Vec<(Span, String)>,
}

/// Reads a file.
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

/// Creates the compiler of `ferrata run`, with children from the folder of the file.
fn compiler(folder: Option<PathBuf>) -> Compiler {
    let transforms = Transforms::in_directory(folder.clone());
    let manager = Manager::with(Registry::default(), transforms, folder);
    Compiler::new(Registry::default().with("stack.manager_loop", manager))
}

impl PipelineFile {
    /// Returns the folder of files that the pipeline names.
    fn folder(&self) -> Option<PathBuf> {
        Path::new(&self.name).parent().map(Path::to_owned)
    }
}

/// Checks a pipeline: returns the findings, the worst first, and the pipeline if it could be parsed.
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

/// Parses a pipeline that can run; otherwise writes its mistakes to stderr.
pub(crate) fn load(context: &CommandContext, path: &Path) -> Result<Pipeline, CommandFailure> {
    let read = read(path)?;
    let (pipeline, marks) = check(&read);
    // A pipeline that does not compile can still be drawn; compiling reports the reason.
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
    /// Formats a finding with its location.
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
            // A location that cannot be shown must not hide the problem.
            Err(_) => format!("{} [{}]: {}\n", self.severity, self.rule, self.message),
        }
    }
}

/// Returns a visible replacement for a character on a terminal, with the same number of bytes.
fn visible(c: char) -> char {
    if c.is_ascii_control() && !matches!(c, '\n' | '\t') { ' ' } else { c }
}

/// Returns the line of a location.
fn line_around(text: &str, at: usize) -> &str {
    let at = (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    let start = text[..at].rfind('\n').map_or(0, |before| before + 1);
    &text[start..at + first_line(text, at)]
}

/// Returns the number of bytes left in the line: a span over several lines would show them all.
fn first_line(text: &str, start: usize) -> usize {
    text.get(start..).map_or(0, |rest| rest.find('\n').unwrap_or(rest.len()))
}
