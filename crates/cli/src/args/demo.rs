//! Arguments of `demo`.

use std::net::SocketAddr;

/// Show example runs in a browser, until Ctrl-C: a failed, a waiting, a retrying and a running one.
///
/// The command itself drives the runs, so you can answer, retry and cancel them on the page. They are in a temporary store, which is removed at the
/// end. With `--store` on the command line, they stay in that store; FERRATA_STORE is ignored.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata demo --open\n  ferrata demo --store file:demo --listen 127.0.0.1:0"
)]
pub(crate) struct DemoArgs {
    /// Address to listen on; port 0 takes a free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7707")]
    pub(crate) listen: SocketAddr,
    /// Open the page in the browser.
    #[arg(long)]
    pub(crate) open: bool,
}
