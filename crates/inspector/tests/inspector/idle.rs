//! Store calls of an open page while nothing happens, on a controlled clock.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::Request;
use ferrata_core::ask::Answer;
use ferrata_core::{RunKey, SystemClock, within};
use futures_util::StreamExt as _;
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::support::{World, read};

async fn events(router: &axum::Router) -> BodyDataStream {
    let request = Request::get("/api/v1/runs/default/pay-2/events").header("host", "localhost");
    let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    response.into_body().into_data_stream()
}

/// Acts like an open page for some time: its stream is open, and it reads the run every five seconds. Returns the frames.
async fn look_on(router: &axum::Router, frames: &mut BodyDataStream, time: Duration) -> Vec<String> {
    let (clock, end, mut seen) = (SystemClock::new(), Instant::now() + time, Vec::new());
    while Instant::now() < end {
        read(router, "/api/v1/runs/default/pay-2").await;
        let pause = end.min(Instant::now() + Duration::from_secs(5));
        while let Some(frame) = within(&clock, pause - Instant::now(), frames.next()).await {
            seen.push(String::from_utf8(frame.unwrap().unwrap().to_vec()).unwrap());
        }
    }
    seen
}

/// Guarantees: INSPECT-10.
#[tokio::test(start_paused = true)]
async fn watched_idle_run_costs_few_store_calls() {
    for tells in [true, false] {
        let world = World::telling(tells).filled().await;
        let router = world.router();
        let mut frames = events(&router).await;
        // A page that was just opened polls often.
        look_on(&router, &mut frames, Duration::from_secs(15)).await;
        let before = world.reads();
        let seen = look_on(&router, &mut frames, Duration::from_secs(120)).await;
        let reads = world.reads() - before;
        assert!(reads <= 120, "{reads} calls in two minutes, notices: {tells}");
        assert!(seen.len() >= 4 && seen.iter().all(|frame| frame.starts_with(": alive")), "{seen:?}");
        // After a quiet time, a change is visible soon, and further changes at once.
        let driver = world.driver().await;
        let run = RunKey::try_from("pay-2").unwrap();
        let asked = Instant::now();
        driver.respond(&run, "approve", Answer::accept(true).unwrap()).by("ann").await.unwrap();
        let clock = SystemClock::new();
        let told = within(&clock, Duration::from_secs(3), async {
            loop {
                let frame = String::from_utf8(frames.next().await.unwrap().unwrap().to_vec()).unwrap();
                if !frame.starts_with(':') {
                    return frame;
                }
            }
        });
        let told = told.await.expect("the change must be in the stream");
        assert!(told.contains("event: answered"), "{told}");
        assert!(asked.elapsed() <= Duration::from_secs(2), "after {:?}, notices: {tells}", asked.elapsed());
        assert_eq!(world.writes(), 0);
    }
}

/// Guarantees: INSPECT-10.
#[tokio::test]
async fn open_list_page_polls_cheaply() {
    let world = World::with_runs().await;
    world.copy("pay-3", 400).await;
    let router = world.router();
    // The page polls the first two paths every second, and the third every five seconds.
    for (path, calls) in [("/api/v1/runs?limit=50", 1), ("/api/v1/questions", 1), ("/api/v1/fleet", 2)] {
        read(&router, path).await;
        let before = world.reads();
        read(&router, path).await;
        assert_eq!(world.reads() - before, calls, "{path}");
    }
}
