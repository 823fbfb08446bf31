//! Which store is meant, and how it is named without its secrets.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use ferrata::{CheckpointStore, ErrorKind};

use crate::failure::Failure;

/// The store unless another is named: files beside the pipelines that use them.
pub(crate) const DEFAULT: &str = "file:.ferrata/store";

/// Opens a store by its URL.
pub(crate) fn open(url: &str) -> Result<Arc<dyn CheckpointStore>, Failure> {
    ferrata::connect(url).map_err(|error| {
        let scheme = url.split(':').next().unwrap_or_default();
        // The scheme is known, so that its feature was off when this program was built.
        let feature = match scheme.to_ascii_lowercase().as_str() {
            "postgres" | "postgresql" => Some("postgres"),
            "redis" | "rediss" | "redis-cluster" | "rediss-cluster" => Some("redis"),
            "s3" => Some("s3"),
            "sqlite" => Some("sqlite"),
            _ => None,
        };
        let next = match feature.filter(|_| error.kind() == ErrorKind::Unsupported) {
            Some(feature) => format!("cargo install --path crates/cli --features {feature}"),
            None => format!("ferrata ls --store {DEFAULT}"),
        };
        Failure::from(error).or_type(next)
    })
}

/// Writes a path as a URL.
pub(crate) fn of_folder(path: &Path) -> String {
    use std::fmt::Write as _;
    let mut url = String::from("file:");
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            // Writing to a string never fails.
            let _ = write!(url, "%{byte:02X}");
        }
    }
    // Two slashes at the beginning would name another machine.
    if url.starts_with("file://") { url.replacen("file:/", "file:///", 1) } else { url }
}

/// Returns the folder that a URL of files names, if it is written plainly.
pub(crate) fn folder(url: &str) -> Option<std::path::PathBuf> {
    let path = url.strip_prefix("file:")?;
    let path = path.strip_prefix("//").map_or(path, |rest| rest);
    (!path.contains(['%', '?'])).then(|| path.into())
}

/// Returns the URL as it may be shown: without a password, and without what follows a question mark but for names.
pub(crate) fn shown(url: &str) -> String {
    let (main, query) = url.split_once('?').map_or((url, None), |(main, query)| (main, Some(query)));
    let mut shown = match main.split_once("://") {
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((user, host)) => {
                let name = user.split_once(':').map_or(user, |(name, _)| name);
                format!("{scheme}://{name}{}@{host}", if user.contains(':') { ":***" } else { "" })
            }
            None => main.to_owned(),
        },
        None => main.to_owned(),
    };
    if let Some(query) = query {
        let parts: Vec<String> = query
            .split('&')
            .map(|part| match part.split_once('=') {
                Some((key, _)) if secret(key) => format!("{key}=***"),
                _ => part.to_owned(),
            })
            .collect();
        shown.push('?');
        shown.push_str(&parts.join("&"));
    }
    shown
}

/// Tells whether the value under a key may be a secret.
fn secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["pass", "secret", "key", "token", "credential"].iter().any(|word| key.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        for (url, expected) in [
            ("file:runs", "file:runs"),
            ("postgres://me:s3cret@db/app?schema=a", "postgres://me:***@db/app?schema=a"),
            ("postgres://me@db/app?password=s3cret", "postgres://me@db/app?password=***"),
            ("redis://:s3c@ret@host:1/0", "redis://:***@host:1/0"),
            (
                "s3://bucket/p?secret_access_key=s3cret&region=x",
                "s3://bucket/p?secret_access_key=***&region=x",
            ),
        ] {
            assert_eq!(shown(url), expected);
        }
    }
}
