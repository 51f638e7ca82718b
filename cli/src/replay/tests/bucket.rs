//! `token_bucket`: up to 10, and 3 each second: one in 333,333,333⅓ ns.

use super::{check, check_limits};

const RULE: &str = "{ kind = \"token_bucket\", capacity = 10, refill = 3, per = \"1s\" }";

#[test]
fn a_permit_is_there_at_the_first_whole_nanosecond_and_no_remainder_is_lost() {
    check(
        RULE,
        &[
            ("0 try_acquire 10", "ok 0"),
            // One permit takes 333,333,333.33 ns: it is there at …334. Three take a second to the nanosecond.
            ("0 try_acquire 1", "no 0 retry 333333334"),
            ("0 try_acquire 3", "no 0 retry 1s"),
            ("333333333 try_acquire 1", "no 0 retry 1"),
            ("333333334 try_acquire 1", "ok 0"),
            ("333333334 try_acquire 1", "no 0 retry 333333333"),
            ("666666667 try_acquire 1", "ok 0"),
            ("1s-1 try_acquire 1", "no 0 retry 1"),
            ("1s try_acquire 1", "ok 0"),
            ("1s try_acquire 11", "error TooLarge"),
        ],
    );
}

#[test]
fn nothing_is_kept_beyond_the_brim() {
    check(
        RULE,
        &[
            ("0 try_acquire 1", "ok 9"),
            // Full again after 333,333,334 ns; the part of a permit that came since is gone.
            ("500ms try_acquire 1", "ok 9"),
            ("500ms+333333333 peek 10", "no 9 retry 1"),
            ("500ms+333333334 peek 10", "ok 10"),
            ("1h try_acquire 10", "ok 0"),
            ("1h+1s peek 0", "ok 3"),
        ],
    );
}

#[test]
fn those_that_wait_are_served_in_turn_and_later_ones_behind_them() {
    check(
        RULE,
        &[
            ("0 try_acquire 10", "ok 0"),
            ("0 acquire 6 timeout 2s-1", "no 0 retry 2s wait 2s"),
            ("0 acquire 6 timeout 2s", "ok 0 wait 2s"),
            // Three are there after a second, for the call that waits; the next three after it, at 3 s.
            ("1s try_acquire 3", "no 0 retry 2s"),
            ("1s acquire 3", "ok 0 wait 2s"),
            ("3s peek 1", "no 0 retry 333333334"),
            ("4s peek 1", "ok 3"),
        ],
    );
}

#[test]
fn it_begins_at_its_initial_level_and_a_rate_of_zero_never_refills() {
    let rule = "{ kind = \"token_bucket\", capacity = 10, refill = 1, per = \"1s\", initial = 2 }";
    check(
        rule,
        &[("0 try_acquire 3", "no 2 retry 1s"), ("0 try_acquire 2", "ok 0"), ("20s peek 0", "ok 10")],
    );
    let still = "{ kind = \"token_bucket\", capacity = 10, refill = 0, per = \"1s\" }";
    check(
        still,
        &[
            ("0 try_acquire 8", "ok 2"),
            // They never come, so the answer has no time.
            ("1h try_acquire 3", "no 2"),
            ("1h acquire 3", "no 2"),
            ("1h try_acquire 2", "ok 0"),
            ("1h refund 4", "ok 4"),
        ],
    );
    let nothing = "{ kind = \"token_bucket\", capacity = 0, refill = 5, per = \"1s\" }";
    check(nothing, &[("0 try_acquire 1", "error TooLarge"), ("9s try_acquire 0", "ok 0")]);
}

#[test]
fn credit_never_exceeds_the_capacity() {
    check(
        RULE,
        &[
            ("0 try_acquire 4", "ok 6"),
            ("0 refund 1", "ok 7"),
            ("0 refund 9", "ok 10"),
            ("0 try_acquire 4", "ok 6"),
            ("1s refund 4", "ok 10"),
        ],
    );
}

#[test]
fn several_rules_hold_together_and_a_refusal_by_one_costs_the_others_nothing() {
    let rules = "{ kind = \"sliding_window\", limit = 5, per = \"10s\" }, \
                 { kind = \"token_bucket\", capacity = 3, refill = 1, per = \"1s\" }";
    check(
        rules,
        &[
            ("0 try_acquire 3", "ok 0"),
            ("0 try_acquire 1", "no 0 retry 1s"),
            ("2s try_acquire 2", "ok 0"),
            // The bucket has one at 3 s, the window none before 10 s.
            ("3s try_acquire 1", "no 0 retry 7s"),
            ("10s try_acquire 3", "ok 0"),
            ("10s try_acquire 4", "error TooLarge: permits is 4"),
        ],
    );
}

#[test]
fn what_comes_at_intervals_comes_all_at_once() {
    // Four at each whole second since the first request.
    let rule =
        "{ kind = \"token_bucket\", capacity = 10, refill = 4, per = \"1s\", refill_style = \"interval\" }";
    check(
        rule,
        &[
            ("500ms try_acquire 10", "ok 0"),
            ("700ms try_acquire 1", "no 0 retry 800ms"),
            ("700ms try_acquire 5", "no 0 retry 1800ms"),
            ("1500ms-1 peek 1", "no 0 retry 1"),
            ("1500ms try_acquire 3", "ok 1"),
            ("2500ms peek 0", "ok 5"),
            ("3500ms peek 0", "ok 9"),
            ("4500ms try_acquire 1", "ok 9"),
            // A second is over since the last refill, not since the permit was taken.
            ("5s peek 10", "no 9 retry 500ms"),
            ("5500ms peek 10", "ok 10"),
        ],
    );
}

#[test]
fn a_bucket_goes_into_the_red_as_far_as_it_may_and_the_next_one_waits() {
    let rule = "{ kind = \"token_bucket\", capacity = 5, refill = 1, per = \"1s\", debt = 3 }";
    check(
        rule,
        &[
            ("0 try_acquire 9", "error TooLarge: permits is 9"),
            // Five, and three more: the debt is three, and a permit comes after four seconds.
            ("0 try_acquire 8", "ok 0"),
            ("0 try_acquire 1", "no 0 retry 4s"),
            ("0 try_acquire 4", "no 0 retry 4s"),
            ("0 try_acquire 5", "no 0 retry 5s"),
            ("4s-1 peek 1", "no 0 retry 1"),
            ("4s try_acquire 3", "ok 0"),
            // The debt is two; two come back.
            ("4s refund 2", "ok 0"),
            ("5s peek 0", "ok 4"),
            ("1h peek 0", "ok 8"),
        ],
    );
}

#[test]
fn a_cold_bucket_refills_slowly_at_first() {
    // A warm one gains a permit each 100 ms. It is coldest at 2·2s / (100 ms + 300 ms) = 10 permits. Four are spent, so
    // the next takes 100 ms · (1 + 2·6/10) = 220 ms, and after ten it is warm. Cold times are rounded up: a permit may
    // come a nanosecond late, and never early.
    let rule = "{ kind = \"token_bucket\", capacity = 10, refill = 10, per = \"1s\", \
                warm_up = { over = \"2s\", cold_factor = 3 } }";
    check(
        rule,
        &[
            ("0 try_acquire 4", "ok 6"),
            ("0 peek 7", "no 6 retry 220000001"),
            ("0 try_acquire 6", "ok 0"),
            ("0 try_acquire 1", "no 0 retry 100ms"),
            ("100ms try_acquire 1", "ok 0"),
            ("1100ms peek 0", "ok 10"),
            // Full and idle for half of two seconds, it is half cold: 100 ms · (1 + 2·½), of which one was spent.
            ("2100ms try_acquire 1", "ok 9"),
            ("2100ms peek 10", "no 9 retry 180000001"),
        ],
    );
}

#[test]
fn looking_at_a_key_begins_no_interval() {
    let config = "[[limit]]\nname = \"a\"\nkeyed = true\nrules = [{ kind = \"token_bucket\", capacity = 2, \
                  refill = 1, per = \"1s\", refill_style = \"interval\" }]";
    check_limits(
        config,
        &[
            ("a k: 0 peek 1", "ok 2"),
            ("a k: 200ms refund 1", "ok 2"),
            // The interval begins now: the next one comes at 1,500 ms.
            ("a k: 500ms try_acquire 2", "ok 0"),
            ("a k: 1s peek 1", "no 0 retry 500ms"),
            ("a k: 1500ms peek 1", "ok 1"),
        ],
    );
}
