//! `--nodes`: leasing answers the same requests. Never more than the contract, and not much less.

use super::*;

/// Returns the answers of `nodes` nodes, 2 ms from the allocator.
fn leased(config: &str, nodes: usize, requests: &[String]) -> Vec<Value> {
    let config = Config::parse(config).expect("a good configuration");
    let shape = Shape { nodes, rtt: Duration::from_millis(2), seed: 1 };
    let mut keeper = Keeper::Leased(Box::new(Fleet::new(&config, shape)));
    let csv = Csv { limit: Ok("a".to_owned()), keyed: true, patience: None };
    let mut lines = Lines::new(Box::new(Cursor::new(requests.join("\n").into_bytes())), csv, MARGIN);
    let answers = read(&mut keeper, &mut lines);
    assert_eq!(answers.len(), requests.len(), "one line out for one line in");
    answers.iter().map(|answer| serde_json::from_str(answer).expect("JSON")).collect()
}

const WINDOW: &str = "[[limit]]\nname = \"a\"\n\
                      rules = [{ kind = \"sliding_window\", limit = 100, per = \"10s\", margin = \"0s\" }]";

/// Twenty calls a second, twice the limit, for a minute: no ten seconds hold more than 100, and most of it is used.
#[test]
fn a_fleet_stays_within_the_window_and_uses_it() {
    let requests: Vec<String> =
        (0..1_200).map(|call| request(&format!("{}ms try_acquire 1", call * 50))).collect();
    let answers = leased(WINDOW, 4, &requests);
    let admitted: Vec<usize> = (0..1_200).filter(|&call| answers[call]["ok"] == true).collect();
    let most = admitted
        .iter()
        .map(|&call| admitted.iter().filter(|&&other| (call..call + 200).contains(&other)).count());
    assert!(most.max() <= Some(100));
    assert!((540..=600).contains(&admitted.len()), "{} of 600", admitted.len());
}

#[test]
fn a_call_waits_until_its_node_has_leased_enough_and_answers_stay_in_order() {
    let config = WINDOW.replace("100,", "2,");
    let requests = [
        request("0 acquire 2 timeout 1s"),
        request("1s acquire 1 timeout 20s"),
        request("2s peek 0"),
        request("2s acquire 1 timeout 1s"),
        request("2s try_acquire 3"),
    ];
    let answers = leased(&config, 1, &requests);
    assert_eq!(answers[0]["ok"], true);
    // Two of 0 s leave after 10 s, a drift of 0.1 % and about a round trip.
    let wait = answers[1]["wait_ns"].as_u64().expect("it is served");
    assert!((9_000_000_000..9_500_000_000).contains(&wait), "{wait}");
    assert_eq!((&answers[2]["ok"], &answers[2]["remaining"]), (&Value::from(true), &Value::from(0)));
    assert_eq!(answers[3]["ok"], false);
    assert!(answers[4]["error"].as_str().expect("never").starts_with("TooLarge"));
}

#[test]
fn one_seed_is_one_run() {
    let requests: Vec<String> =
        (0..300).map(|call| request(&format!("{}ms try_acquire 1", call * 50))).collect();
    assert_eq!(leased(WINDOW, 3, &requests), leased(WINDOW, 3, &requests));
}

/// Two at a time, of calls that take 5 s at most.
const IN_FLIGHT: &str = "[[limit]]\nname = \"a\"\n\
                         rules = [{ kind = \"concurrency\", limit = 2, longest = \"5s\" }]";

fn waits(answer: &Value) -> u64 {
    assert_eq!(answer["ok"], true, "{answer}");
    answer["wait_ns"].as_u64().expect("it waited")
}

#[test]
fn what_comes_back_to_a_node_is_for_the_caller_that_waits_there() {
    let requests = [
        request("0 acquire 2 timeout 1s"),
        request("1s acquire 1 timeout 9s"),
        request("1s acquire 1 timeout 9s"),
        // One comes back at 2 s, for the first call that waits; the other call is over at 5 s.
        request("2s refund 1"),
        request("6s try_acquire 1"),
        // In use since 2 s and since 5 s: both come back, and no more.
        request("6s refund 9"),
        request("6s peek 2"),
    ];
    let answers = leased(IN_FLIGHT, 1, &requests);
    assert_eq!(answers[0]["ok"], true);
    assert_eq!(waits(&answers[1]), 1_000_000_000);
    // The node asks once more before it has a second permit.
    assert!((4_000_000_000..4_010_000_000).contains(&waits(&answers[2])), "{answers:?}");
    assert_eq!((&answers[3]["ok"], &answers[3]["remaining"]), (&Value::from(true), &Value::from(0)));
    assert_eq!(answers[4]["ok"], false);
    assert_eq!((&answers[5]["ok"], &answers[5]["remaining"]), (&Value::from(true), &Value::from(2)));
    assert_eq!(answers[6]["ok"], true);
}

#[test]
fn what_comes_back_to_no_node_comes_back_to_the_one_that_has_had_it_for_longest() {
    let call = |at: &str, node: &str, op: &str| {
        let mut request: Value = serde_json::from_str(&request(&format!("{at} {op}"))).expect("JSON");
        if !node.is_empty() {
            request["node"] = Value::from(node);
        }
        request.to_string()
    };
    let requests = [
        call("0", "one", "peek 0"),
        call("0", "two", "acquire 1 timeout 1s"),
        call("500ms", "one", "acquire 1 timeout 1s"),
        // Two are in flight. The older call ends: node two has its permit in hand, and gives it back after a second
        // without need.
        call("1s", "one", "acquire 1 timeout 4s"),
        call("1500ms", "", "refund 1"),
        // Nothing is in flight there any more.
        call("1600ms", "two", "refund 1"),
    ];
    let answers = leased(IN_FLIGHT, 2, &requests);
    assert!(waits(&answers[1]) < 500_000_000 && waits(&answers[2]) < 500_000_000, "{answers:?}");
    let wait = waits(&answers[3]);
    assert!((1_500_000_000..2_000_000_000).contains(&wait), "{wait}");
    assert_eq!((&answers[4]["remaining"], &answers[5]["remaining"]), (&Value::from(1), &Value::from(1)));
}

/// Ten calls a second on four nodes. Each takes 100 ms and is handed back: one is in flight on average, of two that may
/// be.
#[test]
fn calls_that_come_back_leave_room_for_the_next() {
    let calls = (0..300).flat_map(|call| {
        [format!("{}ms acquire 1 timeout 2s", call * 100), format!("{}ms refund 1", call * 100 + 99)]
    });
    let requests: Vec<String> = calls.map(|call| request(&call)).collect();
    let answers = leased(IN_FLIGHT, 4, &requests);
    let served =
        answers.iter().filter(|answer| answer.get("wait_ns").is_some() && answer["ok"] == true).count();
    assert!(served >= 290, "{served} of 300");
}

#[test]
fn a_limit_in_shadow_mode_refuses_nothing_on_its_nodes() {
    let config = WINDOW.replace("100,", "2,") + "\nshadow = true\nease_off = false";
    let calls = (0..8).map(|call| format!("{}ms try_acquire 1", 1_000 + call * 100));
    let more = ["2s acquire 1 timeout 20s", "2s peek 3", "2s try_acquire 3"].map(str::to_owned);
    let requests: Vec<String> = calls.chain(more).map(|text| request(&text)).collect();
    let answers = leased(&config, 1, &requests);
    assert!(answers.iter().all(|answer| answer["ok"] == true), "{answers:?}");
    let passed: Vec<bool> = answers.iter().map(|answer| answer.get("shadow").is_some()).collect();
    // Two were there, and do not come back before 11 s.
    assert_eq!(passed.iter().filter(|passed| !**passed).count(), 2, "{answers:?}");
    assert_eq!((passed[0], &passed[8..]), (false, &[true; 3][..]));
    assert_eq!(answers[8]["wait_ns"], 0);
}

#[test]
fn what_is_above_bounds_what_one_call_may_take() {
    let config =
        "[[limit]]\nname = \"vendor\"\nrules = [{ kind = \"sliding_window\", limit = 3, per = \"10s\" }]\n"
            .to_owned()
            + "[[limit]]\nname = \"tenant\"\nkeyed = true\nparent = \"vendor\"\n\
           rules = [{ kind = \"sliding_window\", limit = 9, per = \"10s\" }]\n"
            + "[[limit]]\nname = \"user\"\nkeyed = true\nparent = \"tenant\"\n\
           rules = [{ kind = \"sliding_window\", limit = 9, per = \"10s\" }]";
    let requests =
        ["user acme/al: 0 acquire 4", "user al: 0 acquire 1", "user acme/al: 0 acquire 1 timeout 1s"];
    let answers = leased(&config, 1, &requests.map(request));
    let problem = answers[0]["error"].as_str().expect("too large");
    assert!(problem.ends_with("this limit never holds more than 3"), "{problem}");
    let problem = answers[1]["error"].as_str().expect("no key");
    assert!(problem.starts_with("line 2: key: the part of a key of"), "{problem}");
    assert_eq!(answers[2]["ok"], true);
}

/// Sets a window of `limit` in 10 s at `at`.
fn window_of(at: &str, limit: u64, carry: &str) -> String {
    let mut set: Value = serde_json::from_str(&request(&format!("{at} set 0"))).expect("JSON");
    set["rules"] = json!([{ "kind": "sliding_window", "limit": limit, "per": "10s", "margin": "0s" }]);
    set["carry"] = Value::from(carry);
    set.to_string()
}

/// A hundred calls in the first second, which is all that the limit has until 10 s.
fn used_up() -> Vec<String> {
    (0..100).map(|call| request(&format!("{}ms acquire 1 timeout 1s", 1_000 + call * 5))).collect()
}

#[test]
fn those_that_wait_hear_of_new_rules_and_of_more_permits_within_a_round_trip() {
    let config = format!("{WINDOW}\nease_off = false");
    for more in [window_of("3s", 150, "as_is"), window_of("3s", 100, "reset"), request("3s top_up 50")] {
        let mut requests = used_up();
        requests.extend([request("2s acquire 3 timeout 60s"), more, request("3500ms acquire 1 timeout 1s")]);
        let answers = leased(&config, 2, &requests);
        let used = answers[..100].iter().filter(|answer| answer["ok"] == true).count();
        assert!(used >= 98, "{used} of 100");
        let wait = waits(&answers[100]);
        // The node hears after 1 ms, and has an answer to a new ask after 2 more.
        assert!((1_000_000_000..1_010_000_000).contains(&wait), "{wait}");
        assert_eq!((&answers[101]["ok"], &answers[102]["ok"]), (&Value::from(true), &Value::from(true)));
    }
}

#[test]
fn what_a_limit_is_lowered_to_holds_when_what_was_admitted_has_left() {
    let config = format!("{WINDOW}\nease_off = false");
    let mut requests = used_up();
    requests.push(window_of("3s", 10, "as_is"));
    requests.extend((0..200).map(|call| request(&format!("{}ms try_acquire 1", 4_000 + call * 100))));
    let answers = leased(&config, 2, &requests);
    // From 4 s to 24 s: none before the calls of 1 s leave at 11 s, and then ten in any ten seconds.
    let admitted: Vec<usize> = (0..200).filter(|&call| answers[101 + call]["ok"] == true).collect();
    assert!(admitted.first().is_some_and(|&call| call >= 70), "{admitted:?}");
    assert!((9..=20).contains(&admitted.len()), "{admitted:?}");
    assert!(admitted.windows(11).all(|calls| calls[10] - calls[0] >= 100), "{admitted:?}");
}

#[test]
fn a_node_knows_by_its_next_grant_how_much_one_call_may_take() {
    let requests = [
        request("1s acquire 1 timeout 1s"),
        request("2s acquire 150 timeout 1s"),
        window_of("3s", 200, "as_is"),
        // The node is idle, and asks when a caller comes.
        request("3500ms acquire 1 timeout 1s"),
        request("4s acquire 150 timeout 60s"),
        window_of("100s", 5, "as_is"),
        request("100500ms acquire 1 timeout 20s"),
        request("122s acquire 6 timeout 60s"),
    ];
    let answers = leased(&format!("{WINDOW}\nease_off = false"), 1, &requests);
    let problem = |line: usize| answers[line - 1]["error"].as_str().unwrap_or_default();
    assert!(problem(2).ends_with("this limit never holds more than 100"), "{answers:?}");
    assert_eq!(answers[4]["ok"], true, "{answers:?}");
    assert!(problem(8).ends_with("this limit never holds more than 5"), "{answers:?}");
}

#[test]
fn rules_that_fit_no_limit_above_change_nothing() {
    let config = format!("{IN_FLIGHT}\n[[limit]]\nname = \"b\"\nparent = \"a\"\n")
        + "rules = [{ kind = \"concurrency\", limit = 1, longest = \"5s\" }]";
    let mut set: Value = serde_json::from_str(&request("b: 1s set 0")).expect("JSON");
    set["rules"] = json!([{ "kind": "concurrency", "limit": 1, "longest": "9s" }]);
    let answers = leased(&config, 1, &[set.to_string(), request("b: 2s acquire 1 timeout 1s")]);
    let problem = answers[0]["error"].as_str().expect("it does not fit");
    assert!(
        problem.starts_with("line 1: rules: limit \"b\": rules[0].longest is 9s, but \"a\""),
        "{problem}"
    );
    assert_eq!(answers[1]["ok"], true);
}

#[test]
fn what_nodes_cannot_do_is_said() {
    let answers = leased(WINDOW, 2, &[request("0 refund 1"), "{}".to_owned()]);
    let problem = |line: usize| answers[line - 1]["error"].as_str().expect("an error");
    assert!(
        problem(1).starts_with("line 1: op is refund, but limit \"a\" has no concurrency"),
        "{}",
        problem(1)
    );
    assert!(problem(2).starts_with("line 2: missing field"));
}

/// The bug: a pool was asked for at the end of time, which a check of its books took for a mistake.
#[test]
fn a_time_that_nodes_cannot_reach_is_a_bad_line() {
    let requests = [
        "{\"at_ns\":18446744073709551615,\"limit\":\"a\",\"op\":\"try_acquire\",\"permits\":1}".to_owned(),
        request("9223372036854775807 try_acquire 1"),
    ];
    let answers = leased(WINDOW, 2, &requests);
    let error = answers[0]["error"].as_str().expect("it is wrong");
    assert!(
        error.starts_with("line 1: at_ns is 18446744073709551615: use at most 9223372036854775807"),
        "{error}"
    );
    assert_eq!(answers[1]["ok"], true);
}
