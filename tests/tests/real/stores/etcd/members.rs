//! Members of an etcd that are killed or stopped, that lose an answer, or that belong to another cluster.

use super::{base64, config, config_of, own};
use crate::stores::trouble::wait_for;
use crate::stores::{cell, count_in, swap};
use lessor_allocator::cells::{Cell, Cells, CellsConfig, CellsError, Swapped, Timeline};
use lessor_protocol::Clock;
use scenarios::etcd::Etcd;
use scenarios::fleet::eventually;
use scenarios::wire::Wire;
use std::time::Duration;

/// Returns cells that wait for an answer for `timeout`. Members that have just started may take longer for the first answers.
async fn connected(etcd: &Etcd, timeout: Duration) -> Cells {
    let config = config(etcd, timeout);
    eventually("the store is there", async || Cells::connect(&config).await.ok()).await
}

async fn timeline_of(cells: &mut Cells) -> Timeline {
    eventually("the store is there", async || cells.timeline().await.ok()).await
}

/// Counts in one cell with a swap each 10 ms for `lasts`, and goes on after each error from what is there. Returns how
/// many swaps were done, and the longest time without one.
async fn count(cells: &mut Cells, timeline: &Timeline, lasts: Duration, seed: u64) -> (u64, Duration) {
    let clock = Clock::since_boot();
    let (begun, mut last, mut longest) = (clock.now(), clock.now(), Duration::ZERO);
    let (mut there, mut done): (Option<Cell>, u64) = (None, 0);
    let mut dice = fastrand::Rng::with_seed(seed);
    while clock.now().since(begun) < lasts {
        let count = there.as_ref().map_or(0, count_in);
        let next = cell(dice.u64(..), (count + 1).to_be_bytes());
        let expected = there.as_ref().map(|cell| cell.version);
        match cells.swap(timeline, &[swap("count", expected, Some(next.clone()))]).await {
            Ok(swapped) => match swapped.into_iter().next().expect("one") {
                Swapped::Done => {
                    (there, done) = (Some(next), done + 1);
                    longest = longest.max(clock.now().since(last));
                    last = clock.now();
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Swapped::Other(other) => there = other,
            },
            Err(CellsError::Unreachable(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    longest = longest.max(clock.now().since(last));
    // A swap that ended in an error may have been done, which the next swap has found. So the count is at least `done`.
    let names = ["count".to_owned()];
    let (_, mut found) = eventually("the store is there", async || cells.load(&names).await.ok()).await;
    let found = found.remove(0).expect("the cell was made");
    assert!(count_in(&found) >= done, "{} of {done}", count_in(&found));
    (done, longest)
}

/// A leader is killed, and later another one. After a pause, all that was done is there, on the same timeline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_costs_a_pause_and_nothing_else() {
    let etcd = Etcd::start(&[]);
    let mut cells = connected(&etcd, Duration::from_millis(500)).await;
    let timeline = timeline_of(&mut cells).await;
    for seed in 0..2 {
        let leader = etcd.leader();
        let kill = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            etcd.members()[leader].kill();
        };
        let ((done, longest), ()) =
            tokio::join!(count(&mut cells, &timeline, Duration::from_secs(5), seed), kill);
        println!("the leader was killed: {done} swaps, none for {longest:?}");
        assert!(done > 10 && longest < Duration::from_secs(4), "{done} {longest:?}");
        assert_eq!(timeline_of(&mut cells).await, timeline);
        tokio::task::block_in_place(|| etcd.members()[leader].start_again(&[]));
    }
}

/// A stopped leader is not waited for, nor believed when it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_stopped_costs_a_pause_and_nothing_else() {
    let etcd = Etcd::start(&[]);
    let mut cells = connected(&etcd, Duration::from_millis(500)).await;
    let timeline = timeline_of(&mut cells).await;
    let leader = &etcd.members()[etcd.leader()];
    let stop = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        leader.stop();
        tokio::time::sleep(Duration::from_secs(4)).await;
        leader.go_on();
    };
    let ((done, longest), ()) = tokio::join!(count(&mut cells, &timeline, Duration::from_secs(6), 7), stop);
    println!("the leader was stopped: {done} swaps, none for {longest:?}");
    assert!(done > 10 && longest < Duration::from_secs(4), "{done} {longest:?}");
    assert_eq!(timeline_of(&mut cells).await, timeline);
}

/// Without a majority of its members an etcd does nothing, and says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_nothing_is_done() {
    let etcd = Etcd::start(&[]);
    let mut cells = connected(&etcd, Duration::from_secs(1)).await;
    let timeline = timeline_of(&mut cells).await;
    let made = [swap("a", None, Some(cell(1, "one")))];
    assert_eq!(cells.swap(&timeline, &made).await, Ok(vec![Swapped::Done]));
    etcd.members()[0].kill();
    etcd.members()[1].kill();
    for _ in 0..3 {
        let loaded = cells.load(&["a".to_owned()]).await;
        assert!(matches!(loaded, Err(CellsError::Unreachable(_))), "{loaded:?}");
        let swapped = cells.swap(&timeline, &[swap("a", Some(1), None)]).await;
        assert!(matches!(swapped, Err(CellsError::Unreachable(_))), "{swapped:?}");
    }
}

/// This holds even with other members in the URL that could be asked instead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swap_whose_answer_is_lost_is_not_sent_again() {
    let etcd = Etcd::start(&[]);
    let [first, second, third] = etcd.members() else { panic!("three") };
    let wire = Wire::to(first.address()).await;
    let hosts = format!("{},{},{}", wire.address(), second.address(), third.address());
    let config = config_of(&etcd.config("test"), &etcd.url_by(&hosts));
    for round in 0..6_u64 {
        let mut cells = Cells::connect(&config).await.expect("the store is there");
        let timeline = cells.timeline().await.expect("the store is there");
        let name = format!("cell {round}");
        wire.lose_an_answer();
        let lost = cells.swap(&timeline, &[swap(&name, None, Some(cell(1, "one")))]).await;
        assert!(matches!(lost, Err(CellsError::Unreachable(_))), "{lost:?}");
        // The next member is asked at once, and knows what was done.
        let again = cells.swap(&timeline, &[swap(&name, None, Some(cell(2, "two")))]).await;
        assert_eq!(again, Ok(vec![Swapped::Other(Some(cell(1, "one")))]));
    }
}

/// Two clusters in one URL are refused. If one was down at first, it is later found on another timeline, and nothing is
/// done there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_of_another_cluster_is_not_taken_for_one() {
    let (mine, strange) = (own().await, own().await);
    let (here, there) = (mine.server(), strange.server());
    for server in [&here, &there] {
        server.tell(r#"/v3/auth/user/add {"name":"both","password":"both"}"#);
        server.tell(r#"/v3/auth/user/grant {"user":"both","role":"root"}"#);
    }
    let both = |wire: &Wire| {
        let url = format!("etcd://both:both@{},{}", here.address(), wire.address());
        CellsConfig { timeout: Duration::from_secs(2), ..config_of(mine.config.as_ref().expect("one"), &url) }
    };
    let wire = Wire::to(there.address()).await;
    let error = Cells::connect(&both(&wire)).await.expect_err("two clusters in one URL").to_string();
    assert!(error.contains("store.url names two clusters"), "{error}");
    let (one, other) = (here.address().to_string(), wire.address().to_string());
    assert!(error.contains(&one) && error.contains(&other), "{error}");
    wire.cut();
    let config = both(&wire);
    let mut cells = Cells::connect(&config).await.expect("the other one does not answer");
    let timeline = cells.timeline().await.expect("the store is there");
    wire.mend();
    here.kill();
    let made = [swap("a", None, Some(cell(1, "one")))];
    // The first call may still use a connection that it does not know to be closed.
    let swapped = async || cells.swap(&timeline, &made).await.err();
    wait_for(swapped, |error| matches!(error, CellsError::Moved { found } if *found != timeline)).await;
    let prefix = config.prefix;
    let key = base64(&format!("{prefix}/a"));
    assert!(!there.tell(&format!("/v3/kv/range {{\"key\":\"{key}\"}}")).contains("kvs"));
}
