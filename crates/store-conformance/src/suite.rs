//! The macro that makes tests of all properties, and what runs one of them.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use ferrata_store::{CheckpointStore, Clock, SystemClock};
use tokio::runtime::{Builder, Runtime};

use crate::factory::{Space, StoreFactory};
use crate::group::Group;
use crate::registry::{PROPERTIES, Property};

/// Makes one test of each property of the contract, for the store of a factory.
///
/// ```
/// # mod conformance {
/// use ferrata_store_conformance::{MemoryFactory, suite};
///
/// suite!(MemoryFactory, without: [
///     durable = "nothing survives the process",
///     torn = "records are never written in part",
/// ]);
/// # }
/// ```
///
/// The first argument is any expression of a type that implements [`StoreFactory`]; it is evaluated in each test. Groups of
/// properties that do not apply are left out by name, each with the reason: their tests show as *ignored* with it. A suite
/// that leaves out what the store's capabilities promise fails.
///
/// A store that needs a server makes all tests depend on a `cfg` that its build script sets, and says how it is set; without
/// it they show as ignored:
///
/// ```
/// # mod conformance {
/// # use ferrata_store_conformance::{MemoryFactory, suite};
/// suite!(MemoryFactory, needs: store_test_server = "set STORE_TEST_SERVER_URL",
///     without: [durable = "...", torn = "..."]);
/// # }
/// ```
///
/// The tests are in modules by topic beside the call, so a module holds one suite.
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

/// Gives each group the attributes of its tests, and then makes the tests.
///
/// Each step takes one group that is left out and looks for its place in the row of attributes.
#[doc(hidden)]
#[macro_export]
macro_rules! __groups {
    // Begin: every group has the attributes that all tests have.
    ($all:tt [$($without:tt)*]) => {
        $crate::__groups! {
            @put [$($without)*] []
            [$all $all $all $all $all $all $all $all $all]
        }
    };
    (@put [instances = $why:literal, $($more:tt)*] [$($done:tt)*]
        [$core:tt $instances:tt $durable:tt $notices:tt $clock:tt $damage:tt $gap:tt $torn:tt $newer:tt]) => {
        $crate::__groups! { @put [$($more)*] [$($done)* Instances]
            [$core {#[ignore = $why]} $durable $notices $clock $damage $gap $torn $newer] }
    };
    (@put [durable = $why:literal, $($more:tt)*] [$($done:tt)*]
        [$core:tt $instances:tt $durable:tt $notices:tt $clock:tt $damage:tt $gap:tt $torn:tt $newer:tt]) => {
        $crate::__groups! { @put [$($more)*] [$($done)* Durable]
            [$core $instances {#[ignore = $why]} $notices $clock $damage $gap $torn $newer] }
    };
    (@put [notices = $why:literal, $($more:tt)*] [$($done:tt)*]
        [$core:tt $instances:tt $durable:tt $notices:tt $clock:tt $damage:tt $gap:tt $torn:tt $newer:tt]) => {
        $crate::__groups! { @put [$($more)*] [$($done)* Notices]
            [$core $instances $durable {#[ignore = $why]} $clock $damage $gap $torn $newer] }
    };
    (@put [clock = $why:literal, $($more:tt)*] [$($done:tt)*]
        [$core:tt $instances:tt $durable:tt $notices:tt $clock:tt $damage:tt $gap:tt $torn:tt $newer:tt]) => {
        $crate::__groups! { @put [$($more)*] [$($done)* Clock]
            [$core $instances $durable $notices {#[ignore = $why]} $damage $gap $torn $newer] }
    };
    (@put [damage = $why:literal, $($more:tt)*] [$($done:tt)*]
        [$core:tt $instances:tt $durable:tt $notices:tt $clock:tt $damage:tt $gap:tt $torn:tt $newer:tt]) => {
        $crate::__groups! { @put [$($more)*] [$($done)* Damage]
            [$core $instances $durable $notices $clock {#[ignore = $why]} $gap $torn $newer] }
    };
    (@put [gap = $why:literal, $($more:tt)*] [$($done:tt)*]
        [$core:tt $instances:tt $durable:tt $notices:tt $clock:tt $damage:tt $gap:tt $torn:tt $newer:tt]) => {
        $crate::__groups! { @put [$($more)*] [$($done)* Gap]
            [$core $instances $durable $notices $clock $damage {#[ignore = $why]} $torn $newer] }
    };
    (@put [torn = $why:literal, $($more:tt)*] [$($done:tt)*]
        [$core:tt $instances:tt $durable:tt $notices:tt $clock:tt $damage:tt $gap:tt $torn:tt $newer:tt]) => {
        $crate::__groups! { @put [$($more)*] [$($done)* Torn]
            [$core $instances $durable $notices $clock $damage $gap {#[ignore = $why]} $newer] }
    };
    (@put [newer = $why:literal, $($more:tt)*] [$($done:tt)*]
        [$core:tt $instances:tt $durable:tt $notices:tt $clock:tt $damage:tt $gap:tt $torn:tt $newer:tt]) => {
        $crate::__groups! { @put [$($more)*] [$($done)* Newer]
            [$core $instances $durable $notices $clock $damage $gap $torn {#[ignore = $why]}] }
    };
    (@put [$unknown:ident = $why:literal, $($more:tt)*] $done:tt $attributes:tt) => {
        compile_error!(concat!(
            "there is no group `", stringify!($unknown),
            "` to leave out; there are instances, durable, notices, clock, damage, gap, torn, newer"
        ));
    };
    // End: all that are left out have their place.
    (@put [] [$($done:ident)*] [{ $($core:tt)* } $($others:tt)*]) => {
        #[test]
        $($core)*
        fn the_groups_left_out_are_not_promised() {
            $crate::check_groups(&__factory(), &[$($crate::Group::$done),*]);
        }

        $crate::__properties! { [{ $($core)* } $($others)*], $crate::__tests }
    };
}

/// Makes the tests.
#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    ($attributes:tt $($topic:ident { $($group:ident: $name:ident;)* })*) => {
        $(mod $topic {
            $($crate::__test! { $group $attributes $topic $name })*
        })*
    };
}

/// Makes one test, with the attributes of its group.
#[doc(hidden)]
#[macro_export]
macro_rules! __test {
    (core [$a:tt $i:tt $d:tt $n:tt $c:tt $b:tt $g:tt $t:tt $v:tt] $topic:ident $name:ident) => {
        $crate::__test! { @ $a $topic $name }
    };
    (instances [$a:tt $i:tt $d:tt $n:tt $c:tt $b:tt $g:tt $t:tt $v:tt] $topic:ident $name:ident) => {
        $crate::__test! { @ $i $topic $name }
    };
    (durable [$a:tt $i:tt $d:tt $n:tt $c:tt $b:tt $g:tt $t:tt $v:tt] $topic:ident $name:ident) => {
        $crate::__test! { @ $d $topic $name }
    };
    (notices [$a:tt $i:tt $d:tt $n:tt $c:tt $b:tt $g:tt $t:tt $v:tt] $topic:ident $name:ident) => {
        $crate::__test! { @ $n $topic $name }
    };
    (clock [$a:tt $i:tt $d:tt $n:tt $c:tt $b:tt $g:tt $t:tt $v:tt] $topic:ident $name:ident) => {
        $crate::__test! { @ $c $topic $name }
    };
    (damage [$a:tt $i:tt $d:tt $n:tt $c:tt $b:tt $g:tt $t:tt $v:tt] $topic:ident $name:ident) => {
        $crate::__test! { @ $b $topic $name }
    };
    (gap [$a:tt $i:tt $d:tt $n:tt $c:tt $b:tt $g:tt $t:tt $v:tt] $topic:ident $name:ident) => {
        $crate::__test! { @ $g $topic $name }
    };
    (torn [$a:tt $i:tt $d:tt $n:tt $c:tt $b:tt $g:tt $t:tt $v:tt] $topic:ident $name:ident) => {
        $crate::__test! { @ $t $topic $name }
    };
    (newer [$a:tt $i:tt $d:tt $n:tt $c:tt $b:tt $g:tt $t:tt $v:tt] $topic:ident $name:ident) => {
        $crate::__test! { @ $v $topic $name }
    };
    (@ { $($attributes:tt)* } $topic:ident $name:ident) => {
        #[test]
        $($attributes)*
        fn $name() {
            $crate::check_named(&super::__factory(), stringify!($topic), stringify!($name));
        }
    };
}

/// How many threads a property runs on: enough for writers and readers to meet, few enough for many properties at once.
const THREADS: usize = 4;

/// Checks one property on a fresh space of a factory, on several threads, and removes the space.
///
/// # Panics
///
/// If the store does not have the property, or does not answer within [`StoreFactory::deadline`].
pub fn check(factory: &dyn StoreFactory, property: &Property) {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(THREADS).enable_all().build();
    check_on(&runtime.expect("the machine lets a test start threads"), factory, property);
}

/// Checks one property, on a runtime of the caller's.
///
/// # Panics
///
/// As [`check`] does.
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
    runtime.block_on(async {
        let space = factory.fresh().await;
        let capabilities = space.open().await.capabilities();
        space.remove().await;
        let promised = [
            (Group::Instances, capabilities.shared),
            (Group::Durable, capabilities.durable),
            (Group::Notices, capabilities.notices),
        ];
        for (group, is_promised) in promised {
            assert!(
                !(is_promised && without.contains(&group)),
                "the store promises what the group `{group}` checks ({capabilities:?}); do not leave it out"
            );
        }
    });
}
