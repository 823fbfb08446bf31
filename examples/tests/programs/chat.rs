//! Tests the chat. The program is killed after any acknowledged line. No such line is lost, and none is answered twice.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ferrata::FsStore;
use ferrata_tests::{Space, StoreKind};

use crate::support::{Chance, ended, program};

/// Maximum number of lines that a process gets before it is killed.
const LINES: u64 = 12;

/// Maximum time that the program may take for one line, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A running chat, and its output.
struct Chat {
    child: Child,
    said: Receiver<String>,
}

impl Chat {
    fn start(dir: &Path, name: &str) -> Self {
        Self::run(Command::new(program("chat")).arg(name).current_dir(dir))
    }

    fn start_in(space: &Space, name: &str) -> Self {
        let mut command = Command::new(program("chat"));
        command.args([name, "--store", space.url()]).envs(space.environment());
        Self::run(command.current_dir(space.folder()))
    }

    fn run(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, said) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // The receiver may have been dropped, because it has read enough.
                let _ = sender.send(line);
            }
        });
        Self { child, said }
    }

    fn say(&mut self, lines: &str) {
        self.child.stdin.as_mut().unwrap().write_all(lines.as_bytes()).unwrap();
    }

    /// Kills the chat with SIGKILL. Returns its output.
    fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        // The iteration ends when the pipe is closed.
        self.said.iter().collect()
    }

    /// Closes the input of the chat. Returns its exit code, its remaining output, and its errors.
    fn finish(mut self) -> (i32, Vec<String>, String) {
        drop(self.child.stdin.take());
        let said = self.said.iter().collect();
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (self.child.wait().unwrap().code().unwrap(), said, errors)
    }
}

/// Returns the messages and answers that the program shows at its start.
fn turns(shown: &[String]) -> Vec<(&str, &str)> {
    let mut turns = Vec::new();
    let mut said = None;
    for line in shown {
        if let Some(text) = line.strip_prefix("you: ") {
            assert_eq!(said.replace(text), None, "said without an answer: {shown:?}");
        } else if let Some(answer) = line.strip_prefix("bot: ") {
            turns.push((said.take().unwrap(), answer));
        }
    }
    turns
}

/// The lines that were acknowledged, and the answers to them, as the test has seen them.
#[derive(Default)]
struct Ledger {
    /// Every line that was typed, and whether it was acknowledged.
    typed: Vec<(String, bool)>,
    answers: BTreeMap<String, String>,
}

impl Ledger {
    /// Records the output of a process about the lines from number `first` on.
    fn hear(&mut self, first: usize, said: &[String]) {
        let mut at = first;
        for line in said {
            if line == "noted" {
                self.typed[at].1 = true;
                at += 1;
            } else if let Some(answer) = line.strip_prefix("bot: ")
                && at > first
            {
                self.answers.insert(self.typed[at - 1].0.clone(), answer.to_owned());
            }
        }
    }

    /// Compares the output of a process with the recorded lines and answers.
    fn check(&self, shown: &[String], context: &str) {
        let turns = turns(shown);
        let mut left = self.typed.iter();
        let mut words = 0;
        for &(said, answer) in &turns {
            let count = said.split_whitespace().count();
            words += count;
            assert_eq!(
                answer,
                format!("{count} words, {words} in all"),
                "{context}: answered more than once?"
            );
            // The lines are shown in the order in which they were typed. Lines that were skipped were not acknowledged.
            let passed: Vec<_> = left.by_ref().take_while(|(line, _)| line != said).collect();
            assert!(passed.iter().all(|(_, noted)| !noted), "{context}: lost before {said:?}: {passed:?}");
        }
        let rest: Vec<_> = left.filter(|(_, noted)| *noted).collect();
        assert!(rest.is_empty(), "{context}: lost: {rest:?}");
        for (said, answer) in &self.answers {
            let now: Vec<_> = turns.iter().filter(|(line, _)| line == said).collect();
            assert!(
                matches!(&now[..], [(_, same)] if same == answer),
                "{context}: {said:?} was {answer:?}: {now:?}"
            );
        }
    }
}

/// Guarantees: MESSAGE-1.
#[tokio::test]
async fn killed_chat_preserves_notes_and_answers_once() {
    let mut chance = Chance::seeded();
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let mut ledger = Ledger::default();
    // Kill the process after each acknowledgment, after each answer, and at some moment after either.
    let moments: Vec<(usize, Duration)> = (1..=16)
        .flat_map(|line| [(line, Duration::ZERO), (line, Duration::from_micros(chance.below(3_000)))])
        .collect();
    let (mut kills, mut unheard) = (0, 0);
    for (behind, pause) in moments {
        let context = format!("kill {kills}, {behind} lines and {pause:?} behind the start");
        let mut chat = Chat::start(dir, "ann");
        let first = ledger.typed.len();
        let lines: Vec<String> = (0..LINES)
            .map(|n| {
                format!("line {n} of {kills}{}", " more".repeat(usize::try_from(chance.below(5)).unwrap()))
            })
            .collect();
        ledger.typed.extend(lines.iter().map(|line| (line.clone(), false)));
        chat.say(&(lines.join("\n") + "\n"));
        let mut said = Vec::new();
        // The first lines show the conversation of the earlier processes.
        let mut own = 0;
        while own < behind {
            let line = chat.said.recv_timeout(PATIENCE).expect("the program says something");
            own += usize::from(own > 0 || line == "noted");
            said.push(line);
        }
        // Or continue at the next line, if it comes earlier.
        said.extend(chat.said.recv_timeout(pause));
        said.extend(chat.kill());
        kills += 1;
        let begin = said.iter().position(|line| line == "noted").unwrap();
        ledger.check_before(&said[..begin], first, &context);
        ledger.hear(first, &said[begin..]);
        unheard += ledger.typed[first..].iter().filter(|(_, noted)| !noted).count();
    }

    let mut last = Chat::start(dir, "ann");
    last.say("/quit\n");
    let (code, said, errors) = last.finish();
    assert_eq!(code, 0, "{errors}");
    let begin = said.iter().position(|line| line == "noted").unwrap();
    ledger.check(&said[..begin], "the last start");
    let noted = ledger.typed.iter().filter(|(_, noted)| *noted).count();
    assert!(noted > 100, "only {noted} lines were noted before the kills");
    let total = turns(&said[..begin]).len();
    assert_eq!(said.last().unwrap(), &format!("ended; messages: {total}"));

    let log = ended(&FsStore::open(dir.join(".ferrata-chat")).unwrap(), "ann").await;
    let twice: Vec<_> = log.iter().filter(|(_, times)| **times != 1).collect();
    assert!(twice.is_empty(), "ended more than once: {twice:?}");
    // One activation for each message, one for the end of the conversation, and one after it.
    assert_eq!(log.len(), total + 2);
    println!("{kills} kills, {noted} lines noted, {unheard} not, {total} answered");

    let (code, said, errors) = Chat::start(dir, "ann").finish();
    assert_eq!((code, turns(&said).len()), (1, total));
    assert!(errors.contains("has ended; name another"), "{errors}");
}

impl Ledger {
    /// Compares the output of a process at its start with the lines and answers that were recorded before.
    fn check_before(&self, shown: &[String], first: usize, context: &str) {
        let before = Self { typed: self.typed[..first].to_vec(), answers: self.answers.clone() };
        before.check(shown, context);
    }
}

/// Kills the process while it works on its input, and compares the output of the next process with the earlier output.
pub(crate) async fn is_killed_on(kind: impl Into<StoreKind>) {
    Space::within(kind, async |space| {
        let mut ledger = Ledger::default();
        let mut chat = Chat::start_in(space, "ann");
        ledger.typed.extend((0..LINES).map(|n| (format!("line {n} of many words"), false)));
        for (line, _) in &ledger.typed {
            chat.say(&format!("{line}\n"));
        }
        // The fourth line is acknowledged, and may not be answered yet.
        let mut said = Vec::new();
        while said.iter().filter(|line| *line == "noted").count() < 4 {
            said.push(chat.said.recv_timeout(PATIENCE).expect("the program says something"));
        }
        said.extend(chat.kill());
        ledger.hear(0, &said);
        let noted = ledger.typed.iter().filter(|(_, noted)| *noted).count();
        assert!((4..=ledger.typed.len()).contains(&noted), "{said:?}");

        let mut last = Chat::start_in(space, "ann");
        last.say("/quit\n");
        let (code, said, errors) = last.finish();
        assert_eq!(code, 0, "{errors}");
        let begin = said.iter().position(|line| line == "noted").unwrap();
        ledger.check(&said[..begin], "the second start");
        let total = turns(&said[..begin]).len();
        assert!((noted..=noted + 1).contains(&total), "{noted} noted: {said:?}");
        assert_eq!(said.last().unwrap(), &format!("ended; messages: {total}"));
        let log = ended(&*space.open(), "ann").await;
        let twice: Vec<_> = log.iter().filter(|(_, times)| **times != 1).collect();
        assert!(twice.is_empty(), "ended more than once: {twice:?}");
        assert_eq!(log.len(), total + 2);
    })
    .await;
}

#[test]
fn end_of_input_preserves_chat() {
    let temp = tempfile::tempdir().unwrap();
    let mut chat = Chat::start(temp.path(), "bob");
    chat.say("hello there\n\n");
    let (code, said, errors) = chat.finish();
    assert_eq!((code, said), (0, vec!["noted".to_owned(), "bot: 2 words, 2 in all".to_owned()]));
    assert!(errors.contains("left `bob`"), "{errors}");
    let (code, said, _) = Chat::start(temp.path(), "bob").finish();
    assert_eq!((code, turns(&said)), (0, vec![("hello there", "2 words, 2 in all")]));
}

#[test]
fn wrong_usage_has_its_own_exit_code() {
    let temp = tempfile::tempdir().unwrap();
    for (args, code, says) in [
        (&["a", "b"][..], 2, "usage: chat"),
        (&["--store"], 2, "`--store` needs a value"),
        (&["--stroe", "x"], 2, "there is no option `--stroe`"),
        (&["--store", "memory:"], 1, "use --store file:FOLDER"),
        (&["../ann"], 1, "starts with a dot"),
    ] {
        let output = Command::new(program("chat")).args(args).current_dir(temp.path()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
        assert!(errors.contains(says), "{args:?}: {errors}");
    }
}
