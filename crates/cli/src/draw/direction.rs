//! The direction of a picture. The attribute `rankdir` sets it, as in Graphviz.

use super::layout::{HEIGHT, Point};

/// The direction in which the layers of a picture follow one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LayoutDirection {
    /// From top to bottom: `TB`, and any unknown value.
    #[default]
    Down,
    /// From bottom to top: `BT`.
    Up,
    /// From left to right: `LR`.
    Right,
    /// From right to left: `RL`.
    Left,
}

impl LayoutDirection {
    /// Parses a value of `rankdir`.
    pub(super) fn of(rankdir: &str) -> Self {
        match rankdir {
            "BT" => Self::Up,
            "LR" => Self::Right,
            "RL" => Self::Left,
            _ => Self::Down,
        }
    }

    /// Returns the value of `rankdir` for this direction.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Down => "TB",
            Self::Up => "BT",
            Self::Right => "LR",
            Self::Left => "RL",
        }
    }

    /// Returns whether the layers are side by side, and not one below the other.
    pub(super) const fn is_level(self) -> bool {
        matches!(self, Self::Right | Self::Left)
    }

    /// Returns the position of a point in the picture, from its distance across the layers, its distance along them, and the total depth.
    pub(super) const fn point(self, across: i64, along: i64, all: i64) -> Point {
        match self {
            Self::Down => (across, along),
            Self::Up => (across, all - along),
            Self::Right => (along, across),
            Self::Left => (all - along, across),
        }
    }

    /// Returns the distance from the middle of a shape to its border, along or against the layers, at a given offset from the middle.
    pub(super) fn reach(self, shape: &str, along: bool, offset: i64, width: i64) -> i64 {
        let beside = offset.abs();
        if !self.is_level() {
            return match shape {
                "diamond" => HEIGHT / 2 - beside * HEIGHT / width.max(1),
                // The roof of the house.
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
