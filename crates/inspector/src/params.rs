//! The parameters of a request. Unknown parameters and invalid values are rejected.

use std::fmt::Display;
use std::str::FromStr;

use ferrata_core::{RunId, RunKey, TenantId};

use crate::problem::Problem;

/// Maximum length of a query in bytes. Search words and cursors are much shorter.
const MOST: usize = 16 * 1024;

/// The parameters of a request.
#[derive(Debug)]
pub(crate) struct QueryParams(Vec<(String, String)>);

impl QueryParams {
    /// Parses the query of a request. Rejects parameters that are not in `known`.
    pub(crate) fn read(query: Option<&str>, known: &[&str]) -> Result<Self, Problem> {
        let query = query.unwrap_or_default();
        if query.len() > MOST {
            return Err(Problem::too_large(format!("the query has more than {MOST} bytes")));
        }
        let pairs = form_urlencoded::parse(query.as_bytes());
        let pairs: Vec<(String, String)> = pairs.map(|(k, v)| (k.into_owned(), v.into_owned())).collect();
        match pairs.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            Some((stranger, _)) => {
                let shown: String = stranger.chars().take(40).flat_map(char::escape_debug).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Err(Problem::invalid(format!("unknown parameter `{shown}`; use one of: {known}")))
            }
            None => Ok(Self(pairs)),
        }
    }

    /// Returns each non-empty value of a parameter.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let own = self.0.iter().filter(move |(key, value)| key == name && !value.is_empty());
        own.map(|(_, value)| value.as_str())
    }

    /// Returns the value of a parameter that may occur only once.
    pub(crate) fn one(&self, name: &str) -> Result<Option<&str>, Problem> {
        let mut all = self.0.iter().filter(|(key, value)| key == name && !value.is_empty());
        match (all.next(), all.next()) {
            (first, None) => Ok(first.map(|(_, value)| value.as_str())),
            _ => Err(Problem::invalid(format!("`{name}` appears twice; keep one"))),
        }
    }

    /// Returns the parsed value of a parameter that may occur only once.
    pub(crate) fn parsed<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, Problem> {
        let read = |text: &str| {
            text.parse().map_err(|error: T::Err| Problem::invalid(format!("cannot read `{name}`: {error}")))
        };
        self.one(name)?.map(read).transpose()
    }

    /// Parses the name of a run: TENANT/ID, or ID for the default tenant.
    pub(crate) fn run(text: &str) -> Result<RunKey, Problem> {
        Ok(match text.split_once('/') {
            Some((tenant, id)) => RunKey::new(TenantId::new(tenant)?, RunId::new(id)?),
            None => RunKey::from(RunId::new(text)?),
        })
    }

    /// Returns the parameter `limit`, at least 1 and at most `most`. The default is `usual`.
    pub(crate) fn limit(&self, usual: u32, most: u32) -> Result<u32, Problem> {
        match self.parsed::<u32>("limit")? {
            Some(0) => Err(Problem::invalid("`limit` must be at least 1")),
            limit => Ok(limit.unwrap_or(usual).min(most)),
        }
    }
}
