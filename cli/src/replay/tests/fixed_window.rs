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
            // Behind that call, the window from 10 s has room for one, and the window from 20 s for three.
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

#[test]
fn a_window_of_first_use_begins_with_the_first_call_after_the_last_one() {
    let rule = "{ kind = \"fixed_window\", limit = 3, per = \"10s\", anchor = \"first_use\" }";
    check(
        rule,
        &[
            // Looking opens nothing: the window is [7 s, 17 s).
            ("3s peek 1", "ok 3"),
            ("7s try_acquire 2", "ok 1"),
            ("16s try_acquire 1", "ok 0"),
            ("17s-1 try_acquire 1", "no 0 retry 1"),
            // The next one is [22 s, 32 s), not [17 s, 27 s).
            ("22s try_acquire 1", "ok 2"),
            ("28s try_acquire 3", "no 2 retry 4s"),
        ],
    );
}

#[test]
fn a_day_of_25_hours_is_one_window() {
    // Midnight in Berlin of 27 October 2024 is 1,729,980,000 s after the epoch; clocks go back, and the day has 90,000 s.
    let rule = "{ kind = \"fixed_window\", limit = 3, calendar = \"day\", zone = \"Europe/Berlin\" }";
    check(
        rule,
        &[
            ("1729980000s-1 try_acquire 3", "ok 0"),
            ("1729980000s try_acquire 3", "ok 0"),
            ("1730066400s try_acquire 1", "no 0 retry 3600s"),
            ("1730070000s try_acquire 1", "ok 2"),
        ],
    );
}

#[test]
fn a_month_from_the_31st_on_begins_on_the_last_day_of_february() {
    // 31 January 2024 is 1,706,659,200 s after the epoch, 29 February 1,709,164,800 s, 31 March 1,711,843,200 s.
    let rule = "{ kind = \"fixed_window\", limit = 3, calendar = \"month\", anchor_day = 31 }";
    check(
        rule,
        &[
            ("1706659200s try_acquire 3", "ok 0"),
            ("1709164800s-1 try_acquire 1", "no 0 retry 1"),
            ("1709164800s try_acquire 2", "ok 1"),
            ("1711843200s-10s try_acquire 2", "no 1 retry 10s"),
        ],
    );
}

#[test]
fn a_day_of_23_hours_is_one_window_and_an_hour_that_is_skipped_is_none() {
    // Midnight in Berlin of 29 March 2026 is 1,774,738,800 s after the epoch; at 1,774,746,000 s clocks go from 2 to 3.
    // The day has 82,800 s.
    let day = "{ kind = \"fixed_window\", limit = 3, calendar = \"day\", zone = \"Europe/Berlin\" }";
    check(
        day,
        &[
            ("1774738800s try_acquire 3", "ok 0"),
            ("1774738800s try_acquire 1", "no 0 retry 82800s"),
            ("1774821600s-1 try_acquire 1", "no 0 retry 1"),
            ("1774821600s try_acquire 1", "ok 2"),
        ],
    );
    let hour = "{ kind = \"fixed_window\", limit = 3, calendar = \"hour\", zone = \"Europe/Berlin\" }";
    check(
        hour,
        &[
            // 1:30; the next hour begins at the skip.
            ("1774744200s try_acquire 3", "ok 0"),
            ("1774744200s try_acquire 1", "no 0 retry 1800s"),
            ("1774746000s try_acquire 3", "ok 0"),
            ("1774746000s try_acquire 1", "no 0 retry 3600s"),
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
