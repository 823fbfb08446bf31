//! The direction of a picture: `rankdir`, as in Graphviz.

use super::layout::{HEIGHT, Point};

/// The direction in which layers follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LayoutDirection {
    /// `TB`, and any other value.
    #[default]
    Down,
    /// `BT`.
    Up,
    /// `LR`.
    Right,
    /// `RL`.
    Left,
}

impl LayoutDirection {
    /// Parses a `rankdir`.
    pub(super) fn of(rankdir: &str) -> Self {
        match rankdir {
            "BT" => Self::Up,
            "LR" => Self::Right,
            "RL" => Self::Left,
            _ => Self::Down,
        }
    }

    /// Returns its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Down => "TB",
            Self::Up => "BT",
            Self::Right => "LR",
            Self::Left => "RL",
        }
    }

    /// Returns whether layers are next to one another.
    pub(super) const fn is_level(self) -> bool {
        matches!(self, Self::Right | Self::Left)
    }

    /// Returns the position in the picture of a point, from its distances across and along its layers and the total depth.
    pub(super) const fn point(self, across: i64, along: i64, all: i64) -> Point {
        match self {
            Self::Down => (across, along),
            Self::Up => (across, all - along),
            Self::Right => (along, across),
            Self::Left => (all - along, across),
        }
    }

    /// Returns the extent of a shape from its middle against the layers, or along them, at a distance from the middle.
    pub(super) fn reach(self, shape: &str, along: bool, offset: i64, width: i64) -> i64 {
        let beside = offset.abs();
        if !self.is_level() {
            return match shape {
                "diamond" => HEIGHT / 2 - beside * HEIGHT / width.max(1),
                // The roof.
                "house" if along == (self == Self::Up) => HEIGHT / 2 + 6 - beside * 28 / width.max(1),
                _ => HEIGHT / 2,
            };
        }
        let corner = match shape {
            "diamond" => beside * width / HEIGHT,
            "hexagon" => beside * 28 / HEIGHT,
            "parallelogram" if along == (self == Self::Right) => 12 * (HEIGHT / 2 + offset) / HEIGHT,
            "parallelogram" => 12 * (HEIGHT / 2 - offset) / HEIGHT,
            "Mdiamond" | "insulator" => HEIGHT / 2 - (HEIGHT * HEIGHT / 4 - offset * offset).max(0).isqrt(),
            "tripleoctagon" => (beside - (HEIGHT / 2 - 10)).max(0),
            _ => 0,
        };
        width / 2 - corner
    }
}
