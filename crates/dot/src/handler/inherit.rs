//! Selects the environment variables that a command inherits. The selection matters because a command's output is stored, and pipelines may come from
//! other authors.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// The variables that tools inherit: paths of programs and files, and locales, but none that may contain a secret. A `*` at the end matches any text.
const PLAIN: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "PWD",
    "TMPDIR",
    "TZ",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "XDG_*",
    "CI",
    "EDITOR",
    "PAGER",
    "LD_LIBRARY_PATH",
    "PKG_CONFIG_PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CARGO_HOME",
    "CARGO_TARGET_DIR",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "RUSTFLAGS",
    "RUST_BACKTRACE",
    "GOPATH",
    "GOROOT",
    "GOCACHE",
    "GOMODCACHE",
    "JAVA_HOME",
    "GRADLE_USER_HOME",
    "MAVEN_HOME",
    "NODE_ENV",
    "NODE_PATH",
    "NVM_DIR",
    "PNPM_HOME",
    "PYTHONPATH",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "GEM_HOME",
    "BUNDLE_PATH",
    "CC",
    "CXX",
    "CFLAGS",
    "LDFLAGS",
];

/// Returns whether tools inherit a variable by default.
pub(crate) fn is_inherited_by_tools(name: &str) -> bool {
    InheritedNames::plain().has(OsStr::new(name))
}

/// The names of the environment variables that a command inherits.
#[derive(Clone, Debug)]
pub(super) struct InheritedNames(Arc<[String]>);

impl InheritedNames {
    /// Returns the default names for tools.
    pub(super) fn plain() -> Self {
        Self(PLAIN.iter().map(|name| (*name).to_owned()).collect())
    }

    /// Returns all names except those of secrets. This set of names is for a command that the user of the pipeline chose.
    pub(super) fn all() -> Self {
        Self(Arc::from(["*".to_owned()]))
    }

    /// Adds names to the inherited ones.
    pub(super) fn and(&self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self(self.0.iter().cloned().chain(names.into_iter().map(Into::into)).collect())
    }

    /// Returns the environment variables of this process that a command inherits.
    pub(super) fn of_process(&self) -> impl Iterator<Item = (OsString, OsString)> {
        std::env::vars_os().filter(|(name, _)| self.has(name))
    }

    fn has(&self, name: &OsStr) -> bool {
        let Some(name) = name.to_str().filter(|name| !is_secret(name)) else { return false };
        self.0.iter().any(|known| match known.strip_suffix('*') {
            Some(begins) => name.starts_with(begins),
            None => known == name,
        })
    }
}

/// Returns whether a variable is never inherited. Such variables are passwords, and the URL of the store, which may contain a password.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    name == "FERRATA_STORE" || ["PASSWORD", "PASSWD", "PASSPHRASE"].iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_never_inherited_others_if_listed() {
        let has = |inherit: &InheritedNames, name: &str| inherit.has(OsStr::new(name));
        let plain = InheritedNames::plain();
        for (name, expected) in [
            ("PATH", true),
            ("LC_ALL", true),
            ("API_KEY", false),
            ("AWS_REGION", false),
            ("LD_PRELOAD", false),
        ] {
            assert_eq!(has(&plain, name), expected, "{name}");
        }
        let more = plain.and(["API_KEY", "AWS_*"]);
        assert!(has(&more, "API_KEY") && has(&more, "AWS_REGION") && !has(&more, "API_KEYS"));
        for secret in ["FERRATA_STORE", "PGPASSWORD", "db_password", "SSH_PASSPHRASE", "ferrata_store"] {
            assert!(!has(&InheritedNames::all().and([secret]), secret), "{secret}");
        }
        assert!(has(&InheritedNames::all(), "API_KEY"));
    }
}
