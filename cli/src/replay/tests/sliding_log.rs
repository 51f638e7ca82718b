//! `sliding_log`: the margin, and a change.

use super::check;

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
