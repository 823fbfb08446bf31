//! Arguments of `init`.

use std::path::PathBuf;

/// Create a crate with a durable function and its tests.
///
/// The function has a step, a compensation, a question and a timer. The tests kill it at every write.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ferrata init my-orders\n  cd my-orders && cargo test")]
pub(crate) struct InitArgs {
    /// New or empty folder, by default the current one. Its name becomes the name of the crate.
    #[arg(value_name = "FOLDER", default_value = ".")]
    pub(crate) folder: PathBuf,
}
