//! The rules of processes that deliver the outbox messages of one run to one topic. A [`Slip`] omits one rule.

use stateright::{Model, Property};

/// After so many tries a letter is put aside.
const TRIES: u8 = 2;

/// A mistake, to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slip {
    /// A process whose word does not follow any more goes on with what it has, without a look at the log.
    GoesOnWhenOvertaken,
    /// Later messages overtake a message that was not taken.
    PassesWhatFailed,
    /// The delivery is recorded before the outlet is asked.
    RecordsFirst,
    /// A letter is handed in before the record of its node is durable.
    HandsInEarly,
}

/// A letter that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Posted {
    /// Its place among the letters of the run, from 1 on.
    pub number: u8,
    /// How often it was not taken.
    pub tries: u8,
    /// Whether it was put aside.
    pub aside: bool,
}

/// The statement of a record about outbox messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// These were taken.
    Delivered(Vec<u8>),
    /// This one was not.
    Failed(Posted),
}

/// A process that delivers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Desk {
    /// What it has still to deliver, in order.
    pub line: Vec<Posted>,
    /// The messages that its sink received, in order.
    pub hand: Vec<Posted>,
    /// How many of those it has taken.
    pub taken: usize,
    /// What it has still to record of the last batch.
    pub words: Vec<Word>,
    /// What is to be delivered again, or next, once that is on record.
    pub rest: Vec<Posted>,
    /// Whether another said something of these letters first.
    pub overtaken: bool,
}

/// How an outlet ends with a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// It has come.
    Taken,
    /// It has not come.
    Down,
    /// It has come, and the outlet failed.
    Lost,
    /// It is never taken.
    Refused,
}

/// One atomic step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A process claims the run, and hands in what waits.
    Claim(usize),
    /// The end of a node is appended by the process that drives, with a letter, which is handed in.
    Send(usize),
    /// A process takes up what waits, of a run that no driver has it from.
    Find(usize),
    /// The outlet of a process is given its next letters.
    Begin(usize),
    /// The outlet ends with one of them.
    End(usize, End),
    /// A process records the results of messages, after it has read the head.
    Say(usize),
    /// A process dies, and another is started in its place.
    Crash(usize),
    /// An operator has what was put aside tried again.
    Retry,
}

/// How often what goes wrong or is done may still be. It bounds the exploration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Postage {
    /// Letters that are sent.
    pub letters: u8,
    /// Letters that an outlet does not take.
    pub failures: u8,
    /// Deaths of processes.
    pub crashes: u8,
    /// Claims after the first.
    pub claims: u8,
    /// Retries by an operator.
    pub retries: u8,
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Office {
    /// The letters that wait, as the log says.
    pub log: Vec<Posted>,
    /// How many are on record.
    pub sent: u8,
    /// Which process drives the run.
    pub drives: Option<usize>,
    /// The processes.
    pub desks: [Desk; 2],
    /// Which letters have come, as bits.
    pub came: u8,
    /// Which were put aside at some time, on record.
    pub aside: u8,
    /// Whether one came before one that was sent earlier, had not come and was not put aside.
    pub passed: bool,
    /// Whether one came before its record.
    pub early: bool,
    /// Whether one is on record as delivered that has not come.
    pub unfounded: bool,
    /// Whether one has come twice.
    pub twice: bool,
    /// What may still happen.
    pub left: Postage,
}

/// The rules of delivery, with at most one mistake.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// What is left out of the rules.
    pub slip: Option<Slip>,
    /// What may go wrong, and how often.
    pub postage: Postage,
}

fn bit(number: u8) -> u8 {
    1 << number
}

fn spend(left: &mut u8) -> bool {
    let some = *left > 0;
    *left = left.saturating_sub(1);
    some
}

impl Office {
    /// Hands in what waits in the log, unless the process has it already.
    fn hand_in(&mut self, p: usize) {
        let desk = &mut self.desks[p];
        for letter in self.log.iter().filter(|letter| !letter.aside) {
            let has = |letters: &[Posted]| letters.iter().any(|had| had.number == letter.number);
            let is_in_hand = has(&desk.hand) || (!desk.words.is_empty() && has(&desk.rest));
            if !(has(&desk.line) || is_in_hand) {
                desk.line.push(*letter);
            }
        }
        desk.line.sort_by_key(|letter| letter.number);
    }

    /// The receiver gets a letter.
    fn receive(&mut self, number: u8) {
        let before = (1..number).any(|earlier| (self.came | self.aside) & bit(earlier) == 0);
        self.passed |= before;
        self.early |= number > self.sent;
        self.twice |= self.came & bit(number) != 0;
        self.came |= bit(number);
    }

    /// Takes a word into the log. Returns false if it does not follow.
    fn record(&mut self, word: &Word) -> bool {
        match word {
            Word::Delivered(numbers) => {
                let before = self.log.len();
                self.unfounded |= numbers.iter().any(|number| self.came & bit(*number) == 0);
                self.log.retain(|letter| !numbers.contains(&letter.number));
                self.log.len() < before
            }
            Word::Failed(failed) => {
                let follows = |letter: &&mut Posted| {
                    letter.number == failed.number && !letter.aside && letter.tries < failed.tries
                };
                let Some(letter) = self.log.iter_mut().find(follows) else { return false };
                *letter = *failed;
                if failed.aside {
                    self.aside |= bit(failed.number);
                }
                true
            }
        }
    }
}

impl Delivery {
    fn has(&self, slip: Slip) -> bool {
        self.slip == Some(slip)
    }

    /// Does what `step` says. Returns false if it cannot happen.
    fn apply(&self, office: &mut Office, step: Step) -> bool {
        match step {
            Step::Claim(p) => {
                let can =
                    office.drives.is_none() || (office.drives != Some(p) && spend(&mut office.left.claims));
                if can {
                    office.drives = Some(p);
                    office.hand_in(p);
                }
                can
            }
            Step::Send(p) => {
                if office.drives != Some(p) || !spend(&mut office.left.letters) {
                    return false;
                }
                let early = Posted { number: office.sent + 1, tries: 0, aside: false };
                if self.has(Slip::HandsInEarly)
                    && office.desks[p].line.iter().all(|had| had.number != early.number)
                {
                    // Its append is still on its way: the next step may be the death of the process.
                    office.left.letters += 1;
                    office.desks[p].line.push(early);
                    return true;
                }
                office.sent += 1;
                office.log.push(early);
                office.hand_in(p);
                true
            }
            Step::Find(p) => {
                let desk = &office.desks[p];
                let can = desk == &Desk::default() && office.log.iter().any(|letter| !letter.aside);
                if can {
                    office.hand_in(p);
                }
                can
            }
            Step::Begin(p) => self.begin(office, p),
            Step::End(p, end) => self.end(office, p, end),
            Step::Say(p) => self.say(office, p),
            Step::Crash(p) => {
                if !spend(&mut office.left.crashes) {
                    return false;
                }
                office.desks[p] = Desk::default();
                office.drives = office.drives.filter(|driver| *driver != p);
                true
            }
            Step::Retry => {
                let can = office.log.iter().any(|letter| letter.aside) && spend(&mut office.left.retries);
                if can {
                    office.log.iter_mut().filter(|letter| letter.aside).for_each(|letter| {
                        (letter.aside, letter.tries) = (false, 0);
                    });
                }
                can
            }
        }
    }

    fn begin(&self, office: &mut Office, p: usize) -> bool {
        let desk = &mut office.desks[p];
        if desk.line.is_empty() || !desk.hand.is_empty() || !desk.words.is_empty() {
            return false;
        }
        // What failed before is tried alone.
        let fresh = desk.line.iter().take_while(|letter| letter.tries == 0).count();
        desk.hand = desk.line.drain(..fresh.max(1)).collect();
        desk.taken = 0;
        if self.has(Slip::RecordsFirst) {
            let word = Word::Delivered(desk.hand.iter().map(|letter| letter.number).collect());
            office.record(&word);
        }
        true
    }

    fn end(&self, office: &mut Office, p: usize, end: End) -> bool {
        let Some(letter) = office.desks[p].hand.get(office.desks[p].taken).copied() else { return false };
        if end != End::Taken && !spend(&mut office.left.failures) {
            return false;
        }
        if matches!(end, End::Taken | End::Lost) {
            office.receive(letter.number);
        }
        let desk = &mut office.desks[p];
        if end == End::Taken {
            desk.taken += 1;
            if desk.taken < desk.hand.len() {
                return true;
            }
        }
        let mut after = desk.hand.split_off(desk.taken);
        desk.taken = 0;
        let numbers: Vec<u8> = desk.hand.drain(..).map(|letter| letter.number).collect();
        if !numbers.is_empty() {
            desk.words.push(Word::Delivered(numbers));
        }
        if end != End::Taken {
            let mut failed = after.remove(0);
            failed.tries += 1;
            failed.aside = end == End::Refused || failed.tries >= TRIES;
            desk.words.push(Word::Failed(failed));
            match failed.aside {
                true => {}
                false if self.has(Slip::PassesWhatFailed) => after.push(failed),
                false => after.insert(0, failed),
            }
        }
        desk.rest = after;
        true
    }

    fn say(&self, office: &mut Office, p: usize) -> bool {
        if office.desks[p].words.is_empty() {
            return false;
        }
        let word = office.desks[p].words.remove(0);
        let follows = office.record(&word);
        let desk = &mut office.desks[p];
        desk.overtaken |= !follows;
        if !desk.words.is_empty() {
            return true;
        }
        let mut rest = std::mem::take(&mut desk.rest);
        if std::mem::take(&mut desk.overtaken) && !self.has(Slip::GoesOnWhenOvertaken) {
            // Only the log says which letter is next.
            rest = office.log.iter().filter(|letter| !letter.aside).copied().collect();
            desk.line.retain(|letter| letter.number > office.sent);
        }
        desk.line.retain(|letter| rest.iter().all(|had| had.number != letter.number));
        rest.append(&mut desk.line);
        desk.line = rest;
        true
    }

    /// Whether a process that needs no push has something to do.
    fn goes_on(&self, office: &Office) -> bool {
        [0, 1].iter().any(|&p| {
            [Step::Find(p), Step::Begin(p), Step::End(p, End::Taken), Step::Say(p)]
                .into_iter()
                .any(|step| self.apply(&mut office.clone(), step))
        })
    }
}

impl Model for Delivery {
    type State = Office;
    type Action = Step;

    fn init_states(&self) -> Vec<Office> {
        vec![Office {
            log: Vec::new(),
            sent: 0,
            drives: Some(0),
            desks: Default::default(),
            came: 0,
            aside: 0,
            passed: false,
            early: false,
            unfounded: false,
            twice: false,
            left: self.postage.clone(),
        }]
    }

    fn actions(&self, _office: &Office, steps: &mut Vec<Step>) {
        for p in 0..2 {
            steps.extend([
                Step::Claim(p),
                Step::Send(p),
                Step::Find(p),
                Step::Begin(p),
                Step::Say(p),
                Step::Crash(p),
            ]);
            steps.extend([End::Taken, End::Down, End::Lost, End::Refused].map(|end| Step::End(p, end)));
        }
        steps.push(Step::Retry);
    }

    fn next_state(&self, office: &Office, step: Step) -> Option<Office> {
        let mut next = office.clone();
        self.apply(&mut next, step).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no letter passes one that still waits", |_, office: &Office| !office.passed),
            Property::always("no letter comes before its record", |_, office: &Office| !office.early),
            Property::always("what is on record as delivered has come", |_, office: &Office| {
                !office.unfounded
            }),
            Property::always("when no process goes on, no letter waits", |model: &Self, office: &Office| {
                office.log.iter().all(|letter| letter.aside) || model.goes_on(office)
            }),
            Property::sometimes("a letter comes twice", |_, office: &Office| office.twice),
            Property::sometimes("a letter comes behind one that was put aside", |_, office: &Office| {
                office.aside & bit(1) != 0 && office.came & bit(1) == 0 && office.came & bit(2) != 0
            }),
        ]
    }
}
