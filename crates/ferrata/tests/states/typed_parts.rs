//! Subgraphs over typed states: parts of channels, and parts that are one field.

use ferrata::State;
use ferrata::graph::{Graph, GraphBuilder, Lens};
use ferrata::node::{NodeContext, NodeResult};
use ferrata::record::FailureKind;
use ferrata::runtime::{Outcome, Runtime};
use ferrata::state::Draft;
use ferrata::store::MemoryStore;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
struct Review {
    text: String,
    #[state(append)]
    notes: Vec<String>,
    #[state(sum)]
    score: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
struct Article {
    title: String,
    text: String,
    #[state(append)]
    remarks: Vec<String>,
    #[state(sum)]
    points: i64,
    review: Review,
}

async fn by_draft(cx: NodeContext, mut s: Draft<Review>) -> NodeResult<Review> {
    tokio::task::yield_now().await;
    let text = format!("{}: {}", cx.node(), s.text);
    s.notes.push(text);
    s.score += 2;
    Ok(s.into())
}

async fn by_update(cx: NodeContext, _s: Draft<Review>) -> NodeResult<Review> {
    tokio::task::yield_now().await;
    Ok(Review::update().notes([cx.node().to_string()]).score(3).into())
}

fn review() -> GraphBuilder<Review> {
    let graph = Graph::<Review>::builder("review").node("split", by_draft).node("lint", by_draft);
    graph.node("facts", by_update).entry("split")
}

async fn end(part: GraphBuilder<Review>, lens: Lens<Article, Review>) -> Outcome<Article> {
    let graph = Graph::<Article>::builder("article")
        .node("write", async |_cx, mut s| {
            s.text = "draft".into();
            Ok(s)
        })
        .subgraph("review", &part.build().unwrap(), lens)
        .node("name", async |_cx, mut s| {
            s.title = format!("{} points", s.points + s.review.score);
            Ok(s)
        })
        .entry("write")
        .edge("write", "review")
        .edge("review", "name")
        .build()
        .unwrap();
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let run = runtime.start(&graph, Article::default()).await.unwrap();
    run.wait().await.unwrap()
}

/// Concurrent nodes of a part can change its channels as in a flat graph.
#[tokio::test]
async fn channels_of_part_join_by_outer_reducers() {
    let lens = Lens::new(
        |a: &Article| Review { text: a.text.clone(), notes: a.remarks.clone(), score: a.points },
        |a: &mut Article, r: Review| (a.text, a.remarks, a.points) = (r.text, r.notes, r.score),
    );
    let part = review().edge("split", ["lint", "facts"]);
    let Outcome::Completed(mut state) = end(part, lens).await else { panic!("not completed") };
    assert_eq!(state.title, "7 points");
    // Items of concurrent nodes are in the order in which the nodes end.
    state.remarks.sort_unstable();
    assert_eq!(state.remarks, ["review/facts", "review/lint: draft", "review/split: draft"]);
    assert_eq!(state.review, Review::default());
}

/// A field is a single channel. Sequential changes are kept, and concurrent changes are an error, so that none is lost.
///
/// Guarantees: COMPOSE-6.
#[tokio::test]
async fn a_field_is_one_channel() {
    let lens = || Lens::field(|a: &Article| &a.review, |a| &mut a.review);
    let part = review().edge("split", "lint").edge("lint", "facts");
    let Outcome::Completed(state) = end(part, lens()).await else { panic!("not completed") };
    assert_eq!((&*state.title, state.points), ("7 points", 0));
    assert_eq!(state.review.notes, ["review/split: ", "review/lint: ", "review/facts"]);

    let part = review().edge("split", ["lint", "facts"]);
    let Outcome::Failed { failure, .. } = end(part, lens()).await else { panic!("not failed") };
    assert_eq!(failure.kind, FailureKind::ConcurrentWrite);
    assert!(failure.message.contains("`review/facts@1`"), "{}", failure.message);
}
