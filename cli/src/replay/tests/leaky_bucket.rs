//! `leaky_bucket`: 3 each second, one at a time: one in 333,333,333⅓ ns.

use super::check;

const RULE: &str = "{ kind = \"leaky_bucket\", burst = 1, refill = 3, per = \"1s\" }";

#[test]
fn two_calls_are_never_closer_than_the_interval_since_the_last_grant() {
    check(
        RULE,
        &[
            ("0 try_acquire 1", "ok 0"),
            ("0 try_acquire 1", "no 0 retry 333333334"),
            ("333333333 try_acquire 1", "no 0 retry 1"),
            ("333333334 try_acquire 1", "ok 0"),
            // Counted from the last grant: no part of an interval is saved up, so 666,666,667 is too early.
            ("333333334 try_acquire 1", "no 0 retry 333333334"),
            ("666666667 try_acquire 1", "no 0 retry 1"),
            // A call that comes late moves all that follow.
            ("900ms try_acquire 1", "ok 0"),
            ("1s try_acquire 1", "no 0 retry 233333334"),
            ("1h try_acquire 1", "ok 0"),
            ("1h try_acquire 2", "error TooLarge: permits is 2"),
        ],
    );
}

#[test]
fn those_that_wait_leave_one_by_one() {
    let rule = "{ kind = \"leaky_bucket\", burst = 1, refill = 10, per = \"1s\" }";
    check(
        rule,
        &[
            ("0 acquire 1", "ok 0 wait 0"),
            ("0 acquire 1", "ok 0 wait 100ms"),
            ("0 acquire 1 timeout 200ms-1", "no 0 retry 200ms wait 200ms"),
            ("0 acquire 1 timeout 200ms", "ok 0 wait 200ms"),
            ("50ms acquire 1", "ok 0 wait 250ms"),
            ("300ms peek 1", "no 0 retry 100ms"),
            ("400ms peek 1", "ok 1"),
        ],
    );
}

#[test]
fn a_burst_may_come_at_once_and_comes_back_at_the_rate() {
    // 4 at once, and one each 100 ms: at most 4 + 10 in any second.
    let rule = "{ kind = \"leaky_bucket\", burst = 4, refill = 10, per = \"1s\" }";
    check(
        rule,
        &[
            ("0 try_acquire 4", "ok 0"),
            ("100ms-1 try_acquire 1", "no 0 retry 1"),
            ("100ms try_acquire 1", "ok 0"),
            ("350ms try_acquire 3", "no 2 retry 50ms"),
            ("350ms try_acquire 2", "ok 0"),
            ("400ms try_acquire 1", "ok 0"),
            ("2s peek 0", "ok 4"),
            ("2s try_acquire 5", "error TooLarge"),
        ],
    );
}

#[test]
fn a_flow_of_nothing_refuses_everything() {
    let rule = "{ kind = \"leaky_bucket\", burst = 4, refill = 0, per = \"1s\" }";
    check(rule, &[("0 try_acquire 0", "ok 0"), ("0 try_acquire 1", "error TooLarge")]);
}
