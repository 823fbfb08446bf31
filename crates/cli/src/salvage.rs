//! Reads a damaged log up to the damage. The store rejects the whole log, so the command reads a copy of its intact part.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use ferrata::{Clock, Error, ErrorKind, IdSource, RandomIds, RunId, RunKey, Seq, SystemClock, TenantId};
use serde_json::Value;

use crate::args::{Cli, CliCommand};
use crate::failure::CommandFailure;
use crate::store;

/// The file extension of logs.
const SUFFIX: &str = "jsonl";

/// A copy of a log that ends before the damage. Dropping the value removes the copy.
#[derive(Debug)]
pub(crate) struct SalvagedLog {
    folder: PathBuf,
    /// The URL of the store that contains the copy.
    pub(crate) store: String,
    /// The note for the user.
    pub(crate) note: String,
}

impl Drop for SalvagedLog {
    fn drop(&mut self) {
        // If the removal fails, the copy stays in the temporary folder.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the run of a command that only reads the run, or forks it.
fn read_only(command: &CliCommand) -> Option<&str> {
    match command {
        CliCommand::Show(args) => Some(&args.run),
        CliCommand::History(args) => Some(&args.run),
        CliCommand::State(args) => Some(&args.run),
        CliCommand::Diff(args) => Some(&args.run),
        CliCommand::Logs(args) if !args.follow => Some(&args.run),
        CliCommand::Fork(args) => Some(&args.run),
        CliCommand::Export(args) => Some(&args.run),
        _ => None,
    }
}

/// If the run that the command names by its full id is damaged, makes the command read a copy of its log up to the damage.
pub(crate) async fn prepare(cli: &mut Cli) -> Result<Option<SalvagedLog>, CommandFailure> {
    let Some(name) = read_only(&cli.command) else { return Ok(None) };
    let key = match name.split_once('/') {
        Some((tenant, id)) => {
            TenantId::new(tenant).and_then(|tenant| Ok(RunKey::new(tenant, RunId::new(id)?)))
        }
        None => RunId::new(name).map(|id| RunKey::new(cli.global.tenant.clone().unwrap_or_default(), id)),
    };
    // If the id is invalid, the command itself reports it.
    let Ok(run) = key else { return Ok(None) };
    let Err(error) = whole(&cli.global.store, &run).await else { return Ok(None) };
    let Some(source) =
        SalvageSource::of(&cli.global.store, &run).filter(|_| error.kind() == ErrorKind::Corrupt)
    else {
        return Ok(None);
    };
    let unwritten = |error: std::io::Error| CommandFailure::internal("cannot copy the log", &error);
    let random = RandomIds::new().next(SystemClock::new().now()).simple().to_string();
    let folder = std::env::temp_dir().join(format!("ferrata-{random}"));
    std::fs::DirBuilder::new().mode(0o700).create(&folder).map_err(unwritten)?;
    let url = store::of_folder(&folder);
    let real = std::mem::replace(&mut cli.global.store, url.clone());
    let mut salvaged = SalvagedLog { folder: folder.clone(), store: real, note: String::new() };
    let mut damage = error;
    while let Some(seq) = damage.seq().filter(|seq| seq.get() > 0) {
        let copied = match &source {
            SalvageSource::File { root, log, text } => {
                let kept = before(text, seq);
                copy_file(root, &folder, log, kept).map_err(unwritten)?;
                Ok(())
            }
            SalvageSource::Elsewhere => copy_records(&salvaged.store, &url, &run, seq).await,
        };
        let read = match copied {
            Ok(()) => whole(&url, &run).await,
            refused => refused,
        };
        match read {
            Ok(()) => {
                salvaged.note = format!(
                    "the log of run {} is damaged at record {seq}, and only earlier records are display_key; the run cannot continue, but a fork \
                     can",
                    crate::find::display_key(&run)
                );
                return Ok(Some(salvaged));
            }
            Err(error)
                if error.kind() == ErrorKind::Corrupt && error.seq().is_some_and(|earlier| earlier < seq) =>
            {
                damage = error;
            }
            Err(_) => break,
        }
    }
    // If no record is readable, the command itself reports the reason.
    cli.global.store.clone_from(&salvaged.store);
    Ok(None)
}

/// The source of the records before the damage.
enum SalvageSource {
    /// A log file. The file store rejects the whole log if one record is damaged.
    File { root: PathBuf, log: PathBuf, text: Vec<u8> },
    /// A store that can read records one by one.
    Elsewhere,
}

impl SalvageSource {
    /// Finds the source of a run's records; `None` if its file is unreadable.
    fn of(url: &str, run: &RunKey) -> Option<Self> {
        let Some(root) = store::folder(url) else { return Some(Self::Elsewhere) };
        let log = Path::new("runs").join(run.tenant.as_str()).join(format!("{}.{SUFFIX}", run.run));
        let text = std::fs::read(root.join(&log)).ok()?;
        Some(Self::File { root, log, text })
    }
}

/// Creates a file store that contains the beginning of a log.
fn copy_file(root: &Path, folder: &Path, log: &Path, kept: &[u8]) -> std::io::Result<()> {
    if let Some(directory) = folder.join(log).parent() {
        std::fs::create_dir_all(directory)?;
    }
    // A file store with a marker must have a folder of journals. Otherwise it counts as lost.
    std::fs::create_dir_all(folder.join("journals"))?;
    std::fs::copy(root.join(store::MARKER), folder.join(store::MARKER))?;
    std::fs::write(folder.join(log), kept)
}

/// Copies the records before a damaged record into a file store. Replaces an earlier copy that is unreadable.
async fn copy_records(from: &str, to: &str, run: &RunKey, damaged: Seq) -> Result<(), Error> {
    let operator = |store| ferrata::Runtime::builder_with(store).operator();
    let text = operator(ferrata::connect(from)?).export_before(run, damaged).await?;
    let store = ferrata::connect(to)?;
    store.setup().await?;
    store.purge(run, None).await?;
    operator(store).import(&text, Some(run.clone())).await?;
    Ok(())
}

/// Reads a whole log.
async fn whole(url: &str, run: &RunKey) -> Result<(), Error> {
    let store = ferrata::connect(url)?;
    store.head(run).await?;
    let runtime = ferrata::Runtime::builder_with(store).operator();
    match runtime.check_log(run).await {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns the lines of a log that come before a record.
fn before(text: &[u8], seq: Seq) -> &[u8] {
    let mut end = 0;
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let Ok(read) = serde_json::from_slice::<Value>(line) else { break };
        // The first line describes the run and has no record number.
        if read.get("seq").and_then(Value::as_u64).is_some_and(|found| found >= seq.get()) {
            break;
        }
        end += line.len();
    }
    &text[..end]
}
