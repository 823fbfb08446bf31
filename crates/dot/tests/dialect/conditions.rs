//! The condition language: evaluation, rejections, and an answer for any text.

use ferrata_dot::condition::{Condition, ConditionFacts};
use proptest::prelude::*;
use serde_json::{Value, json};

fn lookup(key: &str) -> Option<Value> {
    let context = json!({
        "tests_passed": true, "failed": false, "count": 10, "zero": 0, "name": "Ship It", "empty": "", "nothing": null,
        "context.both": "prefixed", "both": "bare", "tags": ["red", "blue"], "map": {"k": 1}, "word": "abc123",
        "human.gate.selected": "Y", "version": "1.10"
    });
    context.get(key).cloned()
}

fn holds(condition: &str) -> bool {
    let condition = Condition::parse(condition).unwrap_or_else(|error| panic!("{condition}: {error}"));
    condition.holds(&ConditionFacts::new("success", "Ship It", &lookup))
}

#[track_caller]
fn check(expected: bool, conditions: &[&str]) {
    for condition in conditions {
        assert_eq!(holds(condition), expected, "{condition}");
    }
}

#[test]
fn an_empty_condition_holds() {
    check(true, &["", "  \n"]);
}

#[test]
fn condition_keys_are_outcome_label_and_context() {
    check(true, &["outcome=success", "preferred_label=Ship It", "context.name=Ship It", "name=Ship It"]);
    check(true, &["human.gate.selected=Y", "context.human.gate.selected=Y"]);
    check(true, &["context.both=prefixed", "both=bare"]);
    check(false, &["outcome=fail", "context.outcome=success"]);
}

#[test]
fn comparing_is_exact_and_case_sensitive() {
    check(
        true,
        &["outcome = success", "outcome!=great", "count=10", "tests_passed=true", "name=\"Ship It\""],
    );
    check(false, &["outcome=great", "name=ship it", "count=10.0", "outcome!=success"]);
}

/// Guarantees: DIALECT-1.
#[test]
fn foreign_outcome_names_map_to_own_outcomes() {
    for (status, words) in [
        ("success", &["succeeded", "Success", "SUCCESS", "ok"][..]),
        ("fail", &["failed", "FAILED", "failure", "error"]),
        ("partial_success", &["partially_succeeded", "partial", "PARTIAL_SUCCESS"]),
        ("skipped", &["skip", "Skipped"]),
    ] {
        for word in words {
            let holds =
                |text: &str| Condition::parse(text).unwrap().holds(&ConditionFacts::new(status, "", &lookup));
            assert!(holds(&format!("outcome={word}")) && !holds(&format!("outcome!={word}")), "{word}");
            assert!(!holds(&format!("context.outcome={word}")), "only the outcome has named values");
        }
    }
    assert!(Condition::parse("outcome=failed").unwrap().is_fail_edge());
    assert_eq!(
        Condition::parse("outcome=failed || !(outcome!=has_dod)").unwrap().outcomes(),
        ["failed", "has_dod"]
    );
}

/// Guarantees: DIALECT-1.
#[test]
fn a_missing_key_is_empty_text() {
    check(true, &["missing=\"\"", "missing!=x", "nothing=\"\"", "!missing"]);
    check(true, &["missing=", "context.missing=", "(missing=) && name!=", "name!= || missing=x"]);
    check(false, &["name=", "missing!=", "context.name= && outcome=success"]);
    check(false, &["missing=x", "missing", "missing<1", "missing contains x"]);
}

#[test]
fn bare_key_is_false_if_empty_false_zero() {
    check(true, &["tests_passed", "context.tests_passed", "name", "count", "outcome"]);
    check(false, &["failed", "zero", "empty", "nothing", "missing"]);
}

/// Guarantees: DOT-22.
#[test]
fn and_binds_tighter_than_or_and_not_tightest() {
    check(true, &["outcome=success && tests_passed", "outcome=success || missing && missing"]);
    check(true, &["!failed && tests_passed", "!outcome=fail", "!!tests_passed", "!(failed && tests_passed)"]);
    check(
        false,
        &["(outcome=success || missing) && missing", "!tests_passed || failed", "!(failed || tests_passed)"],
    );
}

/// Guarantees: DOT-22.
#[test]
fn numbers_compare_as_numbers() {
    check(true, &["count>9", "count>=10", "count<=10", "count<11", "count > -1", "version<2"]);
    check(false, &["count>10", "count<10", "name>1", "tags>1"]);
}

#[test]
fn contains_matches_substring_or_list_member() {
    check(true, &["name contains Ship", "tags contains red", "map contains k", "name contains \"p I\""]);
    check(false, &["tags contains re", "map contains 1", "name contains ship"]);
}

#[test]
fn matches_is_a_regular_expression_found_anywhere() {
    check(true, &["word matches \"^[a-c]+[0-9]+$\"", "word matches c1", "name matches \"Ship\\\\sIt\""]);
    check(false, &["word matches \"^[0-9]\"", "missing matches x"]);
}

#[test]
fn values_without_quotes_may_have_several_words() {
    check(true, &["preferred_label=Ship It && outcome=success", "(preferred_label=Ship It)"]);
}

/// Guarantees: DOT-22.
#[test]
fn condition_mistakes_name_position_and_remedy() {
    for (condition, at, part) in [
        ("outcome==success", 7, "`==` is not an operator"),
        ("outcome=", 8, "a value is missing"),
        ("outcome=success &&", 18, "expected a key"),
        ("&& outcome=success", 0, "expected a key"),
        ("outcome=success AND x=1", 8 + 13, "stands in a value without quotes"),
        ("outcome=success OR done", 8 + 8, "`OR` stands in a value"),
        ("(outcome=success", 16, "expected `)`"),
        ("outcome=success)", 15, "a closing parenthesis has no opening one"),
        ("x=\"abc", 2, "a quote is not closed"),
        ("x=\"a\\d\"", 4, "the escape is unknown"),
        ("x<abc", 2, "`abc` is not a number"),
        ("x matches \"(\"", 10, "is not a regular expression"),
        ("1x=2", 0, "expected a key"),
        ("context.=2", 8, "expected a key"),
        ("x y", 2, "expected `&&`, `||` or the end"),
    ] {
        let error = Condition::parse(condition).expect_err(condition);
        assert_eq!(error.offset(), at, "{condition}: {error}");
        assert!(error.message().contains(part), "{condition}: {error}");
        assert!(!error.suggestion().is_empty());
    }
}

/// Guarantees: DOT-22.
#[test]
fn conditions_are_bounded() {
    assert!(Condition::parse(&"(".repeat(2000)).unwrap_err().message().contains("nest deeper"));
    assert!(Condition::parse(&"!".repeat(2000)).unwrap_err().message().contains("nest deeper"));
    assert!(Condition::parse(&"a && ".repeat(2000)).unwrap_err().message().contains("4096"));
    assert!(holds(&format!("{}tests_passed{}", "(".repeat(30), ")".repeat(30))));
    assert!(Condition::parse("x matches \"(a{1000}){1000}\"").is_err(), "an expression above the size limit");
}

#[test]
fn the_fail_edge_is_known() {
    let is = |text: &str| Condition::parse(text).unwrap().is_fail_edge();
    assert!(is("outcome=fail") && is(" outcome = \"fail\" "));
    assert!(!is("outcome=fail && x=1") && !is("outcome!=fail") && !is(""));
}

proptest! {
    #[test]
    fn any_text_gets_an_answer(text in ".{0,80}") {
        if let Ok(condition) = Condition::parse(&text) {
            condition.holds(&ConditionFacts::new("success", "", &lookup));
        }
    }

    #[test]
    fn any_tokens_get_an_answer(tokens in prop::collection::vec(prop::sample::select(vec![
        "outcome", "=", "!=", "&&", "||", "!", "(", ")", "<", ">=", "contains", "matches", "\"", "x", "context.", ".", " ", "1", "\\",
    ]), 0..30)) {
        let text = tokens.concat();
        match Condition::parse(&text) {
            Ok(condition) => { condition.holds(&ConditionFacts::new("fail", "x", &lookup)); }
            Err(error) => prop_assert!(error.offset() <= text.len()),
        }
    }

    /// De Morgan: the negation of a conjunction is the disjunction of the negations.
    #[test]
    fn negation_distributes(parts in prop::collection::vec(prop::sample::select(vec![
        "outcome=success", "outcome=fail", "count>3", "count>30", "name contains Ship", "missing",
    ]), 1..6)) {
        let all = format!("!({})", parts.join(" && "));
        let any = parts.iter().map(|part| format!("!{part}")).collect::<Vec<_>>().join(" || ");
        prop_assert_eq!(holds(&all), holds(&any));
    }
}
