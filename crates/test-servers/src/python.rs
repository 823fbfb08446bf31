//! Finds moto: a given program, an installed one, or one that is installed once into a folder that outlives the test.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Result, ServerError};
use crate::once::{FilledFolder, run};
use crate::program::{FoundProgram, Program, in_path};

/// The version with which the stores are tested. Another version may handle conditional writes differently.
pub(crate) const VERSION: &str = "5.2.5";

/// The environment variable that names the program to use instead of a search.
const VARIABLE: &str = "FERRATA_MOTO";

/// A moto program, and how to run it.
#[derive(Clone, Debug)]
pub(crate) struct MotoProgram {
    pub(crate) program: FoundProgram,
    pub(crate) arguments: Vec<OsString>,
    /// The module path for Python, if the modules are not next to the program.
    pub(crate) modules: Option<PathBuf>,
}

impl MotoProgram {
    /// Returns whether [`find`](Self::find) can find a moto without an installation.
    pub(crate) fn is_at_hand() -> bool {
        given().or_else(found).is_some() || once().made().is_some()
    }

    /// Finds a moto. Installs it if it is missing.
    pub(crate) fn find() -> Result<Self> {
        if let Some(program) = given().or_else(found) {
            return Ok(Self { program: program.into(), arguments: Vec::new(), modules: None });
        }
        let python = Program::Python.find("python3")?;
        let folder = once().make(|folder| install(&python, folder))?;
        let arguments = ["-m", "moto.server"].map(Into::into).into();
        Ok(Self { program: python, arguments, modules: Some(folder.join("modules")) })
    }
}

fn given() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Finds the program in `PATH`, if it belongs to a Python environment with the pinned version.
fn found() -> Option<PathBuf> {
    let program = in_path("moto_server")?;
    let library = program.parent()?.parent()?.join("lib");
    let mut pythons = fs::read_dir(library).ok()?.flatten();
    let pinned = format!("site-packages/moto-{VERSION}.dist-info");
    pythons.any(|python| python.path().join(&pinned).is_dir()).then_some(program)
}

/// The packages that an S3 server needs. Moto's own list for a server is for all services, and takes four times as long to download.
const NEEDED: [&str; 2] = ["flask", "flask-cors"];

/// Installs moto with pip into a separate folder, without a virtual environment.
fn install(python: &FoundProgram, folder: &Path) -> Result<()> {
    let modules = folder.join("modules");
    // An interrupted call may have left partial files, which cannot be used.
    if modules.exists() {
        fs::remove_dir_all(&modules).map_err(ServerError::io("remove", &modules))?;
    }
    let mut pip = python.command();
    pip.envs(python.root().and_then(unpacked_pip).map(|pip| ("PYTHONPATH", pip)));
    // Do not compile all modules now: Python compiles the few modules that it uses at their first use.
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--target"]);
    run(pip.arg(modules).arg(format!("moto[s3]=={VERSION}")).args(NEEDED)).map(drop)
}

/// Finds the unpacked pip. It is one file, which Python can run directly.
fn unpacked_pip(root: &Path) -> Option<PathBuf> {
    let files = fs::read_dir(root.join("usr/share/python-wheels")).ok()?.flatten();
    let mut files = files.map(|entry| entry.path());
    files.find(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pip-")))
}

fn once() -> FilledFolder {
    FilledFolder::new(&format!("moto-{VERSION}"))
}
