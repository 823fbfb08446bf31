//! `answer`: answers a question of a run.

use ferrata::ask::{Question, QuestionKind, Shape};
use ferrata::record::Resolution;
use ferrata::{Answer, Position, RunKey, Runtime};
use serde_json::Value;

use crate::args::AnswerArgs;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::find::shown;
use crate::input;
use crate::say::BulkOutcome;
use crate::table::clean;

pub(super) async fn run(context: &Context, args: &AnswerArgs) -> Result<Exit, Failure> {
    let runtime = context.runtime()?;
    let run = context.find(&**runtime.store(), &args.run).await?.run;
    let name = shown(&run);
    let open = runtime.questions(&run).await?;
    let said = args.reject.is_some() || args.cancel.is_some() || args.resolve.is_some();
    let (wanted, value) = match args.words.as_slice() {
        [] => (None, None),
        [question] if said => (Some(question), None),
        [value] => (None, Some(value)),
        [question, value] => (Some(question), Some(value)),
        _ => return Err(Failure::usage("too many arguments", "ferrata answer --help")),
    };
    if said && value.is_some() {
        let message = "a value contradicts --reject, --cancel and --resolve; use one of them";
        return Err(Failure::usage(message, "ferrata answer --help"));
    }
    let id = match (wanted, open.as_slice()) {
        // The recorder of the answer decides the full id of the question, and whether it is open.
        (Some(wanted), _) => wanted.clone(),
        (None, [only]) => only.id.clone(),
        (None, []) => {
            let message = format!("run {name} has no open question");
            return Err(Failure::new(Exit::NotFound, message, format!("ferrata show {name}")));
        }
        (None, several) => {
            let plain = several.iter().find(|question| question.kind != QuestionKind::Doubt);
            let next = plain.map_or_else(
                || format!("ferrata show {name}"),
                |question| format!("ferrata answer {name} {} VALUE", question.id),
            );
            let ids = several.iter().map(|question| question.id.clone());
            let message = format!("run {name} has {} open questions; name one", several.len());
            return Err(Failure::usage(message, next).with_details(ids));
        }
    };
    let question = meant(&open, &id);
    if !args.changes.is_empty() && args.resolve.as_deref() != Some(SUPPLY) {
        let message = "changes of the state need `--resolve supply`; add it";
        return Err(Failure::usage(
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
            Answer::Resolve(supplied(&runtime, args, &asked_by, &id).await?)
        }
        (.., Some(how)) => Answer::Resolve(resolution(how, &name, &id)?),
        _ => accepted(context, question, &id, value.map(String::as_str), &name)?,
    };
    let request = runtime.respond(&run, &id, answer);
    let answered = match &args.by {
        Some(by) => request.by(by.clone()).await,
        None => request.await,
    };
    answered.map_err(|error| Failure::from(error).or_type(format!("ferrata questions {name}")))?;
    context.print_done(&[BulkOutcome::new(run.clone(), "answered")])?;
    context.tell_idle(&**runtime.store(), [&run]).await;
    Ok(Exit::Done)
}

/// Returns the open question for an id or a node's name.
fn meant<'a>(open: &'a [Question], id: &str) -> Option<&'a Question> {
    open.iter().find(|question| question.id == id).or_else(|| {
        let begins = |question: &&Question| {
            question.id.strip_prefix(id).is_some_and(|rest| rest.starts_with(['@', ':']))
        };
        let mut named = open.iter().filter(begins);
        named.next().filter(|_| named.next().is_none())
    })
}

/// The resolution with changes of the state.
const SUPPLY: &str = "supply";

/// Parses a resolution without changes of the state.
fn resolution(how: &str, run: &str, question: &str) -> Result<Resolution, Failure> {
    match (how, how.split_once(':')) {
        ("retry", _) => Ok(Resolution::Retry),
        ("skip", _) => Ok(Resolution::Skip),
        (_, Some(("fail", reason))) => Ok(Resolution::Fail(reason.trim().to_owned())),
        (_, Some((SUPPLY, _))) => {
            let next = format!("ferrata answer {run} {question} --resolve supply --set CHANNEL=VALUE");
            Err(Failure::usage(
                "`supply` has no value; pass the changes with --set, --remove or --patch FILE",
                next,
            ))
        }
        _ => {
            let message = format!(
                "`{}` is not a resolution; use supply with --set CHANNEL=VALUE, skip, fail:REASON or retry",
                how.escape_debug()
            );
            Err(Failure::usage(message, format!("ferrata show {run}")))
        }
    }
}

/// Returns the resolution for completed work, with its changes of the run's state.
async fn supplied(
    runtime: &Runtime,
    args: &AnswerArgs,
    run: &RunKey,
    question: &str,
) -> Result<Resolution, Failure> {
    if args.changes.is_empty() {
        let message = "`supply` needs the changes of the node; add --set, --remove or --patch FILE, or use `--resolve skip` to keep the \
            state";
        let next = format!("ferrata answer {} {question} --resolve supply --set CHANNEL=VALUE", shown(run));
        return Err(Failure::usage(message, next));
    }
    let state = runtime.channels_at(run, Position::Latest).await?;
    Ok(Resolution::Supply(args.changes.patch_of_node(run, &state)?))
}

/// Returns an accepting answer for typed text.
fn accepted(
    context: &Context,
    question: Option<&Question>,
    id: &str,
    value: Option<&str>,
    run: &str,
) -> Result<Answer, Failure> {
    let next = format!("ferrata answer {run} {id} VALUE");
    if question.is_some_and(|question| question.kind == QuestionKind::Doubt) {
        let message =
            format!("`{id}` asks about the unknown outcome of work that must not be repeated; use --resolve");
        return Err(Failure::usage(message, format!("ferrata show {run}")));
    }
    // Continuing before or after a node needs only a yes.
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
                None => return Err(Failure::usage("the answer has no value; add it", next)),
            }
        }
    };
    let value = match question.and_then(|question| question.expects.as_ref()) {
        Some(shape) => fitting(shape, &typed).map_err(|why| {
            let message = format!("`{id}` expects {shape}: {why}");
            Failure::usage(message, next)
        })?,
        None => input::json_or_text(&typed),
    };
    Ok(Answer::accept(value)?)
}

/// Finds the interpretation of a typed word that fits: JSON, the text itself, or the only choice with that prefix.
fn fitting(shape: &Shape, typed: &str) -> Result<Value, String> {
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
    // Words that people type for a boolean.
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
    fn what_is_typed_is_read_as_the_question_takes_it() {
        let choices = Shape::choices(["approve", "again", "reject"]);
        assert_eq!(fitting(&choices, "approve"), Ok(json!("approve")));
        assert_eq!(fitting(&choices, "R"), Ok(json!("reject")));
        assert!(fitting(&choices, "a").is_err(), "two begin so");
        assert_eq!(fitting(&Shape::of::<bool>(), "yes"), Ok(json!(true)));
        assert_eq!(fitting(&Shape::of::<u32>(), "7"), Ok(json!(7)));
        assert!(fitting(&Shape::of::<u32>(), "seven").is_err());
        assert_eq!(fitting(&Shape::of::<String>(), "7"), Ok(json!("7")));
        assert_eq!(fitting(&Shape::of::<String>(), "\"7\""), Ok(json!("7")));
        assert_eq!(fitting(&Shape::any(), "{\"a\":1}"), Ok(json!({"a":1})));
    }
}
