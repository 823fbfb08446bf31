//! The graph of the survey: list the files, measure each file, compare all measurements, and write the report.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferrata::graph::GraphError;
use ferrata::prelude::*;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use walkdir::WalkDir;

use crate::findings::Findings;
use crate::measure::{Measure, measure};
use crate::report;

/// The node that runs once for each file.
pub(crate) const MEASURE: &str = "measure";

/// Maximum number of files that are open at the same time.
const AT_ONCE: u32 = 64;

/// Names of directories that are not surveyed, because people do not write files in them.
const NOT_ENTERED: [&str; 3] = [".git", "target", ".ferrata"];

/// The state of a run of the survey.
#[derive(Clone, Debug, Default, Serialize, Deserialize, State)]
pub(crate) struct Survey {
    /// The directory to survey.
    dir: String,
    /// The path of the report.
    out: String,
    /// The paths of the files relative to the directory, sorted.
    paths: Vec<String>,
    /// The combined result; `None` until the files are compared.
    pub(crate) findings: Option<Findings>,
}

impl Survey {
    pub(crate) fn of(dir: &str, out: &str) -> Self {
        Self { dir: dir.to_owned(), out: out.to_owned(), ..Self::default() }
    }
}

/// Paths that are not surveyed, because the survey itself writes them.
pub(crate) struct LeftOut(pub(crate) Vec<PathBuf>);

/// The number of files, once a node has listed them.
#[derive(Debug, Default)]
pub(crate) struct Files(AtomicU64);

impl Files {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn tell(&self, count: usize) {
        self.0.store(count as u64, Ordering::Relaxed);
    }
}

pub(crate) fn graph() -> Result<Graph<Survey>, GraphError> {
    Graph::builder("survey")
        .version("1")
        .concurrency(AT_ONCE)
        .node("list", list)
        .effect(Effect::Read)
        .node(MEASURE, measure_one)
        .effect(Effect::Read)
        .node("compare", compare)
        .effect(Effect::Pure)
        .node("write", write)
        .effect(Effect::Write)
        .entry("list")
        .route("list", [MEASURE, "compare"], |s: &Survey, _| {
            if s.paths.is_empty() { Route::to("compare") } else { Route::each(MEASURE, &s.paths) }
        })
        .edge(MEASURE, "compare")
        .edge("compare", "write")
        .build()
}

/// Lists the files. Links are not followed.
async fn list(cx: NodeContext, s: Draft<Survey>) -> NodeResult<Survey> {
    let (dir, within) = (PathBuf::from(&s.dir), cx.clone());
    let paths = spawn_blocking(move || walk(&dir, &within.resource::<LeftOut>().0)).await?;
    cx.resource::<Arc<Files>>().tell(paths.len());
    Ok(Survey::update().paths(paths).into())
}

fn walk(dir: &Path, left_out: &[PathBuf]) -> Vec<String> {
    let walk = WalkDir::new(dir).follow_links(false).sort_by_file_name().into_iter().filter_entry(|entry| {
        let skipped = entry.file_type().is_dir()
            && entry.depth() > 0
            && NOT_ENTERED.iter().any(|name| entry.file_name() == *name);
        !skipped && !left_out.iter().any(|path| path == entry.path())
    });
    let below = |path: &Path| path.strip_prefix(dir).unwrap_or(path).to_string_lossy().into_owned();
    walk.filter_map(|entry| match entry {
        Ok(entry) => entry.file_type().is_file().then(|| below(entry.path())),
        // An entry that cannot be listed is still measured, and the measurement contains the reason.
        Err(error) => error.path().map(below),
    })
    .collect()
}

/// Measures one file. A file that cannot be read is a result and not a failure.
async fn measure_one(cx: NodeContext, s: Draft<Survey>) -> NodeResult<Survey> {
    cx.resource::<Arc<Files>>().tell(s.paths.len());
    let path: String = cx.item()?;
    let full = Path::new(&s.dir).join(&path);
    let measured = spawn_blocking(move || measure(&full)).await?;
    let result = measured.map_err(|error| error.to_string());
    Ok(Update::none().with_output(Measure { path, result }))
}

/// Combines the measurements. The measurements arrive in the order of the list.
async fn compare(cx: NodeContext, _s: Draft<Survey>) -> NodeResult<Survey> {
    let measured = cx.inputs().iter().filter(|input| input.from.as_str() == MEASURE);
    let measures = measured.map(|input| input.output()).collect::<ferrata::Result<Vec<Measure>>>()?;
    Ok(Survey::update().findings(Some(Findings::of(measures))).into())
}

/// Writes the report. If the node is repeated, it writes the same file again, through the same temporary file.
async fn write(cx: NodeContext, s: Draft<Survey>) -> NodeResult<Survey> {
    let findings = s.findings.as_ref().ok_or("there are no findings")?;
    let (text, out) = (report::report(&s.dir, findings), PathBuf::from(&s.out));
    let key = blake3::hash(cx.idempotency_key().as_bytes()).to_hex();
    spawn_blocking(move || report::replace(&out, &text, &key[..16])).await??;
    Ok(Update::none())
}
