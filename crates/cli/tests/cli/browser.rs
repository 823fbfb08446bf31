//! The page of `serve` in a real browser. The stories are in `crates/inspector/ui/tests/browser.mjs`; this file runs their workflows in a separate
//! process.
#![expect(clippy::print_stderr, reason = "what the browser tells is shown with a failure")]

mod runs;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ferrata::{Context, Runtime};
use ferrata_test_servers::{ConnectionCut, Proxy, Service};
use ferrata_tests::Space;
use tokio::sync::Notify;

use self::runs::{ever, fill, form, pay, slow, wild, with_amount};
use super::support::Place;

/// Paths of a browser. The variable `FERRATA_CHROMIUM` overrides them.
const CHROMIUM: [&str; 3] = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/// The variable that names the store for the process that is killed.
const DOOMED: &str = "FERRATA_BROWSER_DOOMED";

/// Printed when its node is running.
const AT_WORK: &str = "it is at work";

/// A process with an active run, which the test kills.
struct Driver(Child);

impl Driver {
    fn start(url: &str, environment: &[(&'static str, String)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "browser::watched_run_process_is_killed", "--nocapture"]);
        command.env(DOOMED, url).envs(environment.iter().cloned()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let told = BufReader::new(child.stdout.take().unwrap());
        assert!(told.lines().map_while(Result::ok).any(|line| line.contains(AT_WORK)));
        Self(child)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // SIGKILL, so that no watcher is notified.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `ferrata serve`, killed at the end.
pub(crate) struct Server(Child);

impl Server {
    pub(crate) fn start(
        place: &Place,
        url: &str,
        environment: &[(&'static str, String)],
        listen: &str,
    ) -> (Self, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferrata"));
        command.args(["serve", "--allow-writes", "--listen", listen]).env("FERRATA_STORE", url);
        command.envs(environment.iter().cloned()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.current_dir(place.folder.path()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (Self(child), line.trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Finds the browser, and prepares the client that drives it. Returns an error with the reason if that is impossible.
fn prepared() -> Result<(PathBuf, PathBuf), String> {
    let named = std::env::var_os("FERRATA_CHROMIUM").map(PathBuf::from);
    let found = named.or_else(|| CHROMIUM.iter().map(PathBuf::from).find(|path| path.exists()));
    let browser = found.ok_or("no Chromium: install Debian's `chromium`, or name one in FERRATA_CHROMIUM")?;
    let ui = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../inspector/ui");
    // The tests of this program share the folder. The first one that finds it empty fills it.
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

/// Runs the stories on a store, through the proxy if there is one. Without a browser, it prints this, and fails if `FERRATA_BROWSER` requires a
/// browser.
async fn tell(place: &Place, environment: &[(&'static str, String)], proxy: Option<&Proxy>) {
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
    // A waiting run leaves memory at once, so that the page shows it as idle.
    let driver = Runtime::builder_with(Arc::clone(&store)).release_after(Duration::from_millis(50));
    let driver = driver.build().await.unwrap();
    for graph in [pay(), wild(), slow("slow", &until), form(), ever()] {
        driver.serve(&graph).unwrap();
    }
    fill(&driver, &store).await;
    let behind = proxy.map_or_else(|| place.url(), |proxy| proxy.url(&place.url()));
    let (server, url) = Server::start(place, &behind, environment, "127.0.0.1:0");
    let listen = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let mut command = Command::new("node");
    let which = if proxy.is_none() { "all" } else { "brief" };
    command.arg(ui.join("tests/browser.mjs")).arg(&url).arg(browser).arg(which);
    // `FERRATA_SCREENSHOTS=FOLDER` makes the pictures of the documentation, and runs no stories.
    command.args(std::env::var_os("FERRATA_SCREENSHOTS"));
    let mut script = command.current_dir(&ui).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut asks, says) = (script.stdin.take().unwrap(), BufReader::new(script.stdout.take().unwrap()));
    let (lines, mut told) = tokio::sync::mpsc::unbounded_channel();
    // Read the script's lines in a thread, while runs advance in this process.
    std::thread::spawn(move || {
        for line in says.lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                break;
            }
        }
    });
    let (mut server, mut doomed, mut failures) = (Some(server), None, Vec::new());
    while let Some(line) = told.recv().await {
        eprintln!("{line}");
        match line.split_once(' ') {
            Some(("need", what)) => {
                let mut reply = "ok";
                match what {
                    "start" => {
                        _ = driver.start(&slow("slow", &until), Context::new()).id("live").await.unwrap();
                    }
                    "doom" => doomed = Some(Driver::start(&place.url(), environment)),
                    "kill" => doomed = None,
                    "rescue" => {
                        until.notify_one();
                        driver.serve(&slow("doomed", &until)).unwrap();
                    }
                    "away" => match proxy {
                        Some(proxy) => {
                            proxy.refuse();
                            proxy.cut(ConnectionCut::Reset);
                        }
                        None => reply = "no",
                    },
                    "back" => proxy.unwrap().accept().unwrap(),
                    "newer" => {
                        let start = driver.start(&pay(), with_amount(5)).id("newer").label("batch", "old");
                        start.await.unwrap().wait().await.unwrap();
                    }
                    "finish" => until.notify_one(),
                    "stop" => server = None,
                    "serve" => server = Some(Server::start(place, &behind, environment, &listen).0),
                    other => panic!("unknown request of the browser: {other}"),
                }
                writeln!(asks, "{reply}").unwrap();
            }
            Some(("failed", _)) => failures.push(line),
            _ if line == "done" => break,
            _ => {}
        }
    }
    let ended = script.wait().unwrap();
    drop((server, doomed));
    assert!(failures.is_empty() && ended.success(), "{failures:#?}");
}

/// Guarantees: INSPECT-19.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_does_what_it_says_on_files() {
    tell(&Place::new(), &[], None).await;
}

/// Guarantees: INSPECT-19.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_does_what_it_says_on_postgres() {
    Space::within(Some(Service::Postgres), async |space| {
        let proxy = Proxy::start(space.address().unwrap()).unwrap();
        tell(&Place::on(space), &space.environment(), Some(&proxy)).await;
    })
    .await;
}

/// The process that the stories kill. Without its variable, it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watched_run_process_is_killed() {
    let Ok(url) = std::env::var(DOOMED) else { return };
    let store = ferrata::connect(&url).unwrap();
    // Long enough that a busy machine does not release the run before the kill, and short enough to wait for.
    let ttl = Duration::from_secs(5);
    let runtime = Runtime::builder_with(store).heartbeat_ttl(ttl).build().await.unwrap();
    let never = Arc::new(Notify::new());
    let run = runtime.start(&slow("doomed", &never), Context::new()).id("doomed").await.unwrap();
    let mut events = runtime.watch(run.run()).await.unwrap();
    while events.next().await.unwrap().is_some_and(|event| event.seq.is_none()) {}
    println!("{AT_WORK}");
    run.wait().await.unwrap();
}
