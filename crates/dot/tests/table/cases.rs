//! The pipelines. The name of each case has the sections of the specification that it covers.

/// A pipeline and its expected result.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Statements next to a start and an exit. Nodes follow their `does`.
    pub(crate) graph: &'static str,
    /// The answers at gates, visit by visit.
    pub(crate) answers: &'static [(&'static str, &'static str)],
    /// The nodes in the order of their ends. With branches, the order is ignored.
    pub(crate) path: &'static str,
    pub(crate) end: End,
    /// Values of the final context.
    pub(crate) known: &'static [(&'static str, &'static str)],
}

impl Case {
    pub(crate) fn is_parallel(&self) -> bool {
        self.graph.contains("type=parallel")
    }
}

#[derive(Clone, Copy)]
pub(crate) enum End {
    Completes,
    Fails(&'static str),
}

const fn case(
    name: &'static str,
    graph: &'static str,
    path: &'static str,
    known: &'static [(&'static str, &'static str)],
) -> Case {
    Case { name, graph, answers: &[], path, end: End::Completes, known }
}

impl Case {
    const fn fails(mut self, why: &'static str) -> Self {
        self.end = End::Fails(why);
        self
    }

    const fn answered(mut self, answers: &'static [(&'static str, &'static str)]) -> Self {
        self.answers = answers;
        self
    }
}

pub(crate) const CASES: &[Case] = &[
    case("1.2 a chain of three", "a start -> a -> exit", "start a exit", &[("outcome", "success"), ("current_node", "exit")]),
    case(
        "1.2 a longer chain hands its context on",
        "a [does=\"success/x:1\"] b [does=\"success/y:2\"] c start -> a -> b -> c -> exit",
        "start a b c exit",
        &[("x", "1"), ("y", "2")],
    ),
    case("1.2 a node that nothing follows is the end, with success", "a b start -> a a -> b [condition=\"outcome=success\"] a -> exit", "start a b", &[]),
    case(
        "1.2 a node none of whose edges holds fails the run",
        "a start -> a a -> exit [condition=\"outcome=fail\"]",
        "start a",
        &[],
    )
    .fails("`a` ended with `success`, and no condition of its edges holds: to `exit` if `outcome=fail`; add an edge without a condition"),
    case(
        "1.2 a branch ends with a failure where none of a node's edges holds",
        "p [type=parallel] a b c f [type=parallel.fan_in] start -> p p -> a p -> b -> f a -> c [condition=\"outcome=skipped\"] c -> f f -> exit",
        "start p a b f exit",
        &[("outcome", "success")],
    ),
    case(
        "1.1 the attributes of the graph are in the context",
        "goal=ship depth=3 a start -> a a -> exit [condition=\"graph.goal=ship && graph.depth=3\"]",
        "start a exit",
        &[("graph.goal", "ship"), ("graph.depth", "3")],
    ),
    case(
        "1.1 a chain's attributes are those of each edge",
        "a b c start -> a a -> b -> c [condition=\"outcome=success\"] c -> exit",
        "start a b c exit",
        &[],
    ),
    case(
        "1.3 a condition comes before weight",
        "a b c start -> a a -> b [weight=9] a -> c [condition=\"outcome=success\"] b -> exit c -> exit",
        "start a c exit",
        &[],
    ),
    case(
        "1.3 the heaviest condition that holds",
        "a b c start -> a a -> b [condition=\"outcome=success\"] a -> c [condition=\"outcome!=fail\", weight=2] b -> exit c -> exit",
        "start a c exit",
        &[],
    ),
    case(
        "1.3 the preferred label",
        "a [does=\"success/label:fix\"] b c start -> a a -> b [weight=9] a -> c [label=\"[F] Fix\"] b -> exit c -> exit",
        "start a c exit",
        &[],
    ),
    case(
        "1.3 a suggested node",
        "a [does=\"success/next:zz+c\"] b c start -> a a -> b [weight=9] a -> c b -> exit c -> exit",
        "start a c exit",
        &[],
    ),
    case("1.3 the heaviest edge", "a b c start -> a a -> b a -> c [weight=2] b -> exit c -> exit", "start a c exit", &[]),
    case("1.3 the first by name", "a c b start -> a a -> c a -> b b -> exit c -> exit", "start a b exit", &[]),
    case(
        "1.3 conditions on the context, with all operators",
        "a [does=\"success/n:12/t:a-warm-day\"] b c d start -> a a -> b [condition=\"n<5 || (t contains warm && !t=x)\"] a -> c \
         b -> d [condition=\"t matches ^a-w && n>=12\"] b -> c c -> exit d -> exit",
        "start a b d exit",
        &[],
    ),
    case(
        "1.3 a diamond decides on the outcome before it",
        "a [does=fail] d [type=conditional] b c start -> a -> d d -> b [condition=\"outcome=success\"] d -> c [condition=\"outcome=fail\"] \
         b -> exit c -> exit",
        "start a d c exit",
        &[],
    ),
    case(
        "1.3 diamonds in a row",
        "a [does=\"partial/label:go\"] d [type=conditional] e [type=conditional] b c start -> a -> d -> e e -> b [label=go] e -> c [weight=3] \
         b -> exit c -> exit",
        "start a d e b exit",
        &[],
    ),
    case(
        "1.3 a loop ends when its condition does",
        "a [does=\"success success success/done:yes\"] start -> a a -> exit [condition=done] a -> a",
        "start a a a exit",
        &[],
    ),
    case(
        "1.3 a loop of two nodes",
        "a b [does=\"fail fail success\"] start -> a -> b b -> a [condition=\"outcome=fail\"] b -> exit [condition=\"outcome=success\"]",
        "start a b a b a b exit",
        &[],
    ),
    case(
        "1.4 a gate that succeeded lets the run end",
        "a [goal_gate=true, does=partial] start -> a -> exit",
        "start a exit",
        &[],
    ),
    case(
        "1.4 a gate that failed sends the run back to its retry target",
        "a b [goal_gate=true, retry_target=a, does=\"skipped success\"] start -> a -> b -> exit",
        "start a b exit a b exit",
        &[],
    ),
    case(
        "1.4 the gate's own targets come before those of the graph",
        "retry_target=c a b [goal_gate=true, fallback_retry_target=a, does=\"skipped success\"] c start -> a -> b -> exit c -> exit",
        "start a b exit a b exit",
        &[],
    ),
    case(
        "1.4 the graph's fallback comes last",
        "fallback_retry_target=a a b [goal_gate=true, does=\"skipped success\"] start -> a -> b -> exit",
        "start a b exit a b exit",
        &[],
    ),
    case("1.4 a gate that is not met and has no target", "a [goal_gate=true, does=skipped] start -> a -> exit", "start a exit", &[])
        .fails("goal gate unsatisfied and no retry target: `a` did not succeed; set its `retry_target`"),
    case(
        "1.4 a gate that was not visited",
        "a b [goal_gate=true] start -> a a -> exit a -> b [condition=\"outcome=fail\"] b -> exit",
        "start a exit",
        &[],
    ),
    case("1.5 a retry that helps", "a [max_retries=2, does=\"retry,retry,success\"] start -> a -> exit", "start a exit", &[]),
    case("1.5 retries that do not help", "a [max_retries=1, does=retry] start -> a -> exit", "start a", &[])
        .fails("max retries exceeded"),
    case(
        "1.5 a transient error is tried again",
        "a [retry_policy=linear, does=\"transient,success\"] start -> a -> exit",
        "start a exit",
        &[],
    ),
    case(
        "1.5 a partial success is allowed",
        "a [max_retries=1, allow_partial=true, does=retry] b start -> a a -> b [condition=\"outcome=partial_success\"] b -> exit",
        "start a b exit",
        &[],
    ),
    case("1.5 a failure is not tried again", "a [max_retries=5, does=fail] start -> a -> exit", "start a", &[]).fails("a failed"),
    case(
        "1.5 a failure takes its edge",
        "a [does=fail] b start -> a -> exit a -> b [condition=\"outcome=fail\"] b -> exit",
        "start a b exit",
        &[],
    ),
    case(
        "1.5 a failure jumps to the retry target",
        "a [does=\"fail success\", retry_target=b] b start -> a -> exit b -> a",
        "start a b a exit",
        &[],
    ),
    case(
        "1.5 a failure jumps to the fallback",
        "a [does=fail, fallback_retry_target=b] b start -> a -> exit b -> exit",
        "start a b exit",
        &[],
    ),
    case("1.5 a panic is a failure", "a [does=panic] b start -> a -> exit a -> b [condition=\"outcome=fail\"] b -> exit", "start a b exit", &[]),
    case("1.5 too many visits", "a [max_visits=2] start -> a -> a a -> exit [condition=\"outcome=fail\"]", "start a a", &[])
        .fails("the node needs visit 3, and at most 2 are allowed; raise `max_visits`"),
    case("1.5 too many steps", "graph [max_steps=3] a start -> a a -> a [weight=1] a -> exit", "start a a", &[])
        .fails("the run needs activation 4, and at most 3 are allowed; look for an endless loop, or raise `max_steps`"),
    case("1.5 any number of steps", "graph [max_steps=0] a start -> a -> exit", "start a exit", &[]),
    case("1.5 a status that nobody gave", "a [auto_status=true, does=no_status] start -> a -> exit", "start a exit", &[]),
    case(
        "1.2 a fresh start",
        "a [does=\"success/x:1/again:yes success\"] start -> a a -> a [condition=\"again=yes\", loop_restart=true] a -> exit",
        "start a a exit",
        &[("internal.restarts", "1"), ("x", "null")],
    ),
    case(
        "1.5 the same failure after fresh starts",
        "loop_restart_signature_limit=2 a [does=fail] start -> a a -> a [condition=\"outcome=fail\", loop_restart=true] a -> exit",
        "start a a",
        &[],
    )
    .fails("fresh starts ended 2 times with the same failure: a failed; fix its cause, or raise `loop_restart_signature_limit`"),
    case(
        "1.6 a gate and its answer",
        "g [type=\"wait.human\"] y n start -> g g -> y [label=\"[Y] Yes\"] g -> n [label=\"[N] No\"] y -> exit n -> exit",
        "start g n exit",
        &[("human.gate.selected", "N"), ("human.gate.label", "[N] No")],
    )
    .answered(&[("g", "No")]),
    case(
        "1.6 a gate in a loop is asked each time",
        "a g [type=\"wait.human\"] start -> a -> g g -> a [label=again] g -> exit [label=done]",
        "start a g a g exit",
        &[],
    )
    .answered(&[("g", "again"), ("g", "done")]),
    case(
        "1.6 a freeform answer",
        "g [type=\"wait.human\"] y w start -> g g -> y [label=Yes] g -> w [freeform=true] y -> exit w -> exit",
        "start g w exit",
        &[("human.gate.text", "rather blue")],
    )
    .answered(&[("g", "rather blue")]),
    case("1.1 a timer", "w [type=wait, duration=10ms] start -> w -> exit", "start w exit", &[]),
    case(
        "1.6 two branches",
        "p [type=parallel] a [does=\"success/x:1\"] b [does=partial] f [type=\"parallel.fan_in\"] start -> p p -> a -> f p -> b -> f f -> exit",
        "start p a b f exit",
        &[("parallel.fan_in.best_id", "a"), ("x", "null")],
    ),
    case(
        "1.6 branches of unequal length, one of which fails",
        "p [type=parallel] a a2 a3 b [does=fail] f [type=\"parallel.fan_in\"] ok start -> p p -> a -> a2 -> a3 -> f p -> b -> f \
         f -> ok [condition=\"outcome=partial_success\"] f -> exit ok -> exit",
        "start p a a2 a3 b f ok exit",
        &[],
    ),
    case(
        "1.6 nothing but failures",
        "p [type=parallel] a [does=fail] b [does=fail] f [type=\"parallel.fan_in\"] bad start -> p p -> a -> f p -> b -> f \
         f -> bad [condition=\"outcome=fail\"] f -> exit bad -> exit",
        "start p a b f bad exit",
        &[("parallel.fan_in.best_id", "a"), ("parallel.fan_in.best_outcome", "fail")],
    ),
    case(
        "1.6 a quorum that needs both",
        "p [type=parallel, join_policy=quorum] a b [does=partial] f [type=\"parallel.fan_in\"] ok start -> p p -> a -> f p -> b -> f \
         f -> ok [condition=\"outcome=success\"] f -> exit ok -> exit",
        "start p a b f ok exit",
        &[],
    ),
    case(
        "1.6 a loop within a branch",
        "p [type=parallel] a [does=\"success success/done:yes\"] b f [type=\"parallel.fan_in\"] start -> p p -> a a -> f [condition=done] a -> a \
         p -> b -> f f -> exit",
        "start p a a b f exit",
        &[],
    ),
    case(
        "1.6 a fork within a loop",
        "p [type=parallel] a [does=\"fail success\"] b f [type=\"parallel.fan_in\"] start -> p p -> a -> f p -> b -> f \
         f -> exit [condition=\"outcome=success\"] f -> p",
        "start p a b f p a b f exit",
        &[],
    ),
    case(
        "1.6 parallel nodes that nest",
        "p [type=parallel] a q [type=parallel] x y [does=\"success/score:2\"] g [type=\"parallel.fan_in\"] z f [type=\"parallel.fan_in\"] \
         start -> p p -> a -> f p -> q q -> x -> g q -> y -> g g -> z [condition=\"parallel.fan_in.best_id=y\"] g -> f z -> f f -> exit",
        "start p a q x y g z f exit",
        &[],
    ),
    case(
        "1.6 a person in a branch",
        "p [type=parallel] g [type=\"wait.human\"] y n b f [type=\"parallel.fan_in\"] start -> p p -> g g -> y g -> n y -> f n -> f p -> b -> f f -> exit",
        "start p g n b f exit",
        &[],
    )
    .answered(&[("g", "n")]),
    case(
        "1.6 a goal gate in a branch, and the fork again",
        "retry_target=p p [type=parallel] a [goal_gate=true, does=\"skipped success\"] b f [type=\"parallel.fan_in\"] start -> p p -> a -> f \
         p -> b -> f f -> exit",
        "start p a b f exit p a b f exit",
        &[],
    ),
    case(
        "1.6 nested branches with a person, a loop and retries",
        "p [type=parallel] a [max_retries=1, does=\"retry,success\"] q [type=parallel] x [does=\"fail success\", retry_target=m] m \
         h [type=\"wait.human\"] u v g [type=\"parallel.fan_in\"] f [type=\"parallel.fan_in\"] last start -> p p -> a -> f p -> q q -> x -> g \
         m -> x q -> h h -> u h -> v u -> g v -> g g -> f f -> last -> exit",
        "start p a q x m x h v g f last exit",
        &[],
    )
    .answered(&[("h", "v")]),
    case(
        "effects: what must not be repeated",
        "a [effect=external, does=\"success/paid:yes\"] b start -> a -> b -> exit",
        "start a b exit",
        &[("paid", "yes")],
    ),
    case(
        "effects: pure nodes run ahead of their records",
        "node [effect=pure] a [does=\"success/x:1\"] b c d start -> a -> b -> c -> d -> exit",
        "start a b c d exit",
        &[("x", "1")],
    ),
    case(
        "1.7 tasks keep what they were told for the next ones",
        "t [type=codergen, prompt=\"do t\"] u [type=codergen, prompt=\"do u\", fidelity=full, thread_id=s] start -> t -> u -> exit",
        "start t u exit",
        &[("last_stage", "u"), ("response.t", "[Simulated] Response for stage: t")],
    ),
];
