//! The answerer's work in isolation: each question once, until it is closed or asked again.

use std::sync::Mutex;

use async_trait::async_trait;

use super::*;
use crate::ask::QuestionKind;
use crate::id::{NodeName, Visit};
use crate::runtime::driver::test_fixture::soon;

/// Answers the questions that start with `yes`, and works on others forever.
#[derive(Debug, Default)]
struct Eager {
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl Answerer for Eager {
    async fn answer(&self, asking: &AnswererQuestion) -> Option<Answer> {
        self.asked.lock().unwrap().push(asking.question.id.clone());
        if !asking.question.id.starts_with("yes") {
            std::future::pending::<()>().await;
        }
        Some(Answer::Reject("no".into()))
    }

    fn name(&self) -> String {
        "eager".into()
    }
}

struct World {
    asks: AnswererTasks,
    eager: Arc<Eager>,
}

impl World {
    fn new() -> Self {
        Self { asks: AnswererTasks::default(), eager: Arc::default() }
    }

    async fn pose(&mut self, open: &[&str]) {
        let question = |id: &&str| {
            let node = NodeName::try_from("n").unwrap();
            Question::new((*id).into(), node, Visit::new(1), QuestionKind::Asked)
        };
        let answerer: Arc<dyn Answerer> = Arc::<Eager>::clone(&self.eager);
        let run = RunKey::try_from("r").unwrap();
        self.asks.pose(&run, &answerer, open.iter().map(question).collect());
        tokio::task::yield_now().await;
    }

    fn asked(&self) -> Vec<String> {
        self.eager.asked.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn question_is_posed_once_until_repeated() {
    let mut world = World::new();
    world.pose(&["yes", "open"]).await;
    world.pose(&["yes", "open"]).await;
    assert_eq!(world.asked(), ["yes", "open"]);
    let (task, (question, answer)) = soon(world.asks.next_answer()).await.unwrap().unwrap();
    assert!(question == "yes" && answer.is_some() && world.asks.is_current(task, "yes"));
    world.pose(&["yes", "open"]).await;
    assert_eq!(
        world.asked(),
        ["yes", "open"],
        "the answer may be refused, and the question stays with the answerer"
    );
    world.asks.allow_again("yes");
    world.pose(&["yes", "open"]).await;
    assert_eq!(world.asked(), ["yes", "open", "yes"]);
    assert!(!world.asks.is_current(task, "yes"), "an earlier answer belongs to the earlier question");
}

#[tokio::test]
async fn answerer_task_ends_with_its_question() {
    let mut world = World::new();
    world.pose(&["closed", "taken back"]).await;
    assert!(!world.asks.is_empty() && !world.asks.is_idle());
    world.pose(&["taken back"]).await;
    assert!(soon(world.asks.next_answer()).await.unwrap().unwrap_err().is_cancelled());
    world.asks.withdraw("taken back");
    assert!(soon(world.asks.next_answer()).await.unwrap().unwrap_err().is_cancelled());
    assert!(soon(world.asks.next_answer()).await.is_none() && world.asks.is_empty() && world.asks.is_idle());
}
