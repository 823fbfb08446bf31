//! The arguments of the program: `cargo xtask bench` sets its command line and its environment.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

/// The variable with the URLs of the stores, separated by white space. The URLs are not on the command line, because a URL may contain a password.
const STORES: &str = "FERRATA_BENCH_STORES";

/// What to measure, and where to write the results.
#[derive(Clone, Debug, Default)]
pub(crate) struct Args {
    /// The stores. The core is measured without a store.
    pub(crate) stores: Vec<String>,
    /// Whether to use fewer rounds and smaller workloads, which show only orders of magnitude.
    pub(crate) quick: bool,
    /// The file for all figures as JSON.
    pub(crate) json: Option<PathBuf>,
    /// The file for the table as Markdown.
    pub(crate) markdown: Option<PathBuf>,
    /// The file of ratios to compare with. A row that differs by an order of magnitude is a failure.
    pub(crate) guard: Option<PathBuf>,
    /// Measure only rows whose name contains one of these texts. An empty list selects all rows.
    pub(crate) parts: Vec<String>,
}

impl Args {
    /// Reads the arguments of this process.
    pub(crate) fn read() -> Result<Self> {
        let stores = std::env::var(STORES).unwrap_or_default();
        let mut args = Self::parse(std::env::args().skip(1))?;
        args.stores = stores.split_whitespace().map(str::to_owned).collect();
        Ok(args)
    }

    fn parse(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut args = Self::default();
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut path =
                || arguments.next().map(PathBuf::from).context(format!("`{argument}` takes a file"));
            match argument.as_str() {
                "--quick" => args.quick = true,
                "--json" => args.json = Some(path()?),
                "--markdown" => args.markdown = Some(path()?),
                "--guard" => args.guard = Some(path()?),
                option if option.starts_with('-') => bail!("`{option}` is not known; see `cargo xtask help`"),
                _ => args.parts.push(argument),
            }
        }
        Ok(args)
    }

    /// Returns whether a row is to be measured.
    pub(crate) fn wants(&self, id: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|part| id.contains(part.as_str()))
    }

    /// Returns `full`, or `quick` in a quick run.
    pub(crate) fn scaled<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Args> {
        Args::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_part_is_a_part_of_a_name() {
        let args = parsed("--quick --json out.json core/ write").unwrap();
        assert!(args.quick && args.wants("core/disabled") && args.wants("postgres/one-run-write"));
        assert!(!args.wants("postgres/fan-out-1000"));
        assert!(parsed("").unwrap().wants("anything"));
    }

    #[test]
    fn an_unknown_option_is_refused() {
        assert!(parsed("--fast").unwrap_err().to_string().contains("`--fast`"));
        assert!(parsed("--json").unwrap_err().to_string().contains("takes a file"));
    }
}
