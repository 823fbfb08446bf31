//! Letters that two processes deliver at the same time.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ferrata_core::runtime::{Letter, Outlet, Undelivered};
use ferrata_core::state::Context;
use ferrata_core::testing::ManualClock;
use ferrata_core::{Clock as _, Timestamp};
use tokio::sync::Notify;

use super::letters::{ALL, RUN, builder, delivered, key, pass, three};
use super::world::World;

/// An outlet that fails at first, once it is told how, and then takes everything.
#[derive(Clone, Default)]
struct Gate(Arc<Gated>);

#[derive(Default)]
struct Gated {
    reached: Notify,
    open: Notify,
    failure: Mutex<Option<Undelivered>>,
    is_open: Mutex<bool>,
    seen: Mutex<Vec<String>>,
}

impl Gate {
    fn fail(&self, failure: Undelivered) {
        *self.0.failure.lock().unwrap() = Some(failure);
        self.0.open.notify_one();
    }
}

#[async_trait]
impl Outlet for Gate {
    async fn deliver(&self, batch: &[Letter]) -> Result<(), Undelivered> {
        if !std::mem::replace(&mut *self.0.is_open.lock().unwrap(), true) {
            self.0.reached.notify_one();
            self.0.open.notified().await;
            return Err(self.0.failure.lock().unwrap().take().unwrap());
        }
        let texts = batch.iter().map(|letter| letter.payload::<String>().unwrap());
        self.0.seen.lock().unwrap().extend(texts);
        Ok(())
    }
}

/// One process had said of a letter that it failed and is tried again, when another one refused it. That was not recorded, as the first one
/// had come before; and yet the other went on behind the letter, which was delivered after all that should have come later.
#[tokio::test]
async fn a_letter_that_fails_in_two_processes_is_passed_by_neither() {
    let world = World::new();
    // The first process stands still behind its first try, which no time ends.
    let still = Arc::new(ManualClock::new(Timestamp::from_unix_ms(world.clock.now().unix_ms())));
    let (one, two) = (Gate::default(), Gate::default());
    let first =
        builder(Arc::new(world.store.clone()), &still).outlet("mail", one.clone()).build().await.unwrap();
    first.start(&three(), Context::new()).id(RUN).await.unwrap().completed().await.unwrap();
    one.0.reached.notified().await;
    let second = builder(Arc::new(world.store.clone()), &world.clock).outlet("mail", two.clone());
    let second = second.build().await.unwrap();
    second.serve(&three()).unwrap();
    pass(&world, two.0.reached.notified()).await;

    one.fail(Undelivered::new("it is down"));
    while second.letters(&key()).await.unwrap()[0].tries == 0 {
        tokio::task::yield_now().await;
    }
    two.fail(Undelivered::new("no such address").refused());
    delivered(&world, &second).await;
    assert_eq!(*two.0.seen.lock().unwrap(), ALL);
}
