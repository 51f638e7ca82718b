//! Trouble between allocators and the store that they share: wires are cut, slow, and lose answers; a server that is
//! behind takes over; the clock of the store is set.

use super::{CLOCK, LIMIT, PER, Store, Two, USED_PERCENT, call_until};
use lessor::{Client, Limit};
use lessor_allocator::cells::StoreKind;
use scenarios::fleet::{Fleet, eventually};
use scenarios::servers::Server;
use scenarios::shim::Shim;
use scenarios::vendor::Vendor;
use scenarios::wire::Wire;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// How long to look whether a fallback lasts: longer than the pause between two asks for a plain name.
const IN_FALLBACK: Duration = Duration::from_secs(15);

/// By then the longest lease is over.
const OVER: Duration = Duration::from_secs(2);

/// The cut-off allocator lends what it has until that ends, and the other one lends all that there is.
pub(super) async fn who_is_cut_off_from_the_store_lends_nothing_and_the_other_all(kind: StoreKind) {
    let store = Store::shared(kind, "cut").await;
    let wire = Wire::to(store.server.address()).await;
    let two = Two::of(store.allocator_through(&wire, "east").await, store.allocator("west").await).await;
    two.call_for(PER).await;
    wire.cut();
    two.call_for(OVER).await;
    let (cut_off, other) = (Vendor::new(LIMIT, PER), Vendor::new(LIMIT, PER));
    let (until, stalls) = (CLOCK.now() + 3 * PER, store.stalls());
    tokio::join!(call_until(&cut_off, &two.limits[0], until), call_until(&other, &two.limits[1], until));
    let least = stalls.least_used(USED_PERCENT, LIMIT, 3 * PER);
    assert_eq!((cut_off.count(), other.breach()), (0, None));
    assert!(other.count() >= least, "{} of {least}", other.count());
    wire.mend();
    let mended = CLOCK.now();
    // What the other allocator holds stays out for a window.
    sleep(PER + PER / 10).await;
    let again = call_until(&two.vendor, &two.limits[0], mended + 5 * PER).await.expect("a call is admitted");
    println!(
        "{kind:?}: cut off for 5 s, {} by the other in 3 s, on after {:?}",
        other.count(),
        again.since(mended)
    );
    two.stop().await;
}

/// The bug: such an allocator answered that it has no permits now. That kept nodes from their fallback, and from
/// allocators that reach the store.
async fn who_is_cut_off_from_the_store_sends_nodes_to_another_or_to_their_fallback(kind: StoreKind) {
    let store = Store::own(kind).await;
    let wire = Wire::to(store.server.address()).await;
    let rules = "rules = [{ kind = \"sliding_window\", limit = 50, per = \"1s\" }]\n";
    let limit = &format!(
        "[[limit]]\nname = \"open\"\nfallback = \"open\"\n{rules}\
         [[limit]]\nname = \"user\"\nkeyed = true\n{rules}"
    );
    let url = store.server.url_through(&wire);
    let (east, west) = (
        Fleet::start(&(store.head(&url, "east", 1) + limit)).await,
        Fleet::start(&(store.head(&store.url, "west", 1) + limit)).await,
    );
    let client = east.client("alone").await;
    // The plain handle of a limit with keys is asked for every few seconds.
    let (alone, user) = (client.limit("open"), client.limit("user").key("a"));
    let knows_both = Client::builder(&east.url).or(&west.url).node("both").connect().await;
    let knows_both = knows_both.expect("both allocators answer").limit("open");
    for limit in [&alone, &knows_both, &user] {
        limit.acquire_within(1, Duration::from_secs(10)).await.expect("there are plenty");
    }
    let passes = |limit: &Limit, calls: usize| (0..calls).all(|_| limit.try_acquire(1).is_ok());
    assert!(
        !passes(&alone, 100) && !passes(&knows_both, 100),
        "the allocator holds each client to the limit"
    );
    wire.cut();
    eventually("the client is in its fallback", async || passes(&alone, 100).then_some(())).await;
    let began = CLOCK.now();
    while CLOCK.now().since(began) < IN_FALLBACK {
        assert!(passes(&alone, 1), "the fallback ended after {:?}", CLOCK.now().since(began));
        sleep(Duration::from_millis(10)).await;
    }
    let lent = async || west.number("open", "granted").await;
    let before = lent().await;
    let lends_and_holds = async || {
        let is_held = !passes(&knows_both, 100);
        (is_held && lent().await > before + 50).then_some(())
    };
    eventually("the other allocator lends, and holds the client to the limit", lends_and_holds).await;
    wire.mend();
    eventually("the client is held to the limit again", async || (!passes(&alone, 100)).then_some(())).await;
    for fleet in [east, west] {
        fleet.stop().await;
    }
}

/// Waits until the answer of `/readyz` contains `status`, and returns that answer.
async fn health(url: &str, status: &str) -> String {
    let said = eventually("/readyz names the status", async || {
        let answer = reqwest::get(format!("{url}/readyz")).await.ok()?.text().await.ok()?;
        answer.contains(status).then_some(answer)
    });
    said.await
}

/// The bug: as long as no node asked it for anything, an allocator reported that it was ready, whatever happened to its
/// store.
async fn an_allocator_without_a_store_is_not_ready_though_no_node_asks(kind: StoreKind) {
    let store = Store::shared(kind, "idle").await;
    let wire = Wire::to(store.server.address()).await;
    let east = store.allocator_through(&wire, "east").await;
    health(&east.url, "\"ready\"").await;
    wire.cut();
    health(&east.url, "store_failing").await;
    let newcomer = store.allocator_through(&wire, "newcomer").await;
    let said = reqwest::get(format!("{}/readyz", newcomer.url)).await.expect("the server answers");
    let said = said.text().await.expect("text");
    assert!(said.contains("store_failing"), "/readyz does not say store_failing: {said}");
    wire.mend();
    health(&east.url, "\"ready\"").await;
    health(&newcomer.url, "\"ready\"").await;
    newcomer.stop().await;
    east.stop().await;
    if kind == StoreKind::Redis {
        // This store accepts writes, but has no replica to confirm them.
        let config = store.config("west", LIMIT, 1).replace("timeout = ", "replicas = 1\ntimeout = ");
        let west = Fleet::start(&config).await;
        health(&west.url, "store_failing").await;
        west.stop().await;
    }
}

/// The allocator does not know whether the swap was done. Nothing is lent twice, and nothing is lost for long.
async fn answers_of_the_store_that_are_lost_cost_nothing_twice(kind: StoreKind) {
    let store = Store::shared(kind, "lost").await;
    let wire = Wire::to(store.server.address()).await;
    let two = Two::of(store.allocator_through(&wire, "east").await, store.allocator("west").await).await;
    let until = CLOCK.now() + 4 * PER;
    let lose = async {
        let mut lost = 0;
        while CLOCK.now() < until {
            wire.lose_an_answer();
            lost += 1;
            sleep(Duration::from_millis(40)).await;
        }
        lost
    };
    let (lost, _) = tokio::join!(lose, two.call_for(4 * PER));
    let meanwhile = two.vendor.count();
    // Permits of a lost answer count as spent for one lease and a window.
    sleep(OVER + PER).await;
    two.call_for(3 * PER).await;
    let after = two.vendor.count() - meanwhile;
    println!(
        "{kind:?}: {meanwhile} admitted in 4 s while up to {lost} answers were lost, {after} in 3 s after it"
    );
    assert!(meanwhile > 0 && after >= 3 * LIMIT * USED_PERCENT / 100, "{after} of {}", 3 * LIMIT);
    two.stop().await;
}

/// The store is so far away that no allocator can tell what time it is there.
async fn a_store_that_is_slow_lends_nothing_and_goes_on(kind: StoreKind) {
    let store = Store::shared(kind, "slow").await;
    let wire = Wire::to(store.server.address()).await;
    let (east, west) =
        (store.allocator_through(&wire, "east").await, store.allocator_through(&wire, "west").await);
    let two = Two::of(east, west).await;
    two.call_for(PER).await;
    wire.delay_by(Duration::from_millis(300));
    // What the allocators knew of the time stays good enough for a while, until their clocks may have drifted apart too
    // far.
    two.call_for(10 * PER).await;
    let meanwhile = two.vendor.count();
    wire.delay_by(Duration::ZERO);
    let (again, stalls) = (CLOCK.now(), store.stalls());
    let first = two.call_for(5 * PER).await.expect("a call is admitted");
    let least = stalls.least_used(USED_PERCENT, LIMIT, 4 * PER);
    let after = two.vendor.count() - meanwhile;
    println!("{kind:?}: {meanwhile} admitted in 11 s, 10 of them slow; on {:?} after it", first.since(again));
    assert!(after >= least, "{after} of {least}");
    two.stop().await;
}

/// The server does not have what was lent last, so the allocators wait until that is over.
async fn a_server_that_is_behind_takes_over(kind: StoreKind) {
    let store = Store::own(kind).await;
    let replica = store.server.replica();
    let wire = Wire::to(store.server.address()).await;
    let (east, west) =
        (store.allocator_through(&wire, "east").await, store.allocator_through(&wire, "west").await);
    let two = Two::of(east, west).await;
    two.call_for(PER).await;
    // From here on the replica receives no more changes.
    replica.promote();
    two.call_for(PER).await;
    store.server.kill();
    wire.lead_to(replica.address());
    let led = CLOCK.now();
    two.call_for(OVER).await;
    let over = CLOCK.now();
    let first = two.call_for(6 * PER).await.expect("a call is admitted");
    println!(
        "{kind:?}: a server took over that was behind by a second, a call {:?} after that",
        first.since(led)
    );
    assert!(
        first >= over,
        "the allocators lent {:?} after the standby took over, too soon",
        first.since(led)
    );
    two.stop().await;
}

/// Returns the time of the store's clock, in seconds.
fn shown(server: &Server, kind: StoreKind) -> i64 {
    match kind {
        StoreKind::Redis => {
            // `tell` returns only the first line, which for an array is its length. So a script returns the first
            // element alone.
            let said = server.tell("EVAL \"return redis.call('TIME')[1]\" 0");
            said.parse().unwrap_or_else(|_| panic!("no seconds: {said}"))
        }
        StoreKind::Memory | StoreKind::Postgres | StoreKind::Etcd => {
            let said = server.tell("SELECT extract(epoch FROM clock_timestamp())::bigint");
            said.parse().unwrap_or_else(|_| panic!("no seconds: {said}"))
        }
    }
}

/// The clock is set ahead by an hour, and back beyond where it was. Charges then last longer, and never shorter.
async fn the_clock_of_the_store_is_set(kind: StoreKind) {
    let shim = Shim::new();
    let server = Server::start(kind, &[]);
    server.start_again_with(&shim);
    let store = Store::of(Arc::new(server), "lessor").await;
    let two = store.two().await;
    two.call_for(PER).await.expect("the allocator lends");
    let mut shifted = 0;
    for shift in [3_600, -60, 0] {
        let before = shown(&store.server, kind) - shifted;
        shim.set(&format!("shift_s {shift}\n"));
        shifted = shift;
        let set = shown(&store.server, kind) - shift - before;
        assert!((0..=2).contains(&set), "the store's clock is {set} s off");
        two.call_for(2 * PER).await;
    }
    let before = two.vendor.count();
    two.call_for(4 * PER).await.expect("a call is admitted");
    let after = two.vendor.count() - before;
    println!(
        "{kind:?}: {before} admitted in 7 s while the clock was set three times, {after} in 4 s after it"
    );
    assert!(after >= 3 * LIMIT * USED_PERCENT / 100, "{after} of {}", 4 * LIMIT);
    two.stop().await;
}

on_stores!(
    redis: an_allocator_without_a_store_is_not_ready_though_no_node_asks,
        who_is_cut_off_from_the_store_sends_nodes_to_another_or_to_their_fallback,
        a_store_that_is_slow_lends_nothing_and_goes_on,
        a_server_that_is_behind_takes_over,
        the_clock_of_the_store_is_set;
    postgres: a_server_that_is_behind_takes_over,
        the_clock_of_the_store_is_set;
    etcd: answers_of_the_store_that_are_lost_cost_nothing_twice, a_store_that_is_slow_lends_nothing_and_goes_on;
);
