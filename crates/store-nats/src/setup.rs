//! Setup: creates the two streams if they are missing, and refuses streams that could lose acknowledged records.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use ferrata_store::{IdSource as _, RandomIds, RunKey, Timestamp, within};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{NO_STREAM, NatsStoreError, OVERLAP};
use crate::layout::{DESCRIBED, UNRELEASED, VERSION};
use crate::message::OutgoingMessage;
use crate::store::NatsInner;

/// The code for a stream that another process created meanwhile, or that exists with other settings.
const NAME_IN_USE: u64 = 10_058;

/// The code for a stream whose folder the server could not create.
///
/// The server removes an account's folder shortly after the account's last stream is deleted, and loses streams that are created meanwhile. So the
/// store repeats the request, each time a little later.
const NO_FOLDER: u64 = 10_049;
const FOLDER_TRIES: u32 = 7;
const FOLDER_DELAY: Duration = Duration::from_millis(5);

/// The header that names the stream for which a message is meant. Any other stream refuses the message.
const EXPECTED_STREAM: &str = "Nats-Expected-Stream";

/// The pause before another request to a stream that does not accept messages yet.
const NOT_YET: Duration = Duration::from_millis(5);

/// The first version whose clusters are supported. It accepts a message of a subject only after the previous message has reached all of its
/// replicas (nats-server pull request 6194). A new leader answers only once it has all acknowledged messages (6485).
const FIRST_OF_CLUSTERS: (u32, u32) = (2, 11);

/// How long the heartbeat of a silent executor stays.
const BEATS_KEPT_NS: u64 = 30 * 24 * 3_600 * 1_000_000_000;

#[derive(Deserialize)]
struct Info {
    config: Value,
    state: StreamState,
}

#[derive(Deserialize)]
struct StreamState {
    last_seq: u64,
}

impl NatsInner {
    pub(crate) async fn setup(&self) -> Result<(), NatsStoreError> {
        let replicas = self.options.replicas;
        // A unique name, so that cached knowledge of a deleted stream never applies to this stream.
        let generation = RandomIds::new().next(Timestamp::default()).to_string().replace('-', "");
        let common = json!({
            "retention": "limits",
            "storage": "file",
            "num_replicas": replicas,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_consumers": -1,
        });
        let mut logs = common.clone();
        logs["name"] = json!(self.layout.logs());
        logs["description"] = json!(format!("{DESCRIBED}{VERSION}"));
        logs["subjects"] = json!([self.layout.all_runs(&generation[20..])]);
        logs["discard"] = json!("new");
        let mut beats = common;
        beats["name"] = json!(self.layout.beats());
        beats["description"] = json!("The heartbeats of Ferrata's executors");
        beats["subjects"] = json!([self.layout.all_beats()]);
        beats["discard"] = json!("old");
        beats["max_msgs_per_subject"] = json!(1);
        beats["max_age"] = json!(BEATS_KEPT_NS);
        for (name, wanted) in [(self.layout.beats(), beats), (self.layout.logs(), logs)] {
            let config = self.made(&name, &wanted).await?.config;
            if let Some(fault) = objections(&config, &wanted).into_iter().next() {
                return Err(NatsStoreError::Unfit { what: format!("the stream {name} {fault}") });
            }
            self.check_replicas(&config).await?;
        }
        let (generation, _) = self.look_up().await?;
        for subject in [self.layout.now(), self.layout.all_runs(&generation).replace('>', "ready")] {
            Box::pin(self.takes_messages(subject)).await?;
        }
        Ok(())
    }

    /// Returns the server's information about a stream. Creates the stream if it is missing.
    async fn made(&self, name: &str, wanted: &Value) -> Result<Info, NatsStoreError> {
        let info = format!("STREAM.INFO.{name}");
        match self.link.api(&info, &Value::Null).await {
            Err(fault) if fault.code() == Some(NO_STREAM) => self.check_replicas(wanted).await?,
            found => return found,
        }
        let mut failed = 0;
        let mut overlap = None;
        while let Err(fault) = self.link.api::<Value>(&format!("STREAM.CREATE.{name}"), wanted).await {
            match fault.code() {
                Some(NAME_IN_USE) => break,
                Some(OVERLAP) => {
                    overlap = Some(fault);
                    break;
                }
                Some(NO_FOLDER) if failed < FOLDER_TRIES => {
                    self.clock.sleep(FOLDER_DELAY * 2_u32.pow(failed)).await;
                    failed += 1;
                }
                _ => return Err(fault),
            }
        }
        match self.link.api(&info, &Value::Null).await {
            Err(fault) if fault.code() == Some(NO_STREAM) => Err(overlap.unwrap_or(fault)),
            found => found,
        }
    }

    /// Waits until the stream of a subject accepts messages. While another instance creates a stream, the server knows the stream before it accepts
    /// messages.
    async fn takes_messages(&self, subject: String) -> Result<(), NatsStoreError> {
        let asked = async {
            loop {
                // No stream has this name, so no stream stores the message.
                let mut sent = OutgoingMessage::default();
                sent.headers.insert(EXPECTED_STREAM, "-");
                match self.link.publish(None, &subject, sent).await {
                    Err(NatsStoreError::Absent) => self.clock.sleep(NOT_YET).await,
                    Ok(_) | Err(NatsStoreError::Refused { .. }) => return Ok(()),
                    Err(fault) => return Err(fault),
                }
            }
        };
        let answered = within(&*self.clock, self.options.response_timeout, Box::pin(asked)).await;
        answered.unwrap_or(Err(NatsStoreError::Absent))
    }

    /// Refuses a stream with several replicas on servers that do not guarantee one winner there.
    async fn check_replicas(&self, config: &Value) -> Result<(), NatsStoreError> {
        let version = &self.link.client().await?.server_info().version;
        match number(config, "num_replicas") > 1 && is_before(version, FIRST_OF_CLUSTERS) {
            true => Err(NatsStoreError::Unfit {
                what: format!(
                    "the server has version {version}: in a cluster, servers before {}.{} accept two messages with the same expected last \
                     message, and replicas differ (nats-server issue 4320); upgrade all servers, or request 1 replica",
                    FIRST_OF_CLUSTERS.0, FIRST_OF_CLUSTERS.1
                ),
            }),
            false => Ok(()),
        }
    }

    /// Asks the server for the generation of the stream of logs, and for the position of its last message.
    pub(crate) async fn look_up(&self) -> Result<(Arc<str>, u64), NatsStoreError> {
        let info: Info = self.link.api(&format!("STREAM.INFO.{}", self.layout.logs()), &Value::Null).await?;
        let generation = self.generation_in(&info.config)?;
        *self.cached_generation() = Some(Arc::clone(&generation));
        Ok((generation, info.state.last_seq))
    }

    /// Returns the generation of the stream of logs. Uses the cached value if there is one.
    pub(crate) async fn generation(&self) -> Result<Arc<str>, NatsStoreError> {
        if let Some(generation) = &*self.cached_generation() {
            return Ok(Arc::clone(generation));
        }
        Ok(self.look_up().await?.0)
    }

    /// Checks that a subject belongs to the stream's current generation, before a run is reported missing.
    pub(crate) async fn check_missing(&self, subject: &str) -> Result<(), NatsStoreError> {
        let (generation, _) = self.look_up().await?;
        let is_so = subject.starts_with(self.layout.all_runs(&generation).trim_end_matches('>'));
        is_so.then_some(()).ok_or(NatsStoreError::Busy { what: "the stream was deleted and created again" })
    }

    /// Returns the subject of a run, in the stream generation that this process knows.
    pub(crate) async fn subject(&self, run: &RunKey) -> Result<String, NatsStoreError> {
        Ok(self.layout.run(&self.generation().await?, run))
    }

    pub(crate) fn cached_generation(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.generation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the version, and reads the generation from the settings of the stream of logs.
    fn generation_in(&self, config: &Value) -> Result<Arc<str>, NatsStoreError> {
        let unfit = |why: &str| {
            let what =
                format!("the stream {} {why}: use another namespace, or delete it", self.layout.logs());
            NatsStoreError::Unfit { what }
        };
        let description = config["description"].as_str().unwrap_or_default();
        if description.starts_with(UNRELEASED) {
            return Err(unfit("was created by an unreleased version, which no release reads"));
        }
        let version = description.strip_prefix(DESCRIBED).and_then(|version| version.parse().ok());
        match version {
            Some(VERSION) => {}
            Some(newer) if newer > VERSION => {
                return Err(NatsStoreError::Newer {
                    what: format!("the stream has version {newer},"),
                    seq: None,
                });
            }
            _ => return Err(unfit("was not created by this store")),
        }
        self.is_replicated.store(config["num_replicas"].as_u64() > Some(1), Ordering::Relaxed);
        let subjects = config["subjects"].as_array().map_or(&[][..], Vec::as_slice);
        let generation = match subjects {
            [subject] => subject.as_str().and_then(|subject| self.layout.generation_of(subject)),
            _ => None,
        };
        generation.map(Arc::from).ok_or_else(|| unfit("has other subjects than those of this store"))
    }
}

fn number(settings: &Value, name: &str) -> i64 {
    settings[name].as_i64().unwrap_or(0)
}

/// Returns whether a version, such as `2.9.10` or `2.12.0-RC.1`, is lower than another. Returns false for an unreadable version.
fn is_before(version: &str, least: (u32, u32)) -> bool {
    let mut parts = version.split('.').map(str::parse);
    matches!((parts.next(), parts.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < least)
}

/// Returns the settings of a stream that could lose records or block the store, each with advice.
fn objections(config: &Value, wanted: &Value) -> Vec<String> {
    let is = |name: &str| config[name].as_bool().unwrap_or(false);
    let mut found = Vec::new();
    let mut object = |is_wrong: bool, what: &str| {
        if is_wrong {
            found.push(format!("{what}; it could lose records or reject them"));
        }
    };
    object(config["retention"] != "limits", "has a retention other than `limits`; create it again");
    object(config["storage"] != "file", "is stored in memory; create it again with file storage");
    object(!config["mirror"].is_null(), "is a mirror; connect to the stream that it mirrors");
    object(
        config["sources"].as_array().is_some_and(|sources| !sources.is_empty()),
        "takes messages of other streams; create it again without sources",
    );
    object(
        !config["subject_transform"].is_null() || !config["republish"].is_null(),
        "transforms or republishes subjects; remove that setting",
    );
    object(number(config, "max_msgs") > 0, "has a limit of messages; set max_msgs to -1");
    object(
        number(config, "max_bytes") > 0 && config["discard"] != "new",
        "discards old messages when it is full; set discard to `new`",
    );
    object(
        number(config, "max_age") != number(wanted, "max_age"),
        "has another max_age than this store sets; restore it",
    );
    object(
        number(config, "max_msgs_per_subject").max(0) != number(wanted, "max_msgs_per_subject"),
        "has another max_msgs_per_subject than this store sets; restore it",
    );
    object(
        config["discard"] != wanted["discard"],
        "has another discard policy than this store sets; restore it",
    );
    object(
        config["discard_new_per_subject"] == true,
        "discards per subject; set discard_new_per_subject to false",
    );
    object(is("no_ack"), "does not acknowledge messages; set no_ack to false");
    object(
        config["persist_mode"] == "async",
        "acknowledges before it writes; create it again without persist_mode",
    );
    object(is("sealed"), "is sealed, and takes no message");
    object(is("deny_delete"), "forbids the removal of runs; create it again without deny_delete");
    if number(config, "num_replicas").max(1) < number(wanted, "num_replicas") {
        found.push(format!(
            "has {} replicas, and {} are requested; raise its num_replicas",
            number(config, "num_replicas").max(1),
            number(wanted, "num_replicas")
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        for old in ["2.9.10", "2.10.29", "1.99.0"] {
            assert!(is_before(old, FIRST_OF_CLUSTERS), "{old}");
        }
        for new in ["2.11.0", "2.14.0", "2.12.0-RC.1", "3.0.0", "", "dev"] {
            assert!(!is_before(new, FIRST_OF_CLUSTERS), "{new}");
        }
    }
}
