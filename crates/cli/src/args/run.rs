//! What `run` and `resume` take.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use crate::time;

/// How the progress of a run is shown, on stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressFace {
    /// A bar on a terminal, lines elsewhere.
    #[default]
    Auto,
    /// A bar.
    Bar,
    /// A line for each thing that happens.
    Lines,
    /// Nothing.
    None,
}

/// Run a pipeline from a DOT file, durably: kill it at any moment and resume it.
///
/// The result is a JSON object on stdout. What was recorded is never done again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    ferrata run release.dot --run-dir runs/42 --input tag=v1.4\n  \
    ferrata run release.dot --run-dir runs/42 --resume\n  \
    ferrata run release.dot --store postgres://host/db --id release-42 --answers answers.json")]
pub(crate) struct RunArgs {
    /// The pipeline.
    #[arg(value_name = "FILE.dot")]
    pub(crate) file: Option<PathBuf>,
    /// Keep everything of the run in this directory: its log, unless --store says where, and files to look at.
    #[arg(long, value_name = "DIR")]
    pub(crate) run_dir: Option<PathBuf>,
    /// Go on with the run of --run-dir, of DIR, of --id, or the one run of the pipeline that has not ended.
    #[arg(long, value_name = "DIR", num_args = 0..=1)]
    pub(crate) resume: Option<Option<PathBuf>>,
    /// The run's id; one is made up unless given.
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Put a text into the context, or all keys of a JSON object in a file.
    #[arg(long, value_name = "KEY=VALUE|@FILE.json")]
    pub(crate) input: Vec<String>,
    /// Give prompts and commands a variable: `$KEY` in them stands for VALUE. The same as --input.
    #[arg(long = "var", value_name = "KEY=VALUE")]
    pub(crate) variables: Vec<String>,
    /// Set the goal of the run, `$goal`, in the place of the graph's.
    #[arg(long, value_name = "TEXT")]
    pub(crate) goal: Option<String>,
    /// Label the run, to find it by.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) label: Vec<String>,
    /// Walk through the pipeline with nothing executed, asked or stored, and print the path.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// How it is run.
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// Go on with a run of a pipeline from where it was recorded.
///
/// The pipeline is read from --file, from the directory of the run, or from where it was read at the start.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata resume runs/42\n  ferrata resume release-1f0c --store postgres://host/db"
)]
pub(crate) struct ResumeArgs {
    /// A run's directory, or its id or the beginning of it.
    #[arg(value_name = "RUN|DIR")]
    pub(crate) run: String,
    /// The run of DIR that is meant, as a fork of its own run.
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// The pipeline.
    #[arg(long, value_name = "FILE.dot")]
    pub(crate) file: Option<PathBuf>,
    /// How it is run.
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// How a pipeline is run.
#[derive(Debug, clap::Args)]
pub(crate) struct HowArgs {
    /// The command that does tasks: the prompt on its stdin, the answer on its stdout. The graph's attribute `backend` unless given;
    /// without either, answers are simulated.
    #[arg(long, value_name = "COMMAND", env = "FERRATA_BACKEND")]
    pub(crate) backend: Option<String>,
    /// Let tools inherit this variable of the environment, too; `NAME*` stands for all that begin so. They inherit where programs and
    /// files are, and never FERRATA_STORE or passwords.
    #[arg(long = "env", value_name = "NAME")]
    pub(crate) inherited: Vec<String>,
    /// Stop once this node has ended; a resume goes on behind it.
    #[arg(long, value_name = "NODE")]
    pub(crate) until: Option<String>,
    /// Answer questions from a JSON object: node to an answer, or to a list of answers, one for each visit.
    #[arg(long, value_name = "FILE.json")]
    pub(crate) answers: Option<PathBuf>,
    /// Answer questions by themselves: the default, or else the first choice, or `auto-approved` where any text is an answer.
    #[arg(long)]
    pub(crate) auto_answer: bool,
    /// Stay while the run waits for answers, without a terminal as well: they come by `ferrata answer`, or time runs out.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Stop after this time, as in 90s or 10m; a resume goes on.
    #[arg(long, value_name = "DURATION", value_parser = time::parse)]
    pub(crate) timeout: Option<Duration>,
    /// How long running nodes may finish after Ctrl-C or --timeout. A second Ctrl-C kills them.
    #[arg(long, value_name = "DURATION", value_parser = time::parse, default_value = "5s")]
    pub(crate) grace: Duration,
    /// How progress is shown.
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    pub(crate) progress: ProgressFace,
    /// Take the run from a process that is alive; that one stops at its next record.
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Go on although the pipeline changed where the run is.
    #[arg(long)]
    pub(crate) allow_changed: bool,
}
