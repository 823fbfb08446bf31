//! Attributes of other dialects that change how a node behaves, and that have another form in this dialect. Lint rejects them, because the pipeline
//! would run differently if they were ignored.

/// An attribute of another dialect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForeignAttribute {
    /// The name of the attribute. A name that ends in a dot stands for all names with this prefix.
    name: &'static str,
    /// The replacement that the author of the pipeline should write.
    pub(crate) remedy: &'static str,
}

const fn attribute(name: &'static str, remedy: &'static str) -> ForeignAttribute {
    ForeignAttribute { name, remedy }
}

const ALL: &[ForeignAttribute] = &[
    attribute(
        "acp.",
        "pass the command to `ferrata run --backend`; the command reads the node from `FERRATA_NODE`",
    ),
    attribute(
        "backend",
        "one backend runs all tasks; set `--backend` or the attribute `backend` of the graph, and let the command read `FERRATA_NODE` or `FERRATA_LLM_PROVIDER`",
    ),
    attribute(
        "graph_ref",
        "to run another pipeline, use a child: `shape=house, stack.child_dotfile=\"file.dot\"`",
    ),
    attribute(
        "import",
        "to run another pipeline, use a child: `shape=house, stack.child_dotfile=\"file.dot\"`",
    ),
    attribute("mcp_args", "call it with a tool: `shape=parallelogram, tool_command=\"..\"`"),
    attribute("mcp_server", "call it with a tool: `shape=parallelogram, tool_command=\"..\"`"),
    attribute("mcp_tool", "call it with a tool: `shape=parallelogram, tool_command=\"..\"`"),
    attribute(
        "output_schema",
        "describe the format in the prompt, and let the backend check it and write the outcome to `status.json`",
    ),
    attribute(
        "question_type",
        "a gate offers the labels of its edges as choices; for free text, set `freeform=true` on an edge",
    ),
    attribute(
        "stack.child_dot_source",
        "put the child into a file, and set `stack.child_dotfile` to its path",
    ),
];

/// Finds the attribute of another dialect with this name.
pub(crate) fn foreign(key: &str) -> Option<&'static ForeignAttribute> {
    ALL.iter().find(|known| match known.name.strip_suffix('.') {
        Some(_) => key.starts_with(known.name),
        None => key == known.name,
    })
}
