//! Allocators that share a real store: they compete for the last permits and are killed, and the store is stopped,
//! killed, emptied and replaced while they use it. The vendor counts all admissions.

use lessor::{Client, Limit};
use lessor_allocator::cells::{Cells, StoreKind};
use lessor_protocol::{CLOCK, Moment};
use scenarios::fleet::{Fleet, eventually};
use scenarios::process::{Allocator, lessor};
use scenarios::servers::Server;
use scenarios::vendor::Vendor;
use scenarios::wire::Wire;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

const LIMIT: u64 = 200;
const PER: Duration = Duration::from_secs(1);

/// Percent of a limit that two allocators must use. The rest is lost to sharing a root, and to a machine whose cores
/// are busy with other work.
const USED_PERCENT: u64 = 80;

macro_rules! on_store {
    ($store:ident, $kind:ident, $($what:ident)*) => {
        mod $store {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $what() {
                super::$what(lessor_allocator::cells::StoreKind::$kind).await;
            })*
        }
    };
}

/// Runs tests on each store, or on the stores that are named: those where a test tries the most. `stores::behaviours`
/// holds each store to one contract, and beyond that an allocator only notices whether its store has a clock.
macro_rules! on_stores {
    (
        $(each: $($each:ident),+;)?
        $(redis: $($redis:ident),+;)?
        $(postgres: $($postgres:ident),+;)?
        $(etcd: $($etcd:ident),+;)?
    ) => {
        on_store!(redis, Redis, $($($each)+)? $($($redis)+)?);
        on_store!(postgres, Postgres, $($($each)+)? $($($postgres)+)?);
        on_store!(etcd, Etcd, $($($each)+)? $($($etcd)+)?);
    };
}

mod alone;
mod check;
mod cluster;
mod config;
mod family;
mod guaranteed;
mod inside;
mod kinds;
mod large;
mod members;
mod safe;
mod stopped;
mod trouble;

/// A store for one test, on a server that other tests may use, too.
struct Store {
    server: Arc<Server>,
    /// The other members, which work as hard.
    others: Vec<Arc<Server>>,
    url: String,
    prefix: String,
}

impl Store {
    async fn of(server: Arc<Server>, prefix: &str) -> Store {
        let mut cells = Cells::new(&server.config(prefix)).expect("a good configuration");
        cells.migrate().await.expect("the store can be migrated");
        Store { url: server.url(), server, others: vec![], prefix: prefix.to_owned() }
    }

    /// Starts a store on a server of its own, which the test may stop or empty.
    async fn own(kind: StoreKind) -> Store {
        Store::of(Arc::new(tokio::task::block_in_place(|| Server::start(kind, &[]))), "lessor").await
    }

    async fn shared(kind: StoreKind, prefix: &str) -> Store {
        Store::of(tokio::task::block_in_place(|| Server::shared(kind)), prefix).await
    }

    /// Returns the configuration of an allocator called `node`, with `limit` calls in any second.
    fn config(&self, node: &str, limit: u64, version: u64) -> String {
        self.config_at(&self.url, node, limit, version)
    }

    /// Returns the configuration of an allocator that reaches the store at `url`.
    fn config_at(&self, url: &str, node: &str, limit: u64, version: u64) -> String {
        let limits = format!(
            "[[limit]]\nname = \"vendor\"\n\
             rules = [{{ kind = \"sliding_window\", limit = {limit}, per = \"1s\", margin = \"50ms\" }}]\n\
             [[limit]]\nname = \"user\"\nkeyed = true\n\
             rules = [{{ kind = \"token_bucket\", capacity = 3, refill = 1, per = \"1h\" }}]\n\
             [[limit]]\nname = \"yearly\"\nease_off = false\n\
             rules = [{{ kind = \"fixed_window\", limit = 60, per = \"366d\" }}]\n\
             [[limit]]\nname = \"brief\"\nkeyed = true\n\
             rules = [{{ kind = \"sliding_window\", limit = 9, per = \"1s\" }}]\n",
        );
        self.head(url, node, version) + &limits
    }

    /// Returns a configuration without its limits.
    fn head(&self, url: &str, node: &str, version: u64) -> String {
        let kind = url.split_once(':').expect("a URL").0;
        format!(
            "[server]\nnode = {node:?}\n[store]\nkind = {kind:?}\nurl = {url:?}\nprefix = {:?}\ntimeout = \"2s\"\nversion = {version}\n",
            self.prefix,
        )
    }

    async fn allocator(&self, node: &str) -> Fleet {
        Fleet::start(&self.config(node, LIMIT, 1)).await
    }

    /// Starts two allocators, and a client of each.
    async fn two(&self) -> Two {
        Two::of(self.allocator("east").await, self.allocator("west").await).await
    }

    /// Starts an allocator that reaches the store through a wire.
    async fn allocator_through(&self, wire: &Wire, node: &str) -> Fleet {
        Fleet::start(&self.config_at(&self.server.url_through(wire), node, LIMIT, 1)).await
    }
}

/// Two allocators that share a store, a client of each, and the vendor that counts the calls of both.
struct Two {
    east: Fleet,
    west: Fleet,
    clients: [Client; 2],
    limits: [Limit; 2],
    vendor: Vendor,
}

impl Two {
    async fn of(east: Fleet, west: Fleet) -> Self {
        let clients = [east.client("a").await, west.client("b").await];
        let limits = clients.each_ref().map(|client| client.limit("vendor"));
        let vendor = Vendor::new(LIMIT, PER);
        // While a store answers slowly, allocators do not know its time and lend nothing.
        for limit in &limits {
            eventually("each allocator lends", async || vendor.wait(limit, PER).await.then_some(())).await;
        }
        Two { east, west, clients, limits, vendor }
    }

    /// Calls as often as possible for `span`. Returns when the first call was admitted.
    async fn call_for(&self, span: Duration) -> Option<Moment> {
        call_for(&self.vendor, &self.limits, span).await
    }

    /// Asserts that the vendor has counted no call too many, and stops the allocators.
    async fn stop(self) {
        assert_eq!(self.vendor.breach(), None);
        self.east.stop().await;
        self.west.stop().await;
    }
}

/// Calls as often as possible until then, and waits for at most 50 ms each time. Returns when the first call was
/// admitted.
async fn call_until(vendor: &Vendor, limit: &Limit, until: Moment) -> Option<Moment> {
    let mut first = None;
    while CLOCK.now() < until {
        if vendor.wait(limit, Duration::from_millis(50)).await {
            first = first.or(Some(CLOCK.now()));
        }
    }
    first
}

async fn call_for(vendor: &Vendor, limits: &[Limit; 2], span: Duration) -> Option<Moment> {
    let until = CLOCK.now() + span;
    let (one, other) =
        tokio::join!(call_until(vendor, &limits[0], until), call_until(vendor, &limits[1], until));
    one.into_iter().chain(other).min()
}

/// Calls until a call is admitted, for as long as a slow machine may take.
async fn first_call(vendor: &Vendor, limits: &[Limit; 2]) -> Moment {
    eventually("a call is admitted", async || call_for(vendor, limits, PER / 10).await).await
}

/// Each user has three permits and gets one an hour, whichever allocator is asked.
async fn keys_are_shared(kind: StoreKind) {
    let store = Store::shared(kind, "keys").await;
    let (east, west) = (store.allocator("east").await, store.allocator("west").await);
    let clients = [east.client("a").await, west.client("b").await];
    let mut admitted = 0;
    for round in 0..10 {
        let user = clients[round % 2].limit("user").key("ann");
        admitted += u64::from(user.acquire_within(1, Duration::from_millis(400)).await.is_ok());
    }
    assert!((1..=3).contains(&admitted), "{admitted} of 3");
    let bob = clients[1].limit("user").key("bob");
    eventually("another user", async || bob.try_acquire(1).ok()).await;
    for client in clients {
        client.shutdown().await;
    }
    east.stop().await;
    west.stop().await;
}

/// More keys are new at once than a store takes in one call.
async fn a_flood_of_new_keys_is_served(kind: StoreKind) {
    let store = Store::shared(kind, "flood").await;
    let east = store.allocator("east").await;
    let client = east.client("a").await;
    let mut waiting: Vec<Limit> =
        (0..3_000).map(|user| client.limit("user").key(&format!("user-{user}"))).collect();
    eventually("a permit for each key", async || {
        waiting.retain(|user| user.try_acquire(1).is_err());
        waiting.is_empty().then_some(())
    })
    .await;
    client.shutdown().await;
    east.stop().await;
}

async fn killed_in_turn_they_go_on(kind: StoreKind) {
    let store = Store::shared(kind, "killed").await;
    let config = |node| store.config(node, LIMIT, 1);
    let mut two = [
        Allocator::start(&config("east"), "127.0.0.1:0", true),
        Allocator::start(&config("west"), "127.0.0.1:0", true),
    ];
    let client = |first: &Allocator, other: &Allocator| {
        Client::builder(&first.url).or(&other.url).node(first.url.as_str()).connect()
    };
    let clients = [client(&two[0], &two[1]).await.expect("up"), client(&two[1], &two[0]).await.expect("up")];
    let limits = clients.each_ref().map(|client| client.limit("vendor"));
    let vendor = Vendor::new(LIMIT, PER);
    // Where allocators keep the time (etcd), a new allocator must learn it first. It takes two seconds until an
    // allocator keeps the time in place of one that died.
    let span = Duration::from_millis(if kind == StoreKind::Etcd { 2_200 } else { 600 });
    for round in 0..6 {
        first_call(&vendor, &limits).await;
        call_for(&vendor, &limits, span).await;
        two = match two {
            [one, other] if round % 2 == 0 => [one.restart(), other],
            [one, other] => [one, other.restart()],
        };
    }
    assert_eq!(vendor.breach(), None);
    assert!(vendor.longest_gap() < 30 * PER, "no call for {:?}", vendor.longest_gap());
    println!(
        "{kind:?}: {} admitted, six kills, no call for {:?} at most",
        vendor.count(),
        vendor.longest_gap()
    );
}

/// The store answers no allocator for three seconds. Leases end, and nothing more is lent.
async fn a_store_that_stands_still_is_waited_for(kind: StoreKind) {
    let store = Store::own(kind).await;
    let two = store.two().await;
    two.call_for(PER).await;
    store.server.stop();
    two.call_for(2 * PER).await;
    let before = two.vendor.count();
    two.call_for(PER).await;
    assert_eq!(two.vendor.count(), before, "no client is lent anything by any allocator");
    store.server.go_on();
    let again = CLOCK.now();
    let first = two.call_for(5 * PER).await.expect("a call is admitted");
    println!("{kind:?}: stood still for 3 s, a call {:?} after that", first.since(again));
    two.stop().await;
}

/// PostgreSQL and etcd still have all that they confirmed. Redis may have lost some of it, so allocators wait.
async fn a_store_that_is_killed_loses_nothing_or_is_waited_out(kind: StoreKind) {
    let store = Store::own(kind).await;
    let two = store.two().await;
    two.call_for(PER).await;
    store.server.kill();
    store.server.start_again(&[]);
    let again = CLOCK.now();
    let first = two.call_for(8 * PER).await.expect("a call is admitted");
    println!("{kind:?}: killed and started again, a call {:?} after that", first.since(again));
    let waits = Duration::from_millis(2_500);
    if kind == StoreKind::Redis {
        // Permits lent before are used up within one term.
        let lent = two.vendor.count_after(again + PER) - two.vendor.count_after(again + waits);
        assert_eq!(lent, 0, "permits were lent before all earlier leases had ended");
    }
    two.stop().await;
}

async fn one_that_is_emptied_is_waited_out(kind: StoreKind) {
    let store = Store::own(kind).await;
    let two = store.two().await;
    for _ in 0..3 {
        two.call_for(PER / 2).await;
        store.empty(kind);
    }
    two.call_for(6 * PER).await.expect("a call is admitted");
    two.stop().await;
}

/// A key that is not used any more takes no room in the store.
async fn keys_that_are_not_used_are_taken_away(kind: StoreKind) {
    let store = Store::own(kind).await;
    let east = store.allocator("east").await;
    let client = east.client("a").await;
    for user in 0..20 {
        let brief = client.limit("brief").key(&format!("user-{user}"));
        brief.acquire_within(1, Duration::from_secs(5)).await.expect("there are plenty");
    }
    assert!(store.roots(kind) >= 10, "{} of 20", store.roots(kind));
    eventually("all roots of unused keys are removed", async || (store.roots(kind) == 0).then_some(())).await;
    client.shutdown().await;
    east.stop().await;
}

/// A decision holds whichever allocator the operator tells, and for allocators that start later, too.
async fn what_an_operator_decides_holds_for_all(kind: StoreKind) {
    let store = Store::own(kind).await;
    let two = store.two().await;
    two.call_for(PER).await.expect("the allocator lends");
    let tell = async |allocator: &Fleet, what: &str| {
        let request = reqwest::Client::new().post(format!("{}/v1/limits/vendor/{what}", allocator.url));
        let told = request.header("content-type", "application/json").body("{}").send().await;
        let told = told.expect("the allocator answers");
        assert!(told.status().is_success(), "{what}: {}", told.text().await.unwrap_or_default());
    };
    tell(&two.east, "pause").await;
    // The other allocator looks four times a second, and nodes are told at once.
    sleep(PER).await;
    let nothing = Vendor::new(LIMIT, PER);
    assert_eq!(call_for(&nothing, &two.limits, PER).await, None, "the limit is paused");
    let north = store.allocator("north").await;
    let late = north.client("c").await;
    assert_eq!(
        call_until(&nothing, &late.limit("vendor"), CLOCK.now() + PER).await,
        None,
        "the limit is paused at all allocators"
    );
    store.empty(kind);
    assert_eq!(
        call_for(&nothing, &two.limits, 3 * PER).await,
        None,
        "the limit is paused though the store was emptied"
    );
    tell(&two.west, "resume").await;
    first_call(&two.vendor, &two.limits).await;
    tell(&two.west, "nodes/a/block").await;
    sleep(PER).await;
    let blocked = call_until(&two.vendor, &two.limits[0], CLOCK.now() + PER);
    let other = eventually("the other node is lent", async || {
        call_until(&two.vendor, &two.limits[1], CLOCK.now() + PER / 10).await
    });
    assert_eq!(tokio::join!(blocked, other).0, None, "the node is blocked");
    two.stop().await;
    north.stop().await;
}

/// Of two allocators with different rules, the one with the higher version decides, and the other follows.
async fn the_newest_configuration_holds_for_all(kind: StoreKind) {
    let store = Store::shared(kind, "version").await;
    let old = store.allocator("old").await;
    let a = old.client("a").await;
    eventually("a permit", async || a.limit("vendor").try_acquire(1).ok()).await;
    let new = Fleet::start(&store.config("new", LIMIT / 4, 2)).await;
    let b = new.client("b").await;
    eventually("a permit", async || b.limit("vendor").try_acquire(1).ok()).await;
    // Within two seconds, all that the old allocator lent has left its window.
    sleep(2 * PER).await;
    let vendor = Vendor::new(LIMIT / 4, PER);
    let limits = [a.limit("vendor"), b.limit("vendor")];
    call_for(&vendor, &limits, 4 * PER).await;
    assert_eq!(vendor.breach(), None);
    assert!(vendor.count() >= LIMIT * USED_PERCENT / 100, "{} of {LIMIT}", vendor.count());
    old.stop().await;
    new.stop().await;
}

on_stores!(
    each: killed_in_turn_they_go_on,
        a_store_that_stands_still_is_waited_for,
        a_store_that_is_killed_loses_nothing_or_is_waited_out,
        one_that_is_emptied_is_waited_out;
    redis: keys_that_are_not_used_are_taken_away;
    postgres: a_flood_of_new_keys_is_served, keys_are_shared;
    etcd: what_an_operator_decides_holds_for_all;
);

/// A configuration that no shared store can keep is refused before an address is bound, with its key and value.
#[test]
fn what_no_shared_store_keeps_is_refused() {
    let rule = |more: &str| format!("[[limit]]\nname = \"a\"\nrules = [{{ {more} }}]\n");
    let sliding = rule("kind = \"sliding_window\", limit = 9, per = \"1s\"");
    let warming =
        "kind = \"token_bucket\", capacity = 1, refill = 9000, per = \"1s\", warm_up = { over = \"1s\" }";
    let (warming, store) =
        (rule(warming), "[store]\nkind = \"redis\"\nurl = \"redis://:s3cret@127.0.0.1:1\"\n");
    for (text, said) in [
        (
            format!("{store}{warming}"),
            "a bucket with warm_up that refills 9000 every 1s loses more than half",
        ),
        (format!("[store]\nkind = \"redis\"\n{sliding}"), "store.url is missing"),
        (
            format!("[store]\nkind = \"postgres\"\nurl = \"redis://:s3cret@h\"\n{sliding}"),
            "store.kind is \"postgres\"",
        ),
        (format!("[store]\nkind = \"redis\"\nurl = \"http://:s3cret@h\"\n{sliding}"), "store.url"),
        (format!("[store]\nkind = \"redis\"\nurl = \"redis://:s3cret@h,i\"\n{sliding}"), "add ?cluster=true"),
        (
            format!("[store]\nkind = \"redis\"\nurl = \"redis://:s3cret@h?cluster=s3cret\"\n{sliding}"),
            "store.url: cluster is true or false",
        ),
        (
            format!("[store]\nkind = \"redis\"\nurl = \"redis://:s3cret@h,i/3?cluster=true\"\n{sliding}"),
            "store.url: a cluster has only database 0",
        ),
        (format!("{store}prefix = \"a b\"\n{sliding}"), "\"a b\""),
        (format!("{store}timeout = \"1h\"\n{sliding}"), "store.timeout is"),
        (format!("[store]\nkind = \"memory\"\nurl = \"redis://h\"\n{sliding}"), "store.url"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("lessor.toml");
        std::fs::write(&file, &text).expect("a writable file");
        let output = Command::new(lessor()).arg("check").arg(&file).output().expect("the command runs");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}: {printed}");
        assert!(printed.contains(said) && !printed.contains("s3cret"), "{said}: {printed}");
    }
}
