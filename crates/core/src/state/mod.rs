//! Channels, reducers, patches and folding.
