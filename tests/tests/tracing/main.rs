//! Spans: those of a node continue in its allocator and in the one above. Keys and passwords are in none of them. A bad
//! header or collector does no harm.

mod collector;
mod node;

use collector::{Collector, Mood, Seen};
use lessor::Client;
use lessor_allocator::cells::StoreKind;
use node::Kept;
use rustix::process::Signal;
use scenarios::fleet::eventually;
use scenarios::process::{Running, folder_with, lessor};
use scenarios::servers::Server;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tracing::Instrument as _;

const LIMIT: &str = "rules = [{ kind = \"sliding_window\", limit = 50, per = \"1s\", margin = \"0s\" }]";

/// A key that must not be in any span.
const SECRET: &str = "tenant-of-a-client";

/// An allocator that exports its spans, and whose log is kept.
struct Traced {
    running: Running,
    url: String,
    folder: TempDir,
}

impl Traced {
    fn start(service: &str, config: &str, collector: &str) -> Traced {
        let folder = folder_with(config);
        let log = std::fs::File::create(folder.path().join("log")).expect("a writable file");
        let mut command = Command::new(lessor());
        command
            .args(["serve", "--fresh", "--listen", "127.0.0.1:0", "--otlp", collector, "--config"])
            .arg(folder.path().join("lessor.toml"));
        command.env("OTEL_SERVICE_NAME", service).env("OTEL_BSP_SCHEDULE_DELAY", "20").stderr(log);
        let mut running = Running::start(&mut command);
        let url = running.listens();
        Traced { running, url, folder }
    }

    /// The lines of its log that are warnings or worse.
    fn complaints(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.folder.path().join("log")).expect("a readable file");
        log.lines()
            .filter(|line| ["WARN", "ERROR"].iter().any(|word| line.contains(word)))
            .map(str::to_owned)
            .collect()
    }

    /// Makes an exchange that asks for nothing, with these trace contexts.
    async fn exchange(&self, http: &reqwest::Client, seq: u64, traceparents: &[&str]) -> reqwest::StatusCode {
        let body = format!(r#"{{"node":"raw","session":1,"seq":{seq},"rtt_ms":1,"asks":[]}}"#);
        let request = http.post(format!("{}/v1/leases", self.url)).header("content-type", "application/json");
        let request = traceparents.iter().fold(request, |request, text| request.header("traceparent", *text));
        request.body(body).send().await.expect("the collector answers in time").status()
    }
}

/// Returns an HTTP client that gives up after two seconds.
fn http() -> reqwest::Client {
    reqwest::Client::builder().timeout(Duration::from_secs(2)).no_proxy().build().expect("a client")
}

/// Returns the spans of this name and service whose parent is one of `parents`.
fn child<'a>(seen: &'a [Seen], service: &str, name: &str, parents: &[&Seen]) -> Vec<&'a Seen> {
    let of = seen.iter().filter(|span| span.name == name && span.service.contains(service));
    of.filter(|span| parents.iter().any(|parent| (&parent.id, &parent.trace) == (&span.parent, &span.trace)))
        .collect()
}

#[tokio::test]
async fn a_renewal_of_a_node_leads_on_to_the_allocator_above_its_own() {
    let kept = Kept::here();
    let collector = Collector::open(Mood::Takes).await;
    let centre = Traced::start(
        "centre",
        &format!("[[limit]]\nname = \"calls\"\nkeyed = true\n{LIMIT}\n"),
        &collector.url,
    );
    let leased = format!("[[limit]]\nname = \"calls\"\nkeyed = true\nupstream = {:?}\n", centre.url);
    let region = Traced::start("region", &leased, &collector.url);
    let client = Client::connect(&region.url).await.expect("the allocator answers");
    let limit = client.limit("calls").key(SECRET);
    let request = tracing::info_span!("request");
    limit
        .acquire_within(1, Duration::from_secs(10))
        .instrument(request.clone())
        .await
        .expect("a permit is free");
    drop(request);

    let (of_node, found) = collector
        .eventually("a chain of four spans", |seen| {
            let renewals = kept.ended("renew");
            let renewals = renewals.iter().map(|span| Seen {
                service: "node".to_owned(),
                name: "renew".to_owned(),
                trace: span.span_context.trace_id().to_string(),
                id: span.span_context.span_id().to_string(),
                parent: String::new(),
                is_error: false,
                whole: format!("{span:?}"),
            });
            let renewals: Vec<Seen> = renewals.collect();
            let in_region = child(seen, "region", "renew", &renewals.iter().collect::<Vec<_>>());
            let refills = child(seen, "region", "refill", &in_region);
            let in_centre = child(seen, "centre", "renew", &refills);
            (!in_centre.is_empty()).then(|| (renewals, seen.to_vec()))
        })
        .await;
    // The wait is a part of the request that waited, and of no other trace.
    let [wait] = &kept.ended("wait")[..] else { panic!("one has waited: {:?}", kept.ended("wait")) };
    assert_eq!(wait.parent_span_id, kept.ended("request")[0].span_context.span_id());
    assert!(of_node.iter().all(|span| span.trace != wait.span_context.trace_id().to_string()));
    let said = format!("{wait:?}{of_node:?}{found:?}");
    assert!(said.contains("calls") && !said.contains(SECRET), "a key is in a span: {said}");
    assert!(found.iter().all(|span| !span.is_error), "{found:?}");
}

#[tokio::test]
async fn what_is_never_waited_for_is_no_span() {
    let kept = Kept::here();
    let collector = Collector::open(Mood::Takes).await;
    let allocator = Traced::start("one", &format!("[[limit]]\nname = \"calls\"\n{LIMIT}\n"), &collector.url);
    let client = Client::connect(&allocator.url).await.expect("the allocator answers");
    let limit = client.limit("calls");
    limit.acquire(1).await.expect("a permit is free");
    let before = kept.ended("wait").len();
    assert_eq!(before, 1);
    let (mut admitted, mut refused) = (0, 0);
    while admitted == 0 || refused == 0 {
        for _ in 0..1_000 {
            *if limit.try_acquire(1).is_ok() { &mut admitted } else { &mut refused } += 1;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(kept.ended("wait").len(), before);
    // If no allocator can be asked, only the span has an error.
    drop(allocator);
    eventually("an exchange fails", async || {
        let _ = limit.try_acquire(1);
        kept.ended("renew")
            .iter()
            .any(|span| span.status != opentelemetry::trace::Status::Unset)
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn swaps_in_a_store_are_parts_of_a_refill() {
    let collector = Collector::open(Mood::Takes).await;
    let server =
        tokio::task::spawn_blocking(|| Server::start(StoreKind::Redis, &[])).await.expect("no panic");
    let url = server.url();
    let config = format!("[store]\nkind = \"redis\"\nurl = {url:?}\n[[limit]]\nname = \"calls\"\n{LIMIT}\n");
    let allocator = Traced::start("stored", &config, &collector.url);
    let client = Client::connect(&allocator.url).await.expect("the allocator answers");
    client.limit("calls").acquire_within(1, Duration::from_secs(10)).await.expect("a permit is free");
    let seen = collector
        .eventually("a swap", |seen| {
            let refills: Vec<&Seen> = seen.iter().filter(|span| span.name == "refill").collect();
            (!child(seen, "stored", "swap", &refills).is_empty()).then(|| seen.to_vec())
        })
        .await;
    let password = server.password();
    assert!(!format!("{seen:?}").contains(&password), "a password is in a span");
}

/// The good header sets the parent. Exchanges with bad ones are answered and traced as if they had none, and nothing is
/// logged.
#[tokio::test]
async fn a_header_that_is_no_good_is_ignored() {
    let collector = Collector::open(Mood::Takes).await;
    let allocator = Traced::start("one", &format!("[[limit]]\nname = \"calls\"\n{LIMIT}\n"), &collector.url);
    let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let good = format!("00-{trace}-{parent}-01");
    let long = "00-".repeat(2_000);
    let bad: [&[&str]; 11] = [
        &[""],
        &["nonsense"],
        &["00-00000000000000000000000000000000-00f067aa0ba902b7-01"],
        &["00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"],
        &["ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"],
        &["00-4bf92f3577b34da6a3ce929d0e0e47-00f067aa0ba902b7-01"],
        &["00-zbf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"],
        &["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"],
        &["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more"],
        &[&long],
        &[&good, &good],
    ];
    let http = http();
    for (seq, traceparents) in (1..).zip(bad.iter().copied().chain([&[good.as_str()][..]])) {
        assert_eq!(allocator.exchange(&http, seq, traceparents).await, 200, "{traceparents:?}");
    }
    let seen = collector
        .eventually("all exchanges", |seen| (seen.len() == bad.len() + 1).then(|| seen.to_vec()))
        .await;
    let led: Vec<&Seen> = seen.iter().filter(|span| !span.parent.is_empty()).collect();
    let [led] = &led[..] else { panic!("one has a parent: {led:?}") };
    assert_eq!((led.trace.as_str(), led.parent.as_str()), (trace, parent));
    assert_eq!(seen.iter().filter(|span| span.trace == trace).count(), 1);
    assert_eq!(allocator.complaints(), [""; 0]);
}

/// A collector refuses for a while. That is logged once, however many batches there are.
#[tokio::test]
async fn a_collector_that_refuses_is_said_once() {
    let collector = Collector::open(Mood::Refuses).await;
    let allocator = Traced::start("one", &format!("[[limit]]\nname = \"calls\"\n{LIMIT}\n"), &collector.url);
    let (http, mut seq) = (http(), 0);
    while collector.batches() < 8 {
        seq += 1;
        assert_eq!(allocator.exchange(&http, seq, &[]).await, 200);
    }
    let complaints = allocator.complaints();
    assert!(
        complaints.len() == 1 && complaints[0].contains("the collector does not take spans"),
        "{complaints:?}"
    );
    collector.becomes(Mood::Takes);
    while collector.seen().is_empty() {
        seq += 1;
        assert_eq!(allocator.exchange(&http, seq, &[]).await, 200);
    }
    assert_eq!(allocator.complaints().len(), 1);
}

/// One collector does not exist, and one takes a batch and never answers. Exchanges go on, memory does not grow with
/// them, and the end of the process does not wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_gone_or_hangs_holds_nothing_up() {
    let hangs = Collector::open(Mood::NeverAnswers).await;
    for collector in ["http://127.0.0.1:9", &hangs.url] {
        let allocator = Traced::start("one", &format!("[[limit]]\nname = \"calls\"\n{LIMIT}\n"), collector);
        let http = http();
        let mut seq = 0;
        let mut exchanges = async |count| {
            for _ in 0..count {
                seq += 1;
                assert_eq!(allocator.exchange(&http, seq, &[]).await, 200);
            }
        };
        // More spans than the queue holds, which is 2,048 by default.
        exchanges(3_000).await;
        let before = allocator.running.resident();
        exchanges(6_000).await;
        let grown = allocator.running.resident().saturating_sub(before);
        assert!(grown < 4 << 20, "{grown} bytes for 6,000 exchanges, {collector}");
        assert!(allocator.complaints().len() <= 1, "{:?}", allocator.complaints());
        allocator.running.signal(Signal::TERM);
        let ended = tokio::task::spawn_blocking(move || allocator.running.wait());
        let ended = tokio::time::timeout(Duration::from_secs(10), ended)
            .await
            .expect("the allocator does not wait for the collector");
        assert!(ended.expect("no panic").success());
    }
}

#[test]
fn a_collector_that_cannot_be_one_is_exit_code_2_and_no_secret_is_shown() {
    for wrong in ["https://collector:4318", "collector", "http://ops:hunter2@collector:4318"] {
        let mut command = Command::new(lessor());
        let output =
            command.args(["serve", "--config", "x", "--otlp", wrong]).output().expect("the command runs");
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("--otlp") && !said.contains("hunter2"), "{said}");
    }
}
