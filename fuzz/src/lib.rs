//! The inputs of strangers, operators and stores, with one function of bytes for each kind. A function panics if the
//! shipping code does something that it must not. `fuzz_targets` calls them with libFuzzer's inputs; a test of the main
//! workspace calls them with the files of `corpus`. No function opens a file or a connection.

use lessor::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use lessor::{HeaderNames, RateLimitHeaders};
use lessor_allocator::cells::StoreUrl;
use lessor_allocator::config::{limit_from_json, rules_from_json};
use lessor_allocator::store::Dump;
use lessor_allocator::{Config, untrusted};
use lessor_ledger::Rule;
use lessor_ledger::overrides::{LimitOverrides, Version};
use lessor_ledger::pool::{Past, Plan};
use lessor_ledger::registry::{DecisionRow, LimitRow, PoolPlace, PoolRow, Registry, Written};
use lessor_ledger::roots::{CompiledPlan, Head, ParentRef, RootSpec, TimeSource};
use lessor_ledger::rule::{Gap, SlidingWindow};
use lessor_protocol::wire::{AskBody, LeasesResponse, ObservedBody};
use lessor_protocol::{ClockBounds, Moment, Observed, PERMITS_MAX};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

/// A fuzz target: the name of its corpus, and the function that takes the bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All fuzz targets.
pub const TARGETS: [Target; 6] = [
    ("wire", wire),
    ("configuration", configuration),
    ("store_url", store_url),
    ("stored_rows", stored_rows),
    ("rate_limit_headers", rate_limit_headers),
    ("rules", rules),
];

/// One limit of each kind, as nodes find them. None lends more than [`MOST`] at once, except the flow.
const LIMITS: &str = r#"
[[limit]]
name = "window"
rules = [{ kind = "sliding_window", limit = 100, per = "1s" }, { kind = "sliding_log", limit = 50, per = "100ms" }]
[[limit]]
name = "child"
parent = "window"
keyed = true
keys_max = 8
rules = [{ kind = "token_bucket", capacity = 20, refill = 10, per = "1s" }]
[[limit]]
name = "calls"
rules = [{ kind = "concurrency", limit = 10, longest = "1s" }]
[[limit]]
name = "flow"
rules = [{ kind = "leaky_bucket", burst = 5, refill = 100, per = "1s" }]
[[limit]]
name = "pattern/*"
rules = [{ kind = "fixed_window", limit = 30, per = "1s" }]
"#;

/// The most permits that a limit of [`LIMITS`] has, except the flow.
const MOST: u64 = 100;

/// [`LIMITS`], parsed once: parsing takes longer than most of what is done with the limits.
static CONFIG: LazyLock<Config> = LazyLock::new(|| Config::parse(LIMITS).expect("it is good"));

/// Checks that no limit of [`LIMITS`] lends more at once than it has. With a rate, a grant has at most what the rate
/// lets through in two leases.
fn are_bounded(answer: &LeasesResponse) {
    for grant in &answer.grants {
        let paced = grant.rate.as_ref().map(|rate| {
            (2 * grant.term_ms * 1_000_000 / rate.interval_ns.max(1)).saturating_add(rate.cap + 1)
        });
        let most = paced.unwrap_or(MOST);
        assert!(grant.permits <= most, "of at most {most} at once: {answer:?}");
    }
}

/// Takes bodies of requests of nodes, one a line and ten milliseconds apart. A line that begins with `-` is a goodbye.
pub fn wire(data: &[u8]) {
    let mut now = start();
    let registry = Registry::new(&CONFIG.limits, CONFIG.clocks, Past::None, now, 7);
    for line in data.split(|byte| *byte == b'\n').take(64) {
        now = now + Duration::from_millis(10);
        if let Some(body) = line.strip_prefix(b"-") {
            let _ = untrusted::leave(&registry, now, "node", body);
        } else if let Some(answer) = untrusted::leases(&registry, now, line) {
            let answer: LeasesResponse = serde_json::from_slice(&answer).expect("an answer can be read");
            are_bounded(&answer);
        }
        registry.look_round(now, 8);
    }
}

/// Takes a configuration file of an operator. A configuration that parses is printed, and must parse to the same again.
pub fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Config::parse(text) {
        Ok(config) => {
            let printed = config.to_string();
            // A user is not printed again where the password, which is never printed, was part of the URL.
            if printed.contains('@') {
                return;
            }
            let again = Config::parse(&printed).unwrap_or_else(|error| panic!("{error} in {printed}"));
            assert_eq!(again.to_string(), printed);
        }
        Err(error) => is_one_line(&error.to_string()),
    }
}

/// Takes the URL of a store. What is shown of it must hold no password.
pub fn store_url(data: &[u8]) {
    const SECRET: &str = "s3cr3t-0f-the-fuzzer";
    let Ok(text) = std::str::from_utf8(data) else { return };
    let text = text.replace("PASSWORD", SECRET);
    match text.parse::<StoreUrl>() {
        Ok(url) => {
            let shown = format!("{url} {url:?}");
            // The secret is a password only before the host.
            let is_password = text.rfind('@').is_some_and(|at| !text[at..].contains(SECRET));
            let is_user = text.find(SECRET).is_some_and(|at| !text[..at].contains(':'));
            assert!(!is_password || is_user || !shown.contains(SECRET), "{shown}");
            // Here the user is shown.
            let before = text.split(SECRET).next().and_then(|before| before.split_once("//"));
            let is_after_user = before.is_some_and(|(_, user)| user.contains(':'));
            let shown = url.without_password();
            assert!(!is_password || !is_after_user || !shown.contains(SECRET), "{shown}");
        }
        Err(error) => {
            let said = error.to_string();
            assert!(!said.contains(SECRET), "{said}");
            is_one_line(&said);
        }
    }
}

/// Takes the contents of a store: an export of the embedded one, or a cell of a shared one. Nothing in it makes an
/// allocator lend more than its file allows.
pub fn stored_rows(data: &[u8]) {
    if let Ok(mut overrides) = LimitOverrides::read(data) {
        assert_eq!(LimitOverrides::read(&overrides.write()).as_ref(), Ok(&overrides));
        let _ = overrides.decide("a", Version::of_file(1), None);
    }
    if let Ok(mut head) = Head::read(data) {
        assert_eq!(Head::read(&head.write()).as_ref(), Ok(&head));
        root(&head, None);
        head.begin_era(start());
    }
    let timeline = lessor_ledger::cells::Timeline::new("t");
    for is_fresh in [true, false] {
        root(&Head::begin(1, &timeline, start(), is_fresh), Some(data));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(error) = Dump::parse(text) {
        is_one_line(&error);
    }
    if let Some(written) = written(text) {
        [Gap::Counted, Gap::Unknown].into_iter().for_each(|gap| restored(&written, gap));
    }
}

/// Reads the root of a limit of [`MOST`] permits from `value`, and views its pool.
fn root(head: &Head, value: Option<&[u8]>) {
    let rule = SlidingWindow::try_new(MOST, Duration::from_secs(1), Duration::ZERO).expect("it is good");
    let plan = Plan {
        is_root: true,
        lessees_max: 8,
        ..Plan::of(vec![
            lessor_ledger::roots::stricter(&Rule::SlidingWindow(rule), TimeSource::Store)
                .expect("it can be kept"),
        ])
    };
    let spec = RootSpec {
        compiled: CompiledPlan::new(plan, TimeSource::Store),
        version: Some(Version::of_file(1)),
        parent_ref: ParentRef::default(),
    };
    if let Ok(mut read) = lessor_ledger::roots::read(&spec, head, value, start()) {
        let _ = read.pool.view(read.now);
    }
}

/// Reads the rows of an export.
fn written(text: &str) -> Option<Written> {
    let mut said: Value = serde_json::from_str(text).ok()?;
    let limits: BTreeMap<String, LimitRow> = serde_json::from_value(said.get_mut("limits")?.take()).ok()?;
    let decisions =
        said.get_mut("decisions").map(Value::take).unwrap_or_else(|| Value::Object(Default::default()));
    let decisions: BTreeMap<String, DecisionRow> = serde_json::from_value(decisions).ok()?;
    let mut pools = BTreeMap::new();
    for pool in said.get_mut("pools")?.as_array_mut()? {
        let row: PoolRow = serde_json::from_value(pool.get_mut("row")?.take()).ok()?;
        pools.insert(PoolPlace::parse(pool.get("place")?.as_str()?)?, row);
    }
    Some(Written { limits, pools, decisions })
}

/// Lets an allocator go on with what is `written`, lend, and write that down.
fn restored(written: &Written, gap: Gap) {
    let mut now = start();
    let mut registry = Registry::restored(&CONFIG.limits, CONFIG.clocks, written, gap, now, 7);
    registry.take_decisions(&CONFIG.limits, written, gap, now);
    registry.begin_writing(0);
    let batch = registry.write_down(now);
    registry.raise_high_water(&batch);
    let asks: Vec<String> = ["window", "child", "calls", "flow", "pattern/x"]
        .iter()
        .map(|limit| {
            let key = if *limit == "child" { r#","key":"a""# } else { "" };
            format!(r#"{{"limit":"{limit}"{key},"spent_total":0,"held":0,"want":1000}}"#)
        })
        .collect();
    for seq in 1..4 {
        let body = format!(r#"{{"node":"n","session":1,"seq":{seq},"asks":[{}]}}"#, asks.join(","));
        let answer = untrusted::leases(&registry, now, body.as_bytes()).expect("it is good");
        let answer: LeasesResponse = serde_json::from_slice(&answer).expect("an answer can be read");
        are_bounded(&answer);
        now = now + Duration::from_secs(1);
        registry.write_down(now);
    }
}

/// Takes an answer of a vendor: its status on the first line, and a header on each line after that.
pub fn rate_limit_headers(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let status = lines.next().and_then(|line| StatusCode::from_bytes(line).ok()).unwrap_or(StatusCode::OK);
    let mut headers = HeaderMap::new();
    for line in lines.take(64) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii())) {
            headers.append(name, value);
        }
    }
    for names in [HeaderNames::default(), HeaderNames::none()] {
        let said = RateLimitHeaders::read(status, &headers, &names);
        let most = said.left.map_or(0, |left| left.permits);
        assert!(most <= PERMITS_MAX, "{most} permits are left");
        let observed =
            Observed { wait: said.wait, left: said.left, announced: said.announced, ..Observed::default() };
        let ask: AskBody = AskBody { observed: Some(ObservedBody::of(&observed)), ..AskBody::default() };
        assert_eq!(ask.out_of_range(), None, "an allocator would refuse the ask");
        let is_refusal = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&status);
        assert!(is_refusal || !said.refused, "{status} is no refusal");
    }
}

/// Takes rules, or a limit, as they are put over the API.
pub fn rules(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(error) = rules_from_json(text, Duration::ZERO) {
        is_one_line(&error);
    }
    let Ok(body) = serde_json::from_str::<Value>(text) else { return };
    match limit_from_json("vendor/rest", &body) {
        Ok(limit) => {
            let mut now = start();
            let registry = Registry::new(&[limit], ClockBounds::default(), Past::None, now, 7);
            for seq in 1..4 {
                let ask = r#"{"limit":"vendor/rest","spent_total":0,"held":0,"want":1}"#;
                let body = format!(r#"{{"node":"n","session":1,"seq":{seq},"asks":[{ask}]}}"#);
                let _ = untrusted::leases(&registry, now, body.as_bytes());
                now = now + Duration::from_millis(700);
            }
        }
        Err(error) => is_one_line(&error.to_string()),
    }
}

/// Returns an instant long after the clock began.
fn start() -> Moment {
    Moment::from_nanos(1_000_000_000_000)
}

/// Checks that an error is one line of a log: it holds no piece of input that could pass for another line, and no more
/// than about a thousand characters of it.
fn is_one_line(said: &str) {
    assert!(!said.chars().any(|c| c == '\n' || c == '\r'), "{said:?}");
    assert!(
        said.chars().count() <= 1_100,
        "{} bytes: {}",
        said.len(),
        said.chars().take(200).collect::<String>()
    );
}
