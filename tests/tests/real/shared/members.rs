//! Allocators that share an etcd of three members, which has no clock. Its leader is killed or stopped, and so are the
//! allocator that keeps the time, and all allocators that know it.

use super::alone::two_use_all_of;
use super::{CLOCK, LIMIT, PER, Store, USED_PERCENT, call_for};
use lessor::{Client, Limit};
use lessor_protocol::Moment;
use scenarios::etcd::Etcd;
use scenarios::fleet::eventually;
use scenarios::process::Allocator;
use scenarios::vendor::Vendor;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{block_in_place, spawn_blocking};

/// The log line of an allocator that begins to keep the time.
const KEEPS: &str = "keeps the time of the store from now on";

/// The log line of an allocator that begins another life of the time, except for the first life.
const BEGINS: &str = "no allocator knew the time of the store";

/// The log line of an allocator that finds the store on another timeline.
const LOST: &str = "may have lost what was written last";

fn store(etcd: &Etcd, prefix: &str) -> Store {
    let [server, others @ ..] = etcd.members() else { panic!("etcd has members") };
    let (server, others) = (Arc::clone(server), others.to_vec());
    Store { server, others, url: etcd.url(), prefix: prefix.to_owned() }
}

/// Two allocators that share an etcd, a client of each, and the vendor that counts the calls of both. The first
/// allocator keeps the time.
struct Two {
    allocators: Vec<Allocator>,
    clients: [Client; 2],
    vendor: Vendor,
}

impl Two {
    async fn of(etcd: &Etcd) -> Self {
        let store = store(etcd, "lessor");
        let start = |node| Allocator::start_with_log(&store.config(node, LIMIT, 1));
        let east = start("east");
        eventually("the first allocator keeps the time", async || east.log().contains(KEEPS).then_some(()))
            .await;
        let west = start("west");
        let client = |first: &Allocator, other: &Allocator| {
            Client::builder(&first.url).or(&other.url).node(first.url.as_str()).connect()
        };
        let clients = [
            client(&east, &west).await.expect("the allocator answers"),
            client(&west, &east).await.expect("the allocator answers"),
        ];
        let two = Two { allocators: vec![east, west], clients, vendor: Vendor::new(LIMIT, PER) };
        for client in &two.clients {
            let limit = client.limit("vendor");
            // While the members answer slowly, an allocator does not know their time and lends nothing.
            eventually("each allocator lends", async || two.vendor.wait(&limit, PER).await.then_some(()))
                .await;
        }
        two.call_for(PER).await;
        two
    }

    /// Calls as often as possible for `span`. Returns when the first call was admitted.
    async fn call_for(&self, span: Duration) -> Option<Moment> {
        let limits: [Limit; 2] = self.clients.each_ref().map(|client| client.limit("vendor"));
        call_for(&self.vendor, &limits, span).await
    }

    /// Calls for five seconds, and asserts that most of what the limit allows in four of them is used.
    async fn use_all(&self) {
        let before = self.vendor.count();
        self.call_for(5 * PER).await.expect("the allocator lends");
        let used = self.vendor.count() - before;
        println!("{used} of {} used in the five seconds after that", 5 * LIMIT);
        assert!(used >= 4 * LIMIT * USED_PERCENT / 100, "{used} of {}", 5 * LIMIT);
    }

    /// Returns how often both allocators have logged this.
    fn logged(&self, what: &str) -> usize {
        self.allocators.iter().map(|allocator| allocator.log().matches(what).count()).sum()
    }

    /// Asserts that the vendor counted no call too many, and that no allocator took the store for another one or for
    /// one that lost data.
    fn is_kept(&self, what: &str) {
        println!(
            "{what}: {} admitted, none for {:?} at most; the time was kept by {} in turn and began anew {} times",
            self.vendor.count(),
            self.vendor.longest_gap(),
            self.logged(KEEPS),
            self.logged(BEGINS)
        );
        assert_eq!(self.vendor.breach(), None);
        assert_eq!(self.logged(LOST), 0, "{what}");
    }
}

pub(super) async fn two_use_all_there_is_and_no_more() {
    let etcd = block_in_place(Etcd::shared);
    let store = store(&etcd, "two");
    two_use_all_of(&store, "three members").await;
}

/// Another member leads after a second or two. The first leader is started again meanwhile, and follows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_costs_a_pause_and_no_quarantine() {
    let etcd = Arc::new(block_in_place(|| Etcd::start(&[])));
    let two = Two::of(&etcd).await;
    let leader = etcd.leader();
    etcd.members()[leader].kill();
    two.call_for(4 * PER).await;
    let again = Arc::clone(&etcd);
    let started = spawn_blocking(move || again.members()[leader].start_again(&[]));
    two.use_all().await;
    started.await.expect("the allocator starts");
    two.is_kept("the leader was killed");
}

/// The stopped leader answers no member and no allocator. Later it goes on as if nothing had happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_stopped_costs_a_pause_and_no_quarantine() {
    let etcd = block_in_place(|| Etcd::start(&[]));
    let two = Two::of(&etcd).await;
    let leader = &etcd.members()[etcd.leader()];
    leader.stop();
    two.call_for(4 * PER).await;
    leader.go_on();
    two.use_all().await;
    two.is_kept("the leader was stopped");
}

/// The other allocator continues the time where it was, and goes on to keep it when the first one is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_allocator_that_keeps_the_time_is_killed_and_another_one_keeps_it() {
    let etcd = block_in_place(Etcd::shared);
    let mut two = Two::of(&etcd).await;
    assert_eq!(two.logged(KEEPS), 1, "the first allocator keeps the time");
    for round in 1..=2 {
        let keeper = two.allocators.remove(0);
        let away = spawn_blocking(|| keeper.restart_after(|_| std::thread::park_timeout(3 * PER)));
        assert!(two.call_for(4 * PER).await.is_some(), "the other allocator lends");
        two.allocators.push(away.await.expect("the allocator starts"));
        assert_eq!(two.logged(KEEPS), round + 1, "the other allocator keeps the time");
        println!("round {round}: time began anew {} times", two.logged(BEGINS));
    }
    two.use_all().await;
    two.is_kept("who kept the time was killed twice");
}

/// No allocator knows how long both were away. What was lent before counts as if it had been lent when the first one is
/// back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_are_killed_and_started_again_in_another_life_of_the_time() {
    let etcd = block_in_place(|| Etcd::start(&[]));
    let mut two = Two::of(&etcd).await;
    let yearly = two.clients[0].limit("yearly");
    let mut admitted = 20;
    for _ in 0..admitted {
        // An etcd that answers slowly for half a second costs two seconds and a half: another allocator takes over the time.
        yearly.acquire_within(1, 20 * PER).await.expect("sixty a year");
    }
    let away = two
        .allocators
        .drain(..)
        .map(|allocator| spawn_blocking(|| allocator.restart_after(|_| std::thread::park_timeout(4 * PER))));
    let away: Vec<_> = away.collect();
    two.call_for(3 * PER).await;
    for allocator in away {
        two.allocators.push(allocator.await.expect("the allocator starts"));
    }
    let again = CLOCK.now();
    let first = two.call_for(6 * PER).await.expect("the allocator lends again");
    println!("a call {:?} after both were back", first.since(again));
    two.use_all().await;
    assert_eq!(two.logged(BEGINS), 1, "the timeline began once more");
    while yearly.acquire_within(1, 6 * PER).await.is_ok() {
        admitted += 1;
    }
    println!("{admitted} of 60 in a year");
    assert!((30..=60).contains(&admitted), "{admitted} of 60 in a year");
    two.is_kept("all were killed");
}
