//! The table of attributes that have an effect, each with the kind of element on which it acts.

use super::ValueKind;

/// The kind of element that an attribute belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttributeOwner {
    /// The graph itself.
    Graph,
    /// All nodes.
    AnyNode,
    /// Nodes with one of these handler types.
    NodeOf(&'static [&'static str]),
    /// All edges.
    Edge,
}

/// A rule of the table: an attribute, the kind of element on which it acts, and its effect.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AttributeRule {
    /// The name of the attribute.
    pub name: &'static str,
    /// The kind of element that the attribute belongs to. On any other kind of element, the attribute is an error.
    pub owner: AttributeOwner,
    /// The kind of value that the attribute accepts.
    pub(crate) value: ValueKind,
    /// The default value as text; empty if there is no default.
    pub default: &'static str,
    /// The effect of the attribute, in a few words.
    pub effect: &'static str,
}

impl AttributeRule {
    /// Describes the accepted values in words.
    pub fn values(&self) -> String {
        self.value.to_string()
    }

    /// Returns whether the attribute acts on nodes with this handler type.
    pub fn acts_on(&self, kind: &str) -> bool {
        match self.owner {
            AttributeOwner::AnyNode => true,
            AttributeOwner::NodeOf(kinds) => kinds.contains(&kind),
            AttributeOwner::Graph | AttributeOwner::Edge => false,
        }
    }
}

/// The handler types that give a task to the backend.
const ASKING: &[&str] = &["codergen", "prompt", "parallel.fan_in", "stack.manager_loop"];

/// The handler types that ask the backend or a person.
const PROMPTING: &[&str] = &["codergen", "prompt", "wait.human", "parallel.fan_in", "stack.manager_loop"];

/// The handler types that start commands.
const COMMANDS: &[&str] = &["tool", "codergen", "prompt", "parallel.fan_in", "stack.manager_loop"];

/// The handler types whose work takes time, so that it may time out or be retried.
const WORK: &[&str] = &["codergen", "prompt", "tool", "wait.human", "parallel.fan_in", "stack.manager_loop"];

/// The handler types whose work can fail.
const FALLIBLE: &[&str] = &[
    "codergen",
    "prompt",
    "tool",
    "wait.human",
    "wait",
    "conditional",
    "parallel",
    "parallel.fan_in",
    "stack.manager_loop",
];

/// The handler types whose nodes follow one of several edges.
const CHOOSING: &[&str] = &[
    "start",
    "codergen",
    "prompt",
    "tool",
    "wait.human",
    "wait",
    "conditional",
    "parallel.fan_in",
    "stack.manager_loop",
];

const TOOL: &[&str] = &["tool"];
const GATE: &[&str] = &["wait.human"];
const FORK: &[&str] = &["parallel"];
const MANAGER: &[&str] = &["stack.manager_loop"];

const PRESETS: &[&str] = &["none", "standard", "aggressive", "linear", "patient"];

const fn rule(
    name: &'static str,
    owner: AttributeOwner,
    value: ValueKind,
    default: &'static str,
    effect: &'static str,
) -> AttributeRule {
    AttributeRule { name, owner, value, default, effect }
}

use self::AttributeOwner::{AnyNode, Edge, Graph, NodeOf};
use super::ValueKind::{Amount, Boolean, Count, Duration, Goal, Integer, OneOf, Text, Word};

/// All rules, sorted by the name of the attribute.
pub const ALL: &[AttributeRule] = &[
    rule(
        "allow_partial",
        NodeOf(WORK),
        Boolean,
        "false",
        "after the last retry, a partial success instead of a failure",
    ),
    rule("auto_status", NodeOf(ASKING), Boolean, "false", "a task without an answer and an outcome succeeds"),
    rule("backend", Graph, Text, "", "the command for tasks in `ferrata run`, unless `--backend` names one"),
    rule("budget_target", Graph, Text, "", "the next node once the [budget](#budgets) is spent"),
    rule("class", AnyNode, Text, "", "classes for the stylesheet, separated by blanks or commas"),
    rule("condition", Edge, Text, "", "when the edge may be taken, see [conditions](#conditions)"),
    rule("default_fidelity", Graph, Text, "compact", "default of nodes and edges"),
    rule("default_max_retries", Graph, Count(0), "0", "default of `max_retries`"),
    rule("default_thread", Graph, Text, "", "default of `thread_id`"),
    rule("duration", NodeOf(&["wait"]), Duration, "", "how long it waits"),
    rule(
        "effect",
        NodeOf(WORK),
        OneOf(&["pure", "read", "write", "external"]),
        "`write` of tools and tasks",
        "the cost of a repetition, see below",
    ),
    rule("env.NAME", NodeOf(COMMANDS), Text, "", "a variable of the command's environment"),
    rule(
        "error_policy",
        NodeOf(FORK),
        OneOf(&["fail_fast", "continue", "ignore"]),
        "continue",
        "the effect of a failed [branch](#branches)",
    ),
    rule("fallback_retry_target", Graph, Text, "", "for goal gates without one"),
    rule("fallback_retry_target", NodeOf(FALLIBLE), Text, "", "target of a failure without `retry_target`"),
    rule("fidelity", NodeOf(ASKING), Text, "", "the [summary of the run](#fidelity) before the prompt"),
    rule("fidelity", Edge, Text, "", "of the task that the edge leads to"),
    rule(
        "for_each",
        NodeOf(FORK),
        Text,
        "",
        "a branch for each item of this list, along edges without `for_each`",
    ),
    rule("for_each", Edge, Text, "", "from a `parallel`: a branch for each item of this list"),
    rule("freeform", Edge, Boolean, "false", "from a `wait.human`: the edge that any other text takes"),
    rule("goal", Graph, Text, "", "the purpose: `$goal` in prompts and commands"),
    rule(
        "goal_gate",
        AnyNode,
        Goal,
        "false",
        "the run must not end without its success, see [goal gates](#goal-gates)",
    ),
    rule("human.default_choice", NodeOf(GATE), Text, "", "the edge after `timeout`"),
    rule(
        "join_policy",
        NodeOf(FORK),
        OneOf(&["wait_all", "first_success", "k_of_n", "quorum"]),
        "wait_all",
        "when its [branches](#branches) together succeed",
    ),
    rule("k", NodeOf(FORK), Count(1), "", "how many successes `k_of_n` needs"),
    rule("label", Graph, Text, "", "the title of the drawing"),
    rule("label", AnyNode, Text, "its id", "its name in drawings; default of `prompt`"),
    rule("label", Edge, Text, "", "its name in drawings; a gate's choice; compared with `preferred_label`"),
    rule(
        "language",
        NodeOf(TOOL),
        OneOf(&["sh", "shell", "bash", "python", "python3"]),
        "sh",
        "what runs the command",
    ),
    rule("llm_model", Graph, Text, "", "default of nodes"),
    rule("llm_model", NodeOf(ASKING), Text, "", "the model: `FERRATA_LLM_MODEL`"),
    rule("llm_provider", Graph, Text, "", "default of nodes"),
    rule("llm_provider", NodeOf(ASKING), Text, "", "the provider: `FERRATA_LLM_PROVIDER`"),
    rule("loop_restart", Edge, Boolean, "false", "a [fresh start](#fresh-starts) at its target"),
    rule(
        "loop_restart_signature_limit",
        Graph,
        Count(1),
        "none",
        "limit of the same failure at fresh starts",
    ),
    rule("manager.actions", Graph, Text, "", "default of managers"),
    rule(
        "manager.actions",
        NodeOf(MANAGER),
        Text,
        "observe,wait",
        "what a cycle does: `observe`, `steer`, `wait`",
    ),
    rule("manager.max_cycles", Graph, Count(1), "", "default of managers"),
    rule("manager.max_cycles", NodeOf(MANAGER), Count(1), "1000", "how many cycles the child may take"),
    rule("manager.poll_interval", Graph, Duration, "", "default of managers"),
    rule("manager.poll_interval", NodeOf(MANAGER), Duration, "45s", "how long a cycle takes"),
    rule("manager.stop_condition", Graph, Text, "", "default of managers"),
    rule("manager.stop_condition", NodeOf(MANAGER), Text, "", "when the child is cancelled, with success"),
    rule("max_cost", Graph, Amount, "none", "the [budget](#budgets) of the run, in money"),
    rule("max_cost_cents", Graph, Amount, "none", "the same, in hundredths"),
    rule("max_node_visits", Graph, Count(0), "100 in loops", "default of `max_visits`; 0: no limit"),
    rule(
        "max_parallel",
        NodeOf(FORK),
        Count(1),
        "4",
        "how many nodes of its branches run at once in a process",
    ),
    rule("max_replans", Graph, Count(0), "2", "returns to a node along edges with `replan`"),
    rule("max_retries", NodeOf(WORK), Count(0), "0", "how often the node is tried again"),
    rule("max_steps", Graph, Count(0), "10000 with a loop", "how many nodes a run may begin; 0: no limit"),
    rule("max_time", Graph, Duration, "none", "the [budget](#budgets) of the run, in time that nodes report"),
    rule("max_total_tokens", Graph, Amount, "none", "the [budget](#budgets) of the run, in tokens"),
    rule(
        "max_visits",
        AnyNode,
        Count(0),
        "100 in a loop",
        "how many [visits](#limits-of-loops) the node may have; 0: no limit",
    ),
    rule("model_stylesheet", Graph, Text, "", "models by type, class and id, see [transforms](#transforms)"),
    rule(
        "prompt",
        NodeOf(PROMPTING),
        Text,
        "its label",
        "the task, the question of a gate, the ranking of a fan-in, the steering of a manager; `@file` is the text of a file",
    ),
    rule("prompt_file", NodeOf(PROMPTING), Word, "", "the same as `prompt=\"@file\"`"),
    rule("rankdir", Graph, Text, "TB", "the direction of the drawing: `TB`, `BT`, `LR` or `RL`"),
    rule("reasoning_effort", Graph, Word, "high", "default of nodes"),
    rule(
        "reasoning_effort",
        NodeOf(ASKING),
        Word,
        "",
        "the effort, in the model's words: `FERRATA_REASONING_EFFORT`",
    ),
    rule("replan", Edge, Boolean, "false", "a counted return, see [replanning](../how-to/replanning.md)"),
    rule(
        "retry_on",
        NodeOf(WORK),
        OneOf(&["fail", "retry"]),
        "see below",
        "`fail` also retries failures; `retry` nothing else",
    ),
    rule(
        "retry_policy",
        NodeOf(WORK),
        OneOf(PRESETS),
        "standard",
        "the delays before retries, and their number without `max_retries`",
    ),
    rule("retry_target", Graph, Text, "", "for goal gates without one"),
    rule(
        "retry_target",
        NodeOf(FALLIBLE),
        Text,
        "",
        "target of a failure that no edge takes, and of an unmet goal gate",
    ),
    rule(
        "selection",
        NodeOf(CHOOSING),
        OneOf(&["deterministic", "random"]),
        "deterministic",
        "whether chance decides among edges",
    ),
    rule("shape", AnyNode, Text, "box", "its type, unless `type` says"),
    rule("stack.child_autostart", Graph, Boolean, "", "default of managers"),
    rule("stack.child_autostart", NodeOf(MANAGER), Boolean, "true", "whether the manager starts its child"),
    rule("stack.child_dotfile", Graph, Text, "", "default of managers"),
    rule("stack.child_dotfile", NodeOf(MANAGER), Text, "", "the file of the [child](#children)"),
    rule("stack.child_workdir", Graph, Text, "", "default of managers"),
    rule("stack.child_workdir", NodeOf(MANAGER), Text, "", "the folder of that file"),
    rule("stall_timeout", Graph, Duration, "none", "how long a tool or task may be silent"),
    rule("thread_id", NodeOf(ASKING), Text, "", "the session of the task, with fidelity `full`"),
    rule("thread_id", Edge, Text, "", "of the task that the edge leads to"),
    rule("timeout", NodeOf(WORK), Duration, "none", "limit of an attempt, and of the wait for a person"),
    rule("tool_command", NodeOf(TOOL), Text, "", "the command, see [tools](#tools)"),
    rule("tool_hooks.post", Graph, Text, "", "default of nodes"),
    rule("tool_hooks.post", NodeOf(COMMANDS), Text, "", "a command after each call of a tool"),
    rule("tool_hooks.pre", Graph, Text, "", "default of nodes"),
    rule("tool_hooks.pre", NodeOf(COMMANDS), Text, "", "a command before each call of a tool; may forbid it"),
    rule("type", AnyNode, Text, "that of its shape", "its handler"),
    rule("weight", Edge, Integer, "0", "the heaviest of equal edges is taken"),
    rule("working_dir", NodeOf(COMMANDS), Text, "that of the run", "the folder of the command"),
];
