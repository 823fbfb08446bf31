//! What stands in a log of files before its damage: read from a copy that ends there, since the store refuses the whole log.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use ferrata::{Clock, Error, ErrorKind, IdSource, RandomIds, RunId, RunKey, Seq, SystemClock, TenantId};
use serde_json::Value;

use crate::args::{Cli, Command};
use crate::failure::Failure;
use crate::store;

/// How a log of files is called, and the file that says which layout its store has.
const SUFFIX: &str = "jsonl";
const MARKER: &str = "ferrata.json";

/// A copy of a log up to its damage; it is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Salvaged {
    folder: PathBuf,
    /// The store that the log is in.
    pub(crate) store: String,
    /// What is to be said of it.
    pub(crate) note: String,
}

impl Drop for Salvaged {
    fn drop(&mut self) {
        // What cannot be removed is a copy in the folder for such things.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the run that a command only reads, or forks from.
fn read_only(command: &Command) -> Option<&str> {
    match command {
        Command::Show(args) => Some(&args.run),
        Command::History(args) => Some(&args.run),
        Command::State(args) => Some(&args.run),
        Command::Diff(args) => Some(&args.run),
        Command::Logs(args) if !args.follow => Some(&args.run),
        Command::Fork(args) => Some(&args.run),
        Command::Export(args) => Some(&args.run),
        _ => None,
    }
}

/// Has the command read a copy of the log up to its damage, if the run that it names in full is damaged; otherwise changes nothing.
pub(crate) async fn prepare(cli: &mut Cli) -> Result<Option<Salvaged>, Failure> {
    let Some(name) = read_only(&cli.command) else { return Ok(None) };
    let Some(root) = store::folder(&cli.global.store) else { return Ok(None) };
    let key = match name.split_once('/') {
        Some((tenant, id)) => {
            TenantId::new(tenant).and_then(|tenant| Ok(RunKey::new(tenant, RunId::new(id)?)))
        }
        None => RunId::new(name).map(|id| RunKey::new(cli.global.tenant.clone().unwrap_or_default(), id)),
    };
    // What is no id is told by the command.
    let Ok(run) = key else { return Ok(None) };
    let Err(error) = whole(&cli.global.store, &run).await else { return Ok(None) };
    let log = Path::new("runs").join(run.tenant.as_str()).join(format!("{}.{SUFFIX}", run.run));
    let (ErrorKind::Corrupt, Ok(text)) = (error.kind(), std::fs::read(root.join(&log))) else {
        return Ok(None);
    };
    let unwritten = |error: std::io::Error| Failure::internal("a copy of the log cannot be made", &error);
    let random = RandomIds::new().next(SystemClock::new().now()).simple().to_string();
    let folder = std::env::temp_dir().join(format!("ferrata-{random}"));
    std::fs::DirBuilder::new().mode(0o700).create(&folder).map_err(unwritten)?;
    let url = store::of_folder(&folder);
    let real = std::mem::replace(&mut cli.global.store, url.clone());
    let mut salvaged = Salvaged { folder: folder.clone(), store: real, note: String::new() };
    if let Some(directory) = folder.join(&log).parent() {
        std::fs::create_dir_all(directory).map_err(unwritten)?;
    }
    std::fs::copy(root.join(MARKER), folder.join(MARKER)).map_err(unwritten)?;
    let mut damage = error;
    while let Some(seq) = damage.seq().filter(|seq| seq.get() > 0) {
        std::fs::write(folder.join(&log), before(&text, seq)).map_err(unwritten)?;
        match whole(&url, &run).await {
            Ok(()) => {
                salvaged.note = format!(
                    "the log of run {} is damaged at record {seq}: this is what stands before it; the run itself cannot go on, a fork can",
                    crate::find::shown(&run)
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
    // Nothing can be read: the command says why.
    cli.global.store.clone_from(&salvaged.store);
    Ok(None)
}

/// Reads a log whole.
async fn whole(url: &str, run: &RunKey) -> Result<(), Error> {
    let store = ferrata::connect(url)?;
    store.head(run).await?;
    let runtime = ferrata::Runtime::builder_with(store).operator();
    match runtime.check_log(run).await {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns the lines of a log before that of a record.
fn before(text: &[u8], seq: Seq) -> &[u8] {
    let mut end = 0;
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let Ok(read) = serde_json::from_slice::<Value>(line) else { break };
        // The first line is about the run, and has no number.
        if read.get("seq").and_then(Value::as_u64).is_some_and(|found| found >= seq.get()) {
            break;
        }
        end += line.len();
    }
    &text[..end]
}
