//! Arguments of `serve`.

use std::net::SocketAddr;

/// Show the runs of the store in a browser, until Ctrl-C.
///
/// The page is read-only without `--allow-writes`. Only this machine reaches it. If `--listen` names an address that other machines reach,
/// visitors need the printed token.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata serve --open\n  ferrata serve --store postgres://me@db/app --allow-writes\n  ferrata serve --listen 0.0.0.0:7707 --host ops.example.com --redact /card/number"
)]
pub(crate) struct ServeArgs {
    /// Address to listen on; port 0 takes a free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7707")]
    pub(crate) listen: SocketAddr,
    /// Open the page in the browser.
    #[arg(long)]
    pub(crate) open: bool,
    /// Allow the page to answer, retry, pause, cancel, edit, move, fork and purge.
    #[arg(long)]
    pub(crate) allow_writes: bool,
    /// Host name that browsers use, in addition to localhost.
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// Access token, instead of a generated one.
    #[arg(long, value_name = "TOKEN", env = "FERRATA_SERVE_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Hide the values at this JSON pointer in every state; `*` stands for one name or number.
    #[arg(long, value_name = "POINTER")]
    pub(crate) redact: Vec<String>,
    /// Name to record as the author.
    #[arg(long, value_name = "NAME", env = "FERRATA_BY")]
    pub(crate) by: Option<String>,
}
