//! The law of shapes, tried on many types with many texts; what they refuse, say and store.

mod cases;
mod law;
mod types;

use proptest::prelude::*;

use super::{Field, Form, Int, Shape};

/// Any shape that can be built or found.
fn shapes() -> impl Strategy<Value = Shape> {
    let name = || prop_oneof!["[a-c?!]{0,3}", any::<String>()];
    let leaf = prop_oneof![
        Just(Form::Any),
        Just(Form::Bool),
        (0..Int::ALL.len()).prop_map(|index| Form::Int(Int::ALL[index].0)),
        Just(Form::Number),
        Just(Form::Text),
        Just(Form::Char),
        Just(Form::Bytes),
        Just(Form::Null),
        prop::collection::vec(name(), 0..20).prop_map(Form::OneOf),
        prop::collection::vec(name(), 0..4).prop_map(Form::Units),
    ];
    let form = leaf.prop_recursive(4, 40, 15, move |inner| {
        let field = (inner.clone(), any::<bool>()).prop_map(|(form, required)| Field { form, required });
        let tuple = (prop::collection::vec(inner.clone(), 0..4), 0_usize..4);
        prop_oneof![
            inner.clone().prop_map(|form| Form::Nullable(Box::new(form))),
            inner.clone().prop_map(|form| Form::List(Box::new(form))),
            inner.clone().prop_map(|form| Form::Map(Box::new(form))),
            tuple.prop_map(|(forms, least)| Form::Tuple { least: least.min(forms.len()), forms }),
            prop::collection::btree_map(name(), inner, 0..15).prop_map(Form::Variants),
            prop::collection::btree_map(name(), field, 0..15).prop_map(Form::Object),
        ]
    });
    form.prop_map(Shape)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn what_is_stored_reads_back_the_same(shape in shapes()) {
        let text = serde_json::to_string(&shape).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Shape>(&text).unwrap(), &shape, "{}", text);
        let value = serde_json::to_value(&shape).unwrap();
        prop_assert_eq!(serde_json::from_value::<Shape>(value).unwrap(), shape);
    }

    #[test]
    fn every_shape_can_be_told_and_every_answer_checked(shape in shapes(), text in law::texts(), noise in any::<String>()) {
        prop_assert!(!shape.to_string().is_empty());
        for text in [&text, &noise] {
            if let Err(message) = shape.check(text) {
                prop_assert!(message.chars().count() <= 400, "{}", message);
            }
        }
    }

    #[test]
    fn every_json_reads_as_a_shape(text in law::texts()) {
        if serde_json::from_str::<serde_json::Value>(&text).is_ok() {
            prop_assert!(serde_json::from_str::<Shape>(&text).is_ok());
        }
    }
}
