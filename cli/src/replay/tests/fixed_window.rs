//! `fixed_window`: 3 in each 10 s since the epoch.

use super::check;

const RULE: &str = "{ kind = \"fixed_window\", limit = 3, per = \"10s\" }";

#[test]
fn windows_begin_on_the_grid_of_the_epoch_and_not_with_the_first_call() {
    check(
        RULE,
        &[
            ("7s try_acquire 3", "ok 0"),
            ("7s try_acquire 1", "no 0 retry 3s"),
            ("10s-1 try_acquire 1", "no 0 retry 1"),
            // Three just before the edge and three just after: six within two nanoseconds.
            ("10s try_acquire 3", "ok 0"),
            ("10s try_acquire 3", "no 0 retry 10s"),
            ("95s try_acquire 2", "ok 1"),
            ("95s try_acquire 2", "no 1 retry 5s"),
            ("95s try_acquire 4", "error TooLarge"),
        ],
    );
}

#[test]
fn those_that_wait_are_served_in_the_windows_that_follow() {
    check(
        RULE,
        &[
            ("1s try_acquire 2", "ok 1"),
            ("2s acquire 2 timeout 8s-1", "no 1 retry 8s wait 8s"),
            ("2s acquire 2 timeout 8s", "ok 0 wait 8s"),
            // Behind it, in the window from 10 s, there is room for one; in the one from 20 s for three.
            ("3s acquire 2", "ok 0 wait 17s"),
            ("3s acquire 1", "ok 0 wait 17s"),
            ("3s acquire 1", "ok 0 wait 27s"),
            ("20s peek 1", "no 0 retry 10s"),
            ("30s peek 2", "ok 2"),
        ],
    );
}

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
