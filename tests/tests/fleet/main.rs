//! Several processes on one store, checked with a ledger outside the store. Processes are killed, suspended and restarted one by one, clocks are
//! wrong, networks are bad, and servers are killed. On every store.
//!
//! `FERRATA_FLEET_SEED` repeats a seed, and `FERRATA_FLEET_ROUNDS` sets the number of rounds per test.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]
#![expect(clippy::print_stdout, reason = "a failed test is repeated with its seed")]

mod crew;
mod kills;
mod outages;
mod queues;
mod recoverers;
mod restarts;
mod silence;
mod zombies;

use std::hash::{BuildHasher, Hasher, RandomState};

use ferrata_test_servers::{Service, service_url};
use ferrata_tests::{Space, StoreKind};

use self::crew::Dice;

/// Runs a test in its own spaces, with random numbers from a seed that is printed.
async fn play(kind: impl Into<StoreKind>, test: impl AsyncFn(&Space, &mut Dice)) {
    let kind = kind.into();
    let server = match kind {
        StoreKind::Server(service) => service_url(service),
        StoreKind::Files | StoreKind::Sqlite => String::new(),
    };
    play_at(kind, &server, test).await;
}

/// The same, on its own server.
async fn play_at(kind: impl Into<StoreKind>, server: &str, test: impl AsyncFn(&Space, &mut Dice)) {
    let kind = kind.into();
    // The server that stands in for S3 can serve only one test at a time.
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _alone = if kind == StoreKind::Server(Service::S3) { Some(ALONE.lock().await) } else { None };
    let round = async |seed: u64| {
        let test = async |space: &Space| test(space, &mut Dice(seed)).await;
        Space::within_server(kind, server.to_owned(), test).await;
    };
    rounds(round).await;
}

/// Plays the requested number of rounds, each with a seed that is printed.
async fn rounds(round: impl AsyncFn(u64)) {
    let number = |name| std::env::var(name).ok().map(|text: String| text.parse::<u64>().unwrap());
    let rounds = number("FERRATA_FLEET_ROUNDS").unwrap_or(1);
    let seed = number("FERRATA_FLEET_SEED").unwrap_or_else(|| RandomState::new().build_hasher().finish());
    for seed in (0..rounds).map(|round| seed.wrapping_add(round)) {
        println!(
            "seed {seed}; repeat with FERRATA_FLEET_SEED={seed} cargo test -p ferrata-tests --test fleet"
        );
        round(seed).await;
    }
}

/// The tests of a store.
macro_rules! on {
    ($store:ident, $service:expr) => {
        mod $store {
            use super::*;

            #[tokio::test]
            async fn runs_of_killed_process_finish_elsewhere_in_time() {
                play($service, kills::killed).await;
            }

            /// Guarantees: FLEET-3.
            #[tokio::test]
            async fn long_suspended_process_detects_it_without_harm() {
                play($service, zombies::stopped).await;
            }

            /// Guarantees: FLEET-19.
            #[tokio::test]
            async fn a_rolling_restart_under_load_loses_no_time() {
                play($service, restarts::rolling).await;
            }

            #[tokio::test]
            async fn concurrent_recoverers_claim_each_run_once() {
                play($service, recoverers::both).await;
            }
        }
    };
}

on!(files, None);
on!(sqlite, StoreKind::Sqlite);
on!(postgres, Some(Service::Postgres));
on!(nats, Some(Service::Nats));
on!(redis, Some(Service::Redis));
on!(redis_cluster, Some(Service::RedisCluster));
on!(s3, Some(Service::S3));

#[tokio::test]
async fn processes_survive_repeated_postgres_kills() {
    outages::postgres().await;
}

#[tokio::test]
async fn processes_survive_repeated_redis_kills() {
    outages::redis().await;
}

#[tokio::test]
async fn bad_postgres_network_loses_and_repeats_nothing() {
    play(Some(Service::Postgres), outages::network).await;
}

#[tokio::test]
async fn bad_redis_network_loses_and_repeats_nothing() {
    play(Some(Service::Redis), outages::network).await;
}

#[tokio::test]
async fn bad_s3_network_loses_and_repeats_nothing() {
    play(Some(Service::S3), outages::network).await;
}

#[tokio::test]
async fn whatever_postgres_never_answers_the_run_goes_on() {
    play(Some(Service::Postgres), silence::never).await;
}

#[tokio::test]
async fn whatever_redis_never_answers_the_run_goes_on() {
    play(Some(Service::Redis), silence::never).await;
}

#[tokio::test]
async fn whatever_s3_never_answers_the_run_goes_on() {
    play(Some(Service::S3), silence::never).await;
}

#[tokio::test]
async fn deadlocks_and_serialization_failures_lose_nothing() {
    play(Some(Service::Postgres), outages::refusals).await;
}

/// Slots of queues, for a few seconds on the stores of most services.
mod places {
    use super::*;

    #[tokio::test]
    async fn slots_survive_kills_and_suspensions_on_files() {
        play(None, queues::little).await;
    }

    #[tokio::test]
    async fn slots_survive_kills_and_suspensions_on_postgres() {
        play(Some(Service::Postgres), queues::little).await;
    }

    #[tokio::test]
    async fn slots_survive_kills_and_suspensions_on_redis() {
        play(Some(Service::Redis), queues::little).await;
    }

    #[tokio::test]
    #[ignore = "takes minutes; `cargo xtask prove` runs it"]
    async fn slots_survive_long_chaos_on_every_store() {
        for kind in [StoreKind::Files, StoreKind::Sqlite] {
            play(kind, queues::more).await;
        }
        for service in [Service::Postgres, Service::Redis, Service::RedisCluster, Service::S3] {
            play(Some(service), queues::more).await;
        }
        let shards = async |seed: u64| {
            Space::within_shards(async |space| queues::more(space, &mut Dice(seed)).await).await;
        };
        rounds(shards).await;
    }
}
