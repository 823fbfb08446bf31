//! One server with its connection. The connection opens on demand, and all calls share it.
//!
//! The driver's own connection manager is not used: it does not distinguish an unsent command from a lost reply, and so `Unavailable` from
//! `Indeterminate`.

use std::sync::Arc;
use std::time::Duration;

use ferrata_store::Clock;
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, Value};
use tokio::sync::Mutex;

use super::call::{RedisCall, cmd, joined};
use super::slots::Address;
use crate::error::RedisStoreError;

/// How long a server counts as unreachable, without another attempt, after a failed attempt.
///
/// The time is long enough that a thousand waiting calls make only one attempt, and short enough that no call notices the pause after a restart.
const PAUSE: Duration = Duration::from_millis(50);

/// One server.
pub(crate) struct RedisNode {
    /// The name of the server in messages, with host and port.
    pub(crate) name: String,
    client: Client,
    config: AsyncConnectionConfig,
    clock: Arc<dyn Clock>,
    // Locked during a connection attempt, so that concurrent calls share the attempt.
    state: Mutex<ConnectionState>,
}

#[derive(Default)]
struct ConnectionState {
    connection: Option<MultiplexedConnection>,
    /// The number of connections so far. It ensures that a failed call drops only its own connection.
    generation: u64,
    failed: Option<(Duration, RedisStoreError)>,
}

/// The number of replicas that must have a connection's writes, and the timeout for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplicaWait {
    pub(crate) replicas: u32,
    pub(crate) timeout: Duration,
}

impl RedisNode {
    pub(crate) fn new(
        address: &Address,
        client: Client,
        config: AsyncConnectionConfig,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let name = format!("the Redis server {}:{}", address.0, address.1);
        Self { name, client, config, clock, state: Mutex::default() }
    }

    /// Sends calls together and returns their replies in order. Each call is tried once. If the server has lost a script, the script is sent again
    /// with its whole text; this is safe because it was not run.
    ///
    /// Calls that may be joined are joined. Calls for different slots are joined only if the server has all keys (`together`).
    pub(crate) async fn run(
        &self,
        calls: &[RedisCall],
        together: bool,
        wait: Option<ReplicaWait>,
    ) -> Vec<Result<Value, RedisStoreError>> {
        let groups = joined(calls, together);
        let (mut replies, unwaited) = self.run_once(calls, &groups, false, wait).await;
        let mut unwaited = vec![unwaited; groups.len()];
        let is_lost = |group: &[usize], reply: &Result<Value, RedisStoreError>| {
            calls[group[0]].is_script() && reply.as_ref().is_err_and(|f| f.code() == Some("NOSCRIPT"))
        };
        let lost: Vec<usize> = (0..groups.len()).filter(|at| is_lost(&groups[*at], &replies[*at])).collect();
        if !lost.is_empty() {
            let again: Vec<Vec<usize>> = lost.iter().map(|at| groups[*at].clone()).collect();
            let (said, fault) = self.run_once(calls, &again, true, wait).await;
            for (at, reply) in lost.into_iter().zip(said) {
                replies[at] = reply;
                // The first attempt wrote nothing.
                unwaited[at].clone_from(&fault);
            }
        }
        let mut results: Vec<Option<Result<Value, RedisStoreError>>> = vec![None; calls.len()];
        for ((group, reply), unwaited) in groups.into_iter().zip(replies).zip(unwaited) {
            self.divide(calls, &group, reply, &mut results);
            for at in group {
                results[at] = results[at].take().map(|result| waited(result, unwaited.as_ref()));
            }
        }
        let missing = || Err(RedisStoreError::strange("no reply"));
        results.into_iter().map(|result| result.unwrap_or_else(missing)).collect()
    }

    /// Distributes the reply to a group to its calls.
    fn divide(
        &self,
        calls: &[RedisCall],
        group: &[usize],
        reply: Result<Value, RedisStoreError>,
        results: &mut [Option<Result<Value, RedisStoreError>>],
    ) {
        match reply {
            Ok(Value::Array(said)) if calls[group[0]].is_each() && said.len() == group.len() => {
                for (at, said) in group.iter().zip(said) {
                    results[*at] = Some(self.result(said));
                }
            }
            Ok(Value::Int(_)) if calls[group[0]].is_each() => {
                group.iter().for_each(|at| results[*at] = Some(Ok(Value::Int(1))));
            }
            Ok(_) if calls[group[0]].is_each() => {
                let strange = RedisStoreError::strange("a reply without a value for each key");
                group.iter().for_each(|at| results[*at] = Some(Err(strange.clone())));
            }
            reply => group.iter().for_each(|at| results[*at] = Some(reply.clone())),
        }
    }

    /// Sends one call to a node that is receiving the slot.
    pub(crate) async fn run_asking(
        &self,
        call: &RedisCall,
        wait: Option<ReplicaWait>,
    ) -> Result<Value, RedisStoreError> {
        let commands = vec![redis::cmd("ASKING"), cmd([call].into_iter(), true)];
        let (mut replies, unwaited) = self.run_commands(commands, wait).await?;
        let reply = replies.pop().unwrap_or_else(|| Err(RedisStoreError::strange("no reply")));
        let mut results = [None];
        self.divide(std::slice::from_ref(call), &[0], reply, &mut results);
        let [result] = results;
        waited(result.unwrap_or_else(|| Err(RedisStoreError::strange("no reply"))), unwaited.as_ref())
    }

    /// Returns the reply to each group. Also returns an error for the executed calls if too few replicas have them.
    async fn run_once(
        &self,
        calls: &[RedisCall],
        groups: &[Vec<usize>],
        whole: bool,
        wait: Option<ReplicaWait>,
    ) -> (Vec<Result<Value, RedisStoreError>>, Option<RedisStoreError>) {
        let commands = groups.iter().map(|group| cmd(group.iter().map(|at| &calls[*at]), whole)).collect();
        let done = self.run_commands(commands, wait).await;
        done.unwrap_or_else(|fault| (vec![Err(fault); groups.len()], None))
    }

    async fn run_commands(
        &self,
        mut commands: Vec<Cmd>,
        wait: Option<ReplicaWait>,
    ) -> Result<(Vec<Result<Value, RedisStoreError>>, Option<RedisStoreError>), RedisStoreError> {
        if let Some(wait) = wait {
            let mut wait_for = redis::cmd("WAIT");
            // Zero would mean no limit.
            wait_for.arg(wait.replicas).arg(wait.timeout.as_millis().max(1).to_string());
            commands.push(wait_for);
        }
        let mut replies = self.send(commands).await?;
        let found = wait.map(|wait| (wait.replicas, replies.pop()));
        let results = replies.into_iter().map(|value| self.result(value)).collect();
        let unwaited = found.and_then(|(wanted, found)| match found.map(|value| self.result(value)) {
            Some(Ok(Value::Int(found))) if found >= i64::from(wanted) => None,
            Some(Ok(Value::Int(found))) => Some(RedisStoreError::Replicas { wanted, found }),
            Some(Err(fault)) => Some(RedisStoreError::Unwaited { why: fault.to_string() }),
            _ => Some(RedisStoreError::Unwaited { why: "the reply to WAIT is not a number".to_owned() }),
        });
        Ok((results, unwaited))
    }

    /// Converts an error reply into an error.
    pub(crate) fn result(&self, value: Value) -> Result<Value, RedisStoreError> {
        match value {
            Value::ServerError(error) => Err(RedisStoreError::refused(&self.name, &error)),
            value => Ok(value),
        }
    }

    /// Sends commands unchanged. Replies may be error replies.
    pub(crate) async fn send(&self, commands: Vec<Cmd>) -> Result<Vec<Value>, RedisStoreError> {
        let count = commands.len();
        let mut pipeline = Pipeline::with_capacity(count);
        for command in commands {
            pipeline.add_command(command);
        }
        let (mut connection, generation) = self.connection().await?;
        match connection.req_packed_commands(&pipeline, 0, count).await {
            Ok(replies) if replies.len() == count => {
                // After a failover, the server's name may lead to another server.
                if replies.iter().any(is_of_replica) {
                    self.drop_connection(generation).await;
                }
                Ok(replies)
            }
            Ok(replies) => {
                self.drop_connection(generation).await;
                Err(RedisStoreError::strange(format!("{} replies to {count} commands", replies.len())))
            }
            Err(source) => {
                // Drop the connection after a timeout, too: if its replies are late, they are late for every caller.
                self.drop_connection(generation).await;
                Err(RedisStoreError::Lost { server: self.name.clone(), source })
            }
        }
    }

    /// Sends one command.
    pub(crate) async fn ask(&self, command: Cmd) -> Result<Value, RedisStoreError> {
        let reply = self.send(vec![command]).await?.pop().unwrap_or_default();
        self.result(reply)
    }

    async fn connection(&self) -> Result<(MultiplexedConnection, u64), RedisStoreError> {
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.connection {
            return Ok((connection.clone(), state.generation));
        }
        let now = self.clock.monotonic();
        if let Some((_, fault)) = state.failed.as_ref().filter(|(at, _)| now < *at + PAUSE) {
            return Err(fault.clone());
        }
        match self.client.get_multiplexed_async_connection_with_config(&self.config).await {
            Ok(connection) => {
                state.generation += 1;
                state.failed = None;
                state.connection = Some(connection.clone());
                Ok((connection, state.generation))
            }
            Err(source) => {
                let fault = RedisStoreError::connecting(&self.name, source);
                state.failed = Some((self.clock.monotonic(), fault.clone()));
                Err(fault)
            }
        }
    }

    async fn drop_connection(&self, generation: u64) {
        let mut state = self.state.lock().await;
        if state.generation == generation {
            state.connection = None;
        }
    }

    /// Opens a separate connection for notices.
    pub(crate) async fn subscribe(&self) -> Result<redis::aio::PubSub, RedisStoreError> {
        self.client.get_async_pubsub().await.map_err(|source| RedisStoreError::connecting(&self.name, source))
    }
}

/// Replaces the result of an executed call that too few replicas have. Keeps a refusal.
fn waited(
    result: Result<Value, RedisStoreError>,
    unwaited: Option<&RedisStoreError>,
) -> Result<Value, RedisStoreError> {
    match (result, unwaited) {
        (Ok(reply), Some(fault)) if !is_refusal(&reply) => Err(fault.clone()),
        (result, _) => result,
    }
}

/// Returns whether the append's script reports that it wrote nothing for a run. A repeat, whose reply includes headers, counts as written.
fn is_refusal(reply: &Value) -> bool {
    let Value::Array(said) = reply else { return false };
    match (said.first(), said.last()) {
        (Some(Value::BulkString(word)), _) if matches!(word.as_slice(), b"absent" | b"broken") => true,
        (Some(Value::BulkString(word)), Some(Value::Array(repeated))) => {
            word == b"differs" && repeated.is_empty()
        }
        _ => false,
    }
}

/// Returns whether a reply says that the server is a replica.
fn is_of_replica(reply: &Value) -> bool {
    match reply {
        Value::ServerError(error) => error.code() == "READONLY",
        Value::Array(said) => {
            said.iter().any(|said| matches!(said, Value::ServerError(error) if error.code() == "READONLY"))
        }
        _ => false,
    }
}
