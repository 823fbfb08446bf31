//! Three servers that each store every record. Any of them is killed, suspended or cut off during writes. Servers with unsafe clusters are refused.
//!
//! The NATS servers of Debian are unsafe. For newer servers, put their folder first in `PATH`.

use std::time::Duration;

use ferrata_store::{CheckpointStore, Clock as _, ErrorKind, SystemClock};
use ferrata_test_servers::NatsCluster;
use serde_json::{Value, json};

use crate::common::Place;
use crate::load::{is_kept_under_load, until_written};
use crate::surely::{PATIENCE, surely};

/// Guarantees: NATS-5.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn cluster_survives_failure_of_any_server_under_load() {
    let cluster = NatsCluster::start(3).unwrap();
    let place = Place::at(&cluster.url());
    let open =
        || place.store_with(place.options().with_replicas(3).with_response_timeout(Duration::from_secs(2)));
    let version = place.client().await.server_info().version;
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    if (numbers.next(), numbers.next()) < (Some(2), Some(11)) {
        let error = surely(async || open().setup().await).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
        assert!(error.to_string().contains(&version) && error.to_string().contains("2.11"), "{error}");
        return;
    }
    let step_down = format!("STREAM.LEADER.STEPDOWN.{}", place.logs());
    is_kept_under_load(open, async |written| {
        until_written(written, 60).await;
        for (n, server) in cluster.servers().iter().enumerate() {
            if n == 1 {
                server.suspend().unwrap();
            } else {
                server.kill().unwrap();
            }
            until_written(written, 60).await;
            if n == 1 {
                server.resume().unwrap();
            } else {
                server.restart().unwrap();
            }
            until_written(written, 60).await;
        }
        // One server is cut off from the others, but not from its clients: a follower, or the leader, which the others then replace.
        let (first, second) = (&cluster.servers()[0], &cluster.servers()[1]);
        let name = format!("n{}", first.port());
        let beside = async_nats::connect(second.url()).await.unwrap();
        let info = format!("STREAM.INFO.{}", place.logs());
        let leader = async || {
            let said = told(&beside, &info, &Value::Null).await;
            said["cluster"]["leader"].as_str().unwrap_or_default().to_owned()
        };
        for is_leader in [false, true] {
            while (leader().await == name) != is_leader {
                let wanted = if is_leader { name.clone() } else { format!("n{}", second.port()) };
                told(&beside, &step_down, &json!({ "placement": { "preferred": wanted } })).await;
                until_written(written, 30).await;
            }
            cluster.cut_off_first();
            // More records than were in flight, so the others have elected a leader.
            until_written(written, 200).await;
            assert_ne!(leader().await, name);
            cluster.rejoin_first().unwrap();
            until_written(written, 60).await;
        }
        // The leader steps down during writes.
        for _ in 0..4 {
            let client = place.client().await;
            told(&client, &step_down, &json!({})).await;
            until_written(written, 60).await;
        }
    })
    .await;
}

/// Repeats a call until there is an answer.
async fn told(client: &async_nats::Client, call: &str, body: &Value) -> Value {
    let clock = SystemClock::new();
    let deadline = clock.monotonic() + PATIENCE;
    loop {
        let asked = client.request(format!("$JS.API.{call}"), body.to_string().into()).await;
        match asked {
            Ok(answer) => return serde_json::from_slice(&answer.payload).expect("the API answers in JSON"),
            Err(error) => assert!(clock.monotonic() < deadline, "{error:?}"),
        }
    }
}
