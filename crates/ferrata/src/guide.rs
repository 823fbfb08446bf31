//! A guide, from the first graph to a service at night. Each page has programs that are compiled and run with the tests.
//!
//! Ferrata is not on crates.io yet. Depend on it by git: `cargo add ferrata --git https://github.com/ferrata-rs/ferrata`.
//!
//! | page | for |
//! |---|---|
//! | [`first_graph`] | the four parts of a program |
//! | [`state`] | channels, reducers, drafts and updates |
//! | [`graphs`] | edges, routes, joins, loops and their limits |
//! | [`nodes`] | items, outputs, resources, and all that a node may use |
//! | [`effects`] | a query, a mail and a payment |
//! | [`people`] | questions, messages and times |
//! | [`children`] | subgraphs, maps, sub-agents, detached runs |
//! | [`errors`] | failures, retries, and what an operator does |
//! | [`testing`] | the five tests every workflow should have, without waiting and without servers |
//! | [`changing`] | other code, other graphs, other state |
//! | [`deploying`] | a service of several copies |
//! | [`operating`] | at night |
//! | [`limits`] | every limit on one page |
//! | [`coming_from`] | LangGraph, Temporal, DBOS: the same ideas under other names |

macro_rules! pages {
    ($($page:ident)*) => {
        $(
            #[doc = include_str!(concat!("../guide/", stringify!($page), "/README.md"))]
            pub mod $page {}
        )*
    };
}

pages! { first_graph state graphs nodes effects people children errors testing changing deploying operating limits coming_from }
