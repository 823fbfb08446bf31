//! Tests the survey. The program is killed repeatedly at random moments, writes the same report, and measures nothing twice.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ferrata::{CheckpointStore, Clock as _, FsStore, RunKey, SystemClock};
use ferrata_test_servers::Service;
use ferrata_tests::{Space, StoreKind};

use crate::support::{Chance, ended, program};

const FILES: usize = 300;
const KILLS: usize = 12;

/// Maximum time on a busy machine with a slow store, which may first have to detect that the previous process is dead.
const PATIENCE: Duration = Duration::from_secs(600);

/// Maximum number of kills until one of them is in the middle of the run.
const ROUNDS: usize = 40;

/// Creates the files. Returns the lines that their report must contain.
fn make_files(dir: &Path, chance: &mut Chance) -> Vec<String> {
    let (mut bytes, mut lines, mut words) = (0, 0, 0);
    let mut longest = (0, String::new());
    let mut sizes = Vec::new();
    let mut same = BTreeMap::<String, Vec<String>>::new();
    for number in 0..FILES {
        let path = format!("{:02}/{number:03}.txt", number % 7);
        // Use few different contents, so that there are duplicates. Some files do not end in a line feed.
        let kind = chance.below(200);
        let mut text = String::new();
        for line in 0..kind % 9 {
            writeln!(text, "{} line {line}", "wörd ".repeat(usize::try_from(kind / 9).unwrap())).unwrap();
        }
        if kind % 2 == 1 {
            write!(text, "file of kind {kind}").unwrap();
        }
        let full = dir.join(&path);
        fs::create_dir_all(full.parent().unwrap()).unwrap();
        fs::write(full, &text).unwrap();
        bytes += text.len();
        lines += text.lines().count();
        words += text.split_whitespace().count();
        sizes.push((text.len(), path.clone()));
        let longest_here = text.lines().map(|line| line.chars().count()).max().unwrap_or_default();
        // Of several files, the first in the order of paths counts.
        if longest_here > longest.0 || longest_here == longest.0 && path < longest.1 {
            longest = (longest_here, path.clone());
        }
        if !text.is_empty() {
            same.entry(text).or_default().push(path);
        }
    }
    let mut wanted = Vec::new();
    let groups: Vec<_> = same.into_iter().filter(|(_, paths)| paths.len() > 1).collect();
    let wasted: usize = groups.iter().map(|(text, paths)| text.len() * (paths.len() - 1)).sum();
    wanted.push(format!("- files: {FILES} (0 binary, 0 unreadable)"));
    wanted.push(format!("- bytes: {bytes}"));
    wanted.push(format!("- lines: {lines}"));
    wanted.push(format!("- words: {words}"));
    wanted.push(format!("- duplicates: {} groups, {wasted} bytes to save", groups.len()));
    wanted.push(format!("- longest line: {} characters in `{}`", longest.0, longest.1));
    for (text, mut paths) in groups {
        paths.sort();
        let paths: Vec<_> = paths.iter().map(|path| format!("`{path}`")).collect();
        wanted.push(format!("- {} bytes each: {}", text.len(), paths.join(", ")));
    }
    sizes.sort_by_key(|(bytes, path)| (std::cmp::Reverse(*bytes), path.clone()));
    wanted.extend(sizes.iter().take(10).map(|(bytes, path)| format!("| {bytes} | `{path}` |")));
    wanted.sort();
    wanted
}

/// Returns the lines of a report, in the order of [`make_files`].
fn said(report: &Path) -> Vec<String> {
    let text = fs::read_to_string(report).unwrap();
    let mut lines: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("- ") || line.starts_with("| ") && !line.contains("bytes"))
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines
}

struct Survey<'a> {
    program: PathBuf,
    dir: &'a Path,
    /// The URL of the store.
    store: String,
    environment: Vec<(&'static str, String)>,
    out: PathBuf,
    id: String,
}

impl Survey<'_> {
    fn spawn(&self) -> Child {
        Command::new(&self.program)
            .arg(self.dir)
            .args(["--id", &self.id, "--store"])
            .arg(&self.store)
            .arg("--out")
            .arg(&self.out)
            .envs(self.environment.iter().cloned())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Runs the program and kills it after `limit`. Returns its output if it ended before.
    fn run(&self, limit: Option<Duration>) -> Option<String> {
        let mut child = self.spawn();
        let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (ended, end) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).unwrap();
            // The receiver is gone if the limit came first.
            let _ = ended.send(());
            text
        });
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            text
        });
        let limit = limit.unwrap_or(PATIENCE);
        let killed = end.recv_timeout(limit).is_err();
        if killed {
            // Use SIGKILL, so that no code of the program runs after it.
            child.kill().unwrap();
        }
        let status = child.wait().unwrap();
        let (text, errors) = (reader.join().unwrap(), errors.join().unwrap());
        assert!(status.success() || killed, "{status}: {errors}");
        status.success().then_some(text)
    }

    /// Returns how often each activation ended, according to the log.
    async fn log(&self, store: &dyn CheckpointStore) -> HashMap<(String, u64), u32> {
        ended(store, &self.id).await
    }
}

#[tokio::test]
async fn killed_survey_continues_and_measures_once() {
    let mut chance = Chance::seeded();
    let temp = tempfile::tempdir().unwrap();
    let (dir, store) = (temp.path().join("files"), temp.path().join("store"));
    let wanted = make_files(&dir, &mut chance);
    let survey = |round: usize| Survey {
        program: program("survey"),
        dir: &dir,
        store: format!("file:{}", store.display()),
        environment: Vec::new(),
        out: temp.path().join(format!("report-{round}.md")),
        id: format!("round-{round}"),
    };

    // The duration without a kill determines the range of moments for the kills.
    let whole = survey(0);
    let start = now();
    whole.run(None).unwrap();
    let takes = u64::try_from((now() - start).as_micros()).unwrap();
    assert_eq!(said(&whole.out), wanted);

    let (mut kills, mut in_the_middle, mut round) = (0, 0, 0);
    while kills < KILLS {
        round += 1;
        let survey = survey(round);
        let summary = loop {
            let recorded = survey.log(&FsStore::open(&store).unwrap()).await;
            in_the_middle += usize::from(!recorded.is_empty());
            let limit = (kills < KILLS).then(|| Duration::from_micros(chance.below(takes)));
            if let Some(summary) = survey.run(limit) {
                break (summary, recorded.len());
            }
            kills += 1;
            // The program was killed after the end of the run, and before it could print its result.
            if survey.log(&FsStore::open(&store).unwrap()).await.len() == FILES + 3 {
                break (String::new(), FILES + 3);
            }
        };
        let (summary, recorded) = summary;
        if !summary.is_empty() {
            let line = format!("activations: {recorded} skipped, {} ran", FILES + 3 - recorded);
            assert!(summary.contains(&line), "no \"{line}\" in:\n{summary}");
        }
        assert_eq!(said(&survey.out), wanted, "round {round}");
        each_file_once(&survey.log(&FsStore::open(&store).unwrap()).await, round);
    }
    println!("{kills} kills in {round} rounds; {in_the_middle} starts found something recorded");
}

fn each_file_once(ended: &HashMap<(String, u64), u32>, round: usize) {
    let measured = ended.keys().filter(|(node, _)| node == "measure").count();
    assert_eq!((measured, ended.len()), (FILES, FILES + 3), "round {round}");
    let twice: Vec<_> = ended.iter().filter(|(_, times)| **times != 1).collect();
    assert!(twice.is_empty(), "round {round}: ended more than once: {twice:?}");
}

/// Kills the program in the middle of the run, and starts it again.
#[expect(clippy::print_stdout, reason = "where a kill hit tells what the test was worth")]
pub(crate) async fn is_killed_on(kind: impl Into<StoreKind>) {
    let (mut chance, kind) = (Chance::seeded(), kind.into());
    Space::within(kind, async |space| {
        let dir = space.folder().join("files");
        let wanted = make_files(&dir, &mut chance);
        let store = space.open();
        store.setup().await.unwrap();
        // On a busy machine, the program may end before it is killed.
        for round in 0..ROUNDS {
            let survey = Survey {
                program: program("survey"),
                dir: &dir,
                store: space.url().to_owned(),
                environment: space.environment(),
                out: space.folder().join(format!("report-{round}.md")),
                id: format!("round-{round}"),
            };
            let recorded = survey.killed_behind(&*store, 1 + chance.below(4)).await;
            let summary = survey.run(None).unwrap();
            assert_eq!(said(&survey.out), wanted, "round {round}");
            each_file_once(&survey.log(&*store).await, round);
            println!("round {round}: killed with {recorded} of {} activations recorded", FILES + 3);
            // A slow store may get many records at once, which may be all records of the run.
            if (1..FILES + 3).contains(&recorded) {
                let line = format!("activations: {recorded} skipped, {} ran", FILES + 3 - recorded);
                assert!(summary.contains(&line), "no \"{line}\" in:\n{summary}");
                return;
            }
        }
        // An object store may get all records in one append, so that there is no middle. The program has survived each kill above.
        assert_eq!(kind, StoreKind::Server(Service::S3), "it was never killed in the middle");
    })
    .await;
}

impl Survey<'_> {
    /// Kills the program once its log has this number of records after the first, and waits until the store considers it dead. Returns the number of
    /// recorded activations.
    async fn killed_behind(&self, store: &dyn CheckpointStore, records: u64) -> usize {
        let run = RunKey::try_from(&*self.id).unwrap();
        let clock = SystemClock::new();
        let deadline = clock.monotonic() + PATIENCE;
        let mut child = self.spawn();
        while store.head(&run).await.unwrap().is_none_or(|head| head.seq.get() < records) {
            assert!(clock.monotonic() < deadline, "it does not get so far");
            clock.sleep(Duration::from_millis(1)).await;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        while store.head(&run).await.unwrap().is_some_and(|head| head.owner_alive) {
            assert!(clock.monotonic() < deadline, "a dead process still counts as alive");
            clock.sleep(Duration::from_millis(50)).await;
        }
        self.log(store).await.len()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the time that a process takes is no clock's but the machine's"
)]
fn now() -> Instant {
    Instant::now()
}
