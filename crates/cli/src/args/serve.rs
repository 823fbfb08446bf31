//! What `serve` takes.

use std::net::SocketAddr;

/// Show the runs of the store in a browser, until Ctrl-C.
///
/// The page only reads unless it is told that it may act. It is served to this machine alone; where `--listen` names an address that others reach,
/// a visitor needs the token that is printed with it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata serve --open\n  ferrata serve --store postgres://me@db/app --allow-writes\n  ferrata serve --listen 0.0.0.0:7707 --host ops.example.com --redact /card/number"
)]
pub(crate) struct ServeArgs {
    /// Where to listen; with port 0, any free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7707")]
    pub(crate) listen: SocketAddr,
    /// Open the page in the browser.
    #[arg(long)]
    pub(crate) open: bool,
    /// Let the page act: answer, retry, pause, cancel, edit, move, fork, purge.
    #[arg(long)]
    pub(crate) allow_writes: bool,
    /// A name by which browsers reach it, beside localhost.
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// The token to ask for, instead of one that is made where others reach the address.
    #[arg(long, value_name = "TOKEN", env = "FERRATA_SERVE_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Hide the values at this JSON pointer in every state; `*` stands for any one name or number.
    #[arg(long, value_name = "POINTER")]
    pub(crate) redact: Vec<String>,
    /// Who acts; it is recorded.
    #[arg(long, value_name = "NAME", env = "FERRATA_BY")]
    pub(crate) by: Option<String>,
}
