//! `--nodes`: what leasing makes of the same requests. Never more than the contract, and not much less.

use super::*;

/// What `nodes` nodes answer, 2 ms from the allocator.
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
    // Two of 0 leave after 10 s, a drift of 0.1 % and a round trip or so.
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

#[test]
fn what_nodes_cannot_do_is_said() {
    let answers = leased(WINDOW, 2, &[request("0 refund 1"), "{}".to_owned()]);
    assert!(answers[0]["error"].as_str().expect("an error").starts_with("line 1: op is one that --nodes"));
    assert!(answers[1]["error"].as_str().expect("an error").starts_with("line 2: missing field"));
}
