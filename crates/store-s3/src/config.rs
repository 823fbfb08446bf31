//! The options of the store, and its URL.

use std::num::NonZeroUsize;
use std::time::Duration;

use ferrata_store::{Error, ErrorKind, Result, url};

/// The maximum length of a prefix, in bytes. A key may have 1,024 bytes, and the longest ids need the other part.
pub(crate) const MAX_PREFIX: usize = 512;

/// Options of an [`S3Store`](crate::S3Store). The defaults suit most applications.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct S3Options {
    /// The URL of the server, such as `https://s3.example.org`. The default is the server of AWS for the region.
    pub endpoint: Option<String>,
    /// The region. The default comes from the environment or the profile; with an own endpoint it is `us-east-1`.
    pub region: Option<String>,
    /// Whether the bucket is in the URL's path instead of the host name. The default is false. Most servers except AWS need it.
    pub path_style: bool,
    /// The maximum number of concurrent requests of one call. The default is 64.
    ///
    /// The runtime has up to four batches of appends in progress, each of up to 256 runs. So up to 256 runs write at the same time.
    ///
    /// With a higher value, batches, loads and listings finish sooner, and more connections are open. A lower value does the reverse. Any number is
    /// correct.
    pub parallel: NonZeroUsize,
    /// The number of cached heads of runs. The default is 10,000.
    ///
    /// Each head takes about 500 bytes. An append to a cached run needs one request, otherwise three. Any number is correct, because the server
    /// decides every append.
    pub cached_runs: NonZeroUsize,
    /// The timeout of one request. The default is 30 seconds; `&request_timeout_ms=` in a URL.
    ///
    /// With a higher value, the store detects a hanging server later. With a lower value, large bodies fail on a slow connection. After a timeout,
    /// the store searches for the write. If it does not find the write, the append fails with [`ErrorKind::Indeterminate`].
    pub request_timeout: Duration,
    /// The number of concurrent writers of one object in each round of the probe in [`setup`](ferrata_store::CheckpointStore::setup). The default
    /// is 16.
    pub probe_writers: NonZeroUsize,
    /// The number of rounds of the probe. The default is 3. With more rounds, the probe detects rare faults of a server more reliably.
    pub probe_rounds: NonZeroUsize,
}

impl Default for S3Options {
    fn default() -> Self {
        const fn at_least_one(number: usize) -> NonZeroUsize {
            NonZeroUsize::MIN.saturating_add(number - 1)
        }
        Self {
            endpoint: None,
            region: None,
            path_style: false,
            parallel: at_least_one(64),
            cached_runs: at_least_one(10_000),
            request_timeout: Duration::from_secs(30),
            probe_writers: at_least_one(16),
            probe_rounds: at_least_one(3),
        }
    }
}

impl S3Options {
    /// Sets the URL of the server.
    #[must_use]
    pub fn with_endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoint = Some(endpoint.into());
        self
    }

    /// Sets the region.
    #[must_use]
    pub fn with_region(mut self, region: impl Into<String>) -> Self {
        self.region = Some(region.into());
        self
    }

    /// Sets whether the bucket is in the URL's path instead of the host name.
    #[must_use]
    pub fn with_path_style(mut self, path_style: bool) -> Self {
        self.path_style = path_style;
        self
    }

    /// Sets the maximum number of concurrent requests of one call.
    #[must_use]
    pub fn with_parallel(mut self, parallel: NonZeroUsize) -> Self {
        self.parallel = parallel;
        self
    }

    /// Sets the number of cached heads of runs.
    #[must_use]
    pub fn with_cached_runs(mut self, cached_runs: NonZeroUsize) -> Self {
        self.cached_runs = cached_runs;
        self
    }

    /// Sets the timeout of one request.
    #[must_use]
    pub fn with_request_timeout(mut self, request_timeout: Duration) -> Self {
        self.request_timeout = request_timeout;
        self
    }

    /// Sets the number of concurrent writers in each round of the probe.
    #[must_use]
    pub fn with_probe_writers(mut self, probe_writers: NonZeroUsize) -> Self {
        self.probe_writers = probe_writers;
        self
    }

    /// Sets the number of rounds of the probe.
    #[must_use]
    pub fn with_probe_rounds(mut self, probe_rounds: NonZeroUsize) -> Self {
        self.probe_rounds = probe_rounds;
        self
    }
}

/// A bucket, and a prefix in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct S3Target {
    pub(crate) bucket: String,
    /// The prefix, without slashes at its ends.
    pub(crate) prefix: String,
}

fn bad(why: &str) -> Error {
    let message =
        format!("{why}; write s3://bucket/prefix?endpoint=https://host:port&region=name&path_style=true");
    Error::new(ErrorKind::Invalid, message)
}

impl S3Target {
    /// Checks the names of the bucket and of the prefix.
    pub(crate) fn new(bucket: &str, prefix: &str) -> Result<Self> {
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-');
        if !(3..=63).contains(&bucket.len()) || !bucket.chars().all(is_name) {
            return Err(bad("a bucket name has 3 to 63 of a-z 0-9 . -"));
        }
        let prefix = prefix.trim_matches('/');
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "!-_.*'()/:=+@,".contains(c);
        if !prefix.chars().all(is_plain) {
            return Err(bad("the prefix may hold A-Z a-z 0-9 ! - _ . * ' ( ) : = + @ , and slashes"));
        }
        if !prefix.is_empty() && prefix.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(bad("each part of the prefix between slashes needs a name other than . and .."));
        }
        if prefix.len() > MAX_PREFIX {
            return Err(bad("the prefix has at most 512 bytes"));
        }
        Ok(Self { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

/// Parses `s3://bucket/prefix?…`. The URL overrides `options`.
pub(crate) fn read_url(url: &str, mut options: S3Options) -> Result<(S3Target, S3Options)> {
    let rest = url.strip_prefix("s3://").ok_or_else(|| bad("the store's URL does not begin with s3://"))?;
    if rest.contains('#') {
        return Err(bad("the store's URL has a fragment, which this store does not support"));
    }
    let (path, given) = url::split(rest);
    let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
    if bucket.contains('@') {
        // Do not show the value, because users put keys in it.
        return Err(bad("credentials do not belong in the URL; the SDK finds them in the environment"));
    }
    let prefix = url::decode(prefix).and_then(|prefix| String::from_utf8(prefix).ok());
    let prefix = prefix.ok_or_else(|| bad("the prefix has a percent sign without two hex digits"))?;
    for option in given {
        let value = option.text().ok_or_else(|| bad("a value has a percent sign without two hex digits"))?;
        match option.name {
            "endpoint" => options.endpoint = Some(value),
            "region" if !value.is_empty() => options.region = Some(value),
            "path_style" => {
                options.path_style = option.truth().ok_or_else(|| bad("path_style must be true or false"))?;
            }
            "request_timeout_ms" => {
                let time = option.millis();
                options.request_timeout =
                    time.ok_or_else(|| bad("request_timeout_ms must be a number of milliseconds"))?;
            }
            // Do not show the name, because it may be a part of a secret.
            _ => {
                return Err(bad(
                    "the store's URL has an unknown option; the options are endpoint, region, path_style and request_timeout_ms",
                ));
            }
        }
    }
    check_endpoint(options.endpoint.as_deref())?;
    Ok((S3Target::new(bucket, &prefix)?, options))
}

/// Checks the server's address before it is used in a request.
pub(crate) fn check_endpoint(endpoint: Option<&str>) -> Result<()> {
    let Some(endpoint) = endpoint else { return Ok(()) };
    let host = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"));
    match host {
        Some(host) if host.contains('@') => {
            Err(bad("credentials do not belong in the endpoint; the SDK finds them in the environment"))
        }
        Some(host) if !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || "?#".contains(c)) => {
            Ok(())
        }
        _ => Err(bad("the endpoint must have the form https://host:port or http://host:port")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> (S3Target, S3Options) {
        read_url(url, S3Options::default()).unwrap()
    }

    #[test]
    fn a_url_names_bucket_prefix_and_server() {
        let (target, options) = read("s3://runs");
        assert_eq!((target.bucket.as_str(), target.prefix.as_str()), ("runs", ""));
        assert_eq!(options, S3Options::default());

        let url = "s3://my.runs/a/b%2Fc/?endpoint=http%3A%2F%2F127.0.0.1:9000&region=eu-1&path_style=true\
                   &request_timeout_ms=2000";
        let (target, options) = read(url);
        assert_eq!((target.bucket.as_str(), target.prefix.as_str()), ("my.runs", "a/b/c"));
        let wanted = S3Options::default()
            .with_endpoint("http://127.0.0.1:9000")
            .with_region("eu-1")
            .with_path_style(true)
            .with_request_timeout(Duration::from_secs(2));
        assert_eq!(options, wanted);
        assert_eq!(read("s3://runs?endpoint=https://h&path_style=0").1.endpoint.unwrap(), "https://h");
    }

    #[test]
    fn another_url_is_refused_and_not_repeated() {
        let long = format!("s3://runs/{}", "secret/".repeat(100));
        for url in [
            "",
            "s3:",
            "s3:/runs",
            "s3://",
            "s3:///secret",
            "s3://ab",
            "s3://Secret",
            "s3://key:secret@runs/x",
            "s3://runs/secret%",
            "s3://runs/secret%zz",
            "s3://runs/secret%00",
            "s3://runs/secret\"x",
            "s3://runs/secret{x}",
            "s3://runs/secret%C3%A9",
            "s3://runs/a//secret",
            "s3://runs/../secret",
            "s3://runs#secret",
            "s3://runs?secret",
            "s3://runs?secret=1",
            "s3://runs?path_style=secret",
            "s3://runs?request_timeout_ms=secret",
            "s3://runs?endpoint=secret",
            "s3://runs?endpoint=http://",
            "s3://runs?endpoint=http://key:secret@host",
            "s3://runs?endpoint=http://host%20secret",
            &long,
        ] {
            let error = read_url(url, S3Options::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(!format!("{error:?}").to_ascii_lowercase().contains("secret"), "{url}: {error:?}");
        }
    }
}
