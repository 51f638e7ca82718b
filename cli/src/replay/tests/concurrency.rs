//! `concurrency`: 2 in flight, each for at most 5 s.

use super::check;

const RULE: &str = "{ kind = \"concurrency\", limit = 2, longest = \"5s\" }";

#[test]
fn a_permit_is_held_until_it_comes_back_or_the_longest_call_is_over() {
    check(
        RULE,
        &[
            ("0 try_acquire 1", "ok 1"),
            ("1s try_acquire 1", "ok 0"),
            // No call has handed one back: the first is free for certain at 5 s, the second at 6 s.
            ("2s try_acquire 1", "no 0 retry 3s"),
            ("2s try_acquire 2", "no 0 retry 4s"),
            ("2s refund 1", "ok 1"),
            ("2s try_acquire 1", "ok 0"),
            // One since 1 s and one since 2 s are left.
            ("6s-1 peek 1", "no 0 retry 1"),
            ("6s peek 1", "ok 1"),
            ("7s peek 1", "ok 2"),
            // Nothing is in flight: nothing can come back.
            ("7s refund 1", "ok 2"),
            ("7s try_acquire 3", "error TooLarge"),
        ],
    );
}

#[test]
fn those_that_wait_are_served_when_one_comes_back() {
    check(
        RULE,
        &[
            ("0 try_acquire 2", "ok 0"),
            ("1s acquire 1 timeout 4s-1", "no 0 retry 4s wait 4s"),
            ("1s acquire 1 timeout 4s", "ok 0 wait 4s"),
            // One comes back at 2 s, for the call that waits: that call lasts until 7 s, the other one until 5 s.
            ("2s refund 1", "ok 0"),
            ("5s peek 1", "ok 1"),
            ("7s-1 peek 2", "no 1 retry 1"),
            ("7s peek 2", "ok 2"),
        ],
    );
}

#[test]
fn what_is_in_flight_stays_in_flight_whatever_is_set_or_added() {
    for carry in ["as_is", "proportional", "additive", "reset"] {
        let set = format!(
            "{{\"at_ns\":1000000000,\"limit\":\"a\",\"op\":\"set\",\"permits\":0,\"carry\":\"{carry}\",\
             \"rules\":[{{\"kind\":\"concurrency\",\"limit\":6,\"longest\":\"9s\"}}]}}"
        );
        check(
            RULE,
            &[
                ("0 try_acquire 2", "ok 0"),
                ("0 top_up 1", "ok 0"),
                (&set, "ok 4"),
                ("9s-1 peek 0", "ok 4"),
                ("9s peek 0", "ok 6"),
            ],
        );
    }
}

#[test]
fn a_rate_and_what_is_in_flight_hold_together() {
    let rules = format!("{RULE}, {{ kind = \"sliding_window\", limit = 3, per = \"10s\" }}");
    check(
        &rules,
        &[
            ("0 try_acquire 2", "ok 0"),
            ("1s refund 1", "ok 1"),
            // One came back to the window, too.
            ("1s try_acquire 1", "ok 0"),
            ("5s peek 0", "ok 1"),
            ("6s peek 0", "ok 1"),
            ("10s peek 0", "ok 2"),
            ("11s peek 0", "ok 2"),
        ],
    );
}
