//! The page that `serve` shows, in a real browser: the stories are in `crates/inspector/ui/tests/browser.mjs`, and what they need is done here, in
//! another process than the one that serves the page.
#![expect(clippy::print_stderr, reason = "what the browser tells is shown with a failure")]

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use ferrata::ask::Ask;
use ferrata::graph::Graph;
use ferrata::node::NodeError;
use ferrata::{Context, Runtime};
use ferrata_test_servers::Service;
use ferrata_tests::Space;
use serde_json::json;
use tokio::sync::Notify;

use super::support::Place;

/// Where a browser is looked for, unless the variable `FERRATA_CHROMIUM` names one.
const CHROMIUM: [&str; 3] = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/// What is hostile wherever it stands.
const SCRIPT: &str =
    "<img src=x onerror=\"window.hit=1\"><script>window.hit=1</script>\u{202e}\u{1b}[31m'`${1}";

fn pay() -> Graph<Context> {
    Graph::<Context>::builder("pay")
        .node("check", async |_cx, s| Ok(s))
        .gate("approve", |_s: &Context| Ask::<bool>::new("Pay this much?"), |s, yes| s.set("approved", yes))
        .node("send", async |_cx, mut s| {
            if s.get::<u32>("amount")? == Some(13) {
                return Err(NodeError::from("the bank is closed").fatal());
            }
            s.set("receipt", "r-1")?;
            Ok(s)
        })
        .entry("check")
        .route("check", ["approve", "send"], |s, _cx| {
            if s.get::<u32>("amount").ok().flatten() > Some(100) { "approve" } else { "send" }
        })
        .edge("approve", "send")
        .build()
        .unwrap()
}

fn wild() -> Graph<Context> {
    Graph::<Context>::builder("wild")
        .node("speak", async |_cx, _s: ferrata::Draft<Context>| {
            Err::<(), _>(NodeError::from(SCRIPT.repeat(20).as_str()).fatal())
        })
        .entry("speak")
        .build()
        .unwrap()
}

fn slow(until: &Arc<Notify>) -> Graph<Context> {
    let until = Arc::clone(until);
    Graph::<Context>::builder("slow")
        .node("work", move |_cx, s: ferrata::Draft<Context>| {
            let until = Arc::clone(&until);
            async move {
                until.notified().await;
                Ok::<_, NodeError>(s)
            }
        })
        .entry("work")
        .build()
        .unwrap()
}

/// `ferrata serve`, killed at the end.
struct Server(Child);

impl Server {
    fn start(place: &Place, environment: &[(&'static str, String)], listen: &str) -> (Self, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferrata"));
        command.args(["serve", "--allow-writes", "--listen", listen]).env("FERRATA_STORE", place.url());
        command.envs(environment.iter().cloned()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.current_dir(place.folder.path()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (Self(child), line.trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Finds the browser and makes the client that drives it ready; says why not where that cannot be.
fn prepared() -> Result<(PathBuf, PathBuf), String> {
    let named = std::env::var_os("FERRATA_CHROMIUM").map(PathBuf::from);
    let found = named.or_else(|| CHROMIUM.iter().map(PathBuf::from).find(|path| path.exists()));
    let browser = found.ok_or("no Chromium: install Debian's `chromium`, or name one in FERRATA_CHROMIUM")?;
    let ui = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../inspector/ui");
    // The tests of this program share the folder: of those that find it empty, one fills it.
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _alone = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    if !ui.join("node_modules/playwright-core").exists() {
        let install = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"];
        let status = Command::new("npm").args(install).current_dir(&ui).stdin(Stdio::null()).status();
        if !status.map_err(|error| format!("npm cannot be run: {error}"))?.success() {
            return Err("`npm ci` failed".into());
        }
    }
    Ok((browser, ui))
}

/// Runs the stories on a store. Where there is no browser, it says so, and fails if `FERRATA_BROWSER` says that there has to be one.
async fn tell(place: &Place, environment: &[(&'static str, String)]) {
    let (browser, ui) = match prepared() {
        Ok(prepared) => prepared,
        Err(why) if std::env::var("FERRATA_BROWSER").is_ok_and(|word| word == "required") => panic!("{why}"),
        Err(why) => {
            eprintln!("NOT TESTED: the page in a browser: {why}");
            return;
        }
    };
    let store = place.open();
    store.setup().await.unwrap();
    let until = Arc::new(Notify::new());
    let driver = Runtime::builder_with(store).build().await.unwrap();
    for graph in [pay(), wild(), slow(&until)] {
        driver.serve(&graph).unwrap();
    }
    for (id, amount) in [("pay-1", 5), ("pay-2", 500), ("pay-3", 13)] {
        let mut state = Context::new();
        state.set("amount", amount).unwrap();
        driver.start(&pay(), state).id(id).label("team", "red").await.unwrap().wait().await.unwrap();
    }
    let mut state = Context::new();
    state.set(SCRIPT, json!({ SCRIPT: [SCRIPT] })).unwrap();
    state.set("long", SCRIPT.repeat(20_000)).unwrap();
    let start =
        driver.start(&wild(), state).id("wild").label("<b>bold</b>", "</td><script>window.hit=1</script>");
    start.user("<img src=x onerror=window.hit=1>").await.unwrap().wait().await.unwrap();

    let (server, url) = Server::start(place, environment, "127.0.0.1:0");
    let listen = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let mut command = Command::new("node");
    command.arg(ui.join("tests/browser.mjs")).arg(&url).arg(browser);
    // `FERRATA_SCREENSHOTS=FOLDER` makes the pictures of the documentation, and tells no stories.
    command.args(std::env::var_os("FERRATA_SCREENSHOTS"));
    let mut script = command.current_dir(&ui).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut asks, says) = (script.stdin.take().unwrap(), BufReader::new(script.stdout.take().unwrap()));
    let (lines, mut told) = tokio::sync::mpsc::unbounded_channel();
    // Its lines come while runs go on in this process.
    std::thread::spawn(move || {
        for line in says.lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                break;
            }
        }
    });
    let (mut server, mut failures) = (Some(server), Vec::new());
    while let Some(line) = told.recv().await {
        eprintln!("{line}");
        match line.split_once(' ') {
            Some(("need", what)) => {
                match what {
                    "start" => _ = driver.start(&slow(&until), Context::new()).id("live").await.unwrap(),
                    "finish" => until.notify_one(),
                    "stop" => server = None,
                    "serve" => server = Some(Server::start(place, environment, &listen).0),
                    other => panic!("the browser asks for {other}"),
                }
                writeln!(asks, "ok").unwrap();
            }
            Some(("failed", _)) => failures.push(line),
            _ if line == "done" => break,
            _ => {}
        }
    }
    let ended = script.wait().unwrap();
    drop(server);
    assert!(failures.is_empty() && ended.success(), "{failures:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_does_what_it_says_on_files() {
    tell(&Place::new(), &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_does_what_it_says_on_postgres() {
    Space::within(Some(Service::Postgres), async |space| {
        tell(&Place::on(space), &space.environment()).await;
    })
    .await;
}
