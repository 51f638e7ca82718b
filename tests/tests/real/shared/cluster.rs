//! Allocators that share a cluster: a slot moves under them, and a replica that is behind takes over from one of its masters.

use super::{CLOCK, LIMIT, PER, Store, USED_PERCENT, call_for, two_use_all_of};
use lessor_ledger::roots::{HEAD, cell_of};
use scenarios::cluster::Cluster;
use scenarios::fleet::eventually;
use scenarios::vendor::Vendor;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

const NEVER: Duration = Duration::from_secs(60);

/// The longest lease is over by then, and what is added to it for allocators that find a loss later than others.
const OVER: Duration = Duration::from_millis(3_250);

fn store(cluster: &Cluster, prefix: &str) -> Store {
    let server = Arc::clone(&cluster.nodes()[0].server);
    Store { server, url: cluster.url(), prefix: prefix.to_owned() }
}

fn key(name: &str) -> String {
    format!("lessor:{{{name}}}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_use_all_there_is_and_no_more() {
    let cluster = Cluster::shared().await;
    two_use_all_of(&store(&cluster, "two"), "cluster").await;
}

/// The root and the head go round all masters. Nothing is lost, so there is nothing to wait for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_are_lent_by_all_the_while() {
    let cluster = Cluster::start(NEVER).await;
    let store = store(&cluster, "lessor");
    let (east, west) = (store.allocator("east").await, store.allocator("west").await);
    let clients = [east.client("a").await, west.client("b").await];
    let limits = clients.each_ref().map(|client| client.limit("vendor"));
    let vendor = Vendor::new(LIMIT, PER);
    let keys = [key(HEAD), key(&cell_of("vendor", None))];
    let moving = async {
        for round in 0..6 {
            for key in &keys {
                let (slot, at) = (cluster.slot(key), cluster.place(key) + round);
                let (from, to) = (at % 3, (at + 1) % 3);
                cluster.begin_to_move(slot, from, to);
                sleep(Duration::from_millis(150)).await;
                cluster.move_key(key, from, to);
                sleep(Duration::from_millis(150)).await;
                cluster.has_moved(slot, from, to);
            }
        }
    };
    tokio::join!(call_for(&vendor, &limits, 5 * PER), moving);
    println!("cluster: {} of {} used while slots moved", vendor.count(), 5 * LIMIT);
    assert_eq!(vendor.breach(), None);
    assert!(vendor.count() >= 5 * LIMIT * USED_PERCENT / 100, "{} of {}", vendor.count(), 5 * LIMIT);
    east.stop().await;
    west.stop().await;
}

/// What was charged in the last second is lost with the master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_behind_takes_over_from_one_master() {
    let mut cluster = Cluster::start(NEVER).await;
    let place = cluster.place(&key(&cell_of("vendor", None)));
    let replica = cluster.join(Some(place)).await;
    let store = store(&cluster, "lessor");
    let (east, west) = (store.allocator("east").await, store.allocator("west").await);
    let clients = [east.client("a").await, west.client("b").await];
    let limits = clients.each_ref().map(|client| client.limit("vendor"));
    let vendor = Vendor::new(LIMIT, PER);
    call_for(&vendor, &limits, PER).await.expect("it lends");
    let master = &cluster.nodes()[place].server;
    replica.stop();
    assert_eq!(master.tell("CLIENT KILL TYPE replica"), ":1");
    call_for(&vendor, &limits, PER).await.expect("it lends");
    master.kill();
    replica.go_on();
    let taken = CLOCK.now();
    assert_eq!(replica.tell("CLUSTER FAILOVER TAKEOVER"), "+OK");
    // What was lent before is used up within a lease.
    call_for(&vendor, &limits, OVER).await;
    let over = CLOCK.now();
    let first = call_for(&vendor, &limits, 6 * PER).await.expect("it goes on");
    println!("cluster: a replica took over that was behind, a call {:?} after that", first.since(taken));
    assert_eq!(vendor.breach(), None);
    let lent = vendor.count_after(taken + Duration::from_millis(2_100)) - vendor.count_after(over);
    assert_eq!(lent, 0, "nothing is lent before all that may be out is over");
    east.stop().await;
    west.stop().await;
}

/// The other masters find out that it is gone, and elect its replica. Allocators are told nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_killed_is_replaced_by_the_cluster_itself() {
    let mut cluster = Cluster::start(Duration::from_secs(1)).await;
    let place = cluster.place(&key(HEAD));
    let replica = cluster.join(Some(place)).await;
    let store = store(&cluster, "lessor");
    let (east, west) = (store.allocator("east").await, store.allocator("west").await);
    let clients = [east.client("a").await, west.client("b").await];
    let limits = clients.each_ref().map(|client| client.limit("vendor"));
    let vendor = Vendor::new(LIMIT, PER);
    call_for(&vendor, &limits, PER).await.expect("it lends");
    cluster.nodes()[place].server.kill();
    let killed = CLOCK.now();
    let is_elected = async || replica.tell("INFO replication").contains("role:master").then_some(());
    tokio::join!(call_for(&vendor, &limits, 2 * PER), eventually("it is elected", is_elected));
    let elected = CLOCK.now();
    let first = call_for(&vendor, &limits, 8 * PER).await.expect("it goes on");
    let (took, again) = (elected.since(killed), first.since(elected));
    println!("cluster: a killed master was replaced within {took:?}, a call {again:?} after that");
    assert_eq!(vendor.breach(), None);
    east.stop().await;
    west.stop().await;
}
