//! Tests the program that reads an earlier position of a run and changes it in a fork.

use std::process::Command;

use super::support::program;

#[test]
fn the_past_is_looked_at_changed_and_compared() {
    let output = Command::new(program("time_travel")).output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{out}\n{err}");
    assert_eq!(
        out,
        r#"as it was: 4 beds at Pension Anna, 4 seats, a guide, 480 spent of 485

after `plan`: 4 people, 0 booked
what ran next: hotel

for two: 2 beds at Grand Hotel, 2 seats, 430 spent of 485
  trip
  trip-for-two, forked at record 1

what differs in the end:
  /bookings/0: "4 beds at Pension Anna" became "2 beds at Grand Hotel"
  /bookings/1: "4 seats" became "2 seats"
  /bookings/2: "a guide" is gone
  /hotel: "Pension Anna" became "Grand Hotel"
  /people: 4 became 2
  /spent: 480 became 430
"#
    );
}
