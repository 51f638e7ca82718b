//! `concurrency`: 2 in flight, each for at most 5 s.

use super::check;

const RULE: &str = "{ kind = \"concurrency\", limit = 2, longest = \"5s\" }";

#[test]
fn what_is_in_flight_stays_in_flight_whatever_is_set_or_added() {
    for carry in ["as_is", "proportional", "additive", "reset"] {
        let set = format!(
            "{{\"at_ns\":1000000000,\"limit\":\"a\",\"op\":\"set\",\"permits\":0,\"carry\":\"{carry}\",\
             \"rules\":[{{\"kind\":\"concurrency\",\"limit\":6,\"longest\":\"9s\"}}]}}"
        );
        check(
            RULE,
            &[
                ("0 try_acquire 2", "ok 0"),
                ("0 top_up 1", "ok 0"),
                (&set, "ok 4"),
                ("9s-1 peek 0", "ok 4"),
                ("9s peek 0", "ok 6"),
            ],
        );
    }
}
