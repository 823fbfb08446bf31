//! A real terminal: the progress bar and interactive questions.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::{Place, Running, history, type_in, until};

/// A terminal, and its output so far.
struct Terminal {
    keys: File,
    name: String,
    shown: Arc<Mutex<String>>,
}

impl Terminal {
    fn new() -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let mut screen = File::from(master);
        let keys = screen.try_clone().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let into = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // At the end of a terminal, a read fails.
            while let Ok(length @ 1..) = screen.read(&mut buffer) {
                into.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        });
        Self { keys, name, shown }
    }

    fn run(&self, place: &Place, line: &[&str]) -> Running {
        let side = || OpenOptions::new().read(true).write(true).open(&self.name).unwrap();
        let mut command = place.command(line);
        command.env("TERM", "xterm").stdin(Stdio::from(side())).stderr(Stdio::from(side()));
        Running::of(command)
    }

    fn shows(&self, text: &str) -> bool {
        self.shown.lock().unwrap().contains(text)
    }

    #[track_caller]
    fn wait(&self, text: &str) {
        until(&format!("the terminal shows {text:?}: {:?}", self.shown), || self.shows(text));
    }
}

const GATE: &str = r#"
    work [tool_command="while [ ! -e go ]; do sleep 0.05; done; echo done"]
    ask [shape=hexagon, label="Ship it?"]
    start -> work -> ask
    ask -> exit [label="[Y] Yes"]
    ask -> work [label="[N] No"]"#;

#[test]
fn terminal_shows_progress_and_repeats_invalid_question() {
    let place = Place::new();
    place.pipeline("G", GATE);
    let terminal = Terminal::new();
    let run = terminal.run(&place, &["run", "G.dot", "--run-dir", "d"]);
    // The bar names running nodes and counts ended ones.
    terminal.wait("1/4 nodes");
    terminal.wait("work");
    assert!(!terminal.shows("? ask"));
    place.write("go", "");
    terminal.wait("the last command printed:\r\ndone\r\n? ask  Ship it?");
    terminal.wait("[Y] Yes");
    type_in(&terminal.keys, "maybe\n");
    terminal.wait("`maybe` is not one of the choices");
    type_in(&terminal.keys, "n\n");
    until("it is asked again", || terminal.shown.lock().unwrap().matches("? ask").count() >= 3);
    type_in(&terminal.keys, "Y\n");
    let said = run.end().ends(0);
    assert_eq!(said.json()["status"], "completed", "only the result must be on stdout");
    terminal.wait("completed: 4 of 4 nodes");
    assert_eq!(history(&place.path("d")), ["start", "work", "ask", "work", "ask", "exit"]);
}

#[test]
fn ctrl_c_leaves_question_for_next_resume() {
    let place = Place::new();
    place.pipeline("G", GATE);
    place.write("go", "");
    let terminal = Terminal::new();
    let run = terminal.run(&place, &["run", "G.dot", "--run-dir", "d"]);
    terminal.wait("? ask");
    run.tell(Signal::INT);
    run.end().ends(130);
    let terminal = Terminal::new();
    let run = terminal.run(&place, &["resume", "d"]);
    terminal.wait("? ask");
    type_in(&terminal.keys, "yes\n");
    terminal.wait("not one of the choices");
    type_in(&terminal.keys, "y\n");
    run.end().ends(0);
    assert_eq!(history(&place.path("d")), ["start", "work", "ask", "exit"]);
}

/// While a terminal shows a question, an answer from another command ends it.
///
/// Guarantees: PIPELINE-7.
#[test]
fn terminal_question_accepts_answer_from_elsewhere() {
    for typed in ["", "y\n"] {
        let place = Place::new();
        place.pipeline("G", GATE);
        place.write("go", "");
        place.call(&["run", "G.dot", "--run-dir", "d", "--no-input"]).ends(5);
        let terminal = Terminal::new();
        let run = terminal.run(&place, &["resume", "d"]);
        terminal.wait("? ask");
        place.call(&["answer", "d", "ask@1:choice", "Y"]).ends(0);
        type_in(&terminal.keys, typed);
        run.end().ends(0);
        assert_eq!(history(&place.path("d")), ["start", "work", "ask", "exit"]);
    }
}

#[test]
fn nothing_is_asked_where_no_input_is_wanted() {
    let place = Place::new();
    place.pipeline("G", GATE);
    place.write("go", "");
    let terminal = Terminal::new();
    terminal.run(&place, &["run", "G.dot", "--run-dir", "d", "--no-input"]).end().ends(5);
    assert!(!terminal.shows("? ask"));
}

/// On a terminal, a finished run prints a few lines, not its whole context as JSON.
#[test]
fn finished_run_prints_few_lines_on_terminal() {
    let place = Place::new();
    place.pipeline("G", r#"work [tool_command="seq 100"] start -> work -> exit"#);
    let terminal = Terminal::new();
    let side = || OpenOptions::new().read(true).write(true).open(&terminal.name).unwrap();
    let mut command = place.command(&["run", "G.dot", "--run-dir", "d", "--id", "g"]);
    command
        .env("TERM", "xterm")
        .stdin(Stdio::from(side()))
        .stdout(Stdio::from(side()))
        .stderr(Stdio::from(side()));
    Running::of(command).end().ends(0);
    terminal.wait("g  completed  3 nodes ended");
    terminal.wait("ferrata state g --store file:d/.ferrata");
    assert!(!terminal.shows("tool.output") && !terminal.shows("\"status\""), "{:?}", terminal.shown);
}

/// Guarantees: CLI-18.
#[test]
fn fork_lists_repeated_effects_and_asks() {
    let place = Place::new();
    place.pipeline("F", r#"a [tool_command=true] b [tool_command="echo b >> log"] start -> a -> b -> exit"#);
    place.call(&["run", "F.dot", "--run-dir", "d", "--id", "done"]).ends(0);
    for (typed, code) in [("\n", 2), ("y\n", 0)] {
        let terminal = Terminal::new();
        let run = terminal.run(&place, &["fork", "d", "a@1", "--id", "again"]);
        terminal.wait("b  write, 1×");
        terminal.wait("fork done at a@1? [y/N]");
        type_in(&terminal.keys, typed);
        run.end().ends(code);
    }
}

/// On a terminal, `run` asks before it starts a new run next to an unfinished run of the pipeline.
#[test]
fn run_offers_to_continue_unfinished_run() {
    let place = Place::new();
    place.pipeline(
        "Left",
        r#"a [tool_command="echo a >> log"] b [tool_command="echo b >> log"] start -> a -> b -> exit"#,
    );
    place.call(&["run", "Left.dot", "--id", "first", "--until", "a"]).ends(0);
    let question = "run first of this pipeline has not ended";
    // Any other answer than yes is confirmed by its effect: `n` starts a new run.
    for (typed, id, log) in [("n\n", None, "a\na\nb\n"), ("\n", Some("first"), "a\na\nb\nb\n")] {
        let terminal = Terminal::new();
        let run = terminal.run(&place, &["run", "Left.dot"]);
        terminal.wait(question);
        terminal.wait("Resume it? [Y/n]");
        type_in(&terminal.keys, typed);
        let said = run.end().ends(0).json();
        assert_eq!(said["status"], "completed");
        assert_eq!(said["run"] == "first", id.is_some(), "{said}");
        assert_eq!(place.read("log"), log);
    }
    // Without an unfinished run, the command asks nothing. Without a terminal, it only prints a note.
    let terminal = Terminal::new();
    terminal.run(&place, &["run", "Left.dot"]).end().ends(0);
    assert!(!terminal.shows("Resume it?"), "{:?}", terminal.shown);
    place.call(&["run", "Left.dot", "--id", "second", "--until", "a"]).ends(0);
    let said = place.call(&["run", "Left.dot"]).ends(0);
    assert!(
        said.err.contains("run second of this pipeline has not ended")
            && said.err.contains("Starting a new run"),
        "{}",
        said.err
    );
}
