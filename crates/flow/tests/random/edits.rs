//! Random edits of a function between a crash and its replay: each is safe, or is refused before it repeats an effect.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::runtime::Outcome;
use ferrata_flow::{Flow, FlowCallError, FlowContext, FlowError, FlowHandle, RuntimeFlowExt, flow};
use ferrata_testing::World;

use crate::rng::{Rng, seeds};

/// How many seeds a run of the tests tries.
const SEEDS: u64 = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Step,
    Read,
    Timer,
    Value,
}

/// An operation. Its effect has a number of its own, which it keeps whatever it is called.
#[derive(Clone, Debug)]
struct Line {
    effect: u32,
    name: String,
    kind: Kind,
}

/// A program: groups, one after the other, of operations that run at the same time. `None` waits for a message.
type Code = Vec<Option<Vec<Line>>>;

/// How often each effect was had.
type Effects = Arc<Mutex<BTreeMap<u32, u32>>>;

struct Writer {
    rng: Rng,
    last: u32,
}

impl Writer {
    fn line(&mut self) -> Line {
        self.last += 1;
        let kind = match self.rng.below(10) {
            0 => Kind::Read,
            1 => Kind::Timer,
            2 => Kind::Value,
            _ => Kind::Step,
        };
        Line { effect: self.last, name: format!("n{}", self.last), kind }
    }

    fn group(&mut self) -> Vec<Line> {
        (0..=self.rng.below(3)).map(|_| self.line()).collect()
    }

    fn code(&mut self) -> Code {
        let mut code: Code = (0..2 + self.rng.below(4)).map(|_| Some(self.group())).collect();
        let at = 1 + self.rng.below(u32::try_from(code.len()).unwrap()) as usize;
        code.insert(at, None);
        code
    }

    /// Changes one thing.
    fn edit(&mut self, code: &mut Code) {
        let count = u32::try_from(code.len()).unwrap();
        let at = self.rng.below(count) as usize;
        let other = self.rng.below(count) as usize;
        match self.rng.below(6) {
            0 => code.insert(at, Some(self.group())),
            1 => code.swap(at, other),
            2 => {
                let line = self.line();
                if let Some(group) = &mut code[at] {
                    group.push(line)
                }
            }
            3 => {
                self.last += 1;
                let name = format!("n{}", self.last);
                if let Some(line) = code[at].as_mut().and_then(|group| group.first_mut()) {
                    line.name = name
                }
            }
            4 => {
                let line = code[at].as_mut().and_then(Vec::pop);
                if let (Some(line), Some(group)) = (line, &mut code[other]) {
                    group.insert(0, line)
                }
            }
            _ => {
                if let Some(group) = &mut code[at] {
                    group.pop();
                }
            }
        }
    }
}

fn program(code: &Code, effects: &Effects) -> Flow<(), ()> {
    let (code, effects) = (Arc::new(code.clone()), Arc::clone(effects));
    flow("edited", move |cx: FlowContext, _: ()| {
        let (code, effects) = (Arc::clone(&code), Arc::clone(&effects));
        async move {
            for group in &*code {
                let Some(group) = group else {
                    let _: String = cx.receive("wait").await;
                    continue;
                };
                let lines = group.iter().map(|line| run(&cx, line, &effects));
                for result in futures_util::future::join_all(lines).await {
                    result?;
                }
            }
            Ok(())
        }
    })
}

async fn run(cx: &FlowContext, line: &Line, effects: &Effects) -> Result<(), FlowError> {
    let work = || {
        let (effects, effect) = (Arc::clone(effects), line.effect);
        async move {
            *effects.lock().unwrap().entry(effect).or_default() += 1;
            Ok::<_, FlowError>(())
        }
    };
    match line.kind {
        Kind::Step => cx.step(&line.name, work).await?,
        Kind::Read => cx.step(&line.name, || async { Ok::<_, FlowError>(()) }).read_only().await?,
        Kind::Timer => cx.sleep(&line.name, Duration::from_secs(5)).await,
        Kind::Value => drop(cx.random(&line.name).await),
    }
    Ok(())
}

/// Guarantees: FLOW-4.
#[tokio::test]
async fn edits_are_safe_or_refused() {
    let (mut safe, mut refused) = (0, 0);
    for seed in seeds(SEEDS) {
        let mut writer = Writer { rng: Rng::new(seed ^ 0xED17), last: 0 };
        let old = writer.code();
        let mut new = old.clone();
        for _ in 0..=writer.rng.below(2) {
            writer.edit(&mut new);
        }
        let effects = Effects::default();
        let world = World::new();
        let process = world.process().await.unwrap();
        let handle = world.pass(process.call(&program(&old, &effects), ()).id("r").start()).await.unwrap();
        let outcome = world.pass(handle.handle().wait()).await.unwrap();
        assert!(matches!(outcome, Outcome::AwaitingInput), "seed {seed}: {outcome}");
        let before = effects.lock().unwrap().clone();
        process.crash().await;
        let process = world.process().await.unwrap();
        world.pass(process.send(handle.run(), "go on")).await.unwrap();
        let edited = program(&new, &effects);
        let handle = world.pass(process.resume(edited.graph().unwrap(), handle.run())).await.unwrap();
        let result = world.pass(FlowHandle::<()>::new(handle).result()).await;
        let after = effects.lock().unwrap().clone();
        let case =
            format!("seed {seed}\nold {old:?}\nnew {new:?}\n{result:?}\nbefore {before:?}\nafter {after:?}");
        assert!(after.values().all(|count| *count == 1), "an effect was repeated: {case}");
        match result {
            Ok(()) => {
                safe += 1;
                let steps = new.iter().flatten().flatten().filter(|line| line.kind == Kind::Step);
                for line in steps {
                    assert!(after.contains_key(&line.effect), "{line:?} was not done: {case}");
                }
            }
            Err(FlowCallError::CodeChanged(_)) => {
                refused += 1;
                assert_eq!(before, after, "a refused function did something: {case}");
            }
            Err(_) => panic!("{case}"),
        }
    }
    println!("{safe} edits were safe, {refused} were refused");
    assert!(safe + refused < 200 || (safe > 20 && refused > 20));
}
