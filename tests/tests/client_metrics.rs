//! The metrics of a client: the shipping client against the shipping server, read as Prometheus reads it.

#[expect(dead_code, reason = "an example has a main of its own")]
#[path = "../../client/examples/metrics.rs"]
mod metrics;

use lessor::{Client, Limit, RateLimitHeaders, Refusal};
use metrics_exporter_prometheus::PrometheusHandle;
use scenarios::fleet::{Fleet, eventually};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

/// Each limit is used by one test, because a process counts over all its clients.
const CONFIG: &str = r#"
[[limit]]
name = "vendor"
rules = [{ kind = "token_bucket", capacity = 100, refill = 1, per = "1h" }]

[[limit]]
name = "user"
keyed = true
rules = [{ kind = "token_bucket", capacity = 100, refill = 1, per = "1h" }]

[[limit]]
name = "calls"
rules = [{ kind = "concurrency", limit = 5, longest = "1s" }]

[[limit]]
name = "tried"
shadow = true
rules = [{ kind = "token_bucket", capacity = 10, refill = 1, per = "1h" }]

[[limit]]
name = "slow"
rules = [{ kind = "token_bucket", capacity = 10, refill = 20, per = "1s", initial = 0 }]

[[limit]]
name = "never"
rules = [{ kind = "token_bucket", capacity = 10, refill = 1, per = "1h", initial = 0 }]

[[limit]]
name = "cut"
rules = [{ kind = "sliding_window", limit = 50, per = "1s", margin = "0s" }]

[[limit]]
name = "paused"
rules = [{ kind = "sliding_window", limit = 50, per = "1s", margin = "0s" }]

[[limit]]
name = "timed"
rules = [{ kind = "sliding_window", limit = 1000, per = "1s", margin = "0s" }]

[[limit]]
name = "timed/user"
keyed = true
rules = [{ kind = "sliding_window", limit = 1000, per = "1s", margin = "0s" }]
"#;

/// More permits than the window of `timed` holds: such a call is refused whatever was lent.
const MORE_THAN_TIMED: u64 = 1_001;

const LONG: Duration = Duration::from_secs(20);

static EXPORTER: LazyLock<PrometheusHandle> = LazyLock::new(|| metrics::exporter().expect("the first one"));

/// Starts a server, and a client whose metrics are exported.
async fn fleet() -> (Fleet, Client) {
    LazyLock::force(&EXPORTER);
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    (fleet, client)
}

/// Returns the values of all series whose line contains `of`, by name and labels: `{limit="vendor"}` for example.
fn shown(of: &str) -> BTreeMap<String, f64> {
    let text = EXPORTER.render();
    let lines = text.lines().filter(|line| !line.starts_with('#') && line.contains(of));
    let samples = lines.filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        Some((series.to_owned(), value.parse().expect("a number")))
    });
    samples.collect()
}

fn value(name: &str, labels: &str) -> f64 {
    *shown(name).get(&format!("{name}{labels}")).unwrap_or_else(|| panic!("{name}{labels} is not shown"))
}

/// Returns the value of a counter.
fn count(name: &str, labels: &str) -> u64 {
    value(name, labels) as u64
}

/// Waits until the metric is `expected`, since the background task publishes it.
async fn becomes(name: &str, labels: &str, expected: u64) {
    eventually(name, async || (count(name, labels) == expected).then_some(())).await;
}

fn refused(limit: &str, reason: &str) -> u64 {
    count("lessor_client_refused_permits_total", &format!("{{limit=\"{limit}\",reason=\"{reason}\"}}"))
}

fn labels(limit: &Limit) -> String {
    format!("{{limit=\"{}\"}}", limit.name())
}

/// Spends `permits`, one after another, as they come.
async fn spend(limit: &Limit, permits: u64) {
    for _ in 0..permits {
        limit.acquire_within(1, LONG).await.expect("the limit has as many");
    }
}

/// Returns the rows about clients in the documentation: name and labels, without what a histogram adds.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let docs = std::fs::read_to_string(docs).expect("a readable file");
    let (_, of_clients) = docs.split_once("## In the client").expect("a section of its own");
    let rows = of_clients.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.map(|row| {
        let mut columns = row.split('|');
        let name = columns.next().expect("a name").trim_end_matches(['`', ' ']).to_owned();
        let labels = columns.next().expect("labels").split(", ").map(|label| label.trim().to_owned());
        (name, labels.filter(|label| !label.is_empty() && label != "le").collect())
    });
    rows.collect()
}

#[tokio::test]
async fn the_table_of_client_metrics_is_what_a_client_shows_from_the_start() {
    let (fleet, client) = fleet().await;
    let fresh = client.limit("never/heard/of");
    let text = EXPORTER.render();
    let types: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let helps = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next());
    assert_eq!(types, helps.collect(), "each metric has a HELP");
    let documented = documented();
    assert_eq!(documented.keys().map(String::as_str).collect::<BTreeSet<_>>(), types);
    for (name, labels) in &documented {
        let mut series = shown(name);
        series.retain(|series, _| {
            let rest = series.strip_prefix(name.as_str()).unwrap_or("of another one");
            ["", "_bucket", "_sum", "_count"].contains(&rest.split('{').next().unwrap_or_default())
        });
        let of = |series: &str| -> BTreeSet<String> {
            let labels = series.split_once('{').map_or("", |(_, labels)| labels.trim_end_matches('}'));
            let names = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
            names.filter(|label| label != "le").collect()
        };
        assert!(!series.is_empty(), "{name}");
        series.keys().for_each(|shown| assert_eq!(of(shown), *labels, "{shown}"));
    }
    // A limit that no caller has called yet shows all its series at zero.
    let at_zero = shown(&format!("limit=\"{}\"", fresh.name()));
    assert!(at_zero.values().all(|value| *value <= 0.0), "{at_zero:?}");
    let series = |name: &str| at_zero.keys().filter(|series| series.starts_with(name)).count();
    let all = [
        ("lessor_client_admitted", 1),
        ("lessor_client_refused_permits_total", 6),
        ("lessor_client_fallback{", 3),
        ("lessor_client_wait_seconds_count", 3),
        ("lessor_client_check_seconds_count", 2),
    ];
    for (name, expected) in all {
        assert_eq!(series(name), expected, "{name}");
    }
    client.shutdown().await;
    fleet.stop().await;
}

#[tokio::test]
async fn calls_are_counted_by_what_came_of_them() {
    let (fleet, client) = fleet().await;
    let vendor = client.limit("vendor");
    spend(&vendor, 60).await;
    let reservation = vendor.reserve_within(30, LONG).await.expect("forty are left");
    reservation.settle(20);
    spend(&vendor, 20).await;
    // One permit comes back in an hour, so none during the test.
    for _ in 0..1_000 {
        assert!(matches!(vendor.try_acquire(1), Err(Refusal::Empty { .. })));
    }
    assert!(matches!(vendor.try_acquire(101), Err(Refusal::TooLarge { .. })));
    let name = "lessor_client_admitted_permits_total";
    becomes(name, &labels(&vendor), 100).await;
    eventually("refusals", async || (refused("vendor", "empty") == 1_000).then_some(())).await;
    assert_eq!(refused("vendor", "too_large"), 101);
    assert_eq!(count("lessor_client_available_permits", &labels(&vendor)), 0);
    // A call that ends passes its permit on to the next. Each of them counts as a call.
    let calls = client.limit("calls");
    for _ in 0..20 {
        drop(calls.enter_within(1, LONG).await.expect("five at once"));
    }
    becomes(name, &labels(&calls), 20).await;
    // Calls that would have been refused are counted apart, as soon as the client knows that the limit refuses nothing.
    let tried = client.limit("tried");
    tried.acquire_within(1, LONG).await.expect("ten are there");
    (0..99).for_each(|_| tried.try_acquire(1).expect("shadow mode"));
    let shadow = "lessor_client_shadow_refused_permits_total";
    let all = async || (count(name, &labels(&tried)) + count(shadow, &labels(&tried)) == 100).then_some(());
    eventually("all admitted calls are counted", all).await;
    assert_eq!(refused("tried", "empty"), 0, "no call was refused");
    let unknown = client.limit("of/another/vendor");
    eventually("a refusal", async || (unknown.try_acquire(1) == Err(Refusal::UnknownLimit)).then_some(()))
        .await;
    eventually("unknown", async || (refused("of/another/vendor", "unknown") >= 1).then_some(())).await;
    client.shutdown().await;
    fleet.stop().await;
}

#[tokio::test]
async fn keys_are_added_up_and_never_said() {
    let (fleet, client) = fleet().await;
    let user = client.limit("user");
    for key in 0..50 {
        spend(&user.key(&format!("secret-{key}")), 3).await;
    }
    let name = "lessor_client_admitted_permits_total";
    becomes(name, &labels(&user), 150).await;
    // Permits of forgotten keys stay counted, also once another key has their place.
    client.shutdown().await;
    assert_eq!(count(name, &labels(&user)), 150);
    assert!(!EXPORTER.render().contains("secret"), "no key is a label");
    fleet.stop().await;
}

#[tokio::test]
async fn waits_exchanges_leases_and_the_vendors_word_are_shown() {
    let (fleet, client) = fleet().await;
    let slow = client.limit("slow");
    spend(&slow, 10).await;
    let never = client.limit("never");
    let waited = |limit: &str, outcome: &str| {
        let of = format!("{{limit=\"{limit}\",outcome=\"{outcome}\"}}");
        (count("lessor_client_wait_seconds_count", &of), value("lessor_client_wait_seconds_sum", &of))
    };
    let (waits, sum) = waited("slow", "admitted");
    assert!(
        (1..=10).contains(&waits) && sum > 0.05,
        "{waits} calls waited {sum} s, and the bucket was empty at first"
    );
    let waiting = tokio::spawn({
        let never = never.clone();
        async move { never.acquire(10).await }
    });
    becomes("lessor_client_waiting_permits", &labels(&never), 10).await;
    waiting.abort();
    eventually("the caller that gave up is counted", async || (waited("never", "left").0 == 1).then_some(()))
        .await;
    becomes("lessor_client_waiting_permits", &labels(&never), 0).await;
    let age = async || {
        let age = value("lessor_client_lease_age_seconds", &labels(&slow));
        assert!(age < 2.5, "a lease is {age} s old");
        let _ = slow.try_acquire(1);
        (age > 0.0).then_some(())
    };
    eventually("a lease", age).await;
    slow.report(&RateLimitHeaders::refused(Some(Duration::from_millis(1))));
    becomes("lessor_client_vendor_refused_total", &labels(&slow), 1).await;
    assert!(count("lessor_client_exchanges_total", "{result=\"ok\"}") >= 1);
    assert!(count("lessor_client_exchange_seconds_count", "") >= 1);
    client.shutdown().await;
    fleet.stop().await;
}

#[tokio::test]
async fn some_calls_are_timed_whether_admitted_or_refused() {
    let (fleet, client) = fleet().await;
    let (plain, keyed) = (client.limit("timed"), client.limit("timed/user"));
    let timed = |limit: &str, outcome: &str| {
        count("lessor_client_check_seconds_count", &format!("{{limit=\"{limit}\",outcome=\"{outcome}\"}}"))
    };
    // The background task chooses which call is timed, and it is awake mostly when a lease has just come. So no outcome
    // is left to chance: 1,000 permits a second always have one for each call, and never 1,001.
    let calls = [
        ("timed", "admitted", &plain, 1),
        ("timed", "refused", &plain, MORE_THAN_TIMED),
        ("timed/user", "refused", &keyed, MORE_THAN_TIMED),
    ];
    let next = async || {
        let missing = calls.iter().find(|(limit, outcome, ..)| timed(limit, outcome) < 2);
        let Some((limit, _, called, permits)) = missing else { return Some(()) };
        let answer = match *limit {
            "timed" => called.try_acquire(*permits),
            _ => called.try_acquire_key("secret-timed", *permits),
        };
        assert!(*permits == 1 || answer.is_err(), "{answer:?}");
        None
    };
    eventually("timed calls", next).await;
    client.shutdown().await;
    fleet.stop().await;
}

#[tokio::test]
async fn a_limit_without_its_allocator_is_shown_as_such() {
    let (fleet, client) = fleet().await;
    let cut = client.limit("cut");
    spend(&cut, 1).await;
    let fallback = "{limit=\"cut\",fallback=\"closed\"}";
    assert_eq!(count("lessor_client_fallback", fallback), 0);
    fleet.stop().await;
    eventually("closed", async || {
        matches!(cut.try_acquire(1), Err(Refusal::Unreachable { .. })).then_some(())
    })
    .await;
    becomes("lessor_client_fallback", fallback, 1).await;
    eventually("refusals", async || (refused("cut", "unreachable") >= 1).then_some(())).await;
    assert!(count("lessor_client_exchanges_total", "{result=\"failed\"}") >= 1);
    client.shutdown().await;
}

#[tokio::test]
async fn a_limit_that_is_paused_says_that_this_is_why() {
    let (fleet, client) = fleet().await;
    let limit = client.limit("paused");
    spend(&limit, 1).await;
    let pause = reqwest::Client::new().post(format!("{}/v1/limits/paused/pause", fleet.url));
    let said = pause.header("content-type", "application/json").body(r#"{"for":"1h"}"#).send().await;
    assert!(said.expect("the allocator answers").status().is_success());
    let paused = async || matches!(limit.try_acquire(1), Err(Refusal::Paused { .. })).then_some(());
    eventually("a pause", paused).await;
    eventually("the refusal is counted", async || (refused("paused", "paused") >= 1).then_some(())).await;
    client.shutdown().await;
    fleet.stop().await;
}
