//! `set` and `top_up`: rules changed while they are in use.

use super::{check, check_limits};

const WINDOW: &str = "{ kind = \"sliding_window\", limit = 10, per = \"10s\" }";

fn set_window(limit: u64) -> String {
    format!(
        "{{\"at_ns\":1000000000,\"limit\":\"a\",\"op\":\"set\",\"permits\":0,\
         \"rules\":[{{\"kind\":\"sliding_window\",\"limit\":{limit},\"per\":\"10s\"}}]}}"
    )
}

#[test]
fn those_that_wait_are_decided_anew() {
    check(
        WINDOW,
        &[
            ("0 try_acquire 10", "ok 0"),
            ("500ms acquire 5 timeout 9500ms", "ok 0 wait 9500ms"),
            // Of 16 six are free: the call that waits is served at once, and counts until 11 s.
            (&set_window(16), "ok 1"),
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
            (&set_window(4), "ok 0"),
            ("10s peek 0", "ok 4"),
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
    let bad = set_window(5).replace("10s", "10");
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
