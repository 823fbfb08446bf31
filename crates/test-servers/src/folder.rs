//! The folder of a server: a temporary folder, or a folder that the test provides and keeps.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::{Result, ServerError};
use crate::user::UnixUser;

/// The folder for a server's data and log.
#[derive(Debug)]
pub(crate) enum Folder {
    Temporary(TempDir),
    Given(PathBuf),
}

impl Folder {
    /// Uses the folder `given`, or creates a temporary folder. Makes `user` its owner.
    pub(crate) fn new(given: Option<PathBuf>, user: Option<UnixUser>) -> Result<Self> {
        let folder = match given {
            Some(given) => {
                std::fs::create_dir_all(&given).map_err(ServerError::io("make", &given))?;
                Self::Given(given)
            }
            None => Self::Temporary(
                tempfile::Builder::new()
                    .prefix("ferrata-server-")
                    .tempdir()
                    .map_err(ServerError::io("make a folder in", std::env::temp_dir()))?,
            ),
        };
        if let Some(user) = user {
            user.own(folder.path())?;
        }
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Temporary(folder) => folder.path(),
            Self::Given(folder) => folder,
        }
    }

    /// Returns the path if the folder is removed at the end.
    pub(crate) fn disposable(&self) -> Option<PathBuf> {
        match self {
            Self::Temporary(folder) => Some(folder.path().to_owned()),
            Self::Given(_) => None,
        }
    }
}
