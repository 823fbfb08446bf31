//! The command `lint` reports the mistakes in pipelines with their locations.

use ferrata_core::wording::count;
use serde_json::json;

use crate::args::LintArgs;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::output::OutputFormat;
use crate::pipeline::{self, PipelineFinding, Severity};

/// Maximum number of mistakes of a file that are shown with a location, because each location needs a pass over the file.
const SHOWN: usize = 50;

pub(super) async fn run(context: &CommandContext, args: &LintArgs) -> Result<ExitReason, CommandFailure> {
    let (mut errors, mut warnings) = (0, 0);
    let mut all = Vec::new();
    for path in &args.files {
        let read = pipeline::read(path)?;
        let (_, marks) = pipeline::check(&read);
        errors += marks.iter().filter(|mark| mark.severity == Severity::Error).count();
        warnings += marks.iter().filter(|mark| mark.severity == Severity::Warning).count();
        let as_json = |mark: &PipelineFinding| {
            json!({
                "file": read.name, "rule": mark.rule, "severity": mark.severity.to_string(), "message": mark.message,
                "node": mark.node, "edge": mark.edge, "line": mark.line, "column": mark.column, "fix": mark.fix,
            })
        };
        match context.out.format {
            OutputFormat::Json => all.extend(marks.iter().map(as_json)),
            OutputFormat::Jsonl => marks.iter().try_for_each(|mark| context.out.json_line(&as_json(mark)))?,
            OutputFormat::Ids => marks.iter().try_for_each(|mark| context.out.line(&mark.rule))?,
            OutputFormat::Table => {
                for mark in marks.iter().take(SHOWN) {
                    context.out.text(&mark.render(&read, context.out.color))?;
                }
                if let Some(more) = marks.len().checked_sub(SHOWN).filter(|&more| more > 0) {
                    context.out.note(&format!("and {more} more; all of them with -o jsonl"));
                }
            }
        }
    }
    if context.out.format == OutputFormat::Json {
        context.out.json(&all)?;
    }
    let told = format!("{}, {}", count(errors, "error"), count(warnings, "warning"));
    if errors > 0 || (args.deny_warnings && warnings > 0) {
        let path = args.files[0].display();
        return Err(CommandFailure::new(ExitReason::InvalidFile, told, format!("ferrata lint {path}")));
    }
    context.out.note(&told);
    Ok(ExitReason::Done)
}
