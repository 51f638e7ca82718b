//! What a client does and reports while its allocator is gone: the shipping client, and a server that stops and comes
//! back at the same address.

use crate::log::Log;
use crate::middleware::said;
use axum::Router;
use axum::body::Body;
use axum::routing::any;
use lessor::http::Request;
use lessor::layer::LimitLayer;
use lessor::{Client, Event, Events, Fallback, Limit, Refusal};
use lessor_protocol::Clock;
use scenarios::fleet::{Fleet, eventually};
use scenarios::process::Allocator;
use std::time::Duration;
use tonic::codegen::Service;
use tracing::Level;

/// One limit of each fallback, with short leases.
const CONFIG: &str = r#"
[[limit]]
name = "safe"
fallback = "safe_share"
reserve = 20
safe = { nodes = 2 }
rules = [{ kind = "sliding_window", limit = 50, per = "1s", margin = "0s" }]

[[limit]]
name = "closed"
rules = [{ kind = "sliding_window", limit = 50, per = "1s", margin = "0s" }]

[[limit]]
name = "open"
fallback = "open"
rules = [{ kind = "sliding_window", limit = 50, per = "1s", margin = "0s" }]

[[limit]]
name = "capped"
fallback = "open"
rules = [{ kind = "concurrency", limit = 1, longest = "1s" }]
"#;

const LONG: Duration = Duration::from_secs(20);

/// Waits for the next event of which `wanted` returns something.
async fn hear<T>(events: &mut Events, wanted: impl Fn(&Event) -> Option<T>) -> T {
    let heard = async {
        loop {
            let event = events.next().await.expect("the client lives");
            if let Some(found) = wanted(&event) {
                return found;
            }
        }
    };
    tokio::time::timeout(LONG, heard).await.expect("in time")
}

/// Waits until all `limits` have entered their fallback, or have left it, in any order.
async fn hear_all(events: &mut Events, mut limits: Vec<(&str, Fallback)>, entered: bool) {
    while !limits.is_empty() {
        let change = |event: &Event| {
            if let Event::FallbackEntered { limit, fallback } = event {
                return Some((limit.clone(), *fallback, true));
            }
            let Event::FallbackLeft { limit, fallback } = event else { return None };
            Some((limit.clone(), *fallback, false))
        };
        let (limit, fallback, has_entered) = hear(events, change).await;
        assert_eq!(has_entered, entered, "{limit}");
        limits.retain(|known| *known != (&*limit, fallback));
    }
}

/// Tries calls until `limit` refuses one.
async fn use_up(limit: &Limit) -> Refusal {
    eventually("a refusal", async || limit.try_acquire(1).err()).await
}

#[tokio::test]
async fn a_limit_without_its_allocator_does_what_was_said_and_everybody_hears_of_it() {
    let fleet = Fleet::start(CONFIG).await;
    let address = fleet.url.trim_start_matches("http://").to_owned();
    let client = fleet.client("a").await;
    let mut events = client.events();
    let (closed, open) = (client.limit("closed"), client.limit("open"));
    closed.acquire(1).await.expect("fifty a second");
    open.acquire(1).await.expect("fifty a second");
    // While the allocator answers, a limit with `fallback = "open"` refuses like any other.
    assert!(matches!(use_up(&open).await, Refusal::Empty { .. }));
    fleet.stop().await;
    let waiting = tokio::spawn({
        let open = open.clone();
        async move { open.acquire(50).await }
    });
    hear(&mut events, |event| (*event == Event::Unreachable).then_some(())).await;
    hear_all(&mut events, vec![("closed", Fallback::Closed), ("open", Fallback::Open)], true).await;
    assert!(matches!(closed.try_acquire(1), Err(Refusal::Unreachable { .. })));
    (0..1_000).for_each(|_| open.try_acquire(1).expect("everything passes"));
    open.try_reserve(7).expect("every reservation passes").settle(9);
    waiting.await.expect("no panic").expect("waiting calls pass too");
    assert!(open.fallback_passed() >= 1_007, "{} were counted", open.fallback_passed());
    assert_eq!((open.shadow_refused(), closed.fallback_passed()), (0, 0));
    // The first answer ends the fallback.
    let fleet = Fleet::start_at(CONFIG, &address).await;
    hear(&mut events, |event| (*event == Event::Reachable).then_some(())).await;
    hear_all(&mut events, vec![("closed", Fallback::Closed), ("open", Fallback::Open)], false).await;
    let passed = open.fallback_passed();
    use_up(&open).await;
    closed.acquire_within(1, LONG).await.expect("the allocator lends again");
    assert_eq!(open.fallback_passed(), passed);
    client.shutdown().await;
    hear(&mut events, |event| (*event == Event::Closed).then_some(())).await;
    fleet.stop().await;
}

#[tokio::test]
async fn a_limit_that_was_never_heard_of_is_closed() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let mut events = client.events();
    fleet.stop().await;
    let open = client.limit("open");
    assert!(open.acquire_within(1, Duration::from_millis(100)).await.is_err());
    hear_all(&mut events, vec![("open", Fallback::Closed)], true).await;
    assert!(matches!(open.try_acquire(1), Err(Refusal::Unreachable { .. })));
    client.shutdown().await;
}

#[tokio::test]
async fn calls_in_flight_and_calls_on_several_limits_pass_an_open_fallback_too() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let mut events = client.events();
    let (closed, open, capped) = (client.limit("closed"), client.limit("open"), client.limit("capped"));
    open.acquire(1).await.expect("fifty a second");
    closed.acquire(1).await.expect("fifty a second");
    let first = capped.enter(1).await.expect("one at once");
    assert!(capped.try_enter(1).is_err());
    fleet.stop().await;
    let all = vec![("closed", Fallback::Closed), ("open", Fallback::Open), ("capped", Fallback::Open)];
    hear_all(&mut events, all, true).await;
    let second = capped.try_enter(1).expect("everything passes");
    drop((first, second));
    lessor::all([(&open, 1), (&capped, 1)]).try_acquire().expect("both pass");
    assert!(
        lessor::all([(&open, 1), (&closed, 1)]).try_acquire().is_err(),
        "the other limit has fallback closed"
    );
    client.shutdown().await;
    assert_eq!(open.try_acquire(1), Err(Refusal::Closed), "a client that was shut down lets nothing pass");
}

#[tokio::test]
async fn a_limit_that_is_paused_stays_so_without_its_allocator() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let mut events = client.events();
    let open = client.limit("open");
    open.acquire(1).await.expect("fifty a second");
    let pause = reqwest::Client::new().post(format!("{}/v1/limits/open/pause", fleet.url));
    let said = pause.header("content-type", "application/json").body(r#"{"for":"1h"}"#).send().await;
    assert!(said.expect("the allocator answers").status().is_success());
    hear(&mut events, |event| {
        matches!(event, Event::Paused { limit, .. } if &**limit == "open").then_some(())
    })
    .await;
    fleet.stop().await;
    hear(&mut events, |event| (*event == Event::Unreachable).then_some(())).await;
    // Each failed exchange is another chance for a call to pass by mistake.
    let failed = client.stats().failed_exchanges + 3;
    eventually("failures", async || {
        assert!(open.try_acquire(1).is_err());
        (client.stats().failed_exchanges >= failed).then_some(())
    })
    .await;
    assert_eq!(open.fallback_passed(), 0);
    client.shutdown().await;
}

/// Two processes hold a seat each, for ten calls a second. The third finds no seat left.
#[tokio::test]
async fn a_safe_share_goes_on_evenly_and_within_what_is_kept_back() {
    let fleet = Fleet::start(CONFIG).await;
    let address = fleet.url.trim_start_matches("http://").to_owned();
    let mut clients = vec![];
    for name in ["a", "b", "c"] {
        let client = fleet.client(name).await;
        client.limit("safe").acquire(1).await.expect("fifty a second");
        clients.push(client);
    }
    let mut events = clients[0].events();
    fleet.stop().await;
    hear_all(&mut events, vec![("safe", Fallback::SafeShare)], true).await;
    let clock = Clock::since_boot();
    let safe = clients[0].limit("safe");
    // Permits come one every hundred milliseconds, and a call for several waits for as many intervals.
    let began = clock.now();
    let mut spent = 0;
    for permits in [1, 1, 3, 1, 2] {
        safe.acquire(permits).await.expect("it goes on");
        spent += permits;
    }
    lessor::all([(&safe, 1)]).acquire().await.expect("also in a call on several");
    let took = clock.now().since(began);
    assert!(
        took >= Duration::from_millis(100) * (spent as u32),
        "{spent} permits and one more took only {took:?}"
    );
    assert_eq!((safe.fallback_passed(), safe.shadow_refused()), (spent + 1, 0));
    let wait =
        safe.try_acquire(10).expect_err("the next permits are not due").retry_after().expect("waiting helps");
    assert!(wait > Duration::from_millis(800), "ten permits are due nine intervals later, not in {wait:?}");
    assert!(
        matches!(safe.try_acquire(11), Err(Refusal::Unreachable { .. })),
        "a safe share never holds eleven permits"
    );
    clients[1].limit("safe").acquire_within(1, LONG).await.expect("the second seat");
    eventually("the third client is refused", async || {
        matches!(clients[2].limit("safe").try_acquire(1), Err(Refusal::Unreachable { .. })).then_some(())
    })
    .await;
    let fleet = Fleet::start_at(CONFIG, &address).await;
    hear_all(&mut events, vec![("safe", Fallback::SafeShare)], false).await;
    clients[2].limit("safe").acquire_within(1, LONG).await.expect("the allocator lends again");
    fleet.stop().await;
}

/// The bug: a process that found no seat logged that its calls go on with its part of the reserve.
#[test]
fn a_process_without_a_seat_says_that_its_calls_are_refused() {
    Log::of(Level::WARN, async |log| {
        let fleet = Fleet::start(CONFIG).await;
        let mut clients = vec![];
        for name in ["a", "b", "c"] {
            let client = fleet.client(name).await;
            client.limit("safe").acquire(1).await.expect("fifty a second");
            clients.push(client);
        }
        fleet.stop().await;
        let said = |what: &str| log.lines().iter().filter(|line| line.contains(what)).count();
        eventually("each client logs its fallback", async || {
            let goes_on = said("calls go on with this process's part of the reserve");
            let refuses = said("this process has no part of the reserve, so calls are refused");
            (goes_on + refuses == 3).then(|| assert_eq!((goes_on, refuses), (2, 1)))
        })
        .await;
    });
}

/// An allocator that does not know what was lent before it began is in quarantine. Its callers are told when that ends,
/// and are served then.
#[tokio::test]
async fn a_limit_in_quarantine_says_when_it_opens_and_does() {
    let config = format!("[store]\nkind = \"memory\"\n{CONFIG}");
    let allocator = Allocator::start(&config, "127.0.0.1:0", false);
    let client = Client::connect(&allocator.url).await.expect("the allocator answers");
    let limit = client.limit("closed");
    let told = eventually("a refusal for the quarantine", async || match limit.try_acquire(1) {
        Err(Refusal::Quarantine { retry_after }) => Some(retry_after),
        Ok(()) => panic!("served before anything may be lent"),
        Err(_) => None,
    })
    .await;
    // Two seconds, the window of the rule, and the error that a clock may have.
    assert!(told > Duration::ZERO && told < Duration::from_secs(4), "{told:?}");
    let call = async |patience| {
        let layer: LimitLayer<Body> = LimitLayer::new(limit.clone()).patience(patience);
        let mut server = Router::new().fallback(any(async || "ok")).layer(layer);
        let request = Request::builder().body(Body::empty()).expect("a request");
        server.call(request).await.expect("a service that cannot fail")
    };
    let refused = call(Duration::ZERO).await;
    assert_eq!(refused.status(), 503);
    let wait: u64 = said(refused.headers(), "retry-after").parse().expect("whole seconds");
    assert!((1..=4).contains(&wait), "{wait}");
    assert_eq!(call(LONG).await.status(), 200, "the quarantine ends");
    client.shutdown().await;
}
