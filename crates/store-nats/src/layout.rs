//! All names on the server: streams, subjects, and the part of a subject that names a run.
//!
//! | Stream | Subjects | Content |
//! |---|---|---|
//! | `FERRATA-LOGS-{namespace}` | `ferrata.{namespace}.{generation}.{tenant}.{run}` | the logs; its description is `Ferrata's runs, version 1` |
//! | `FERRATA-BEATS-{namespace}` | `ferrata-beats.{namespace}.{executor}`, and `now` | the last message of each subject, for 30 days: its body is the lifetime in milliseconds, from the time of the message |
//! | none | `ferrata-notices.{namespace}` | notices of changed runs, with the head in the header `Ferrata-Head` |
//! | none | `ferrata-said.{namespace}` | chunks of streams, and watched runs |
//!
//! A subject has `~` for each dot in a tenant or run.

use ferrata_store::{ExecutorId, RunId, RunKey, TenantId};

/// The version of the layout. It is in the description of the stream of logs, and in its messages.
pub(crate) const VERSION: u64 = 1;

/// The text before the version in the description of the stream of logs.
pub(crate) const DESCRIBED: &str = "Ferrata's runs, version ";

/// The text before the version in the description of streams that no release reads.
pub(crate) const UNRELEASED: &str = "Ferrata's runs, layout ";

/// The names in one namespace.
#[derive(Clone, Debug)]
pub(crate) struct NatsNames {
    namespace: String,
}

impl NatsNames {
    pub(crate) fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned() }
    }

    /// Returns the name of the stream of logs.
    pub(crate) fn logs(&self) -> String {
        format!("FERRATA-LOGS-{}", self.namespace)
    }

    /// Returns the name of the stream of heartbeats.
    pub(crate) fn beats(&self) -> String {
        format!("FERRATA-BEATS-{}", self.namespace)
    }

    /// Returns the pattern for all subjects of logs. `generation` identifies one generation of the stream: a stream that is deleted and created again has
    /// a new one.
    pub(crate) fn all_runs(&self, generation: &str) -> String {
        format!("ferrata.{}.{generation}.>", self.namespace)
    }

    /// Returns the generation of the stream in a subject of a log.
    pub(crate) fn generation_of<'a>(&self, subject: &'a str) -> Option<&'a str> {
        let rest = subject.strip_prefix("ferrata.")?.strip_prefix(&*self.namespace)?;
        rest.strip_prefix('.')?.strip_suffix(".>")
    }

    /// Returns the subject of a run's log.
    pub(crate) fn run(&self, generation: &str, run: &RunKey) -> String {
        let [tenant, id] = [run.tenant.as_str(), run.run.as_str()].map(token);
        format!("ferrata.{}.{generation}.{tenant}.{id}", self.namespace)
    }

    /// Returns the run whose log has this subject.
    pub(crate) fn run_of(&self, subject: &str) -> Option<RunKey> {
        let mut tokens = subject.split('.').skip(3);
        let (tenant, id) = (tokens.next()?, tokens.next()?);
        let [tenant, id] = [tenant, id].map(|token| token.replace('~', "."));
        Some(RunKey::new(TenantId::new(tenant).ok()?, RunId::new(id).ok()?))
    }

    /// Returns the pattern for all subjects of the stream of heartbeats.
    pub(crate) fn all_beats(&self) -> String {
        format!("ferrata-beats.{}.*", self.namespace)
    }

    /// Returns the subject of an executor's heartbeat.
    pub(crate) fn beat(&self, executor: &ExecutorId) -> String {
        format!("ferrata-beats.{}.{executor}", self.namespace)
    }

    /// Returns the subject to which the store writes in order to read the server's time.
    pub(crate) fn now(&self) -> String {
        format!("ferrata-beats.{}.now", self.namespace)
    }

    /// Returns the subject of notices, which no stream stores.
    pub(crate) fn notices(&self) -> String {
        format!("ferrata-notices.{}", self.namespace)
    }

    /// Returns the subject of messages between processes, which no stream stores.
    pub(crate) fn texts_subject(&self) -> String {
        format!("ferrata-said.{}", self.namespace)
    }
}

/// Encodes an id as one token of a subject. A dot separates the tokens, and no id contains `~`.
fn token(id: &str) -> String {
    id.replace('.', "~")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: NATS-12.
    #[test]
    fn a_subject_names_its_run_and_no_other() {
        let layout = NatsNames::new("shop");
        let key = |tenant, run| RunKey::new(TenantId::new(tenant).unwrap(), RunId::new(run).unwrap());
        let keys = [key("t", "a.b"), key("t.a", "b"), key("t", "a:b"), key("t", "a-b_c..d")];
        let mut subjects: Vec<String> = keys.iter().map(|key| layout.run("1f", key)).collect();
        for (key, subject) in keys.iter().zip(&subjects) {
            assert_eq!(layout.run_of(subject).as_ref(), Some(key), "{subject}");
            assert_eq!(subject.split('.').count(), 5, "{subject}");
        }
        subjects.dedup();
        assert_eq!(subjects.len(), keys.len());
        assert_eq!(layout.generation_of(&layout.all_runs("1f")), Some("1f"));
        assert_eq!(NatsNames::new("shop2").generation_of(&layout.all_runs("1f")), None);
    }
}
