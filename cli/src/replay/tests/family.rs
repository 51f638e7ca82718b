//! `parent`: a permit is charged to a pool and to all above it, or to none. All windows here are 10 s long.

use super::{answers, check_limits, request};

/// Configures a window of `limit` in 10 s, with `more` options of the limit.
fn window(name: &str, limit: u64, more: &str) -> String {
    format!(
        "[[limit]]\nname = \"{name}\"\n{more}\n\
         rules = [{{ kind = \"sliding_window\", limit = {limit}, per = \"10s\" }}]\n"
    )
}

/// Configures the limits `a` and `b`, below the limit `vendor`.
fn two(vendor: u64, a: u64, b: u64) -> String {
    let below = "parent = \"vendor\"";
    window("vendor", vendor, "") + &window("a", a, below) + &window("b", b, below)
}

fn set(limit: &str, at: &str, permits: u64) -> String {
    let peek: serde_json::Value =
        serde_json::from_str(&request(&format!("{limit}: {at} set 0"))).expect("JSON");
    let rules = serde_json::json!([{ "kind": "sliding_window", "limit": permits, "per": "10s" }]);
    let mut set = peek;
    set["rules"] = rules;
    set.to_string()
}

#[test]
fn the_narrowest_of_all_says_what_one_call_may_take() {
    check_limits(
        &two(2, 5, 5),
        &[
            ("a: 0 peek 0", "ok 2"),
            ("a: 0 acquire 3", "error TooLarge: permits is 3, and this limit never holds more than 2"),
            ("a: 0 acquire 2", "ok 0 wait 0"),
        ],
    );
    // Permits that no refill of the parent brings never reach a child.
    let still = "[[limit]]\nname = \"vendor\"\n\
                 rules = [{ kind = \"token_bucket\", capacity = 2, refill = 0, per = \"1s\" }]\n"
        .to_owned()
        + &window("a", 5, "parent = \"vendor\"");
    check_limits(
        &still,
        &[("0 try_acquire 1", "ok 1"), ("1s try_acquire 2", "no 1"), ("1s acquire 2", "no 1")],
    );
}

#[test]
fn families_do_not_wait_for_each_other() {
    // Each tenant is its own family here.
    let config =
        window("tenant", 3, "keyed = true") + &window("user", 2, "keyed = true\nparent = \"tenant\"");
    check_limits(
        &config,
        &[
            ("user acme/al: 0 try_acquire 2", "ok 0"),
            ("user acme/al: 0 acquire 2", "ok 0 wait 10s"),
            ("user acme/bo: 0 try_acquire 1", "no 0 retry 10s"),
            ("user zed/al: 0 try_acquire 1", "ok 1"),
            ("tenant zed: 0 peek 0", "ok 2"),
        ],
    );
}

#[test]
fn what_comes_back_to_one_serves_those_that_wait_in_another() {
    check_limits(
        &two(2, 5, 5),
        &[
            ("a: 0 try_acquire 2", "ok 0"),
            ("b: 1s acquire 1", "ok 0 wait 9s"),
            ("b: 1s acquire 1", "ok 0 wait 9s"),
            // One comes back to a and to the vendor: it goes to the first call that waits, and counts until 12 s.
            ("a: 2s refund 1", "ok 0"),
            // At 10 s the other one of 0 s leaves, for the second call that waits.
            ("vendor: 10s peek 1", "no 0 retry 2s"),
            // a counts nothing any more, b one since 2 s and one since 10 s.
            ("a: 12s peek 0", "ok 1"),
            ("b: 12s peek 0", "ok 1"),
            ("vendor: 20s peek 0", "ok 2"),
            ("b: 20s peek 0", "ok 2"),
        ],
    );
}

#[test]
fn new_rules_of_the_parent_decide_anew_about_all_that_wait_below() {
    let script = |set: &'static str| {
        vec![
            ("a: 0 try_acquire 2", "ok 0"),
            ("b: 1s acquire 2 timeout 9s", "ok 0 wait 9s"),
            ("a: 2s acquire 1", "ok 0 wait 18s"),
            (set, "ok 0"),
        ]
    };
    let more: &'static str = set("vendor", "3s", 5).leak();
    let mut grown = script(more);
    grown.extend([
        // Both are served at 3 s, and five count; two leave at 10 s, three at 13 s.
        ("vendor: 3s peek 1", "no 0 retry 7s"),
        ("vendor: 10s peek 0", "ok 2"),
        ("a: 10s peek 0", "ok 2"),
        ("a: 13s peek 0", "ok 5"),
    ]);
    check_limits(&two(2, 5, 5), &grown);
    let less: &'static str = set("vendor", "3s", 1).leak();
    let mut shrunk = script(less);
    shrunk.extend([
        // One is never two: b has given up. The vendor counts two until 10 s, then one of a until 20 s.
        ("vendor: 4s acquire 1", "ok 0 wait 16s"),
        ("b: 10s peek 1", "no 0 retry 20s"),
        ("vendor: 30s peek 0", "ok 1"),
    ]);
    check_limits(&two(2, 5, 5), &shrunk);
}

#[test]
fn new_rules_and_more_of_one_are_for_that_one_alone() {
    let grown = set("a", "3s", 9);
    check_limits(
        &two(2, 1, 5),
        &[
            ("a: 0 try_acquire 1", "ok 0"),
            ("b: 0 try_acquire 1", "ok 0"),
            // a may have eight more now, the vendor none before 10 s.
            (&grown, "ok 0"),
            ("a: 4s try_acquire 1", "no 0 retry 6s"),
            ("b: 5s acquire 1", "ok 0 wait 5s"),
            ("a: 5s top_up 1", "ok 0"),
            ("b: 5s peek 0", "ok 0"),
            // The top-up of the vendor goes to the call that waits.
            ("vendor: 6s top_up 1", "ok 0"),
            ("b: 9s peek 0", "ok 0"),
            ("b: 16s peek 0", "ok 2"),
        ],
    );
}

#[test]
fn a_call_in_flight_is_one_of_all_above() {
    let config = "[[limit]]\nname = \"vendor\"\n\
                  rules = [{ kind = \"concurrency\", limit = 2, longest = \"5s\" }]\n"
        .to_owned()
        + &window("a", 9, "parent = \"vendor\"")
        + "[[limit]]\nname = \"b\"\nparent = \"vendor\"\n\
           rules = [{ kind = \"concurrency\", limit = 1, longest = \"3s\" }]\n";
    check_limits(
        &config,
        &[
            ("a: 0 try_acquire 1", "ok 1"),
            ("b: 0 try_acquire 1", "ok 0"),
            // b is over at 3 s, the vendor counts two until 5 s.
            ("b: 1s try_acquire 1", "no 0 retry 4s"),
            ("b: 1s acquire 1", "ok 0 wait 4s"),
            // The call of a has ended: at 3 s b has room, too.
            ("a: 2s refund 1", "ok 0"),
            ("vendor: 3s peek 1", "no 0 retry 2s"),
            ("vendor: 5s peek 1", "ok 1"),
            ("b: 6s peek 1", "ok 1"),
            ("vendor: 8s peek 2", "ok 2"),
        ],
    );
}

#[test]
fn a_key_says_the_key_above_it() {
    let config =
        window("tenant", 3, "keyed = true") + &window("user", 2, "keyed = true\nparent = \"tenant\"");
    let lines = [request("user al: 0 try_acquire 1"), request("user /al: 0 try_acquire 1")];
    for answer in answers(&config, &lines.join("\n")) {
        assert!(answer.contains("key: the part of a key of \\\"user\\\" before the last /"), "{answer}");
    }
    check_limits(
        &config,
        &[
            ("user acme/eu/al: 0 try_acquire 1", "ok 1"),
            ("tenant acme/eu: 0 peek 0", "ok 2"),
            ("tenant acme: 0 peek 0", "ok 3"),
        ],
    );
}
