//! The command `serve` shows the runs of the store in a browser.

use std::fmt::Write as _;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};

use ferrata::store::RunHead;
use ferrata_dot::Pipeline;
use ferrata_inspector::{Inspector, Outline, Viewer};
use serde_json::json;
use tokio::net::TcpListener;

use super::graph;
use crate::args::ServeArgs;
use crate::context::CommandContext;
use crate::draw::GraphSketch;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::output::completed;

pub(super) async fn run(context: &CommandContext, args: &ServeArgs) -> Result<ExitReason, CommandFailure> {
    let runtime = context.runtime()?;
    // Report an unreachable store here. Otherwise the page would be empty.
    let probe = ferrata::store::Page::first(1);
    runtime.store().runs(&ferrata::store::RunQuery::default(), probe).await?;
    let listener = TcpListener::bind(args.listen).await.map_err(|error| {
        let message = format!("cannot listen on `{}`: {error}", args.listen);
        CommandFailure::usage(message, "ferrata serve --listen 127.0.0.1:0")
    })?;
    let address = listener
        .local_addr()
        .map_err(|error| CommandFailure::internal("cannot read the address of the listener", &error))?;
    let token = match (&args.token, address.ip().is_loopback()) {
        (Some(token), _) if token.len() < LEAST => {
            let message = format!("the token is easy to guess; use at least {LEAST} characters");
            return Err(CommandFailure::usage(message, "ferrata serve --help"));
        }
        (Some(token), _) => Some(token.clone()),
        (None, true) => None,
        (None, false) => Some(create_token()?),
    };
    let mut inspector = Inspector::new(runtime).command_options(options(context));
    if args.allow_writes {
        inspector = inspector.allow_writes();
    }
    for host in args.host.iter().cloned().chain(own_name(address)) {
        inspector = inspector.allow_host(host);
    }
    for path in &args.redact {
        inspector = inspector.redact(path);
    }
    if let Some(token) = &token {
        inspector = inspector.token(token);
    }
    let viewer = viewer(context, args);
    let inspector = inspector.access(move |_| Some(viewer.clone())).outlines(outlines(context));
    let url = url(address, &args.host, token.as_deref());
    context.out.one(
        &json!({ "url": url, "writes": args.allow_writes }),
        |_| url.clone(),
        |_| format!("{url}\n"),
    )?;
    // The server does not end by itself. If stdout has no reader, nobody can learn the server's address, so stop.
    if !context.out.is_read() {
        return Ok(ExitReason::Done);
    }
    report_address(context, args, &url);
    if address.ip().is_unspecified() && args.host.is_empty() {
        context.out.note("requests from other machines are rejected; add --host NAME with the name or address that they use");
    }
    let served = axum::serve(listener, inspector.into_router());
    tokio::select! {
        // The server ends only with the process.
        served = async { served.await } => {
            served.map_err(|error| CommandFailure::internal("the server ended", &error))?;
        }
        result = tokio::signal::ctrl_c() => {
            result.map_err(|error| CommandFailure::internal("cannot listen for Ctrl-C", &error))?;
        }
    }
    Ok(ExitReason::Done)
}

/// Minimum number of characters of a token.
const LEAST: usize = 16;

/// Creates a token that cannot be guessed.
fn create_token() -> Result<String, CommandFailure> {
    let mut bytes = [0_u8; 24];
    let mut random = std::fs::File::open("/dev/urandom")
        .map_err(|error| CommandFailure::internal("cannot read /dev/urandom", &error))?;
    random
        .read_exact(&mut bytes)
        .map_err(|error| CommandFailure::internal("cannot read /dev/urandom", &error))?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string never fails.
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Returns the host name in the listen address; `None` if the address stands for all interfaces of the machine.
fn own_name(address: SocketAddr) -> Option<String> {
    match address.ip() {
        ip if ip.is_unspecified() => None,
        IpAddr::V4(ip) => Some(ip.to_string()),
        IpAddr::V6(ip) => Some(format!("[{ip}]")),
    }
}

/// Returns the viewer of the page. With `--tenant`, it sees only this tenant. The records of its acts name the user.
fn viewer(context: &CommandContext, args: &ServeArgs) -> Viewer {
    let mut viewer = Viewer::new();
    if let Some(by) = &args.by {
        viewer = viewer.named(by);
    }
    match &context.global.tenant {
        Some(tenant) => viewer.of_tenant(tenant.clone()),
        None => viewer,
    }
}

/// Returns the options that address this store in commands that the page shows.
fn options(context: &CommandContext) -> String {
    completed("ferrata ls", &context.global).trim_start_matches("ferrata ls").trim().to_owned()
}

/// Returns a hook that finds the pipeline of a run, which has the nodes and edges that the run has not reached.
fn outlines(context: &CommandContext) -> impl Fn(&RunHead) -> Option<Outline> + Send + Sync + 'static {
    let store = context.global.store.clone();
    move |head| {
        let facts = &head.facts;
        let pipeline = graph::find_pipeline(&store, &head.run, facts.workflow.as_str(), &facts.labels)?;
        Some(outline(&pipeline))
    }
}

fn outline(pipeline: &Pipeline) -> Outline {
    let sketch = GraphSketch::of_pipeline(pipeline);
    let outline =
        sketch.nodes.iter().fold(Outline::new(), |outline, node| outline.node(&node.id, &node.label));
    sketch.edges.iter().fold(outline, |outline, edge| {
        let kind = if edge.condition.is_empty() { "plain" } else { "when" };
        outline.edge(&sketch.nodes[edge.from].id, &sketch.nodes[edge.to].id, kind, &edge.label)
    })
}

fn url(address: SocketAddr, hosts: &[String], token: Option<&str>) -> String {
    // A browser cannot open an unspecified address, so the URL contains the first name of the machine.
    let host = match address.ip() {
        ip if ip.is_unspecified() => hosts.first().cloned().unwrap_or_else(|| "localhost".to_owned()),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    let token = token.map(|token| format!("#token={token}")).unwrap_or_default();
    format!("http://{host}:{}/{token}", address.port())
}

/// Prints the address of the page, and opens the page if requested.
fn report_address(context: &CommandContext, args: &ServeArgs, url: &str) {
    let may = if args.allow_writes {
        "writes are allowed"
    } else {
        "read-only, add --allow-writes to allow writes"
    };
    context.out.note(&format!(
        "serving the runs of {} until Ctrl-C; {may}",
        crate::store::redact_url(&context.global.store)
    ));
    if args.open {
        let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
        let opened = Command::new(opener)
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        if opened.is_err() {
            context.out.note(&format!("cannot run `{opener}`; open the address by hand"));
        }
    }
}
