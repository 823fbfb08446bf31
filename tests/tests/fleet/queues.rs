//! Processes with queues, killed and suspended at random. A ledger outside the store has the slot holders at every moment.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use ferrata::queue::RuntimeQueueExt as _;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Runtime;
use ferrata_core::store::{CheckpointStore, Page, RunQuery};
use ferrata_core::{Clock, SystemClock};
use ferrata_tests::Space;
use rustix::process::Signal;

use super::crew::{Dice, Member, until, until_or};

/// The limits that the program declares.
const MAILS: usize = 4;
const KEYS: usize = 3;
const GPUS: usize = 2;
const CALLS_PER_SECOND: i64 = 50;
const BURST: i64 = 3;

/// Longer than any test, so that no run becomes more urgent by waiting.
const AGEING: Duration = Duration::from_secs(86_400);

/// Maximum delay between a grant and its call, on a busy machine.
const SLACK_MS: i64 = 1_500;

/// The amount of work and faults.
#[derive(Clone, Copy)]
struct Much {
    runs: u32,
    blows: u32,
    /// Validity of a heartbeat.
    ttl: Duration,
}

const LITTLE: Much = Much { runs: 24, blows: 3, ttl: Duration::from_millis(1_500) };
const MORE: Much = Much { runs: 120, blows: 14, ttl: Duration::from_millis(1_500) };
/// For the server that stands in for S3.
const SLOW: Much = Much { runs: 10, blows: 3, ttl: Duration::from_secs(6) };

const PROCESSES: usize = 4;

/// A line of the ledger.
#[derive(Debug)]
struct Line {
    at: i64,
    process: u32,
    what: String,
    place: String,
    run: String,
}

struct Game<'a> {
    space: &'a Space,
    much: Much,
    is_skewed: bool,
    rest: Duration,
    /// Maximum number of slots of `mail` per key.
    per_key: usize,
}

impl Game<'_> {
    fn ledger(&self) -> PathBuf {
        self.space.folder().join("turnstile")
    }

    fn spawn(&self, dice: &mut Dice) -> Member {
        let skew = if self.is_skewed { dice.skew() } else { 0 };
        let mut command = Command::new(env!("CARGO_BIN_EXE_fleet"));
        command.args(["queues", self.space.url()]).arg(self.ledger());
        command.arg(self.much.ttl.as_millis().to_string()).arg(skew.to_string());
        command.arg(self.much.runs.to_string()).arg(self.rest.as_millis().to_string());
        command.arg(self.per_key.to_string());
        Member::begin(command.envs(self.space.environment()))
    }

    /// Records an action of the test between the lines of the processes.
    fn note(&self, at: i64, process: u32, what: &str) {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(self.ledger()).unwrap();
        let line = format!("{at} {process} {what} - -\n");
        file.write_all(line.as_bytes()).unwrap();
    }

    fn lines(&self) -> Vec<Line> {
        let text = std::fs::read_to_string(self.ledger()).unwrap_or_default();
        let parse = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let [at, process, what, place, run] = *words else { panic!("an incomplete line: {line}") };
            let (at, process) = (at.parse().unwrap(), process.parse().unwrap());
            Line { at, process, what: what.to_owned(), place: place.to_owned(), run: run.to_owned() }
        };
        text.lines().map(parse).collect()
    }

    /// Kills or suspends one of the processes.
    async fn strike(&self, members: &mut Vec<Member>, dice: &mut Dice) {
        let clock = SystemClock::new();
        let one = usize::try_from(dice.below(PROCESSES as u64)).unwrap();
        if dice.below(2) == 0 {
            let member = members.swap_remove(one);
            // Other processes may get its slots before this line is written, so use the time of the kill.
            let (id, at) = (member.id(), clock.now().unix_ms());
            member.kill();
            self.note(at, id, "killed");
            members.push(self.spawn(dice));
            return;
        }
        // Suspend it for a moment, or for longer than its heartbeat is valid.
        let ttl = u64::try_from(self.much.ttl.as_millis()).unwrap();
        members[one].signal(Signal::STOP);
        clock.sleep(Duration::from_millis(dice.below(2 * ttl))).await;
        members[one].signal(Signal::CONT);
    }

    async fn is_over(&self, store: &dyn CheckpointStore) -> bool {
        let query = RunQuery::default();
        let Ok(page) = store.runs(&query, Page::first(Page::MAX)).await else { return false };
        let runs: Vec<_> =
            page.items.iter().filter(|head| head.run.run.as_str().starts_with("run-")).collect();
        let wrong = |status| matches!(status, RunStatus::Failed | RunStatus::Cancelled);
        let failed: Vec<_> = runs.iter().filter(|head| wrong(head.status)).collect();
        assert!(failed.is_empty(), "{failed:?}");
        runs.iter().filter(|head| head.status == RunStatus::Completed).count() == self.much.runs as usize
    }
}

pub(crate) async fn little(space: &Space, dice: &mut Dice) {
    contended(space, dice, LITTLE).await;
}

pub(crate) async fn more(space: &Space, dice: &mut Dice) {
    let is_slow = space.url().starts_with("s3:");
    contended(space, dice, if is_slow { SLOW } else { MORE }).await;
}

async fn contended(space: &Space, dice: &mut Dice, much: Much) {
    space.open().setup().await.unwrap();
    let (is_skewed, rests) = (dice.below(2) == 0, dice.below(2) == 0);
    let rest = if rests { Duration::from_millis(150) } else { Duration::from_secs(60) };
    let per_key = if dice.below(2) == 0 { MAILS } else { MAILS - 1 };
    let game = Game { space, much, is_skewed, rest, per_key };
    let store = space.open();
    // The queue is paused until all runs wait in it, so that their order is known.
    let runtime = Runtime::builder_with(space.open()).build().await.unwrap();
    let (places, per_key) = (u32::try_from(MAILS).unwrap(), u32::try_from(game.per_key).unwrap());
    let mail = runtime.queue("mail").at_once(places).at_once_per_key(per_key).aging(AGEING);
    let mail = mail.declare().await.unwrap();
    mail.pause("until all have come").await.unwrap();
    let mut members: Vec<_> = (0..PROCESSES).map(|_| game.spawn(dice)).collect();
    let all_wait = async || (mail.status().await.unwrap().waiting == much.runs as usize).then_some(());
    until("all in the line", all_wait).await;
    mail.unpause().await.unwrap();
    for blow in 1..=much.blows {
        // Wait for a random amount of work.
        let all = u64::from(much.runs) * 4;
        let lines =
            usize::try_from(all * u64::from(blow) / u64::from(much.blows + 1) + dice.below(8)).unwrap();
        until("work", async || (game.lines().len() >= lines || game.is_over(&*store).await).then_some(()))
            .await;
        game.strike(&mut members, dice).await;
    }
    let over = async || game.is_over(&*store).await.then_some(());
    until_or(over, async || format!("all runs: {}", standing(&runtime, &*store).await)).await;
    drop(members);
    judge(&game.lines(), &game);
}

/// Describes the active runs and the queues.
async fn standing(runtime: &Runtime, store: &dyn CheckpointStore) -> String {
    let page = store.runs(&RunQuery::default(), Page::first(Page::MAX)).await.unwrap();
    let open: Vec<_> = page.items.iter().filter(|head| head.status != RunStatus::Completed).collect();
    let mut queues = Vec::new();
    for name in ["mail", "gpu", "api"] {
        queues.push(runtime.queue(name).find().await.unwrap().unwrap().status().await);
    }
    format!("{open:#?} {queues:#?}")
}

/// Checks the guarantees by the ledger alone.
fn judge(lines: &[Line], game: &Game<'_>) {
    let doubts = doubts(lines, game.much.ttl);
    let late = lines.iter().filter(|line| line.what == "late").count();
    let in_doubt = |process: u32, at: i64| {
        doubts.get(&process).is_some_and(|all| all.iter().any(|(from, until)| (*from..=*until).contains(&at)))
    };
    judge_order(lines, game);
    let (mut mails, mut gpus) = (BTreeSet::new(), BTreeMap::new());
    let (mut calls, mut came, mut excepted) = (Vec::new(), BTreeMap::<&str, usize>::new(), 0);
    let mut most = (0, 0);
    for line in lines {
        let is_doubtful = in_doubt(line.process, line.at);
        match (&*line.what, &*line.place) {
            // A suspended process may record this for a run that has ended in another process.
            ("enter", "mail") if !is_doubtful => drop(mails.insert(&line.run)),
            ("leave", "mail") => drop(mails.remove(&line.run)),
            ("enter", "gpu") => {
                *came.entry(&line.run).or_default() += 1;
                gpus.insert((line.process, &line.run), line.at);
            }
            ("leave", "gpu") => drop(gpus.remove(&(line.process, &line.run))),
            ("killed", _) => gpus.retain(|(process, _), _| *process != line.process),
            ("enter", "api") => calls.push(line.at),
            _ => {}
        }
        let inside = gpus.iter().filter(|((process, _), _)| !in_doubt(*process, line.at)).count();
        excepted += gpus.len() - inside;
        most = (most.0.max(mails.len()), most.1.max(inside));
        assert!(
            inside <= GPUS,
            "at {}: {:?} hold slots; the doubtful times are {doubts:?}, with these lines: {:#?}",
            line.at,
            gpus.keys(),
            lines.iter().filter(|line| gpus.keys().any(|(_, run)| **run == line.run)).collect::<Vec<_>>(),
        );
        assert!(mails.len() <= MAILS, "at {}: {mails:?} hold slots", line.at);
        let most_of_key =
            (0..KEYS).map(|key| mails.iter().filter(|run| number_of(run) % KEYS == key).count()).max();
        assert!(most_of_key <= Some(game.per_key), "at {}: {mails:?} hold slots", line.at);
    }
    println!(
        "{} lines, at most {most:?} inside, {late} doubts, {excepted} lines with one that counts as dead inside; clocks are {}",
        lines.len(),
        if game.is_skewed { "wrong" } else { "right" },
    );
    assert_eq!(came.len(), game.much.runs as usize, "each run must get its slot");
    // A run starts again only if its process was killed or suspended.
    let blows = 1 + game.much.blows as usize + late;
    assert!(came.values().all(|times| *times <= blows), "{came:?}");
    let repeated = came.values().filter(|times| **times > 1).count();
    assert!(repeated <= blows * PROCESSES * MAILS, "{came:?}");
    if !game.is_skewed {
        for (at, from) in calls.iter().enumerate() {
            for (more, until) in calls[at..].iter().enumerate() {
                let may = (until - from + SLACK_MS) * CALLS_PER_SECOND / 1_000 + BURST;
                assert!(i64::try_from(more).unwrap() < may, "{} calls in {} ms", more + 1, until - from);
            }
        }
    }
}

fn number_of(run: &str) -> usize {
    run.trim_start_matches("run-").parse().unwrap()
}

/// Checks the grant order of the queue: higher priorities first, and keys in turn within a priority. A run may start before an earlier one if the
/// earlier one's process was killed or suspended, so as many runs as there are slots may be out of order. The queue skips a run if its key has all
/// its slots, so the check does not apply if a key may have fewer than all.
fn judge_order(lines: &[Line], game: &Game<'_>) {
    if game.per_key < MAILS {
        return;
    }
    let mut order = Vec::new();
    for line in lines.iter().filter(|line| (&*line.what, &*line.place) == ("enter", "mail")) {
        let run = number_of(&line.run);
        if !order.contains(&run) {
            order.push(run);
        }
    }
    let (urgent, key) = (|run: &usize| run % 2 == 1, |run: &usize| run % KEYS);
    for (at, run) in order.iter().enumerate() {
        let passed = order[at + 1..].iter().filter(|later| urgent(later) && !urgent(run)).count();
        assert!(passed < MAILS, "run-{run} got its slot before the more urgent {passed}: {order:?}");
    }
    for is_urgent in [true, false] {
        let mut let_in = [0_usize; KEYS];
        let all: Vec<_> = order.iter().filter(|run| urgent(run) == is_urgent).collect();
        for (at, run) in all.iter().enumerate() {
            let_in[key(run)] += 1;
            let waits = |of: usize| all[at + 1..].iter().any(|later| key(later) == of);
            let waiting = (0..KEYS).filter(|of| waits(*of)).map(|of| let_in[of]).min();
            let ahead = let_in[key(run)].saturating_sub(waiting.unwrap_or(usize::MAX));
            assert!(
                ahead <= 1 + MAILS,
                "key-{} is {ahead} grants ahead of a waiting key: {order:?}",
                key(run)
            );
        }
    }
}

/// The periods in which processes were dead, or may have counted as dead. They end when the heartbeat tells the process.
fn doubts(lines: &[Line], ttl: Duration) -> BTreeMap<u32, Vec<(i64, i64)>> {
    let ttl = i64::try_from(ttl.as_millis()).unwrap();
    let mut doubts = BTreeMap::<u32, Vec<(i64, i64)>>::new();
    for line in lines {
        let doubt = match &*line.what {
            "killed" => (line.at, i64::MAX),
            "late" => (line.at - line.place.parse::<i64>().unwrap(), line.at + ttl),
            _ => continue,
        };
        doubts.entry(line.process).or_default().push(doubt);
    }
    doubts
}
