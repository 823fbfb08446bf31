//! A fork that starts at a chosen node, and nodes where a run cannot start.

use crate::support::{path_of, pipeline, registry, source};
use ferrata_core::ErrorKind;
use ferrata_core::RunKey;
use ferrata_core::runtime::{Position, Runtime};
use ferrata_core::state::{Context, Op, Patch};
use ferrata_core::store::MemoryStore;
use ferrata_dot::compile::Compiler;
use ferrata_dot::entry::{begin_at, check};

/// Guarantees: DOT-24.
#[tokio::test]
async fn run_enters_chosen_node_with_its_context() {
    let text = source("a [does=\"success/color:red\"] b [does=fail] c start -> a -> b -> c -> exit");
    let (pipeline, compiler, store) = (pipeline(&text), Compiler::new(registry()), MemoryStore::new());
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let graph = compiler.compile(&pipeline).unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    run.wait().await.unwrap();
    let patch = Patch::from_ops(&[Op::Set("mended".into(), true.into())]).unwrap();
    let again = begin_at(&compiler, &pipeline, &runtime, run.run(), Position::Latest, "c").unwrap();
    let again = again.id("again").edit(patch).drive(&graph).await.unwrap();
    let context = again.wait().await.unwrap().completed().unwrap();
    assert_eq!(path_of(&store, &RunKey::try_from("again").unwrap()).await.join(" "), "c exit");
    assert_eq!(context.get::<String>("color").unwrap().as_deref(), Some("red"));
    assert_eq!(context.get::<bool>("mended").unwrap(), Some(true));
    // The source run is unchanged.
    assert_eq!(path_of(&store, run.run()).await.join(" "), "start a b");
}

/// Guarantees: DOT-24.
#[test]
fn unsuitable_entry_nodes_are_refused() {
    let text = source(
        "before p [type=parallel] a q [type=parallel] x g [type=\"parallel.fan_in\"] f [type=\"parallel.fan_in\"] after \
         start -> before -> p p -> a -> f p -> q q -> x -> g -> f f -> after -> exit",
    );
    let (pipeline, compiler) = (pipeline(&text), Compiler::new(registry()));
    for node in ["start", "before", "p", "after", "exit"] {
        check(&compiler, &pipeline, node).unwrap();
    }
    for node in ["a", "q", "x", "g", "f"] {
        let error = check(&compiler, &pipeline, node).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let wanted = format!("a run cannot start at `{node}`, which is in a branch of `p`; start at `p`");
        assert_eq!(error.message(), wanted);
    }
    let error = check(&compiler, &pipeline, "befor").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().ends_with("did you mean `before`?"), "{error}");
}
