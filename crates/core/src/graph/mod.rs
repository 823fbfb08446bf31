//! Nodes and edges: builder, validation, topology.
