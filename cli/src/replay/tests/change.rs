//! `set` and `top_up`: rules changed while they are in use, in each of the four ways.

use super::{check, check_limits};

const WINDOW: &str = "{ kind = \"sliding_window\", limit = 10, per = \"10s\" }";
const BUCKET: &str = "{ kind = \"token_bucket\", capacity = 10, refill = 1, per = \"1s\" }";

fn set_window(limit: u64, carry: &str) -> String {
    format!(
        "{{\"at_ns\":1000000000,\"limit\":\"a\",\"op\":\"set\",\"permits\":0,{carry}\
         \"rules\":[{{\"kind\":\"sliding_window\",\"limit\":{limit},\"per\":\"10s\"}}]}}"
    )
}

#[test]
fn a_window_is_changed_in_each_of_the_four_ways() {
    for (limit, carry, remaining) in [
        // Six of ten are used at 1 s.
        (20, "", "ok 14"),
        (20, "\"carry\":\"as_is\",", "ok 14"),
        (4, "\"carry\":\"as_is\",", "ok 0"),
        (20, "\"carry\":\"additive\",", "ok 14"),
        // 6/10 of 20 are 12, of 5 they are 3, of 4 they are 2.4: rounded up to 3.
        (20, "\"carry\":\"proportional\",", "ok 8"),
        (5, "\"carry\":\"proportional\",", "ok 2"),
        (4, "\"carry\":\"proportional\",", "ok 1"),
        (4, "\"carry\":\"reset\",", "ok 4"),
    ] {
        let set = set_window(limit, carry);
        // Carried charges count until 10 s, as before.
        let full = format!("ok {limit}");
        check(WINDOW, &[("0 try_acquire 6", "ok 4"), (&set, remaining), ("10s peek 0", &full)]);
    }
}

#[test]
fn a_bucket_is_changed_in_each_of_the_four_ways() {
    for (capacity, carry, then, a_second_later) in [
        // Five are left of ten at 1 s, and one comes each second.
        (20, "as_is", "ok 5", "ok 6"),
        (3, "as_is", "ok 3", "ok 3"),
        (20, "additive", "ok 15", "ok 16"),
        (7, "additive", "ok 2", "ok 3"),
        (4, "additive", "ok 0", "ok 1"),
        (20, "proportional", "ok 10", "ok 11"),
        // Half of seven is 3½; with the one of the next second it is 4½.
        (7, "proportional", "ok 3", "ok 4"),
        (3, "reset", "ok 3", "ok 3"),
    ] {
        let set = format!(
            "{{\"at_ns\":1000000000,\"limit\":\"a\",\"op\":\"set\",\"permits\":0,\"carry\":\"{carry}\",\
             \"rules\":[{{\"kind\":\"token_bucket\",\"capacity\":{capacity},\"refill\":1,\"per\":\"1s\"}}]}}"
        );
        check(BUCKET, &[("0 try_acquire 6", "ok 4"), (&set, then), ("2s peek 0", a_second_later)]);
    }
}

#[test]
fn those_that_wait_are_decided_anew() {
    check(
        WINDOW,
        &[
            ("0 try_acquire 10", "ok 0"),
            ("500ms acquire 5 timeout 9500ms", "ok 0 wait 9500ms"),
            // Of 16 six are free: the call that waits is served at once, and counts until 11 s.
            (&set_window(16, ""), "ok 1"),
            ("10s peek 0", "ok 11"),
            ("11s peek 0", "ok 16"),
        ],
    );
    check(
        WINDOW,
        &[
            ("0 try_acquire 10", "ok 0"),
            ("500ms acquire 5 timeout 9500ms", "ok 0 wait 9500ms"),
            // Four can never hold five: the call has given up.
            (&set_window(4, ""), "ok 0"),
            ("10s peek 0", "ok 4"),
        ],
    );
}

#[test]
fn a_top_up_is_there_at_once_and_beyond_the_limit() {
    check(
        WINDOW,
        &[
            ("0 try_acquire 8", "ok 2"),
            // Twelve may count until 11 s, and fifteen between.
            ("1s top_up 2", "ok 4"),
            ("1s top_up 3", "ok 7"),
            ("2s try_acquire 7", "ok 0"),
            ("3s acquire 4", "ok 0 wait 7s"),
            // Three more are too few for the call that waits, and four are enough: one of five is left.
            ("4s top_up 3", "ok 0"),
            ("5s top_up 2", "ok 1"),
            // The eight of 0 are gone. At 11 s five fewer are allowed, 10 + 3 + 2, of which 7 + 4 count.
            ("10s peek 0", "ok 9"),
            ("11s peek 0", "ok 4"),
            // The seven of 2 s are gone. At 14 s three fewer are allowed, and at 15 s two, when the four of 5 s go.
            ("12s peek 0", "ok 11"),
            ("14s peek 0", "ok 8"),
            ("15s peek 0", "ok 10"),
        ],
    );
    check(
        BUCKET,
        &[
            ("0 try_acquire 8", "ok 2"),
            ("0 top_up 5", "ok 7"),
            ("0 top_up 5", "ok 12"),
            // The bucket gains nothing while it is full.
            ("9s try_acquire 3", "ok 9"),
            ("10s peek 0", "ok 10"),
            ("20s peek 0", "ok 10"),
        ],
    );
}

#[test]
fn a_topped_up_day_has_so_many_more_until_it_ends() {
    check(
        "{ kind = \"fixed_window\", limit = 10, per = \"10s\" }",
        &[
            ("1s try_acquire 3", "ok 7"),
            ("1s top_up 5", "ok 12"),
            ("9s try_acquire 9", "ok 3"),
            ("10s peek 0", "ok 10"),
        ],
    );
}

#[test]
fn bad_rules_change_nothing() {
    let bad = set_window(5, "").replace("10s", "10");
    check(
        WINDOW,
        &[("0 try_acquire 6", "ok 4"), (&bad, "error line 2: rules[0].per: "), ("1s peek 0", "ok 4")],
    );
}

/// The bug: a key that was not used before its limit was changed began at the new `initial`, as if it had not existed. It
/// had 60 of 60 where one permit had come.
#[test]
fn a_key_that_was_never_used_goes_on_through_a_change() {
    let limit = |name: &str, keyed: bool| {
        let rule = "{ kind = \"token_bucket\", capacity = 3, refill = 1, per = \"3ns\", initial = 0 }";
        format!("[[limit]]\nname = {name:?}\nkeyed = {keyed}\nrules = [{rule}]\n")
    };
    let config = [limit("a", false), limit("k", true), limit("p/*", false)].concat();
    let set = |limit: &str, carry: &str, initial: u64| {
        format!(
            "{{\"at_ns\":3,\"limit\":{limit:?},\"op\":\"set\",\"permits\":0,\"carry\":\"{carry}\",\"rules\":\
             [{{\"kind\":\"token_bucket\",\"capacity\":60,\"refill\":1,\"per\":\"3ns\",\"initial\":{initial}}}]}}"
        )
    };
    for (carry, initial, then) in
        [("as_is", 60, 1), ("additive", 60, 58), ("proportional", 60, 20), ("reset", 60, 60)]
    {
        for (limit, pool) in [("a", "a"), ("k", "k x"), ("p/x", "p/x")] {
            let set = set(limit, carry, initial);
            let [first, then, later, full] =
                [0, then, 60.min(then + 5), 60].map(|remaining| format!("ok {remaining}"));
            let peek = |at: u64| format!("{pool}: {at} peek 0");
            check_limits(
                &config,
                &[
                    (&peek(0), &first),
                    (&set, &then),
                    (&peek(3), &then),
                    (&peek(18), &later),
                    (&peek(1_000), &full),
                ],
            );
        }
    }
    // A key still begins with at most its `initial`.
    check_limits(
        &config,
        &[("k x: 0 peek 0", "ok 0"), (&set("k", "as_is", 2), "ok 1"), ("k x: 300 peek 0", "ok 2")],
    );
}
