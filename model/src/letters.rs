//! The rules by which processes deliver the outbox messages of one run to one topic. A [`Slip`] leaves out one of the rules.

use stateright::{Model, Property};

/// Number of failed tries after which a message is rejected and put aside.
const TRIES: u8 = 2;

/// A mistake in the rules that the model must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slip {
    /// A process whose report about a delivery no longer follows the log continues with its old list, and does not read the log again.
    GoesOnWhenOvertaken,
    /// A message that could not be delivered moves behind the messages after it.
    PassesWhatFailed,
    /// The delivery is recorded before the sink gets the message.
    RecordsFirst,
    /// A message is handed to the delivering process before the record of its node is durable.
    HandsInEarly,
}

/// An undelivered message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Posted {
    /// The number of the message among the messages of the run, from 1.
    pub number: u8,
    /// The number of failed tries.
    pub tries: u8,
    /// Whether the message was rejected and put aside.
    pub aside: bool,
}

/// A report about messages, as a record contains it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// These messages were delivered.
    Delivered(Vec<u8>),
    /// The delivery of this message failed.
    Failed(Posted),
}

/// A process that delivers messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Desk {
    /// The messages that the process still has to deliver, in order.
    pub line: Vec<Posted>,
    /// The messages that its sink was given, in order.
    pub hand: Vec<Posted>,
    /// The number of these messages with which the sink has finished.
    pub taken: usize,
    /// The reports about the last batch that the process still has to record.
    pub words: Vec<Word>,
    /// The messages that the process delivers next, or again, once the reports are recorded.
    pub rest: Vec<Posted>,
    /// Whether another process has recorded something about these messages first.
    pub overtaken: bool,
}

/// How the sink ends with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The message was received, and the sink reports success.
    Taken,
    /// The message was not received.
    Down,
    /// The message was received, but the sink failed before it could report success.
    Lost,
    /// The sink rejects the message permanently.
    Refused,
}

/// One atomic step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A process claims the run and takes over its undelivered messages.
    Claim(usize),
    /// The driving process appends the end of a node with a message. The message is handed to the delivery.
    Send(usize),
    /// A process finds undelivered messages of a run that no process drives.
    Find(usize),
    /// The sink of a process gets its next messages.
    Begin(usize),
    /// The sink ends with one of its messages.
    End(usize, End),
    /// A process reads the head and records its reports about messages.
    Say(usize),
    /// A process dies, and another process starts in its place.
    Crash(usize),
    /// An operator retries the messages that were put aside.
    Retry,
}

/// The remaining number of failures and other events. This budget bounds the exploration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Postage {
    /// Messages that are still to be sent.
    pub letters: u8,
    /// Deliveries that still fail.
    pub failures: u8,
    /// Processes that still die.
    pub crashes: u8,
    /// Claims after the first that still happen.
    pub claims: u8,
    /// Retries by an operator that still happen.
    pub retries: u8,
}

/// The state of the model at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Office {
    /// The undelivered messages according to the log.
    pub log: Vec<Posted>,
    /// The number of messages that were recorded.
    pub sent: u8,
    /// The process that drives the run.
    pub drives: Option<usize>,
    /// The processes.
    pub desks: [Desk; 2],
    /// The messages that were received, one bit for each.
    pub came: u8,
    /// The messages that were ever recorded as put aside, one bit for each.
    pub aside: u8,
    /// Whether a message was received before an earlier message that was neither received nor put aside.
    pub passed: bool,
    /// Whether a message was received before its record was durable.
    pub early: bool,
    /// Whether a message is recorded as delivered but was not received.
    pub unfounded: bool,
    /// Whether a message was received twice.
    pub twice: bool,
    /// The events that may still happen.
    pub left: Postage,
}

/// The rules of delivery, with at most one mistake.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The rule that is left out.
    pub slip: Option<Slip>,
    /// The number of failures and other events that may happen.
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
    /// Gives a process the undelivered messages in the log, unless it already has messages to deliver.
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

    /// Records that the receiver gets a message.
    fn receive(&mut self, number: u8) {
        let before = (1..number).any(|earlier| (self.came | self.aside) & bit(earlier) == 0);
        self.passed |= before;
        self.early |= number > self.sent;
        self.twice |= self.came & bit(number) != 0;
        self.came |= bit(number);
    }

    /// Appends a report to the log. Returns false if the report does not follow the log.
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

    /// Performs a step. Returns false if the step is impossible in this state.
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
                    // The append has not finished: the process may die in the next step.
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
        // A message that failed before is delivered alone.
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
            // Only the log says which message is next.
            rest = office.log.iter().filter(|letter| !letter.aside).copied().collect();
            desk.line.retain(|letter| letter.number > office.sent);
        }
        desk.line.retain(|letter| rest.iter().all(|had| had.number != letter.number));
        rest.append(&mut desk.line);
        desk.line = rest;
        true
    }

    /// Returns whether a process has something to do without a trigger from outside.
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
