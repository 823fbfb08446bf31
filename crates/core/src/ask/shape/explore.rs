//! Finds the shape of a type by playing dummy values to it, one place at a time.

use std::cell::Cell;
use std::collections::BTreeMap;

use super::probe::{Call, Dummy, Judge, Log, Refusal};
use super::{Field, Form};

/// How deep containers are followed, and with what less deep looks a type too wide for that is met.
const DEPTHS: [usize; 5] = [8, 5, 3, 2, 1];
/// What a container takes of the depth. An option and a newtype take one, for one that holds itself must end too.
const CONTAINER: usize = 4;
/// Places in one shape: it stands in every question's record, so it is not to outgrow the question.
pub(super) const PLACES: usize = 400;
/// The longest tuple that is looked at element by element; serde has arrays of up to 32 elements, tuples of up to 16.
const ELEMENTS: usize = 16;
/// Texts that types made of text take; enough for most fields to be known as required.
const TEXTS: [&str; 17] = [
    "",
    "a",
    "0",
    "1",
    "00000000-0000-0000-0000-000000000000",
    "2000-01-01T00:00:00Z",
    "2000-01-01T00:00:00",
    "2000-01-01",
    "00:00:00",
    "127.0.0.1",
    "::1",
    "127.0.0.1:80",
    "[::1]:80",
    "http://localhost/",
    "a@a.example",
    "1.0.0",
    "/",
];
const NUMBERS: [u64; 6] = [0, 1, 2, 10, 100, 2000];

/// What was found at a place: its form, and a dummy that the type took there.
struct Found {
    form: Form,
    dummy: Option<Dummy>,
}

/// Puts a dummy at the place in question, around it the least that leads a type there.
type Place<'a> = &'a dyn Fn(Dummy) -> Dummy;

/// Returns the form of the type that `run` deserializes, found by looking at `places` at most.
pub(super) fn explore(run: &dyn Fn(&Dummy, &Log), places: usize) -> Form {
    let mut form = Form::Any;
    for depth in DEPTHS {
        let explorer = Explorer { run, places: Cell::new(places) };
        form = explorer.explore(&|dummy| dummy, depth * CONTAINER).form;
        if explorer.places.get() > 0 {
            break;
        }
    }
    form
}

struct Explorer<'a> {
    run: &'a dyn Fn(&Dummy, &Log),
    places: Cell<usize>,
}

impl Explorer<'_> {
    fn look(&self, place: Place<'_>, dummy: Dummy) -> Log {
        let log = Log::default();
        (self.run)(&place(Dummy::Watch(Box::new(dummy))), &log);
        log
    }

    /// Returns the first of `dummies` that the type takes.
    fn first(&self, place: Place<'_>, dummies: impl IntoIterator<Item = Dummy>) -> Option<Dummy> {
        dummies.into_iter().find(|dummy| self.look(place, dummy.clone()).took())
    }

    fn explore(&self, place: Place<'_>, depth: usize) -> Found {
        let nothing = Found { form: Form::Any, dummy: None };
        let Some(left) = self.places.get().checked_sub(1) else { return nothing };
        self.places.set(left);
        let Some((call, judge)) = self.look(place, Dummy::Unknown).seen() else { return nothing };
        let steps = match call {
            Call::Seq | Call::Tuple(_) | Call::Map | Call::Struct(_) | Call::Enum(_) => CONTAINER,
            Call::Option | Call::Newtype => 1,
            _ => 0,
        };
        let Some(depth) = depth.checked_sub(steps) else { return nothing };
        let leaf = |form, dummies: Vec<Dummy>| Found { form, dummy: self.first(place, dummies) };
        match call {
            Call::Any => leaf(
                Form::Any,
                vec![
                    Dummy::Null,
                    Dummy::Bool(true),
                    Dummy::Unsigned(1),
                    Dummy::Text("a"),
                    Dummy::Map(Vec::new()),
                ],
            ),
            Call::Bool => leaf(Form::Bool, vec![Dummy::Bool(false), Dummy::Bool(true)]),
            Call::Int(int) => {
                // serde_json reads these two as whole numbers whoever judges; the others as any number.
                let known = judge == Judge::Serde || int.is_wide();
                let form = if known { Form::Int(int) } else { Form::Number };
                leaf(form, NUMBERS.map(Dummy::Unsigned).into())
            }
            Call::Number => leaf(Form::Number, vec![Dummy::Float(0.0), Dummy::Float(1.0)]),
            Call::Char => {
                let form = if judge == Judge::Serde { Form::Char } else { Form::Text };
                leaf(form, vec![Dummy::Char('a'), Dummy::Char('0')])
            }
            Call::Text => leaf(Form::Text, TEXTS.map(Dummy::Text).into()),
            Call::Bytes => leaf(Form::Bytes, vec![Dummy::Bytes]),
            Call::Unit => leaf(Form::Null, vec![Dummy::Null]),
            Call::Option => self.option(place, depth),
            Call::Newtype => {
                let inner = self.explore(&|dummy| place(Dummy::Newtype(Box::new(dummy))), depth);
                let dummy = self.first(place, inner.dummy.map(|dummy| Dummy::Newtype(Box::new(dummy))));
                Found { form: inner.form, dummy }
            }
            Call::Seq => self.list(place, judge, depth),
            Call::Tuple(len) if len > ELEMENTS || judge == Judge::Unknown => self.list(place, judge, depth),
            Call::Tuple(len) => self.tuple(place, len, depth),
            Call::Map => self.map(place, judge, depth),
            Call::Struct(fields) => self.object(place, fields, judge, depth),
            Call::Enum(names) => self.variants(place, names, judge, depth),
        }
    }

    fn option(&self, place: Place<'_>, depth: usize) -> Found {
        let inner = self.explore(&|dummy| place(Dummy::Some(Box::new(dummy))), depth);
        let some = inner.dummy.map(|dummy| Dummy::Some(Box::new(dummy)));
        let form = match inner.form {
            Form::Any => Form::Any,
            form => Form::Nullable(Box::new(form)),
        };
        Found { form, dummy: self.first(place, std::iter::once(Dummy::Nothing).chain(some)) }
    }

    fn list(&self, place: Place<'_>, judge: Judge, depth: usize) -> Found {
        let one = self.explore(&|dummy| place(Dummy::List(vec![dummy])), depth);
        let form = if judge == Judge::Serde { one.form } else { Form::Any };
        let lists = std::iter::once(Vec::new()).chain(one.dummy.map(|dummy| vec![dummy]));
        Found { form: Form::List(Box::new(form)), dummy: self.first(place, lists.map(Dummy::List)) }
    }

    fn tuple(&self, place: Place<'_>, len: usize, depth: usize) -> Found {
        let (mut forms, mut dummies) = (Vec::new(), Vec::new());
        for index in 0..len {
            // The elements before are needed to come to this one. Without one of them the rest stays unknown.
            if dummies.len() < index {
                forms.push(Form::Any);
                continue;
            }
            let at = |dummy| place(Dummy::List(dummies.iter().cloned().chain([dummy]).collect()));
            let one = self.explore(&at, depth);
            forms.push(one.form);
            dummies.extend(one.dummy);
        }
        // Elements of a derived type may have defaults, and then be left out at the end.
        let takes = |len: usize| self.look(place, Dummy::List(dummies[..len].to_vec())).took();
        let whole = dummies.len() == len && takes(len);
        let least = if whole { len - (0..len).rev().take_while(|less| takes(*less)).count() } else { 0 };
        Found { form: Form::Tuple { forms, least }, dummy: whole.then_some(Dummy::List(dummies)) }
    }

    fn map(&self, place: Place<'_>, judge: Judge, depth: usize) -> Found {
        let empty = self.first(place, [Dummy::Map(Vec::new())]);
        let entry = |key: &Dummy, value| Dummy::Map(vec![(key.clone(), value)]);
        let any = Found { form: Form::Map(Box::new(Form::Any)), dummy: empty };
        // A map that is not one of std may be a struct with flattened fields: its values go by their keys.
        if judge != Judge::Serde {
            return any;
        }
        let Some(key) = self.explore(&|key| place(entry(&key, Dummy::Unknown)), depth).dummy else {
            return any;
        };
        let value = self.explore(&|value| place(entry(&key, value)), depth);
        let one = value.dummy.map(|value| entry(&key, value));
        Found { form: Form::Map(Box::new(value.form)), dummy: any.dummy.or_else(|| self.first(place, one)) }
    }

    fn object(&self, place: Place<'_>, names: &'static [&'static str], judge: Judge, depth: usize) -> Found {
        let entries = |entries: &[(&'static str, Dummy)]| {
            Dummy::Map(entries.iter().map(|(name, value)| (Dummy::Text(name), value.clone())).collect())
        };
        let (mut fields, mut taken, mut untaken) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut aliased = Vec::new();
        for name in names {
            // Each field is looked at as the first of its object, when its form cannot go by the value of another: the
            // content of an adjacently tagged enum shows as anything then, since its tag is not known.
            let one = if judge == Judge::Unknown {
                Found { form: Form::Any, dummy: None }
            } else {
                self.explore(&|value| place(entries(&[(*name, value)])), depth)
            };
            match one.dummy {
                Some(dummy) => {
                    taken.push((*name, dummy));
                    // A second name of a field that is there already.
                    if let Some(Refusal::Duplicate(first)) = self.look(place, entries(&taken)).refusal() {
                        aliased.extend([first, *name]);
                        taken.pop();
                    }
                }
                None => untaken.push(*name),
            }
            fields.insert((*name).to_owned(), Field { form: one.form, required: false });
        }
        // With no places left another name of a field may not have been tried.
        if self.places.get() > 0 && self.knows_its_fields(place, names) {
            for name in names.iter().filter(|name| !aliased.contains(name)) {
                let mut without = taken.clone();
                without.retain(|(other, _)| other != name);
                let missing = self.look(place, entries(&without)).refusal() == Some(Refusal::Missing(name));
                // What could not be tried might be another name of this field: then it has its form and its refusals.
                let form = fields.get(*name).map(|field| field.form.clone());
                let twin = |other: &&str| {
                    other != name && fields.get(*other).map(|field| &field.form) == form.as_ref()
                };
                let certain = !untaken.contains(name) || !untaken.iter().any(twin);
                if let Some(field) = fields.get_mut(*name) {
                    field.required = missing && certain;
                }
            }
        }
        Found { form: Form::Object(fields), dummy: self.first(place, [entries(&taken)]) }
    }

    /// Tells whether names are told apart by derived code or serde's, which ask for a field whatever the others say.
    fn knows_its_fields(&self, place: Place<'_>, names: &[&'static str]) -> bool {
        let Some(name) = names.first() else { return false };
        let key = self.look(&|key| place(Dummy::Map(vec![(key, Dummy::Unknown)])), Dummy::Text(name)).seen();
        key.is_some_and(|(_, judge)| judge != Judge::Unknown)
    }

    fn variants(
        &self,
        place: Place<'_>,
        names: &'static [&'static str],
        judge: Judge,
        depth: usize,
    ) -> Found {
        let variant = |name: Dummy, payload| Dummy::Variant(Box::new(name), Box::new(payload));
        let (mut forms, mut dummy) = (Vec::new(), None);
        for name in names {
            let one = self.explore(&|payload| place(variant(Dummy::Text(name), payload)), depth);
            dummy = dummy
                .or_else(|| self.first(place, one.dummy.map(|payload| variant(Dummy::Text(name), payload))));
            forms.push(((*name).to_owned(), one.form));
        }
        // A name that is none of the enum's: `#[serde(other)]` takes it.
        let stranger = ["?", "??", "???"].into_iter().find(|name| !names.contains(name)).unwrap_or_default();
        let key = self.look(&|key| place(variant(key, Dummy::Unknown)), Dummy::Text(stranger));
        let known = judge != Judge::Unknown && key.seen().is_some_and(|(_, judge)| judge != Judge::Unknown);
        let form = if known && !key.took() && !names.is_empty() { Form::variants(forms) } else { Form::Any };
        Found { form, dummy }
    }
}
