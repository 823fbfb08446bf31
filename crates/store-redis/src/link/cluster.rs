//! Routes calls in a cluster: finds the node of each key, and the next node for a call that a node did not run.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use futures_util::future::join_all;
use redis::Value;

use super::slots::{Address, SlotMap};
use super::{RedisCall, RedisLink, ReplicaWait};
use crate::error::RedisStoreError;

/// The maximum number of redirects of a call in a cluster, and of repeats after refusals that preceded its execution.
///
/// One redirect is normal while slots move, and two are normal if the map was old, too. More redirects mean that the nodes of the cluster disagree.
const REDIRECTIONS: usize = 5;

/// The next target of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum RedirectTarget {
    /// The owner of the slot, unless that is the server that just refused the call.
    BySlot { not: Option<Address> },
    /// A node that another node named.
    To(Address),
    /// A node that is receiving the slot.
    Asking(Address),
}

impl RedisLink {
    /// Sends calls in rounds. Each round sends the remaining calls, after at most one refresh of the slot map. So a thousand calls to a dead node
    /// cost no more attempts than one call.
    pub(super) async fn many_in_cluster(
        &self,
        calls: &[RedisCall],
        wait: Option<ReplicaWait>,
    ) -> Vec<Result<Value, RedisStoreError>> {
        let mut results: Vec<Option<Result<Value, RedisStoreError>>> = vec![None; calls.len()];
        let mut hops: Vec<(usize, RedirectTarget)> =
            (0..calls.len()).map(|at| (at, RedirectTarget::BySlot { not: None })).collect();
        for _ in 0..=REDIRECTIONS {
            let groups = self.route(calls, std::mem::take(&mut hops), &mut results).await;
            let sent = groups.into_iter().map(|((address, is_asking), list)| async move {
                (self.send(calls, &address, is_asking, &list, wait).await, address, list)
            });
            let mut unreachable = Vec::new();
            let mut is_map_old = false;
            for (replies, address, list) in join_all(sent).await {
                for (at, reply) in list.into_iter().zip(replies) {
                    let hop = next_hop(&calls[at], &reply, &address);
                    if matches!(reply, Err(RedisStoreError::Unreachable { .. })) {
                        unreachable.push(address.clone());
                    }
                    is_map_old |= matches!(hop, Some(RedirectTarget::BySlot { .. } | RedirectTarget::To(_)));
                    results[at] = Some(reply);
                    hops.extend(hop.map(|hop| (at, hop)));
                }
            }
            if hops.is_empty() {
                break;
            }
            if is_map_old && self.refresh(&unreachable).await.is_err() {
                // A redirect to a named node is still valid. The other calls have no better target.
                hops.retain(|(_, hop)| !matches!(hop, RedirectTarget::BySlot { .. }));
            }
        }
        let end = |result: Option<Result<Value, RedisStoreError>>| match result {
            // The nodes of the cluster disagree. It is not a cluster behind a plain URL.
            Some(Err(RedisStoreError::Refused { server, code, detail })) if code == "MOVED" => {
                Err(RedisStoreError::Refused { server, code: "ASK".to_owned(), detail })
            }
            Some(result) => result,
            None => Err(RedisStoreError::strange("no reply")),
        };
        results.into_iter().map(end).collect()
    }

    /// Groups calls by their target. A call without a target gets a result: its previous result, if it has one.
    async fn route(
        &self,
        calls: &[RedisCall],
        hops: Vec<(usize, RedirectTarget)>,
        results: &mut [Option<Result<Value, RedisStoreError>>],
    ) -> HashMap<(Address, bool), Vec<usize>> {
        let is_unknown = |(at, hop): &(usize, RedirectTarget)| {
            matches!(hop, RedirectTarget::BySlot { .. }) && self.map().server(calls[*at].slot()).is_none()
        };
        let failed = if hops.iter().any(is_unknown) { self.refresh(&[]).await.err() } else { None };
        let map = self.map();
        let mut groups: HashMap<(Address, bool), Vec<usize>> = HashMap::new();
        for (at, hop) in hops {
            let slot = calls[at].slot();
            let to = match hop {
                RedirectTarget::To(address) => Some((address, false)),
                RedirectTarget::Asking(address) => Some((address, true)),
                RedirectTarget::BySlot { not } => match map.server(slot) {
                    Some(address) => (not.as_ref() != Some(address)).then(|| (address.clone(), false)),
                    None => {
                        results[at]
                            .get_or_insert_with(|| Err(failed.clone().unwrap_or_else(|| unserved(slot))));
                        None
                    }
                },
            };
            if let Some(to) = to {
                groups.entry(to).or_default().push(at);
            }
        }
        groups
    }

    async fn send(
        &self,
        calls: &[RedisCall],
        address: &Address,
        is_asking: bool,
        list: &[usize],
        wait: Option<ReplicaWait>,
    ) -> Vec<Result<Value, RedisStoreError>> {
        let node = match self.node(address) {
            Ok(node) => node,
            Err(fault) => return vec![Err(fault); list.len()],
        };
        if is_asking {
            return join_all(list.iter().map(|at| node.run_asking(&calls[*at], wait))).await;
        }
        let calls: Vec<RedisCall> = list.iter().map(|at| calls[*at].clone()).collect();
        node.run(&calls, false, wait).await
    }

    pub(super) fn map(&self) -> Arc<SlotMap> {
        Arc::clone(&self.slots.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the slot map again, from the first server that answers. Asks the servers in `avoid` last.
    pub(super) async fn refresh(&self, avoid: &[Address]) -> Result<(), RedisStoreError> {
        let before = self.map();
        let _refreshing = self.refreshing.lock().await;
        if !Arc::ptr_eq(&before, &self.map()) {
            // Another call has just refreshed the map.
            return Ok(());
        }
        let mut servers = before.servers();
        servers.extend(self.seeds.iter().cloned());
        servers.sort_by_key(|address| avoid.contains(address));
        let mut failed = None;
        for address in &servers {
            let node = self.node(address)?;
            match node.ask(redis::cmd("CLUSTER").arg("SLOTS").to_owned()).await {
                Ok(reply) => match SlotMap::read(&reply, address) {
                    Some(map) => {
                        *self.slots.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(map);
                        return Ok(());
                    }
                    None => {
                        failed = Some(RedisStoreError::strange("the reply to CLUSTER SLOTS is unreadable"))
                    }
                },
                Err(fault) => failed = Some(fault),
            }
        }
        Err(failed.unwrap_or_else(|| RedisStoreError::strange("the cluster has no servers")))
    }
}

/// Returns the next target of a call. A refusal that leads to another target always precedes the call's execution.
fn next_hop(
    call: &RedisCall,
    reply: &Result<Value, RedisStoreError>,
    asked: &Address,
) -> Option<RedirectTarget> {
    match reply.as_ref().err()? {
        RedisStoreError::Refused { code, detail, .. } if code == "MOVED" => {
            redirection(detail.as_deref()?, asked).map(RedirectTarget::To)
        }
        // If only some keys of the slot have moved, the call would create the others again on the old node, which blocks the move.
        RedisStoreError::Refused { code, .. } if code == "ASK" && call.has_more_keys() => None,
        RedisStoreError::Refused { code, detail, .. } if code == "ASK" => {
            redirection(detail.as_deref()?, asked).map(RedirectTarget::Asking)
        }
        // The node became a replica, or does not exist any more. Another node may have its slots by now.
        RedisStoreError::Refused { code, .. } if code == "READONLY" => {
            Some(RedirectTarget::BySlot { not: Some(asked.clone()) })
        }
        RedisStoreError::Unreachable { .. } => Some(RedirectTarget::BySlot { not: Some(asked.clone()) }),
        _ => None,
    }
}

fn unserved(slot: u16) -> RedisStoreError {
    RedisStoreError::Refused {
        server: "the cluster".to_owned(),
        code: "CLUSTERDOWN".to_owned(),
        detail: Some(format!("no master serves slot {slot}")),
    }
}

/// Parses a target such as `3999 127.0.0.1:6381`. A server that does not know the other server's host omits it.
fn redirection(detail: &str, asked: &Address) -> Option<Address> {
    let (host, port) = detail.split_whitespace().nth(1)?.rsplit_once(':')?;
    let host = if host.is_empty() { &asked.0 } else { host };
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_names_the_next_node() {
        let asked = ("me".to_owned(), 1);
        for (detail, expected) in [
            ("3999 127.0.0.1:6381", Some(("127.0.0.1", 6_381))),
            ("3999 :6381", Some(("me", 6_381))),
            ("3999 ::1:6381", Some(("::1", 6_381))),
            ("3999", None),
            ("3999 host", None),
            ("3999 host:x", None),
        ] {
            let expected = expected.map(|(host, port)| (host.to_owned(), port));
            assert_eq!(redirection(detail, &asked), expected, "{detail}");
        }
    }
}
