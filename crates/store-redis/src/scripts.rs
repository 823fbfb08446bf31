//! The scripts that run inside the server. Each file says what it takes and returns.

use std::sync::LazyLock;

use crate::link::Script;

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {
        $(pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!($file)));)*
    };
}

scripts! {
    APPEND = "lua/append.lua";
    LOAD = "lua/load.lua";
    HISTORY = "lua/history.lua";
    AT = "lua/at.lua";
    PRUNE = "lua/prune.lua";
    PURGE = "lua/purge.lua";
    INDEX = "lua/index.lua";
}
