//! Tests the approval. Each command is a separate process, and no command needs another process to be alive.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use ferrata::store::HeaderRange;
use ferrata::{CheckpointStore, FsStore, RunKey};
use ferrata_tests::{Space, StoreKind};

use crate::support::{ended, program};

/// The output of a command, and its exit.
#[derive(Debug, PartialEq)]
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Said {
    /// Returns the commands that the output suggests next.
    fn next(&self) -> Vec<&str> {
        let lines = self.out.lines().chain(self.err.lines());
        lines.filter_map(|line| line.strip_prefix("next: ")).collect()
    }

    /// Returns the id of the process that did something, according to the output.
    fn process(&self, what: &str) -> Option<u32> {
        let line = self.out.lines().find(|line| line.ends_with(what))?;
        line.strip_prefix("process ")?.split(':').next()?.parse().ok()
    }
}

fn run(command: &mut Command, dir: &Path) -> Said {
    // Without this variable, the program suggests commands with the name by which it was called, so that they can be executed here.
    let output = command.current_dir(dir).env_remove("CARGO").output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

fn approval(dir: &Path, args: &[&str]) -> Said {
    run(Command::new(program("approval")).args(args), dir)
}

/// Executes a command that the program has suggested.
fn typed(dir: &Path, line: &str) -> Said {
    run(Command::new("sh").args(["-c", line]), dir)
}

/// Returns the number of records of a run.
async fn records(dir: &Path, id: &str) -> usize {
    let store = FsStore::open(dir.join(".ferrata-approval")).unwrap();
    store.headers(&RunKey::try_from(id).unwrap(), HeaderRange::newest(50)).await.unwrap().items.len()
}

/// Guarantees: QUESTION-1.
#[tokio::test]
async fn three_processes_ask_answer_and_continue() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let asked = approval(dir, &["start", "inv-7"]);
    assert_eq!(asked.code, 0, "{asked:?}");
    assert!(asked.out.contains("inv-7 asks approve@1:gate: pay 120 EUR to ACME?"), "{asked:?}");
    let checker = asked.process("checks the invoice").unwrap();

    let answered = typed(dir, asked.next()[0]);
    assert_eq!((answered.code, answered.out.lines().next()), (0, Some("inv-7: answer recorded: 120")));
    assert_eq!(answered.process("pays"), None, "an answer only answers");

    let paid = typed(dir, answered.next()[0]);
    let payer = paid.process("pays").unwrap();
    assert_eq!(paid.code, 0, "{paid:?}");
    assert!(paid.out.contains(&format!("inv-7: paid 120 EUR to ACME by process {payer}")), "{paid:?}");
    assert_eq!(paid.process("checks the invoice"), None, "what is recorded is not done again");
    assert_ne!(checker, payer);

    let again = approval(dir, &["start", "inv-7"]);
    assert_eq!((again.code, again.out), (0, format!("inv-7: paid 120 EUR to ACME by process {payer}\n")));
    let log = ended(&FsStore::open(dir.join(".ferrata-approval")).unwrap(), "inv-7").await;
    assert_eq!(log.len(), 4, "{log:?}");
    assert!(log.values().all(|times| *times == 1), "{log:?}");
}

#[tokio::test]
async fn a_rejection_leads_elsewhere_with_its_comment() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let asked = approval(dir, &["start", "inv-8"]);
    let rejected = typed(dir, asked.next()[1]);
    assert_eq!(
        (rejected.code, rejected.out.lines().next()),
        (0, Some("inv-8: answer recorded: rejected: too much"))
    );
    let filed = typed(dir, rejected.next()[0]);
    assert_eq!(
        filed,
        Said { code: 0, out: "inv-8: not paid, rejected by bob: too much\n".into(), err: String::new() }
    );
}

#[tokio::test]
async fn approval_grants_at_most_requested_amount() {
    let dir = tempfile::tempdir().unwrap();
    for (id, answer, paid) in [("a", "100", "paid 100 EUR"), ("b", "1000", "paid 120 EUR")] {
        approval(dir.path(), &["start", id]);
        assert_eq!(approval(dir.path(), &["approve", id, answer]).code, 0);
        let said = approval(dir.path(), &["resume", id]);
        assert!(said.out.contains(paid), "{said:?}");
    }
}

#[tokio::test]
async fn wrong_answer_prints_usage_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let missing = approval(dir, &["approve", "inv-7"]);
    assert_eq!((missing.code, missing.err.lines().next()), (1, Some("error: there is no run `inv-7`")));
    assert!(missing.next()[0].ends_with(" start inv-7"), "{missing:?}");

    approval(dir, &["start", "inv-7"]);
    let before = records(dir, "inv-7").await;
    for wrong in ["much", "-1", "1.5", "null", "{}"] {
        let said = approval(dir, &["approve", "inv-7", wrong]);
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.err.contains("expects an integer from 0"), "{said:?}");
        assert!(said.next()[0].ends_with(" approve inv-7 120"), "{said:?}");
    }
    let waits = approval(dir, &["resume", "inv-7"]);
    assert_eq!((waits.code, waits.next().len()), (3, 2), "{waits:?}");
    assert_eq!(records(dir, "inv-7").await, before);

    let first = approval(dir, &["approve", "inv-7", "--by", "ann"]);
    let after = records(dir, "inv-7").await;
    assert_eq!((first.code, after), (0, before + 1));
    for second in [&["approve", "inv-7"][..], &["reject", "inv-7", "no"]] {
        let late = approval(dir, second);
        assert_eq!(late.code, 1, "{late:?}");
        assert!(late.err.contains("was already answered by ann"), "{late:?}");
        assert!(late.next()[0].ends_with(" resume inv-7"), "{late:?}");
    }
    assert_eq!(records(dir, "inv-7").await, after);

    assert_eq!(approval(dir, &["resume", "inv-7"]).code, 0);
    let over = approval(dir, &["approve", "inv-7"]);
    assert!(over.code == 1 && over.err.contains("the run is completed"), "{over:?}");
    let shown = typed(dir, over.next()[0]);
    assert!(shown.code == 0 && shown.out.contains("paid 120 EUR"), "{shown:?}");
}

/// Kills a command with SIGKILL as soon as it prints this text. Returns false if the command ended before the signal.
fn killed_when_it_says(command: &mut Command, what: &str) -> bool {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with(what)), "it never said {what:?}");
    child.kill().unwrap();
    child.wait().unwrap().signal() == Some(9)
}

/// Kills the process that asks while it checks, and the process that pays while it pays. Repeats each command until both kills have succeeded in one
/// run.
pub(crate) async fn is_killed_on(kind: impl Into<StoreKind>) {
    Space::within(kind, async |space| {
        for number in 0..10 {
            if is_paid_once(space, &format!("inv-{number}")).await {
                return;
            }
        }
        panic!("every process had ended before it could be killed");
    })
    .await;
}

/// Returns whether both kills have succeeded.
async fn is_paid_once(space: &Space, id: &str) -> bool {
    let approval = |words: &[&str]| {
        let mut command = Command::new(program("approval"));
        command.args(words).args(["--store", space.url()]).envs(space.environment());
        command.env_remove("CARGO").current_dir(space.folder());
        command
    };
    let typed = |words: &[&str]| run(&mut approval(words), space.folder());

    let asker = killed_when_it_says(&mut approval(&["start", id]), "checks the invoice");
    let asked = typed(&["start", id]);
    assert_eq!(asked.code, 0, "{asked:?}");
    assert!(asked.out.contains(&format!("{id} asks approve@1:gate: pay 120 EUR to ACME?")), "{asked:?}");
    assert!(asked.next()[0].contains(" --store "), "{asked:?}");
    let answered = typed(&["approve", id, "--by", "ann"]);
    assert_eq!(answered.code, 0, "{answered:?}");
    assert!(answered.out.starts_with(&format!("{id}: answer recorded: 120\n")), "{answered:?}");

    let payer = killed_when_it_says(&mut approval(&["resume", id]), "pays");
    // The command shows the outcome, even if the dead process had already reached it.
    let paid = typed(&["start", id]);
    assert_eq!(paid.code, 0, "{paid:?}");
    assert!(paid.out.contains(&format!("{id}: paid 120 EUR to ACME by process")), "{paid:?}");
    assert_eq!(paid.process("checks the invoice"), None, "what is recorded is not done again");
    let again = typed(&["start", id]);
    assert_eq!((again.code, again.out.lines().next()), (0, paid.out.lines().last()));
    let log = ended(&*space.open(), id).await;
    assert!(log.len() == 4 && log.values().all(|times| *times == 1), "{log:?}");
    asker && payer
}

#[test]
fn wrong_usage_has_its_own_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    for args in [
        &[][..],
        &["pay", "inv-7"],
        &["start"],
        &["start", "a", "b"],
        &["reject", "inv-7"],
        &["start", "a", "--by"],
        &["start", "a", "--who", "me"],
        &["approve", "a", "--by", "me", "--by", "you"],
    ] {
        let said = approval(dir.path(), args);
        assert_eq!(said.code, 2, "{args:?}: {said:?}");
        assert!(said.err.contains("usage: approval COMMAND"), "{args:?}: {said:?}");
    }
    assert!(!dir.path().join(".ferrata-approval").exists(), "wrong usage stores nothing");
    assert_eq!(approval(dir.path(), &["--help"]).code, 0);
    let memory = approval(dir.path(), &["start", "a", "--store", "memory:"]);
    assert!(memory.code == 1 && memory.err.contains("use --store file:FOLDER"), "{memory:?}");
}
