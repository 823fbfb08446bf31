//! The macro that creates the tests of all properties, and the function that runs a property.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use ferrata_store::{CheckpointStore, Clock, SystemClock};
use tokio::runtime::{Builder, Runtime};

use crate::factory::{Space, StoreFactory};
use crate::group::Group;
use crate::registry::{PROPERTIES, Property};

/// Creates one test for each property of the contract, for the store of a factory.
///
/// ```
/// # mod conformance {
/// use ferrata_store_conformance::{MemoryFactory, suite};
///
/// suite!(MemoryFactory, without: [
///     durable = "nothing survives the process",
///     torn = "records are never written in part",
///     swap = "no index leads to the logs",
///     tail = "nothing beside the logs says where they end",
///     transactions = "there is no database to write to",
/// ]);
/// # }
/// ```
///
/// The first argument is an expression of a type that implements [`StoreFactory`]. Each test evaluates it. List the groups of properties that do
/// not apply, each with the reason: their tests show as *ignored* with that reason. If a suite omits a group for an ability that the store reports,
/// one of its tests fails.
///
/// For a store that needs a server, all tests can depend on a `cfg` that a build script sets. The suite gives the name of the `cfg` and the reason
/// that ignored tests show:
///
/// ```
/// # mod conformance {
/// # use ferrata_store_conformance::{MemoryFactory, suite};
/// suite!(MemoryFactory, needs: store_test_server = "set STORE_TEST_SERVER_URL",
///     without: [durable = "...", torn = "..."]);
/// # }
/// ```
///
/// The macro creates one module for each topic next to the call, so a module can contain only one suite.
#[macro_export]
macro_rules! suite {
    ($factory:expr $(, needs: $cfg:ident = $how:literal)? $(, without: [$($group:ident = $reason:literal),* $(,)?])? $(,)?) => {
        fn __factory() -> impl $crate::StoreFactory {
            $factory
        }

        $crate::__groups! {
            { $(#[cfg_attr(not($cfg), ignore = $how)])? }
            [$($($group = $reason,)*)?]
        }
    };
}

/// Checks the names of the omitted groups, and then creates the tests.
#[doc(hidden)]
#[macro_export]
macro_rules! __groups {
    ($all:tt [$($group:ident = $why:literal,)*]) => {
        #[test]
        fn the_groups_left_out_are_not_promised() {
            $crate::check_groups(&__factory(), &[$($crate::__group!($group)),*]);
        }

        $crate::__properties! { [$all [$($group = $why,)*]], $crate::__tests }
    };
}

/// Creates the tests.
#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    ([$all:tt $without:tt] $($topic:ident { $($group:ident: $name:ident;)* })*) => {
        $(mod $topic {
            $($crate::__test! { $group $without $all $topic $name })*
        })*
    };
}

/// Creates one test. The test is ignored if the suite omits its group.
#[doc(hidden)]
#[macro_export]
macro_rules! __test {
    (@ { $($attributes:tt)* } $topic:ident $name:ident) => {
        #[test]
        $($attributes)*
        fn $name() {
            $crate::check_named(&super::__factory(), stringify!($topic), stringify!($name));
        }
    };
    ($group:ident [] $all:tt $($test:tt)*) => {
        $crate::__test! { @ $all $($test)* }
    };
    (instances [instances = $why:literal, $($more:tt)*] $all:tt $($test:tt)*) => {
        $crate::__test! { @ {#[ignore = $why]} $($test)* }
    };
    (durable [durable = $why:literal, $($more:tt)*] $all:tt $($test:tt)*) => {
        $crate::__test! { @ {#[ignore = $why]} $($test)* }
    };
    (notices [notices = $why:literal, $($more:tt)*] $all:tt $($test:tt)*) => {
        $crate::__test! { @ {#[ignore = $why]} $($test)* }
    };
    (clock [clock = $why:literal, $($more:tt)*] $all:tt $($test:tt)*) => {
        $crate::__test! { @ {#[ignore = $why]} $($test)* }
    };
    (damage [damage = $why:literal, $($more:tt)*] $all:tt $($test:tt)*) => {
        $crate::__test! { @ {#[ignore = $why]} $($test)* }
    };
    (gap [gap = $why:literal, $($more:tt)*] $all:tt $($test:tt)*) => {
        $crate::__test! { @ {#[ignore = $why]} $($test)* }
    };
    (torn [torn = $why:literal, $($more:tt)*] $all:tt $($test:tt)*) => {
        $crate::__test! { @ {#[ignore = $why]} $($test)* }
    };
    (newer [newer = $why:literal, $($more:tt)*] $all:tt $($test:tt)*) => {
        $crate::__test! { @ {#[ignore = $why]} $($test)* }
    };
    (swap [swap = $why:literal, $($more:tt)*] $all:tt $($test:tt)*) => {
        $crate::__test! { @ {#[ignore = $why]} $($test)* }
    };
    (tail [tail = $why:literal, $($more:tt)*] $all:tt $($test:tt)*) => {
        $crate::__test! { @ {#[ignore = $why]} $($test)* }
    };
    (transactions [transactions = $why:literal, $($more:tt)*] $all:tt $($test:tt)*) => {
        $crate::__test! { @ {#[ignore = $why]} $($test)* }
    };
    ($group:ident [$other:ident = $why:literal, $($more:tt)*] $($test:tt)*) => {
        $crate::__test! { $group [$($more)*] $($test)* }
    };
}

/// The number of threads for a property. It is high enough for concurrent writers and readers, and low enough to run many properties at once.
const THREADS: usize = 4;

/// Checks one property on a fresh space of the factory, on several threads. Then removes the space.
///
/// # Panics
///
/// Panics if the store does not have the property, or does not finish within [`StoreFactory::deadline`].
pub fn check(factory: &dyn StoreFactory, property: &Property) {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(THREADS).enable_all().build();
    check_on(&runtime.expect("the machine lets a test start threads"), factory, property);
}

/// Checks one property like [`check`], on a runtime of the caller.
///
/// # Panics
///
/// Panics like [`check`].
pub fn check_on(runtime: &Runtime, factory: &dyn StoreFactory, property: &Property) {
    let space: Arc<dyn Space> = runtime.block_on(factory.fresh()).into();
    let deadline = factory.deadline();
    let stage_space = Arc::clone(&space);
    let checked = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let check = property.check(stage_space);
            tokio::select! {
                () = check => {}
                () = SystemClock::new().sleep(deadline) => panic!("{property:?} took longer than {deadline:?}"),
            }
        });
    }));
    runtime.block_on(space.remove());
    if let Err(failure) = checked {
        resume_unwind(failure);
    }
}

#[doc(hidden)]
pub fn check_named(factory: &dyn StoreFactory, topic: &str, name: &str) {
    let property = PROPERTIES.iter().find(|property| (property.topic(), property.name()) == (topic, name));
    check(factory, property.expect("the tests are made of the list of all properties"));
}

#[doc(hidden)]
pub fn check_groups(factory: &dyn StoreFactory, without: &[Group]) {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().build().expect("the machine lets a test have a runtime");
    assert!(!without.contains(&Group::Core), "every store has the properties of the group `core`");
    runtime.block_on(async {
        let space = factory.fresh().await;
        let store = space.open().await;
        let (capabilities, has_transactions) = (store.capabilities(), store.transactions().is_some());
        drop(store);
        space.remove().await;
        let promised = [
            (Group::Instances, capabilities.shared),
            (Group::Durable, capabilities.durable),
            (Group::Notices, capabilities.notices),
            (Group::Transactions, has_transactions),
        ];
        for (group, is_promised) in promised {
            assert!(
                !(is_promised && without.contains(&group)),
                "the store promises what the group `{group}` checks ({capabilities:?}); do not leave it out"
            );
        }
    });
}
