//! A guide in pages, from the first function to the operation of a service. The tests compile and run the programs of each page.
//!
//! Add the crate with `cargo add ferrata`. Until the first release is on crates.io, add its Git tag:
//! `cargo add ferrata --git https://github.com/ferrata-rs/ferrata --tag v0.1.0`.
//!
//! | page | for |
//! |---|---|
//! | [`first_function`] | one async function that survives a kill |
//! | [`first_graph`] | the four parts of a graph program |
//! | [`state`] | channels, reducers, drafts and updates |
//! | [`graphs`] | edges, routes, joins, loops and their limits |
//! | [`nodes`] | items, outputs, resources, and the calls of a node |
//! | [`effects`] | a query, a mail and a payment |
//! | [`people`] | questions, messages and timers |
//! | [`children`] | subgraphs, maps, sub-agents, detached runs |
//! | [`errors`] | failures, retries, and what an operator does |
//! | [`testing`] | five tests that every workflow should have |
//! | [`changing`] | new code for old runs |
//! | [`deploying`] | processes, stores and rolling updates |
//! | [`operating`] | an alert at night |
//! | [`limits`] | what is missing, slow or unproven; sizes and counts |
//! | [`coming_from`] | the terms of LangGraph, Temporal, DBOS and Restate, translated into Ferrata's |

macro_rules! pages {
    ($($page:ident)*) => {
        $(
            #[doc = include_str!(concat!("../guide/", stringify!($page), "/README.md"))]
            pub mod $page {}
        )*
    };
}

pages! { first_function first_graph state graphs nodes effects people children errors testing changing deploying operating limits coming_from }
