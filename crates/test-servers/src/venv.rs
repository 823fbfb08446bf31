//! Where moto is: given, found, or installed once into a folder that outlives the test.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::error::Result;
use crate::once::{Once, run};
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
    once().made().map(|folder| folder.join("bin/python"))
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
    let folder = once().make(|folder| {
        let python = python().ok_or_else(|| Program::Moto.missing())?;
        // What a killed call left behind is no ground to build on.
        run(Command::new(python).args(["-m", "venv", "--clear"]).arg(folder))?;
        let package = format!("moto[server,s3]=={VERSION}");
        let arguments = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", &package];
        run(Command::new(folder.join("bin/python")).args(arguments)).map(drop)
    })?;
    Ok(folder.join("bin/python"))
}

fn once() -> Once {
    Once::new(&format!("moto-{VERSION}"))
}
