//! Where moto is: given, found, or installed once into a folder that outlives the test.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Result, ServerError};
use crate::program::{Program, in_path};

/// The version that the stores are proven on; another may treat conditional writes otherwise.
pub(crate) const VERSION: &str = "5.2.5";

/// Names the program to use instead of looking for one.
const VARIABLE: &str = "FERRATA_MOTO";

/// Tells whether [`command`] has anything to go by.
pub(crate) fn is_possible() -> bool {
    is_installed() || python().is_some()
}

/// Tells whether [`command`] has nothing to install.
pub(crate) fn is_installed() -> bool {
    given().is_some() || found().is_some() || installed().is_some()
}

/// Returns the program to run and its first arguments; installs it if it is nowhere.
pub(crate) fn command() -> Result<(PathBuf, Vec<OsString>)> {
    if let Some(program) = given().or_else(found) {
        return Ok((program, Vec::new()));
    }
    let python = match installed() {
        Some(python) => python,
        None => install()?,
    };
    Ok((python, vec!["-m".into(), "moto.server".into()]))
}

fn given() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Finds the program in `PATH`, if its folder is that of an environment with the pinned version.
fn found() -> Option<PathBuf> {
    let program = in_path("moto_server")?;
    let library = program.parent()?.parent()?.join("lib");
    let mut pythons = fs::read_dir(library).ok()?.flatten();
    let pinned = format!("site-packages/moto-{VERSION}.dist-info");
    pythons.any(|python| python.path().join(&pinned).is_dir()).then_some(program)
}

/// Returns the Python of the environment that was made by an earlier call, if it was made to its end.
fn installed() -> Option<PathBuf> {
    let folder = folder();
    folder.join("complete").is_file().then(|| folder.join("bin/python"))
}

/// Returns a Python that can make an environment; Debian's needs a package for it.
fn python() -> Option<PathBuf> {
    let python = in_path("python3")?;
    let mut check = Command::new(&python);
    check
        .args(["-c", "import ensurepip, venv"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    check.status().is_ok_and(|status| status.success()).then_some(python)
}

fn install() -> Result<PathBuf> {
    let folder = folder();
    let above = folder.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(above).map_err(ServerError::io("make", above))?;
    // Test programs run at once: one installs, the others wait for it. The lock ends with the file.
    let lock_path = above.join("moto.lock");
    let lock = File::create(&lock_path).map_err(ServerError::io("write", &lock_path))?;
    lock.lock().map_err(ServerError::io("lock", &lock_path))?;
    if let Some(python) = installed() {
        return Ok(python);
    }
    let python = python().ok_or_else(|| Program::Moto.missing())?;
    // What a killed call left behind is no ground to build on.
    run(Command::new(python).args(["-m", "venv", "--clear"]).arg(&folder))?;
    let python = folder.join("bin/python");
    let package = format!("moto[server,s3]=={VERSION}");
    run(Command::new(&python).args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        &package,
    ]))?;
    let complete = folder.join("complete");
    fs::write(&complete, "").map_err(ServerError::io("write", &complete))?;
    Ok(python)
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_owned();
    let output = command.stdin(Stdio::null()).output().map_err(ServerError::io("start", &name))?;
    if output.status.success() {
        return Ok(());
    }
    let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
    Err(ServerError::Failed {
        name: format!("`{} {}`", name.display(), arguments.join(" ")),
        what: format!("failed ({})", output.status),
        log: String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
    })
}

/// Returns the folder of the environment: in the target folder that this program was built into, or in the user's cache.
fn folder() -> PathBuf {
    let name = format!("test-servers/moto-{VERSION}");
    let program = std::env::current_exe().unwrap_or_default();
    // Cargo marks its target folder so.
    let target = program.ancestors().skip(1).find(|folder| folder.join("CACHEDIR.TAG").is_file());
    target.map_or_else(|| cache().join("ferrata").join(&name), |target| target.join(&name))
}

fn cache() -> PathBuf {
    let folder = |variable| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    folder("XDG_CACHE_HOME")
        .or_else(|| Some(folder("HOME")?.join(".cache")))
        .unwrap_or_else(std::env::temp_dir)
}
