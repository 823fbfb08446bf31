//! The layout of files. Only this module builds the store's paths, and only from validated ids.

use std::path::{Path, PathBuf};

use ferrata_store::{ExecutorId, RunId, RunKey, TenantId};
use uuid::Uuid;

/// The version of the layout of a folder.
pub(crate) const VERSION: u64 = 1;

const RUNS: &str = "runs";
const EXECUTORS: &str = "executors";
const JOURNALS: &str = "journals";
const SUFFIX: &str = ".jsonl";

/// The paths below one root.
///
/// Ids contain no slash and do not start with a dot. So an id is a valid file name, and names that start with a dot belong to the store.
#[derive(Debug)]
pub(crate) struct FsLayout {
    root: PathBuf,
    runs: PathBuf,
    executors: PathBuf,
    journals: PathBuf,
}

impl FsLayout {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { runs: root.join(RUNS), executors: root.join(EXECUTORS), journals: root.join(JOURNALS), root }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path of the marker, which names the root's layout.
    pub(crate) fn marker(&self) -> PathBuf {
        self.root.join("ferrata.json")
    }

    /// Returns the path of the marker in capital letters. The file exists there only if the file system ignores case.
    pub(crate) fn marker_in_capitals(&self) -> PathBuf {
        self.root.join("FERRATA.JSON")
    }

    pub(crate) fn runs(&self) -> &Path {
        &self.runs
    }

    pub(crate) fn executors(&self) -> &Path {
        &self.executors
    }

    pub(crate) fn journals(&self) -> &Path {
        &self.journals
    }

    /// Returns the path of the journal of an instance.
    pub(crate) fn journal(&self, id: Uuid) -> PathBuf {
        self.journals.join(format!("{id}.journal"))
    }

    pub(crate) fn tenant(&self, tenant: &TenantId) -> PathBuf {
        self.runs.join(tenant.as_str())
    }

    /// Returns the path of the log of a run.
    pub(crate) fn log(&self, run: &RunKey) -> PathBuf {
        self.sibling_path(run, "", SUFFIX)
    }

    /// Returns the path of a log during its creation. The log gets its name once its content is durable.
    pub(crate) fn unnamed_log(&self, run: &RunKey) -> PathBuf {
        self.sibling_path(run, ".", ".new")
    }

    /// Returns the path of a log's copy, which then replaces the log.
    pub(crate) fn copy(&self, run: &RunKey) -> PathBuf {
        self.sibling_path(run, ".", ".cut")
    }

    pub(crate) fn executor(&self, executor: &ExecutorId) -> PathBuf {
        self.executors.join(executor.to_string())
    }

    fn sibling_path(&self, run: &RunKey, before: &str, after: &str) -> PathBuf {
        self.tenant(&run.tenant).join([before, run.run.as_str(), after].concat())
    }

    /// Returns the run whose log has this file name, if the name is that of a log.
    pub(crate) fn run_of(file_name: &str) -> Option<RunId> {
        RunId::new(file_name.strip_suffix(SUFFIX)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: FS-2.
    #[test]
    fn every_run_has_file_in_tenant_folder() {
        let layout = FsLayout::new("/r".into());
        let run =
            |tenant: &str, run: &str| RunKey::new(TenantId::new(tenant).unwrap(), RunId::new(run).unwrap());
        assert_eq!(layout.log(&run("t", "a.jsonl")), Path::new("/r/runs/t/a.jsonl.jsonl"));
        assert_eq!(layout.unnamed_log(&run("t", "a")), Path::new("/r/runs/t/.a.new"));
        assert_eq!(layout.copy(&run("t:1", "a:b")), Path::new("/r/runs/t:1/.a:b.cut"));
        let longest = "x".repeat(128);
        for path in [layout.log(&run(&longest, &longest)), layout.unnamed_log(&run(&longest, &longest))] {
            assert!(path.components().all(|part| part.as_os_str().len() <= 255));
        }
    }

    /// Guarantees: FS-2.
    #[test]
    fn only_logs_are_listed_as_runs() {
        assert_eq!(FsLayout::run_of("a.jsonl"), Some(RunId::new("a").unwrap()));
        for other in ["a", "a.json", ".a.new", ".a.jsonl", ".jsonl", "a b.jsonl"] {
            assert_eq!(FsLayout::run_of(other), None, "{other}");
        }
    }
}
