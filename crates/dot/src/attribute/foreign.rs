//! Attributes of other dialects that change how a node behaves, and that have another form in this dialect. Lint rejects them, because the pipeline
//! would run differently if they were ignored.

/// An attribute of another dialect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForeignAttribute {
    /// The name of the attribute. A name that ends in a dot stands for all names with this prefix.
    name: &'static str,
    /// What the author of the pipeline should write instead.
    pub(crate) remedy: &'static str,
}

const fn attribute(name: &'static str, remedy: &'static str) -> ForeignAttribute {
    ForeignAttribute { name, remedy }
}

const ALL: &[ForeignAttribute] = &[
    attribute("acp.", "give the command to `ferrata run --backend`; it finds the node as `FERRATA_NODE`"),
    attribute(
        "backend",
        "one backend does all tasks: name it by `--backend` or `backend` of the graph, and have it look at `FERRATA_NODE` or `FERRATA_LLM_PROVIDER`",
    ),
    attribute(
        "graph_ref",
        "a pipeline within another is a child: `shape=house, stack.child_dotfile=\"file.dot\"`",
    ),
    attribute(
        "import",
        "a pipeline within another is a child: `shape=house, stack.child_dotfile=\"file.dot\"`",
    ),
    attribute("mcp_args", "have a tool call it: `shape=parallelogram, tool_command=\"..\"`"),
    attribute("mcp_server", "have a tool call it: `shape=parallelogram, tool_command=\"..\"`"),
    attribute("mcp_tool", "have a tool call it: `shape=parallelogram, tool_command=\"..\"`"),
    attribute(
        "output_schema",
        "say the form in the prompt, and have the backend check it and leave its outcome in `status.json`",
    ),
    attribute(
        "question_type",
        "a gate asks which of its edges to take, by their labels; an edge with `freeform=true` takes any text",
    ),
    attribute("stack.child_dot_source", "put the child into a file, and name it by `stack.child_dotfile`"),
];

/// Finds the attribute of another dialect with this name.
pub(crate) fn foreign(key: &str) -> Option<&'static ForeignAttribute> {
    ALL.iter().find(|known| match known.name.strip_suffix('.') {
        Some(_) => key.starts_with(known.name),
        None => key == known.name,
    })
}
