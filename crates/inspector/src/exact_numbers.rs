//! Detects numbers in JSON text that a state cannot represent exactly: a state has 64-bit integers and floats.

use serde_json::Number;

use crate::problem::Problem;

/// Rejects JSON that contains a number whose value would change when a state stores it.
pub(crate) fn check_numbers(json: &str) -> Result<(), Problem> {
    match numbers(json).find(|number| !is_exact(number)) {
        None => Ok(()),
        Some(number) => {
            let shown: String = number.chars().take(40).collect();
            let message = format!("a state cannot keep all digits of the number {shown}; write it as text");
            Err(Problem::invalid(message))
        }
    }
}

/// Returns the numbers of valid JSON as written.
fn numbers(json: &str) -> impl Iterator<Item = &str> {
    // A character after a backslash does not end a text.
    let (mut in_text, mut is_escaped) = (false, false);
    json.split(move |c: char| {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => in_text = !in_text,
            _ => {}
        }
        in_text || !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E')
    })
    .filter(|word| word.starts_with(|c: char| c == '-' || c.is_ascii_digit()))
}

fn is_exact(number: &str) -> bool {
    if !number.contains(['.', 'e', 'E']) {
        return number.parse::<u64>().is_ok() || number.parse::<i64>().is_ok();
    }
    let read = serde_json::from_str::<Number>(number).map(|number| number.to_string());
    read.is_ok_and(|read| plain(&read) == plain(number))
}

/// Returns the sign of a number, its digits from the first to the last that is not 0, and the exponent of the first digit. Equal numbers give equal
/// results.
fn plain(number: &str) -> (bool, String, i64) {
    let (is_negative, number) = number.strip_prefix('-').map_or((false, number), |rest| (true, rest));
    let (digits, power) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{part}");
    let first = all.trim_start_matches('0');
    let zeros = all.len() - first.len();
    let place = i64::try_from(whole.len()).unwrap_or(i64::MAX) - i64::try_from(zeros).unwrap_or(i64::MAX);
    match first.trim_end_matches('0') {
        "" => (is_negative, String::new(), 0),
        digits => (is_negative, digits.to_owned(), place.saturating_add(power.parse().unwrap_or(i64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_preserved_if_no_digit_is_lost() {
        for number in [
            "0",
            "-0",
            "0.0",
            "7",
            "-7.50",
            "1e3",
            "1.0E+3",
            "100e-2",
            "18446744073709551615",
            "-9223372036854775808",
            "0.1",
            "5e-324",
            "1.7976931348623157e308",
            "1e22",
            "0.000001",
        ] {
            assert!(is_exact(number), "{number}");
        }
        for number in [
            "18446744073709551616",
            "-9223372036854775809",
            "10000000000000000000000",
            "0.10000000000000000001",
            "1e-400",
            "9007199254740993.0",
        ] {
            assert!(!is_exact(number), "{number}");
        }
    }

    #[test]
    fn number_scan_skips_digits_inside_strings() {
        let json = r#"[{"set":["a-1","7 \" 8\\"]},-1.5e3, true,null,"\\\"",{"9":10}]"#;
        assert_eq!(numbers(json).collect::<Vec<_>>(), ["-1.5e3", "10"]);
    }
}
