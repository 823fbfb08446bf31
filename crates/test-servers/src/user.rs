//! The user under which a server runs if the test runs as root, because Postgres refuses to run as root.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;

use crate::error::{Result, ServerError};

/// An unprivileged user of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnixUser {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl UnixUser {
    /// Returns the user for servers if this process runs as root: `postgres`, or `nobody` if that does not exist.
    pub(crate) fn instead_of_root() -> Option<Self> {
        if !geteuid().is_root() {
            return None;
        }
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        // By default, 65534 is the id of `nobody`.
        let nobody = Self { uid: 65_534, gid: 65_534 };
        Some(find(&users, "postgres").or_else(|| find(&users, "nobody")).unwrap_or(nobody))
    }

    /// Returns whether this user may enter every existing folder above `path`.
    pub(crate) fn can_reach(self, path: &Path) -> bool {
        path.ancestors().skip(1).filter_map(|folder| folder.metadata().ok()).all(|folder| {
            // The execute bit for others, or for the owner.
            let needed = if folder.uid() == self.uid { 0o100 } else { 0o001 };
            folder.mode() & needed != 0
        })
    }

    /// Makes this user the owner of a folder or file.
    pub(crate) fn own(self, path: &Path) -> Result<()> {
        std::os::unix::fs::chown(path, Some(self.uid), Some(self.gid))
            .map_err(ServerError::io("change the owner of", path))
    }
}

fn find(users: &str, name: &str) -> Option<UnixUser> {
    let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2).map(str::parse);
    Some(UnixUser { uid: fields.next()?.ok()?, gid: fields.next()?.ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_folder_of_other_user_is_unreachable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("target/program");
        let mode = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(folder.path(), mode).unwrap();
        };
        let owner = folder.path().metadata().unwrap().uid();
        let (owner, other) = (UnixUser { uid: owner, gid: 0 }, UnixUser { uid: owner + 1, gid: 0 });
        mode(0o700);
        assert!(owner.can_reach(&path) && !other.can_reach(&path));
        mode(0o701);
        // The result depends on the folders above it.
        assert_eq!(other.can_reach(&path), other.can_reach(folder.path()));
    }

    #[test]
    fn a_user_is_found_by_the_whole_name() {
        let users =
            "root:x:0:0::/root:/bin/sh\npostgres2:x:7:8::/:\npostgres:x:115:121:Postgres:/var:/bin/sh\n";
        assert_eq!(find(users, "postgres"), Some(UnixUser { uid: 115, gid: 121 }));
        assert_eq!(find(users, "nobody"), None);
    }
}
