//! Content of runs, pipelines, files and arguments cannot control the terminal, for every verb and format.

use std::collections::BTreeMap;
use std::time::Duration;

use ferrata::prelude::*;
use ferrata::record::RunStatus;
use ferrata::{Ask, Context};

use crate::service::some_runs;
use crate::support::{Place, Said};

/// Every character that controls a terminal or reorders its text: the ASCII and Latin-1 controls, and the marks for direction, lines and isolation.
fn steering() -> impl Iterator<Item = char> {
    let marks = ['\u{61c}', '\u{200e}', '\u{200f}']
        .into_iter()
        .chain('\u{2028}'..='\u{202e}')
        .chain('\u{2066}'..='\u{2069}');
    ('\u{1}'..='\u{1f}').chain('\u{7f}'..='\u{9f}').chain(marks)
}

/// A text with all of them, and with misleading content.
fn hostile() -> String {
    let all: String = steering().flat_map(|c| [c, 'x']).collect();
    format!("a\u{1b}]0;owned\u{7}\u{9b}31mb\u{202e}c\u{1b}[2J\u{1b}[8mhidden{all}é日")
}

/// A graph with hostile nodes, questions and errors.
fn graph() -> Graph<Context> {
    Graph::<Context>::builder("hostile")
        .node("begin", async |_cx, mut s| {
            s.set(hostile(), hostile())?;
            Ok(Update::from(s).with_output(hostile()))
        })
        .gate(
            "approve",
            |_s: &Context| Ask::<String>::new(hostile()).choices([hostile(), "yes".into()]),
            |s, answer| s.set("answer", answer),
        )
        .node("send", async |_cx, _s: Draft<Context>| -> NodeResult<Context> { Err(hostile().into()) })
        .retry(RetryPolicy::none())
        .entry("begin")
        .edge("begin", "approve")
        .edge("approve", "send")
        .build()
        .unwrap()
}

/// Returns printed text that would control a terminal. Colors are recognized by their letters, and allowed only if `colored`.
fn steers(text: &str, colored: bool) -> Option<String> {
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c != '\n' && steering().any(|bad| bad == c)) {
        let color = rest[at..].strip_prefix("\u{1b}[").and_then(|more| more.split_once('m'));
        let is_color =
            |codes: &str| codes.split(';').all(|code| matches!(code.parse(), Ok(0..=4 | 30..=39 | 90..=97)));
        match color.filter(|(codes, _)| colored && is_color(codes)) {
            Some((_, more)) => rest = more,
            None => return Some(rest[at..].chars().take(40).collect::<String>().escape_debug().to_string()),
        }
    }
    None
}

/// A pipeline whose free texts are hostile.
fn pipeline() -> String {
    let text = hostile().replace(['\n', '\r'], "");
    format!(
        "digraph G {{ goal=\"{text}\"\n start [shape=Mdiamond, label=\"{text}\"]\n t [shape=parallelogram, label=\"{text}\", \
         tool_command=\"printf '{}'; exit 3\"]\n exit [shape=Msquare]\n start -> t [label=\"{text}\"]\n t -> exit [label=\"{text}\"]\n}}\n",
        r"\\033]0;x\\007\\302\\2331m"
    )
}

/// Guarantees: CLI-4, SECURITY-6.
#[tokio::test(flavor = "multi_thread")]
async fn no_verb_output_steers_terminal() {
    let place = Place::new();
    let service = some_runs(&place).await;
    let graph = graph();
    service.runtime.serve(&graph).unwrap();
    let evil = hostile();
    // The library rejects controls in ids and labels, and accepts all marks.
    let marked = evil.replace(char::is_control, "");
    for id in ["asks", "fails"] {
        let start = service.runtime.start(&graph, Context::new()).id(id);
        start.label("team", &marked).user(marked.clone()).await.unwrap();
        service.until(&ferrata::RunKey::try_from(id).unwrap(), RunStatus::Interrupted).await;
    }
    let yes = ferrata::Answer::accept(&evil).unwrap();
    let fails = ferrata::RunKey::try_from("fails").unwrap();
    service.runtime.respond(&fails, "approve", yes).by(marked.clone()).await.unwrap();
    service.until(&fails, RunStatus::Failed).await;
    service.runtime.shutdown(Duration::ZERO).await.unwrap();
    place.write("evil.dot", &pipeline());
    place.write("broken.dot", &format!("digraph G {{ a -> {evil} }}"));
    place.write("evil.jsonl", &evil);
    place.write("evil.json", &format!("[{{\"{evil}\": 1}}]"));

    let evil = evil.as_str();
    let (pair, marks) = (format!("{evil}={evil}"), format!("{marked}={marked}"));
    let (other_evil, crate_path) = (format!("{evil}.jsonl"), format!("{evil}/orders"));
    let lines: &[&[&str]] = &[
        &["run", "evil.dot", "--id", "p", "--run-dir", "d"],
        &["run", "evil.dot", "--dry-run"],
        &["run", "broken.dot"],
        &["run", "evil.dot", "--id", "q", "--input", &pair, "--label", &marks, "--progress", "bar"],
        &["resume", "p"],
        &["resume", evil],
        &["ls"],
        &["ls", "--label", &pair],
        &["ls", "--status", evil],
        &["ls", "--store", evil],
        &["show", "asks"],
        &["show", "fails"],
        &["show", "p"],
        &["show", "fails", "--node", "begin"],
        &["show", "fails", "--node", "send"],
        &["show", "fails", "--node", evil],
        &["show", "fails", "--report"],
        &["show", "fails", "--reveal"],
        &["state", "fails", "--reveal"],
        &["export", "fails", "--reveal"],
        &["diff", "fails", "0", "--reveal"],
        &["show", evil],
        &["tree", "asks"],
        &["history", "fails"],
        &["state", "fails"],
        &["state", "fails", evil],
        &["diff", "fails", "0"],
        &["diff", "fails", evil],
        &["logs", "fails"],
        &["logs", "fails", "--node", evil],
        &["outbox"],
        &["outbox", "asks", "--drop", "--by", &marked],
        &["outbox", evil],
        &["queue", "ls"],
        &["queue", "show", evil],
        &["queue", "pause", evil, "--reason", evil],
        &["schedule", "ls"],
        &["schedule", "show", evil],
        &["schedule", "next", evil],
        &["questions"],
        &["questions", "asks"],
        &["answer", "asks", "approve", evil, "--resolve", evil],
        &["answer", "asks", evil, evil],
        &["answer", "asks", "neither"],
        &["send", "asks", evil],
        &["retry", evil],
        &["pause", "asks", "--reason", evil, "--by", &marked],
        &["pause", "asks", "--by", evil],
        &["show", "asks"],
        &["unpause", "asks", evil],
        &["wait", "asks", "--timeout", "1ms"],
        &["wait", "fails"],
        &["edit", "asks", "--set", &pair, "--force", "--by", &marked],
        &["edit", "asks", "--patch", "evil.json"],
        &["logs", "asks"],
        &["goto", "fails", evil, "--reason", evil],
        &["goto", "fails", evil, "--reason", evil, "--yes"],
        &["goto", "fails", "begin", "--reason", evil],
        &["serve", evil],
        &["fork", "fails", "--list"],
        &["fork", "fails", "begin@1", "--id", evil],
        &["fork", "fails", "begin@1", "--start-at", evil],
        &["verify", "fails"],
        &["verify", "fails", "broken.dot"],
        &["export", "fails"],
        &["export", "fails", "--to", evil],
        &["export", "fails", "--redact", "--to", &other_evil],
        &["import", "evil.jsonl"],
        &["import", evil],
        &["prune", "fails", "--keep-last", "1"],
        &["sweep", "--purge", "failed=0s"],
        &["blobs", "gc", evil],
        &["lint", "evil.dot", "broken.dot"],
        &["lint", evil],
        &["graph", "evil.dot"],
        &["graph", "evil.dot", "--format", "svg"],
        &["graph", "evil.dot", "--format", "mermaid"],
        &["graph", "p"],
        &["graph", "fails"],
        &["init", evil],
        &["init", &crate_path],
        &["demo", evil],
        &["store", "check"],
        &["store", "keys"],
        &["store", "keys", "--tenant", evil],
        &["completions", "bash"],
        &["man"],
        &["man", "--to", evil],
        &["cancel", "asks", "--yes", "--reason", evil],
        &["purge", evil],
        &["purge", "asks"],
        &[evil],
    ];
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    let check = |said: &Said, line: &[&str], colored: bool| {
        for text in [&said.out, &said.err] {
            if let Some(found) = steers(text, colored) {
                panic!("{line:?} prints {found}");
            }
        }
    };
    // Test the text output, and the other formats in turn.
    let mut others = [["-o", "json"], ["-o", "jsonl"], ["-o", "ids"], ["-o", "table"]].into_iter().cycle();
    for line in lines {
        *count.entry(line[0]).or_default() += 1;
        check(&place.call(&[line, &["--color", "always"][..]].concat()), line, true);
        let other = others.next().unwrap();
        check(&place.call(&[*line, &other[..]].concat()), line, false);
    }
    let help = place.ok(&["--help"]);
    for verb in crate::help::verbs(&help) {
        assert!(count.contains_key(verb.as_str()), "no line tests `{verb}`");
    }
    // The formats for programs contain the complete text, escaped.
    assert_eq!(place.json(&["show", "fails"])["head"]["facts"]["user"], marked);
}
