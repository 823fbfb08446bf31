//! Local answers to the questions of a run: from a file, from the command itself, or from a person at the terminal.

use std::fmt;
use std::io::{IsTerminal, stderr, stdin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ferrata::ask::{AUTOMATIC, Answer, Answerer, AnswererQuestion, Question, QuestionKind};
use ferrata::{Clock, SystemClock};
use serde_json::Value as Json;
use tokio::sync::mpsc;

use super::input::Answers;
use super::progress::ProgressReporter;
use crate::args::HowArgs;
use crate::output::{quoted, to_stderr};
use crate::time::short;

/// The progress output. The code that shows progress and the code that asks questions share it.
pub(super) type SharedVoice = Arc<Mutex<ProgressReporter>>;

/// Locks the progress output. No code panics while it holds the lock.
pub(super) fn voice(shared: &SharedVoice) -> MutexGuard<'_, ProgressReporter> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers questions from a file, automatically, or from the terminal, in this order. If there is no answer, the question stays open.
pub(super) struct LocalAnswers {
    file: Answers,
    automatic: bool,
    terminal: Option<Terminal>,
    /// The notice about a question without a local answer, which is shown while the command waits.
    waits: Option<WaitNotice>,
}

/// The notice about a question that must be answered from elsewhere.
struct WaitNotice {
    voice: SharedVoice,
    /// The command that answers the question, with placeholders for the id and the answer.
    answer: String,
}

/// The placeholder in the command.
pub(super) const PLACE: &str = "\u{1}";

impl WaitNotice {
    fn announce(&self, question: &Question) {
        let value = first_choice(question).map_or_else(|| "VALUE".to_owned(), |choice| quoted(&choice));
        let answer = self.answer.replace(PLACE, &format!("{} {value}", quoted(&question.id)));
        voice(&self.voice).write_line(&format!("{}\nwaiting for an answer: {answer}", text(question)));
    }
}

impl LocalAnswers {
    /// Creates the answerer; `None` if there is no source of local answers.
    ///
    /// `answer` is the command with which another terminal can answer.
    pub(super) fn new(
        file: Answers,
        how: &HowArgs,
        may_ask: bool,
        voice: &SharedVoice,
        answer: String,
    ) -> Option<Self> {
        let attended = may_ask && stdin().is_terminal() && stderr().is_terminal();
        let terminal = attended.then(|| Terminal::new(Arc::clone(voice)));
        let automatic = how.auto_answer;
        let waits = how.wait.then(|| WaitNotice { voice: Arc::clone(voice), answer });
        let any = automatic || waits.is_some() || terminal.is_some() || !file.is_empty();
        any.then_some(Self { file, automatic, terminal, waits })
    }

    /// Finds the answer in the file, by the id of the question, by `node@visit`, or by the node. From a list, takes the answer of the visit.
    fn find_in_file(&self, question: &Question) -> Option<Answer> {
        let visit = question.visit.get();
        let single = |key: &str| self.file.get(key)?.of_visit(1);
        let of_visit = || self.file.get(question.node.as_str())?.of_visit(visit);
        let value = single(&question.id)
            .or_else(|| single(&format!("{}@{visit}", question.node)))
            .or_else(of_visit)?;
        fitting(question, value)
    }
}

/// Converts a value to an answer that the question accepts. A text is used verbatim, or else as JSON.
fn fitting(question: &Question, value: &Json) -> Option<Answer> {
    let fits = |value: &Json| {
        let text = value.to_string();
        question.expects.as_ref().is_none_or(|expects| expects.check(&text).is_ok())
    };
    if fits(value) {
        return Answer::accept(value).ok();
    }
    let read = value.as_str().and_then(|text| serde_json::from_str::<Json>(text).ok())?;
    if fits(&read) { Answer::accept(read).ok() } else { None }
}

impl fmt::Debug for LocalAnswers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Here")
            .field("file", &self.file.len())
            .field("automatic", &self.automatic)
            .field("terminal", &self.terminal.is_some())
            .field("waits", &self.waits.is_some())
            .finish()
    }
}

impl LocalAnswers {
    /// Answers a question of a node; `None` if another answerer should answer.
    pub(super) async fn decide(&self, question: &Question) -> Option<Answer> {
        // The person who resumes the run decides whether it continues after `--until`. A person who has checked the outcome resolves work with an
        // unknown outcome.
        if question.kind != QuestionKind::Asked {
            return None;
        }
        if let Some(answer) = self.find_unattended(question) {
            return Some(answer);
        }
        let answer = match &self.terminal {
            Some(terminal) => terminal.ask(question).await,
            None => None,
        };
        if let (None, Some(waiting)) = (&answer, &self.waits) {
            waiting.announce(question);
            // The run stays in this process. An answer from elsewhere, or the deadline of the question, ends the wait.
            std::future::pending::<()>().await;
        }
        answer
    }

    /// Finds an answer from the file or automatically, without a person.
    fn find_unattended(&self, question: &Question) -> Option<Answer> {
        self.find_in_file(question).or_else(|| self.automatic.then(|| automatic(question)).flatten())
    }

    /// Returns the author that the log records for an answer.
    pub(super) fn author(&self, question: &Question) -> String {
        if self.find_unattended(question).is_some() {
            return AUTOMATIC.into();
        }
        let user =
            std::env::var("USER").ok().filter(|user| !user.is_empty() && !user.contains(char::is_control));
        match user {
            Some(user) if self.terminal.is_some() => user,
            _ => "ferrata run".into(),
        }
    }
}

/// Answers with the default, or else with the first choice.
fn automatic(question: &Question) -> Option<Answer> {
    let default = question.default.as_deref().and_then(|text| serde_json::from_str::<Json>(text).ok());
    let first = question.expects.as_ref()?.options().first().map(|choice| Json::from(choice.as_str()));
    // A gate that accepts any text lists its choices only in its question.
    let first = first.or_else(|| first_choice(question).map(Json::from));
    let any_text = asked_object(question).get("freeform").map(|_| Json::from("auto-approved"));
    let values = [default, first, any_text, Some(Json::Bool(true)), Some(Json::Null)];
    values.into_iter().flatten().find_map(|value| fitting(question, &value))
}

/// The local answers, as an answerer of the runtime.
#[derive(Debug)]
pub(super) struct SharedAnswers(pub(super) Arc<LocalAnswers>);

#[async_trait]
impl Answerer for SharedAnswers {
    async fn answer(&self, asking: &AnswererQuestion) -> Option<Answer> {
        self.0.decide(&asking.question).await
    }

    fn name(&self) -> String {
        AUTOMATIC.into()
    }

    fn author(&self, asking: &AnswererQuestion) -> String {
        self.0.author(&asking.question)
    }
}

/// The person at the terminal. Only one question is asked at a time.
struct Terminal {
    voice: SharedVoice,
    lines: tokio::sync::Mutex<Option<mpsc::UnboundedReceiver<String>>>,
}

impl Terminal {
    fn new(voice: SharedVoice) -> Self {
        Self { voice, lines: tokio::sync::Mutex::new(None) }
    }

    /// Asks until the person gives an accepted answer; `None` when the terminal is closed.
    async fn ask(&self, question: &Question) -> Option<Answer> {
        let mut lines = self.lines.lock().await;
        let lines = lines.get_or_insert_with(read_lines);
        // The progress bar stays hidden while the person types.
        let _aside = ProgressPause::begin(&self.voice);
        let mut wrong = String::new();
        loop {
            let text = format!("{wrong}{}", shown(question));
            to_stderr(&text, false);
            let line = lines.recv().await?;
            let line = line.trim();
            let answer = match line {
                "" => question.default.as_deref().and_then(|text| serde_json::from_str(text).ok()),
                line => Some(Json::from(line)),
            };
            if let Some(answer) = answer.and_then(|answer| fitting(question, &answer)) {
                return Some(answer);
            }
            wrong = match line {
                "" => String::new(),
                line => format!("`{}` is not one of the choices\n", line.escape_debug()),
            };
        }
    }
}

/// Hides the progress bar until this value is dropped, even if another answer ends the question first.
struct ProgressPause<'a>(&'a SharedVoice);

impl<'a> ProgressPause<'a> {
    fn begin(shared: &'a SharedVoice) -> Self {
        voice(shared).pause();
        Self(shared)
    }
}

impl Drop for ProgressPause<'_> {
    fn drop(&mut self) {
        voice(self.0).unpause();
    }
}

/// Reads lines in a separate thread, because a read from a terminal cannot be cancelled.
fn read_lines() -> mpsc::UnboundedReceiver<String> {
    let (sender, lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in stdin().lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Formats a question as a prompt on the terminal.
fn shown(question: &Question) -> String {
    format!("{}\n> ", text(question))
}

/// Formats a question together with its choices.
fn text(question: &Question) -> String {
    let asked = asked_object(question);
    let text = match (asked.get("text").and_then(Json::as_str), &asked) {
        (Some(text), _) => text.to_owned(),
        (None, Json::String(text)) => text.clone(),
        (None, Json::Null) => "Continue?".to_owned(),
        (None, other) => other.to_string(),
    };
    let clean = crate::table::clean;
    let mut shown = String::new();
    if let Some(before) = asked.get("shown").and_then(Json::as_str) {
        shown.push_str(&format!("{}\n", clean_lines(before)));
    }
    let title = asked.get("title").and_then(Json::as_str).map(|title| format!("{}: ", clean(title)));
    shown.push_str(&format!("? {}  {}{}", question.node, title.unwrap_or_default(), clean_lines(&text)));
    if let Some(problem) = &question.problem {
        shown.push_str(&format!("\n  (before: {})", clean(problem)));
    }
    for choice in choices(question) {
        shown.push_str(&format!("\n    {}", clean(&choice)));
    }
    if let Some(default) = &question.default {
        let left = question.deadline.map(|deadline| deadline.since(SystemClock::new().now()));
        let when = left.map_or_else(String::new, |left| format!(" in {}", short(left)));
        shown.push_str(&format!("\n  (default {}{when})", clean(default)));
    }
    shown
}

/// Returns the question as JSON.
pub(super) fn asked_object(question: &Question) -> Json {
    question.text.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Returns a text of several lines that is safe for a terminal.
pub(super) fn clean_lines(text: &str) -> String {
    text.trim_end().lines().map(crate::table::clean).collect::<Vec<_>>().join("\n")
}

/// Returns the choices of a gate; `None` for other questions.
fn options(question: &Question) -> Option<Vec<(String, String)>> {
    let asked = asked_object(question);
    let text = |option: &Json, key: &str| option.get(key)?.as_str().map(str::to_owned);
    let options = asked.get("options")?.as_array()?.iter();
    Some(options.filter_map(|option| Some((text(option, "key")?, text(option, "label")?))).collect())
}

/// Returns the choices as texts: the edges of a gate with their accelerators, or the accepted answers.
pub(super) fn choices(question: &Question) -> Vec<String> {
    let shown = |(key, label): (String, String)| {
        let has_key = label.to_uppercase().starts_with(&format!("[{key}]"));
        if has_key { label } else { format!("[{key}] {label}") }
    };
    match options(question) {
        Some(options) => options.into_iter().map(shown).collect(),
        None => question.expects.iter().flat_map(|expects| expects.options()).cloned().collect(),
    }
}

/// Returns an accepted answer that the user can type.
pub(super) fn first_choice(question: &Question) -> Option<String> {
    let first = options(question).and_then(|options| options.into_iter().next());
    first.map(|(_, label)| label).or_else(|| question.expects.as_ref()?.options().first().cloned())
}
