//! Allocators that share a cluster: slots move, and replicas take over from masters.

use super::alone::two_use_all_of;
use super::{CLOCK, LIMIT, PER, Store, USED_PERCENT};
use lessor_ledger::roots::{HEAD, cell_of};
use scenarios::cluster::Cluster;
use scenarios::fleet::eventually;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

const NEVER: Duration = Duration::from_secs(60);

/// By then the longest lease is over, and the time that is added for allocators that find a loss later than others.
const OVER: Duration = Duration::from_millis(3_250);

fn store(cluster: &Cluster, prefix: &str) -> Store {
    let [server, others @ ..] = cluster.nodes() else { panic!("a cluster has nodes") };
    let others = others.iter().map(|node| Arc::clone(&node.server)).collect();
    Store { server: Arc::clone(&server.server), others, url: cluster.url(), prefix: prefix.to_owned() }
}

fn key(name: &str) -> String {
    format!("lessor:{{{name}}}")
}

pub(super) async fn two_use_all_there_is_and_no_more() {
    let cluster = Cluster::shared().await;
    two_use_all_of(&store(&cluster, "two"), "cluster").await;
}

/// The slots of the root and of the head move through all masters. Nothing is lost, so nothing is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_are_lent_by_all_the_while() {
    let cluster = Cluster::start(NEVER).await;
    let two = store(&cluster, "lessor").two().await;
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
                cluster.finish_move(slot, from, to);
            }
        }
    };
    tokio::join!(two.call_for(5 * PER), moving);
    println!("cluster: {} of {} used while slots moved", two.vendor.count(), 5 * LIMIT);
    assert!(two.vendor.count() >= 5 * LIMIT * USED_PERCENT / 100, "{} of {}", two.vendor.count(), 5 * LIMIT);
    two.stop().await;
}

/// What was charged in the last second is lost with the master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_behind_takes_over_from_one_master() {
    let mut cluster = Cluster::start(NEVER).await;
    let place = cluster.place(&key(&cell_of("vendor", None)));
    let replica = cluster.join(Some(place)).await;
    let two = store(&cluster, "lessor").two().await;
    two.call_for(PER).await.expect("the allocator lends");
    let master = &cluster.nodes()[place].server;
    replica.stop();
    assert_eq!(master.tell("CLIENT KILL TYPE replica"), ":1");
    two.call_for(PER).await.expect("the allocator lends");
    master.kill();
    replica.go_on();
    let taken = CLOCK.now();
    assert_eq!(replica.tell("CLUSTER FAILOVER TAKEOVER"), "+OK");
    // Permits lent before are used up within a lease.
    two.call_for(OVER).await;
    let over = CLOCK.now();
    let first = two.call_for(6 * PER).await.expect("a call is admitted");
    println!("cluster: a replica took over that was behind, a call {:?} after that", first.since(taken));
    let lent = two.vendor.count_after(taken + Duration::from_millis(2_100)) - two.vendor.count_after(over);
    assert_eq!(lent, 0, "permits were lent before all earlier leases had ended");
    two.stop().await;
}

/// The other masters find out that a master is gone, and elect its replica. Allocators are told nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_killed_is_replaced_by_the_cluster_itself() {
    let mut cluster = Cluster::start(Duration::from_secs(1)).await;
    let place = cluster.place(&key(HEAD));
    let replica = cluster.join(Some(place)).await;
    let two = store(&cluster, "lessor").two().await;
    two.call_for(PER).await.expect("the allocator lends");
    cluster.nodes()[place].server.kill();
    let killed = CLOCK.now();
    let is_elected = async || replica.tell("INFO replication").contains("role:master").then_some(());
    tokio::join!(two.call_for(2 * PER), eventually("the replica is elected", is_elected));
    let elected = CLOCK.now();
    let first = two.call_for(8 * PER).await.expect("a call is admitted");
    let (took, again) = (elected.since(killed), first.since(elected));
    println!("cluster: a killed master was replaced within {took:?}, a call {again:?} after that");
    two.stop().await;
}
