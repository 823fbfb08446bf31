//! Three servers that keep each record on all of them. Any one of them is killed, stands still for a while, or is cut off while runs are
//! written; and servers whose clusters do not keep what they promise are refused.
//!
//! Debian's servers are such: `PATH` may name newer ones first.

use std::time::Duration;

use ferrata_store::{CheckpointStore, ErrorKind};
use ferrata_test_servers::NatsCluster;
use serde_json::json;

use crate::common::{Place, api};
use crate::load::{is_kept_under_load, until_written};
use crate::surely::surely;

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn any_one_of_three_servers_may_fail_under_load_or_the_cluster_is_refused() {
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
        // The leader gives its place away in the middle of whatever is written.
        for _ in 0..4 {
            let client = place.client().await;
            api(&client, &step_down, &json!({})).await;
            until_written(written, 60).await;
        }
    })
    .await;
}
