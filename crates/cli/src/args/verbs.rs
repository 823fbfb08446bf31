//! The groups of commands in the help.

use std::fmt::Write;

use clap::builder::{StyledStr, Styles};
use clap::parser::ValueSource;
use clap::{Command, CommandFactory, FromArgMatches};

use super::Cli;

/// Maximum width of the help in columns.
const WIDEST: usize = 100;

/// The groups of commands, in the order of the manual.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Inspect",
        &["ls", "show", "tree", "history", "state", "diff", "logs", "questions", "outbox", "wait", "serve"],
    ),
    (
        "Control",
        &[
            "answer", "send", "retry", "pause", "unpause", "cancel", "edit", "goto", "fork", "queue",
            "schedule",
        ],
    ),
    ("Maintain", &["verify", "export", "import", "prune", "purge", "sweep", "blobs"]),
    ("Pipelines", &["run", "resume", "lint", "graph"]),
    ("Set up", &["init", "demo", "store", "completions", "man"]),
];

/// Parses the command line.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    let command = Cli::command();
    let help = template(&command, crate::output::room().unwrap_or(WIDEST).min(WIDEST));
    let mut command = command.help_template(help);
    let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
    let source = matches.subcommand().and_then(|(_, verb)| verb.value_source("store"));
    let mut cli = Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))?;
    cli.global.is_store_given = source == Some(ValueSource::CommandLine);
    Ok(cli)
}

/// Builds the help of the command, which lists the commands in groups.
fn template(command: &Command, room: usize) -> StyledStr {
    let styles = Styles::styled();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    let width = GROUPS.iter().flat_map(|(_, verbs)| *verbs).map(|verb| verb.len()).max().unwrap_or_default();
    for (group, verbs) in GROUPS {
        // Writing to a string never fails.
        let _ = write!(text, "\n{header}{group}:{header:#}\n");
        for verb in verbs {
            let about = command.find_subcommand(verb).and_then(Command::get_about).map(ToString::to_string);
            let about = wrapped(&about.unwrap_or_default(), room.saturating_sub(width + 4).max(20));
            let pad = " ".repeat(width - verb.len());
            let _ = writeln!(
                text,
                "  {literal}{verb}{literal:#}{pad}  {}",
                about.join(&format!("\n{}", " ".repeat(width + 4)))
            );
        }
    }
    let _ = write!(text, "\n{header}Options:{header:#}\n{{options}}{{after-help}}");
    text.into()
}

/// Splits a text into lines, between words.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verb_is_in_one_group() {
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| *verbs).copied().collect();
        listed.sort_unstable();
        let command = Cli::command();
        let mut verbs: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        verbs.sort_unstable();
        assert_eq!(listed, verbs);
    }
}
