//! Groups of properties: what not every store can show.

use std::fmt;

/// What a store or its space must be able to do for a property to apply.
///
/// A suite names the groups it leaves out, each with the reason, and their tests show as ignored with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Group {
    /// Nothing: every store has these properties.
    Core,
    /// More than one instance of the store may use a space at once. Stores that say
    /// [`shared`](ferrata_store::Capabilities::shared) must not leave it out.
    Instances,
    /// What was acknowledged is there when the space is opened again. Stores that say
    /// [`durable`](ferrata_store::Capabilities::durable) must not leave it out.
    Durable,
    /// The store sends notices. Stores that say [`notices`](ferrata_store::Capabilities::notices) must not leave it out.
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
}

impl Group {
    /// Every group, in the order of declaration.
    pub const ALL: [Self; 9] = [
        Self::Core,
        Self::Instances,
        Self::Durable,
        Self::Notices,
        Self::Clock,
        Self::Damage,
        Self::Gap,
        Self::Torn,
        Self::Newer,
    ];

    /// Returns the name, as it is given to [`suite!`](crate::suite!).
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
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
