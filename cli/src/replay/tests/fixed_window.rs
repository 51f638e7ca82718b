//! `fixed_window`: 3 in each 10 s since the epoch.

use super::check;

const RULE: &str = "{ kind = \"fixed_window\", limit = 3, per = \"10s\" }";

#[test]
fn what_comes_back_helps_only_its_own_window() {
    check(
        RULE,
        &[
            ("1s try_acquire 3", "ok 0"),
            ("2s refund 1", "ok 1"),
            ("11s refund 2", "ok 3"),
            ("12s try_acquire 2", "ok 1"),
            ("12s refund 3", "ok 3"),
        ],
    );
}

#[test]
fn other_windows_of_the_same_length_begin_empty() {
    // At 25 s into the epoch a window of first use has been open since 22 s, the one of the epoch since 20 s.
    let set = "{\"at_ns\":25000000000,\"limit\":\"a\",\"op\":\"set\",\"permits\":0,\
               \"rules\":[{\"kind\":\"fixed_window\",\"limit\":3,\"per\":\"10s\"}]}";
    let rule = "{ kind = \"fixed_window\", limit = 3, per = \"10s\", anchor = \"first_use\" }";
    check(
        rule,
        &[
            ("22s try_acquire 2", "ok 1"),
            (set, "ok 3"),
            ("26s try_acquire 3", "ok 0"),
            ("26s peek 1", "no 0 retry 4s"),
        ],
    );
}
