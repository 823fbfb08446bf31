//! The scripts that run inside the server. Each file describes its arguments and its result.

use std::sync::LazyLock;

use crate::link::Script;

macro_rules! scripts {
    ($($name:ident = $($file:literal),+;)*) => {
        $(pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!($(include_str!(concat!("lua/", $file, ".lua"))),+)));)*
    };
}

// First come the functions, then the script that uses them.
scripts! {
    APPEND = "each", "places", "append";
    INDEX = "each", "places", "index";
    HEADS = "each", "heads";
    LOAD = "header", "load";
    SINCE = "header", "since";
    HEADERS = "header", "headers";
    AT = "header", "at";
    PRUNE = "header", "prune";
    PURGE = "header", "purge";
    RESEAL = "header", "reseal";
}
