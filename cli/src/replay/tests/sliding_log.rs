//! `sliding_log`: 3 in any 10 s, exact to the spend. One limiter in one place answers as for a `sliding_window`.

use super::check;

const RULE: &str = "{ kind = \"sliding_log\", limit = 3, per = \"10s\" }";

#[test]
fn each_permit_comes_back_at_its_own_nanosecond() {
    check(
        RULE,
        &[
            ("0 try_acquire 1", "ok 2"),
            ("1 try_acquire 1", "ok 1"),
            ("2 try_acquire 1", "ok 0"),
            // They leave one by one, at 10 s, 10 s + 1 and 10 s + 2.
            ("2 try_acquire 1", "no 0 retry 10s-2"),
            ("2 try_acquire 2", "no 0 retry 10s-1"),
            ("2 try_acquire 3", "no 0 retry 10s"),
            ("10s-1 peek 1", "no 0 retry 1"),
            ("10s try_acquire 1", "ok 0"),
            ("10s+1 peek 1", "ok 1"),
            ("10s+2 peek 2", "ok 2"),
            // The one of 10 s leaves at 20 s.
            ("10s+2 peek 3", "no 2 retry 10s-2"),
            ("20s peek 3", "ok 3"),
            ("20s try_acquire 4", "error TooLarge: permits is 4"),
        ],
    );
}

#[test]
fn those_that_wait_are_served_as_single_permits_leave() {
    check(
        RULE,
        &[
            ("0 try_acquire 2", "ok 1"),
            ("4s try_acquire 1", "ok 0"),
            // Two are free at 10 s, three at 14 s.
            ("5s acquire 2 timeout 5s-1", "no 0 retry 5s wait 5s"),
            ("5s acquire 2 timeout 5s", "ok 0 wait 5s"),
            ("6s acquire 1", "ok 0 wait 8s"),
            ("7s acquire 1", "ok 0 wait 13s"),
            // The older two, of 0 s, come back: the first call is served at 8 s, and the others at 14 s and at 18 s.
            // From then on one more may come.
            ("8s refund 2", "ok 0"),
            ("14s peek 1", "no 0 retry 4s"),
            ("18s peek 1", "ok 1"),
            ("24s peek 2", "ok 2"),
        ],
    );
}

#[test]
fn a_margin_counts_where_it_is_written_and_a_change_carries_the_log() {
    let rule = "{ kind = \"sliding_log\", limit = 2, per = \"10s\", margin = \"250ms\" }";
    let set = "{\"at_ns\":5000000000,\"limit\":\"a\",\"op\":\"set\",\
               \"rules\":[{\"kind\":\"sliding_log\",\"limit\":5,\"per\":\"10s\"}]}";
    check(
        rule,
        &[
            ("0 try_acquire 1", "ok 1"),
            ("1s try_acquire 1", "ok 0"),
            ("10s+249ms peek 1", "no 0 retry 1ms"),
            ("10s+250ms try_acquire 1", "ok 0"),
        ],
    );
    // Without the margin each counts for 10 s.
    check(
        rule,
        &[("0 try_acquire 2", "ok 0"), (set, "ok 3"), ("10s-1 peek 0", "ok 3"), ("10s peek 0", "ok 5")],
    );
}
