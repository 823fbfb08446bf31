//! The command `answer` answers a question of a run.

use ferrata::ask::{Question, QuestionKind, Shape};
use ferrata::record::Resolution;
use ferrata::{Answer, Position, RunKey, Runtime};
use serde_json::Value;

use crate::args::AnswerArgs;
use crate::bulk_signal::BulkOutcome;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::input;
use crate::table::clean;

pub(super) async fn run(context: &CommandContext, args: &AnswerArgs) -> Result<ExitReason, CommandFailure> {
    let runtime = context.runtime()?;
    let run = context.find(&**runtime.store(), &args.run).await?.run;
    let name = display_key(&run);
    let open = runtime.questions(&run).await?;
    let said = args.reject.is_some() || args.cancel.is_some() || args.resolve.is_some();
    let (wanted, value) = match args.words.as_slice() {
        [] => (None, None),
        [question] if said => (Some(question), None),
        [value] => (None, Some(value)),
        [question, value] => (Some(question), Some(value)),
        _ => return Err(CommandFailure::usage("too many arguments", "ferrata answer --help")),
    };
    if said && value.is_some() {
        let message = "a value contradicts --reject, --cancel and --resolve; use one of them";
        return Err(CommandFailure::usage(message, "ferrata answer --help"));
    }
    let id = match (wanted, open.as_slice()) {
        // The runtime finds the full id of the question, and checks that the question is open.
        (Some(wanted), _) => wanted.clone(),
        (None, [only]) => only.id.clone(),
        (None, []) => {
            let message = format!("run {name} has no open question");
            return Err(CommandFailure::new(ExitReason::NotFound, message, format!("ferrata show {name}")));
        }
        (None, several) => {
            let plain = several.iter().find(|question| question.kind != QuestionKind::Doubt);
            let next = plain.map_or_else(
                || format!("ferrata show {name}"),
                |question| format!("ferrata answer {name} {} VALUE", question.id),
            );
            let ids = several.iter().map(|question| question.id.clone());
            let message = format!("run {name} has {} open questions; name one", several.len());
            return Err(CommandFailure::usage(message, next).with_details(ids));
        }
    };
    let question = find_question(&open, &id);
    if !args.changes.is_empty() && args.resolve.as_deref() != Some(SUPPLY) {
        let message = "changes of the state need `--resolve supply`; add it";
        return Err(CommandFailure::usage(
            message,
            format!("ferrata answer {name} {id} --resolve supply --set CHANNEL=VALUE"),
        ));
    }
    let answer = match (&args.reject, &args.cancel, &args.resolve) {
        (Some(reason), ..) => Answer::reject(reason.clone()),
        (_, Some(reason), _) => Answer::cancel(reason.clone()),
        (.., Some(how)) if how == SUPPLY => {
            let asked_by =
                question.and_then(|question| question.asked_by.clone()).unwrap_or_else(|| run.clone());
            Answer::Resolve(completed_resolution(&runtime, args, &asked_by, &id).await?)
        }
        (.., Some(how)) => Answer::Resolve(resolution(how, &name, &id)?),
        _ => accepting_answer(context, question, &id, value.map(String::as_str), &name)?,
    };
    let request = runtime.respond(&run, &id, answer);
    let answered = match &args.by {
        Some(by) => request.by(by.clone()).await,
        None => request.await,
    };
    answered.map_err(|error| CommandFailure::from(error).or_type(format!("ferrata questions {name}")))?;
    context.print_done(&[BulkOutcome::new(run.clone(), "answered")])?;
    context.warn_idle(&**runtime.store(), [&run]).await;
    Ok(ExitReason::Done)
}

/// Returns the open question with this id, or of the node with this name.
fn find_question<'a>(open: &'a [Question], id: &str) -> Option<&'a Question> {
    open.iter().find(|question| question.id == id).or_else(|| {
        let begins = |question: &&Question| {
            question.id.strip_prefix(id).is_some_and(|rest| rest.starts_with(['@', ':']))
        };
        let mut named = open.iter().filter(begins);
        named.next().filter(|_| named.next().is_none())
    })
}

/// The resolution that supplies changes of the state.
const SUPPLY: &str = "supply";

/// Parses a resolution that supplies no changes of the state.
fn resolution(how: &str, run: &str, question: &str) -> Result<Resolution, CommandFailure> {
    match (how, how.split_once(':')) {
        ("retry", _) => Ok(Resolution::Retry),
        ("skip", _) => Ok(Resolution::Skip),
        (_, Some(("fail", reason))) => Ok(Resolution::Fail(reason.trim().to_owned())),
        (_, Some((SUPPLY, _))) => {
            let next = format!("ferrata answer {run} {question} --resolve supply --set CHANNEL=VALUE");
            Err(CommandFailure::usage(
                "`supply` has no value; pass the changes with --set, --remove or --patch FILE",
                next,
            ))
        }
        _ => {
            let message = format!(
                "`{}` is not a resolution; use supply with --set CHANNEL=VALUE, skip, fail:REASON or retry",
                how.escape_debug()
            );
            Err(CommandFailure::usage(message, format!("ferrata show {run}")))
        }
    }
}

/// Returns the resolution for work that was completed, with the changes that the work made to the run's state.
async fn completed_resolution(
    runtime: &Runtime,
    args: &AnswerArgs,
    run: &RunKey,
    question: &str,
) -> Result<Resolution, CommandFailure> {
    if args.changes.is_empty() {
        let message = "`supply` needs the changes of the node; add --set, --remove or --patch FILE, or use `--resolve skip` to keep the \
            state";
        let next =
            format!("ferrata answer {} {question} --resolve supply --set CHANNEL=VALUE", display_key(run));
        return Err(CommandFailure::usage(message, next));
    }
    let state = runtime.channels_at(run, Position::Latest).await?;
    Ok(Resolution::Supply(args.changes.patch_of_node(run, &state)?))
}

/// Returns the answer that a typed text stands for.
fn accepting_answer(
    context: &CommandContext,
    question: Option<&Question>,
    id: &str,
    value: Option<&str>,
    run: &str,
) -> Result<Answer, CommandFailure> {
    let next = format!("ferrata answer {run} {id} VALUE");
    if question.is_some_and(|question| question.kind == QuestionKind::Doubt) {
        let message =
            format!("`{id}` asks about the unknown outcome of work that must not be repeated; use --resolve");
        return Err(CommandFailure::usage(message, format!("ferrata show {run}")));
    }
    // A question before or after a node needs only a yes.
    let plain = question.is_some_and(|q| matches!(q.kind, QuestionKind::Before | QuestionKind::After));
    let typed = match value {
        Some(value) => input::value(value)?,
        None if plain => "true".into(),
        None => {
            let asked = question.map_or_else(|| id.to_owned(), super::show::asked);
            let takes = question.and_then(|question| question.expects.as_ref());
            let takes = takes.map(|shape| format!(" [{}]", clean(&shape.to_string()))).unwrap_or_default();
            match context.ask(&format!("? {}{takes} ", clean(&asked)))? {
                Some(line) => line,
                None => return Err(CommandFailure::usage("the answer has no value; add it", next)),
            }
        }
    };
    let value = match question.and_then(|question| question.expects.as_ref()) {
        Some(shape) => fit_value(shape, &typed).map_err(|why| {
            let message = format!("`{id}` expects {shape}: {why}");
            CommandFailure::usage(message, next)
        })?,
        None => input::json_or_text(&typed),
    };
    Ok(Answer::accept(value)?)
}

/// Finds the value that a typed word stands for: JSON, the text itself, or the only choice that begins with it.
fn fit_value(shape: &Shape, typed: &str) -> Result<Value, String> {
    let typed = typed.trim_end_matches(['\n', '\r']);
    let as_json = serde_json::from_str::<Value>(typed).ok();
    let mut why = None;
    if let Some(value) = as_json {
        match shape.check(&value.to_string()) {
            Ok(()) => return Ok(value),
            Err(problem) => why = Some(problem),
        }
    }
    let text = Value::String(typed.to_owned());
    match shape.check(&text.to_string()) {
        Ok(()) => return Ok(text),
        Err(problem) => {
            why.get_or_insert(problem);
        }
    }
    let lower = typed.to_lowercase();
    let begins = |option: &&String| !lower.is_empty() && option.to_lowercase().starts_with(&lower);
    let mut options = shape.options().iter().filter(begins);
    if let (Some(only), None) = (options.next(), options.next()) {
        return Ok(Value::String(only.clone()));
    }
    // Words that people type for yes and no.
    let yes = match lower.as_str() {
        "y" | "yes" => Some(true),
        "n" | "no" => Some(false),
        _ => None,
    };
    match yes.map(Value::Bool).filter(|value| shape.check(&value.to_string()).is_ok()) {
        Some(value) => Ok(value),
        None => Err(why.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn resolution_is_one_word() {
        for (how, expected) in [
            ("retry", Some(Resolution::Retry)),
            ("skip", Some(Resolution::Skip)),
            ("fail: lost", Some(Resolution::Fail("lost".into()))),
            ("supply:[]", None),
            ("perhaps", None),
        ] {
            assert_eq!(resolution(how, "r", "q").ok(), expected, "{how}");
        }
    }

    #[test]
    fn typed_answer_parses_by_question_shape() {
        let choices = Shape::choices(["approve", "again", "reject"]);
        assert_eq!(fit_value(&choices, "approve"), Ok(json!("approve")));
        assert_eq!(fit_value(&choices, "R"), Ok(json!("reject")));
        assert!(fit_value(&choices, "a").is_err(), "two choices have this prefix");
        assert_eq!(fit_value(&Shape::of::<bool>(), "yes"), Ok(json!(true)));
        assert_eq!(fit_value(&Shape::of::<u32>(), "7"), Ok(json!(7)));
        assert!(fit_value(&Shape::of::<u32>(), "seven").is_err());
        assert_eq!(fit_value(&Shape::of::<String>(), "7"), Ok(json!("7")));
        assert_eq!(fit_value(&Shape::of::<String>(), "\"7\""), Ok(json!("7")));
        assert_eq!(fit_value(&Shape::any(), "{\"a\":1}"), Ok(json!({"a":1})));
    }
}
