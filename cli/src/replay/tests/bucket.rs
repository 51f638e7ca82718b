//! `token_bucket` and `leaky_bucket`: what a process and the oracle of the limiter do not ask for.

use super::{check, check_limits};

#[test]
fn a_bucket_that_never_holds_a_permit_refuses_every_call_for_good() {
    for rule in [
        "{ kind = \"token_bucket\", capacity = 0, refill = 5, per = \"1s\" }",
        "{ kind = \"leaky_bucket\", burst = 4, refill = 0, per = \"1s\" }",
    ] {
        check(rule, &[("0 try_acquire 1", "error TooLarge"), ("9s try_acquire 0", "ok 0")]);
    }
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
