//! Random edits of a function between a crash and its replay: each is safe or refused, as the rule of `docs/how-to/functions.md` predicts it, and
//! none repeats an effect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::ask::{Answer, Answerer, AnswererQuestion, Ask};
use ferrata_core::runtime::Outcome;
use ferrata_core::store::CheckpointStore as _;
use ferrata_flow::{Flow, FlowCallError, FlowContext, FlowError, FlowHandle, RuntimeFlowExt, flow};
use ferrata_testing::{Fault, Process, World};

use crate::recorded::{Recorded, RecordedAs, recorded};
use crate::rng::{Rng, seeds};

/// How many seeds a run of the tests tries.
const SEEDS: u64 = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Step,
    Read,
    Timer,
    Value,
    /// A question, which an answerer answers at once.
    Ask,
    /// A question that nobody answers. It expires.
    OpenAsk,
    Child,
}

impl Kind {
    fn recorded_as(self) -> RecordedAs {
        match self {
            Self::Step | Self::Read => RecordedAs::Step,
            Self::Timer => RecordedAs::Timer,
            Self::Value => RecordedAs::Value,
            Self::Ask | Self::OpenAsk => RecordedAs::Question,
            Self::Child => RecordedAs::Child,
        }
    }

    fn is_safe(self) -> bool {
        matches!(self, Self::Read | Self::Timer | Self::Value)
    }

    /// Returns whether its end has an effect that the test counts.
    fn is_counted(self) -> bool {
        matches!(self, Self::Step | Self::Child)
    }
}

/// An operation. Its effect has a number of its own, which it keeps whatever it is called.
#[derive(Clone, Debug)]
struct Line {
    effect: u32,
    name: String,
    kind: Kind,
}

/// A part of a program. The parts run one after the other.
#[derive(Clone, Debug)]
enum Part {
    /// Operations that run at the same time.
    All(Vec<Line>),
    /// Two operations, of which the first to end wins.
    Race(Line, Line),
    /// Waits for a message.
    Wait,
    /// Registers a compensation.
    Undo(Line),
    /// An operation that the runs of the old code do not have.
    Patched(Line),
    /// Declares that the operation of this name is gone.
    Retired(String),
    /// Ends the function with an error.
    Fail,
}

type Code = Vec<Part>;

/// How often each effect was had.
type Effects = Arc<Mutex<BTreeMap<u32, u32>>>;

struct Writer {
    rng: Rng,
    last: u32,
}

impl Writer {
    fn line(&mut self) -> Line {
        self.last += 1;
        let kind = match self.rng.below(14) {
            0 => Kind::Read,
            1 | 2 => Kind::Timer,
            3 => Kind::Value,
            4 => Kind::Ask,
            5 => Kind::OpenAsk,
            6 | 7 => Kind::Child,
            _ => Kind::Step,
        };
        Line { effect: self.last, name: format!("n{}", self.last), kind }
    }

    fn part(&mut self) -> Part {
        match self.rng.below(8) {
            0 | 1 => Part::Undo(self.line()),
            2 | 3 => Part::Race(self.line(), self.line()),
            _ => Part::All((0..=self.rng.below(3)).map(|_| self.line()).collect()),
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.rng.below(u32::try_from(limit).unwrap()) as usize
    }

    fn code(&mut self) -> Code {
        let mut code: Code = (0..3 + self.rng.below(4)).map(|_| self.part()).collect();
        if self.rng.chance(60) {
            let at = 1 + self.below(code.len());
            code.insert(at, Part::Wait);
        }
        if self.rng.chance(40) {
            code.push(Part::Fail);
        }
        code
    }

    /// Changes one thing.
    fn edit(&mut self, code: &mut Code) {
        let (at, other) = (self.below(code.len()), self.below(code.len()));
        match self.rng.below(11) {
            0 => code.insert(at, self.part()),
            1 => code.swap(at, other),
            2 => {
                let line = self.line();
                if let Part::All(lines) = &mut code[at] {
                    lines.push(line);
                }
            }
            3 => {
                self.last += 1;
                let name = format!("n{}", self.last);
                if let Some(line) = line_of(&mut code[at]) {
                    line.name = name;
                }
            }
            4 => {
                let line = match &mut code[at] {
                    Part::All(lines) => lines.pop(),
                    _ => None,
                };
                match (line, &mut code[other]) {
                    (Some(line), Part::All(lines)) => lines.insert(0, line),
                    (Some(line), _) => code.insert(other, Part::All(vec![line])),
                    (None, _) => {}
                }
            }
            5 => {
                if let Part::All(lines) = &mut code[at] {
                    lines.pop();
                }
            }
            6 => drop(code.remove(at)),
            7 => code.insert(at, Part::Patched(self.line())),
            8 => {
                if let Some(line) = line_of(&mut code[at]) {
                    let name = line.name.clone();
                    code[at] = Part::Retired(name);
                    code.swap(0, at);
                }
            }
            9 => {
                let kind = self.line().kind;
                if let Some(line) = line_of(&mut code[at]) {
                    line.kind = kind;
                }
            }
            // Operations that ran at the same time race, or the other way round.
            _ => {
                code[at] = match code[at].clone() {
                    Part::All(mut lines) if lines.len() == 2 => Part::Race(lines.remove(0), lines.remove(0)),
                    Part::Race(one, two) => Part::All(vec![two, one]),
                    part => part,
                };
            }
        }
    }
}

/// The first operation of a part.
fn line_of(part: &mut Part) -> Option<&mut Line> {
    match part {
        Part::All(lines) => lines.first_mut(),
        Part::Race(line, _) | Part::Undo(line) | Part::Patched(line) => Some(line),
        Part::Wait | Part::Retired(_) | Part::Fail => None,
    }
}

fn count(effects: &Effects, effect: u32) {
    *effects.lock().unwrap().entry(effect).or_default() += 1;
}

/// The flow that children run: it has one effect.
fn child(effects: &Effects) -> Flow<u32, ()> {
    let effects = Arc::clone(effects);
    flow("child", move |cx: FlowContext, effect: u32| {
        let effects = Arc::clone(&effects);
        async move {
            let work = || {
                count(&effects, effect);
                std::future::ready(Ok::<_, FlowError>(()))
            };
            cx.step("effect", work).await?;
            cx.sleep("rest", Duration::from_secs(u64::from(effect % 8))).await;
            Ok(())
        }
    })
}

fn program(code: &Code, effects: &Effects) -> Flow<(), ()> {
    let (code, effects) = (Arc::new(code.clone()), Arc::clone(effects));
    flow("edited", move |cx: FlowContext, _: ()| {
        let (code, effects) = (Arc::clone(&code), Arc::clone(&effects));
        async move {
            for part in &*code {
                run_part(&cx, part, &effects).await?;
            }
            Ok(())
        }
    })
}

async fn run_part(cx: &FlowContext, part: &Part, effects: &Effects) -> Result<(), FlowError> {
    match part {
        Part::All(lines) => {
            let lines = lines.iter().map(|line| run(cx, line, effects));
            futures_util::future::join_all(lines).await.into_iter().collect()
        }
        Part::Race(one, two) => tokio::select! {
            result = run(cx, one, effects) => result,
            result = run(cx, two, effects) => result,
        },
        Part::Wait => {
            let _: String = cx.receive("wait").await;
            Ok(())
        }
        Part::Undo(line) => {
            let (effects, effect) = (Arc::clone(effects), line.effect);
            cx.compensate(&line.name, move || {
                count(&effects, effect);
                std::future::ready(Ok::<_, FlowError>(()))
            });
            Ok(())
        }
        Part::Patched(line) => match cx.patched(&line.name).await {
            true => run(cx, line, effects).await,
            false => Ok(()),
        },
        Part::Retired(name) => {
            cx.retired(name);
            Ok(())
        }
        Part::Fail => Err(FlowError::fatal("the end")),
    }
}

async fn run(cx: &FlowContext, line: &Line, effects: &Effects) -> Result<(), FlowError> {
    let work = || {
        count(effects, line.effect);
        std::future::ready(Ok::<_, FlowError>(()))
    };
    match line.kind {
        Kind::Step => cx.step(&line.name, work).await?,
        Kind::Read => cx.step(&line.name, async || Ok::<_, FlowError>(())).read_only().await?,
        Kind::Timer => cx.sleep(&line.name, Duration::from_secs(5)).await,
        Kind::Value => drop(cx.random(&line.name).await),
        Kind::Ask => drop(cx.ask::<bool>(&line.name, "now").await?),
        Kind::OpenAsk => {
            let ask = Ask::<bool>::new("never").deadline(Duration::from_secs(20));
            let _ = cx.ask_with(&line.name, ask).await;
        }
        Kind::Child => cx.call(&child(effects), line.effect).name(&line.name).await?,
    }
    Ok(())
}

/// Answers the questions that ask for an answer now.
#[derive(Debug)]
struct Friend;

#[async_trait]
impl Answerer for Friend {
    async fn answer(&self, asked: &AnswererQuestion) -> Option<Answer> {
        (asked.question.text.as_deref()? == "\"now\"").then(|| Answer::accept(true).unwrap())
    }

    fn name(&self) -> String {
        "friend".into()
    }
}

/// What the rule says about an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Safe,
    Refused,
    /// An operation that waits for an event races a new one: the edit is safe if the event comes first.
    Either,
}

/// The rule, as it is written in `docs/how-to/functions.md`, for the records of a run.
struct Rule<'a> {
    records: &'a BTreeMap<String, Recorded>,
    /// The recorded operations that the function has not requested.
    missing: BTreeSet<&'a str>,
    /// Those of them that have an effect.
    effects: BTreeSet<&'a str>,
    /// The effects that a safe edit has had at its end.
    expected: BTreeSet<u32>,
    is_uncertain: bool,
}

impl<'a> Rule<'a> {
    fn new(records: &'a BTreeMap<String, Recorded>) -> Self {
        let missing = records.keys().map(String::as_str).collect();
        let effects = records.iter().filter(|(_, one)| !one.is_safe).map(|(name, _)| name.as_str()).collect();
        Self { records, missing, effects, expected: BTreeSet::new(), is_uncertain: false }
    }

    /// Marks operations as requested. Returns false if one of them is recorded as another kind.
    fn request(&mut self, name: &str, kind: RecordedAs) -> bool {
        self.missing.remove(name);
        self.effects.remove(name);
        self.records.get(name).is_none_or(|known| known.kind == kind)
    }

    fn is_new_effect(&self, line: &Line) -> bool {
        !line.kind.is_safe() && !self.records.contains_key(&line.name)
    }

    fn expect(&mut self, line: &Line) {
        if line.kind.is_counted() && !self.records.contains_key(&line.name) {
            self.expected.insert(line.effect);
        }
    }

    /// Returns whether the function may go on after this part.
    fn passes(&mut self, part: &Part) -> bool {
        match part {
            Part::All(lines) => {
                let is_same = lines.iter().all(|line| self.request(&line.name, line.kind.recorded_as()));
                lines.iter().for_each(|line| self.expect(line));
                is_same && (self.effects.is_empty() || !lines.iter().any(|line| self.is_new_effect(line)))
            }
            Part::Race(one, two) => {
                let is_same = self.request(&one.name, one.kind.recorded_as());
                if !(self.request(&two.name, two.kind.recorded_as()) && is_same) {
                    return false;
                }
                let other = match (self.is_new_effect(one), self.is_new_effect(two)) {
                    _ if self.effects.is_empty() => return true,
                    (false, false) => return true,
                    (true, true) => return false,
                    (true, false) => two,
                    (false, true) => one,
                };
                // The other operation ends by itself, and the new one is dropped before it begins.
                if self.records.get(&other.name).is_some_and(|known| !known.has_ended) {
                    self.is_uncertain = true;
                }
                true
            }
            Part::Wait => {
                let is_new = !self.records.contains_key("wait");
                self.request("wait", RecordedAs::Message) && (!is_new || self.effects.is_empty())
            }
            Part::Patched(line) => {
                let name = format!("patch-{}", line.name);
                let is_recorded = self.records.contains_key(&name);
                self.request(&name, RecordedAs::Patch);
                let has_patch = is_recorded || self.missing.is_empty();
                !has_patch || self.passes(&Part::All(vec![line.clone()]))
            }
            Part::Retired(name) => {
                self.effects.remove(name.as_str());
                true
            }
            Part::Undo(_) | Part::Fail => true,
        }
    }

    /// Returns whether the compensations may run, in this order.
    fn passes_undo<'b>(&mut self, undo: impl Iterator<Item = &'b Line>) -> bool {
        if self.effects.iter().any(|name| self.records[*name].kind != RecordedAs::Undo) {
            return false;
        }
        for line in undo {
            let is_new = !self.records.contains_key(&line.name);
            if !self.request(&line.name, RecordedAs::Undo) || (is_new && !self.effects.is_empty()) {
                return false;
            }
            if is_new {
                self.expected.insert(line.effect);
            }
        }
        true
    }

    fn verdict(&mut self, code: &Code) -> Verdict {
        let end = code.iter().position(|part| matches!(part, Part::Fail));
        let code = &code[..end.unwrap_or(code.len())];
        let mut is_safe = code.iter().all(|part| self.passes(part));
        if is_safe && end.is_some() {
            let undo = code.iter().rev().filter_map(|part| match part {
                Part::Undo(line) => Some(line),
                _ => None,
            });
            is_safe = self.passes_undo(undo);
        }
        match (self.is_uncertain, is_safe && self.effects.is_empty()) {
            (true, _) => Verdict::Either,
            (_, true) => Verdict::Safe,
            (_, false) => Verdict::Refused,
        }
    }
}

async fn process(world: &World, effects: &Effects) -> Process {
    let process = world.process_with(|builder| builder.answerer(Friend)).await.unwrap();
    process.serve(child(effects).graph().unwrap()).unwrap();
    process
}

/// Runs the old code until it waits for the message, or until its process crashes. Returns the log of the run, if it has not ended.
async fn run_old(
    world: &World,
    old: &Code,
    effects: &Effects,
    crash: Option<(u64, Fault)>,
) -> Option<String> {
    let (process, code) = (process(world, effects).await, program(old, effects));
    process.serve(code.graph().unwrap()).unwrap();
    if let Some((write, fault)) = crash {
        process.fail_write(write, fault);
    }
    if let Ok(handle) = world.pass(process.call(&code, ()).id("r").start()).await {
        for _ in 0..5 {
            // It may wait for the deadline of a question, or of one that was dropped and stays open.
            let outcome = world.pass(handle.handle().wait()).await;
            if process.is_crashed()
                || !matches!(outcome, Ok(Outcome::Interrupted(_) | Outcome::Sleeping { .. }))
            {
                break;
            }
            world.pass_for(Duration::from_secs(60)).await;
        }
    }
    process.crash().await;
    let head = world.store().head(&"r".try_into().unwrap()).await.unwrap()?;
    if head.status.is_finished() {
        return None;
    }
    let reader = world.process().await.unwrap();
    let log = reader.export(&head.run).await.unwrap();
    reader.crash().await;
    Some(log)
}

/// What became of the edits.
#[derive(Debug, Default)]
struct Counts {
    safe: u32,
    undone: u32,
    refused: u32,
    either: u32,
    crashed: u32,
    questions: u32,
    children: u32,
    races: u32,
}

/// Guarantees: FLOW-4.
#[tokio::test]
async fn edits_are_safe_or_refused() {
    let mut counts = Counts::default();
    for seed in seeds(SEEDS) {
        let mut writer = Writer { rng: Rng::new(seed ^ 0xED17), last: 0 };
        let old = writer.code();
        let mut new = old.clone();
        for _ in 0..=writer.rng.below(2) {
            if !new.is_empty() {
                writer.edit(&mut new);
            }
        }
        let fault = if writer.rng.chance(50) { Fault::CrashBefore } else { Fault::CrashAfter };
        let write = 1 + u64::from(writer.rng.below(20));
        let crash = writer.rng.chance(60).then_some((write, fault));
        let effects = Effects::default();
        let world = World::new();
        let Some(log) = run_old(&world, &old, &effects, crash).await else { continue };
        let before = effects.lock().unwrap().clone();
        let records = recorded("edited", &log).await;
        let mut rule = Rule::new(&records);
        let verdict = rule.verdict(&new);

        let process = process(&world, &effects).await;
        let run = "r".try_into().unwrap();
        world.pass(process.send(&run, "go on")).await.unwrap();
        let edited = program(&new, &effects);
        process.serve(edited.graph().unwrap()).unwrap();
        let handle = world.pass(process.resume(edited.graph().unwrap(), &run)).await.unwrap();
        let result = world.pass(FlowHandle::<()>::new(handle).result()).await;
        let after = effects.lock().unwrap().clone();
        let case = format!(
            "seed {seed}, {crash:?}\nold {old:#?}\nnew {new:#?}\nrecords {records:#?}\n{verdict:?}\n{result:?}\nbefore {before:?}\nafter {after:?}"
        );
        // The work of an operation that a crash interrupted may run again. A recorded one does not.
        let done: BTreeSet<u32> = (old.iter())
            .flat_map(|part| match part {
                Part::All(lines) => lines.iter().collect(),
                Part::Race(one, two) => vec![one, two],
                Part::Undo(line) => vec![line],
                _ => Vec::new(),
            })
            .filter(|line| records.get(&line.name).is_some_and(|known| known.has_ended))
            .map(|line| line.effect)
            .collect();
        for (effect, count) in &after {
            let was_cut = crash.is_some() && before.contains_key(effect) && !done.contains(effect);
            assert!(*count <= 1 + u32::from(was_cut), "effect {effect} was repeated: {case}");
        }
        let fails = new.iter().any(|part| matches!(part, Part::Fail));
        let is_refused = match &result {
            Ok(()) => false,
            Err(FlowCallError::Failed(failure)) if fails && failure.message.contains("the end") => false,
            Err(FlowCallError::CodeChanged(_)) => true,
            Err(_) => panic!("{case}"),
        };
        match verdict {
            Verdict::Safe => assert!(!is_refused, "a safe edit was refused: {case}"),
            Verdict::Refused => assert!(is_refused, "an edit was not refused: {case}"),
            Verdict::Either => counts.either += 1,
        }
        if is_refused {
            let grew = after.iter().any(|(effect, count)| before.get(effect) != Some(count));
            assert!(
                !grew || has_child_effect(&old, &before, &after),
                "a refused function did something: {case}"
            );
            counts.refused += 1;
        } else {
            let missing: Vec<_> = rule.expected.iter().filter(|effect| !after.contains_key(effect)).collect();
            assert!(missing.is_empty(), "effects {missing:?} were not had: {case}");
            counts.safe += 1;
            counts.undone += u32::from(fails && new.iter().any(|part| matches!(part, Part::Undo(_))));
        }
        counts.crashed += u32::from(crash.is_some());
        counts.races += u32::from(new.iter().any(|part| matches!(part, Part::Race(..))));
        counts.questions += u32::from(records.values().any(|known| known.kind == RecordedAs::Question));
        counts.children += u32::from(records.values().any(|known| known.kind == RecordedAs::Child));
    }
    println!("{counts:?}");
    let Counts { safe, refused, either, .. } = counts;
    assert!(safe + refused < 300 || (safe > 60 && refused > 60 && either < 15), "{counts:?}");
}

/// Returns whether only children, which run alone, have had effects since.
fn has_child_effect(old: &Code, before: &BTreeMap<u32, u32>, after: &BTreeMap<u32, u32>) -> bool {
    let is_child = |effect: &u32| {
        old.iter().any(|part| {
            let is = |line: &Line| line.effect == *effect && line.kind == Kind::Child;
            match part {
                Part::All(lines) => lines.iter().any(is),
                Part::Race(one, two) => is(one) || is(two),
                _ => false,
            }
        })
    };
    after
        .iter()
        .filter(|(effect, count)| before.get(effect) != Some(count))
        .all(|(effect, _)| is_child(effect))
}
