//! Groups of properties that need an ability which not every store has.

use std::fmt;

/// An ability of a store or of its space that a group of properties needs.
///
/// A suite lists the groups that it omits, each with the reason. The tests of these groups show as ignored, with that reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Group {
    /// No requirement: every store has these properties.
    Core,
    /// Several instances of the store can use a space at the same time. A store that reports [`shared`](ferrata_store::Capabilities::shared) must
    /// not omit this group.
    Instances,
    /// Acknowledged records exist after the space is reopened. A store that reports [`durable`](ferrata_store::Capabilities::durable) must not omit
    /// this group.
    Durable,
    /// The store sends notices. A store that reports [`notices`](ferrata_store::Capabilities::notices) must not omit this group.
    Notices,
    /// The store's clock can be moved: [`Space::advance_clock`](crate::Space::advance_clock).
    Clock,
    /// The space can do [`Damage::Body`](crate::Damage::Body).
    Damage,
    /// The space can do [`Damage::Gone`](crate::Damage::Gone).
    Gap,
    /// The space can do [`Damage::Torn`](crate::Damage::Torn).
    Torn,
    /// The space can do [`Damage::NewerFormat`](crate::Damage::NewerFormat).
    Newer,
    /// The space can do [`Damage::Swapped`](crate::Damage::Swapped).
    Swap,
    /// The space can do [`Damage::Tail`](crate::Damage::Tail).
    Tail,
    /// The store has [`transactions`](ferrata_store::CheckpointStore::transactions), and the space has a [`table`](crate::Space::transaction_table)
    /// for them. A store that has transactions must not omit this group.
    Transactions,
}

/// Returns the group with this name.
#[doc(hidden)]
#[macro_export]
macro_rules! __group {
    (core) => {
        $crate::Group::Core
    };
    (instances) => {
        $crate::Group::Instances
    };
    (durable) => {
        $crate::Group::Durable
    };
    (notices) => {
        $crate::Group::Notices
    };
    (clock) => {
        $crate::Group::Clock
    };
    (damage) => {
        $crate::Group::Damage
    };
    (gap) => {
        $crate::Group::Gap
    };
    (torn) => {
        $crate::Group::Torn
    };
    (newer) => {
        $crate::Group::Newer
    };
    (swap) => {
        $crate::Group::Swap
    };
    (tail) => {
        $crate::Group::Tail
    };
    (transactions) => {
        $crate::Group::Transactions
    };
    ($unknown:ident) => {
        compile_error!(concat!(
            "there is no group `", stringify!($unknown),
            "` to leave out; there are instances, durable, notices, clock, damage, gap, torn, newer, swap, tail, transactions"
        ))
    };
}

impl Group {
    /// All groups, in the order of declaration.
    pub const ALL: [Self; 12] = [
        Self::Core,
        Self::Instances,
        Self::Durable,
        Self::Notices,
        Self::Clock,
        Self::Damage,
        Self::Gap,
        Self::Torn,
        Self::Newer,
        Self::Swap,
        Self::Tail,
        Self::Transactions,
    ];

    /// Returns the name of the group, as [`suite!`](crate::suite!) takes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Instances => "instances",
            Self::Durable => "durable",
            Self::Notices => "notices",
            Self::Clock => "clock",
            Self::Damage => "damage",
            Self::Gap => "gap",
            Self::Torn => "torn",
            Self::Newer => "newer",
            Self::Swap => "swap",
            Self::Tail => "tail",
            Self::Transactions => "transactions",
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
