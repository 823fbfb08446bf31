//! The user that a server runs as when the test runs as root: Postgres refuses root.

use std::path::Path;

use rustix::process::geteuid;

use crate::error::{Result, ServerError};

/// An unprivileged user of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl User {
    /// Returns the user to change to, if this process runs as root: `postgres`, or `nobody`.
    pub(crate) fn instead_of_root() -> Option<Self> {
        if !geteuid().is_root() {
            return None;
        }
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        // 65534 is `nobody` wherever the list does not say otherwise.
        let nobody = Self { uid: 65_534, gid: 65_534 };
        Some(find(&users, "postgres").or_else(|| find(&users, "nobody")).unwrap_or(nobody))
    }

    /// Gives a folder or file to this user.
    pub(crate) fn own(self, path: &Path) -> Result<()> {
        std::os::unix::fs::chown(path, Some(self.uid), Some(self.gid))
            .map_err(ServerError::io("change the owner of", path))
    }
}

fn find(users: &str, name: &str) -> Option<User> {
    let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2).map(str::parse);
    Some(User { uid: fields.next()?.ok()?, gid: fields.next()?.ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_the_whole_name() {
        let users =
            "root:x:0:0::/root:/bin/sh\npostgres2:x:7:8::/:\npostgres:x:115:121:Postgres:/var:/bin/sh\n";
        assert_eq!(find(users, "postgres"), Some(User { uid: 115, gid: 121 }));
        assert_eq!(find(users, "nobody"), None);
    }
}
