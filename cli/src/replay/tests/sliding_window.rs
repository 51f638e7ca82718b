//! `sliding_window`: 3 in any 10 s, unless a test sets another.

use super::check;

const RULE: &str = "{ kind = \"sliding_window\", limit = 3, per = \"10s\" }";

#[test]
fn what_was_admitted_stops_counting_at_exactly_one_window_later() {
    check(
        RULE,
        &[
            ("0 try_acquire 2", "ok 1"),
            ("5 try_acquire 1", "ok 0"),
            // The two of 0 leave at 10 s, the one of 5 at 10 s + 5.
            ("5 try_acquire 1", "no 0 retry 10s-5"),
            ("5 try_acquire 3", "no 0 retry 10s"),
            ("10s-1 try_acquire 1", "no 0 retry 1"),
            ("10s try_acquire 2", "ok 0"),
            ("10s+4 peek 1", "no 0 retry 1"),
            ("10s+5 peek 1", "ok 1"),
            ("10s+5 try_acquire 1", "ok 0"),
            // Two leave at 20 s and one 5 later.
            ("20s peek 3", "no 2 retry 5"),
            ("20s+5 peek 3", "ok 3"),
        ],
    );
}

#[test]
fn a_call_takes_all_or_nothing_and_a_probe_costs_nothing() {
    check(
        RULE,
        &[
            ("0 try_acquire 2", "ok 1"),
            ("1 try_acquire 2", "no 1 retry 10s-1"),
            ("1 try_acquire 1", "ok 0"),
            ("1 try_acquire 0", "ok 0"),
            ("1 peek 0", "ok 0"),
            ("1 acquire 0 timeout 0", "ok 0 wait 0"),
            ("1 try_acquire 4", "error TooLarge: permits is 4"),
            ("1 acquire 4", "error TooLarge"),
            ("1 peek 4", "error TooLarge"),
        ],
    );
    let nothing = "{ kind = \"sliding_window\", limit = 0, per = \"10s\" }";
    check(nothing, &[("0 try_acquire 1", "error TooLarge"), ("0 try_acquire 0", "ok 0")]);
}

#[test]
fn a_wait_that_is_exactly_the_timeout_is_in_time_and_one_that_fails_books_nothing() {
    check(
        RULE,
        &[
            ("0 try_acquire 3", "ok 0"),
            ("1s acquire 2 timeout 9s-1", "no 0 retry 9s wait 9s"),
            ("1s acquire 2 timeout 9s", "ok 0 wait 9s"),
            // From 10 s on one is free: a later call waits behind the first, but no longer than that.
            ("2s acquire 1 timeout 8s", "ok 0 wait 8s"),
            // All three count until 20 s: the next one waits until then.
            ("3s acquire 1 timeout 17s-1", "no 0 retry 17s wait 17s"),
            ("3s try_acquire 1", "no 0 retry 17s"),
            ("10s peek 0", "ok 0"),
            ("20s-1 try_acquire 1", "no 0 retry 1"),
            ("20s acquire 3", "ok 0 wait 0"),
            // Without a timeout it waits for as long as it takes: 10 s for the first, 20 s for the second.
            ("20s acquire 3", "ok 0 wait 10s"),
            ("20s acquire 3", "ok 0 wait 20s"),
        ],
    );
}

#[test]
fn no_caller_overtakes_those_that_wait() {
    check(
        RULE,
        &[
            ("0 try_acquire 2", "ok 1"),
            ("1 acquire 3", "ok 0 wait 10s-1"),
            // One is free; it is for the call that waits. That call gets three at 10 s, which count until 20 s.
            ("2 try_acquire 1", "no 0 retry 20s-2"),
            ("2 acquire 1 timeout 20s-2", "ok 0 wait 20s-2"),
            ("10s peek 1", "no 0 retry 10s"),
            ("20s peek 1", "ok 2"),
        ],
    );
}

#[test]
fn a_margin_counts_where_it_is_written() {
    let rule = "{ kind = \"sliding_window\", limit = 1, per = \"10s\", margin = \"250ms\" }";
    check(rule, &[("0 try_acquire 1", "ok 0"), ("10s try_acquire 1", "no 0 retry 250ms")]);
}

#[test]
fn what_comes_back_counts_no_more_and_what_was_never_taken_brings_nothing() {
    check(
        RULE,
        &[
            ("0 try_acquire 2", "ok 1"),
            ("1 refund 1", "ok 2"),
            ("2 refund 5", "ok 3"),
            ("3 try_acquire 1", "ok 2"),
            ("4 try_acquire 2", "ok 0"),
            ("5 acquire 1", "ok 0 wait 10s-2"),
            // The older one comes back, so the call that waits is served now; two of 4 and one of 6 count.
            ("6 refund 1", "ok 0"),
            ("10s+3 peek 1", "no 0 retry 1"),
            ("10s+4 peek 1", "ok 2"),
            ("10s+6 peek 1", "ok 3"),
            ("10s+6 refund 3", "ok 3"),
        ],
    );
}

#[test]
fn time_that_goes_backwards_is_no_time() {
    check(
        RULE,
        &[
            ("5s try_acquire 3", "ok 0"),
            ("1s try_acquire 1", "no 0 retry 10s"),
            // The wait begins at 5 s, too.
            ("0 acquire 1 timeout 10s", "ok 0 wait 10s"),
            ("15s-1 peek 1", "no 0 retry 1"),
            ("15s peek 1", "ok 2"),
        ],
    );
}
