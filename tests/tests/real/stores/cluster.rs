//! Behaviours of a Redis cluster only: masters that are gone, slow, replaced or started again, and slots that move.

use super::trouble::wait_for;
use super::{Store, cell, count_in, prefix, swap};
use lessor_allocator::cells::{Cell, Cells, CellsConfig, CellsError, StoreKind, Swap, Swapped, Timeline};
use lessor_protocol::CLOCK;
use scenarios::cluster::Cluster;
use scenarios::servers::Server;
use scenarios::wire::Wire;
use std::sync::Arc;
use std::time::Duration;

/// So long that no server is taken for gone while a test runs.
const NEVER: Duration = Duration::from_secs(60);

fn make(name: &str, version: u64) -> Swap {
    swap(name, None, Some(cell(version, "made")))
}

/// Starts a cluster. Returns it with a store in it, and the name of a cell on each of the three masters.
async fn own() -> (Cluster, Store, [String; 3]) {
    let cluster = Cluster::start(NEVER).await;
    let store = Store::on_cluster(&cluster);
    let prefix = store.config.clone().expect("a configuration").prefix;
    let names = [0, 1, 2].map(|place| cluster.name_at(place, &prefix));
    (cluster, store, names)
}

fn config(store: &Store) -> CellsConfig {
    store.config.clone().expect("a configuration")
}

fn key(store: &Store, name: &str) -> String {
    format!("{}:{{{name}}}", config(store).prefix)
}

fn text<T: std::fmt::Debug>(outcome: Result<T, CellsError>) -> String {
    match outcome.expect_err("an error") {
        CellsError::Unreachable(text) => text,
        CellsError::Unfit(text) => format!("unfit: {text}"),
        other @ (CellsError::Moved { .. } | CellsError::NotDurable(_) | CellsError::Invalid(_)) => {
            panic!("{other:?}")
        }
    }
}

/// A slot moves while one key is still here, one is there already, and one is yet to be made. Then the whole slot has
/// moved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_is_followed_on_its_way_and_the_timeline_stays() {
    let (cluster, mut store, [name, ..]) = own().await;
    let slot = cluster.slot(&key(&store, &name));
    // The part of a name up to a brace decides its slot.
    let (gone, new) = (format!("{name}}}gone"), format!("{name}}}new"));
    assert_eq!([&gone, &new].map(|same| cluster.slot(&key(&store, same))), [slot; 2]);
    assert_eq!(store.try_swap(&[make(&name, 1), make(&gone, 2)]).await, Ok(vec![Swapped::Done; 2]));
    let timeline = store.timeline().await;
    cluster.begin_to_move(slot, 0, 1);
    cluster.move_key(&key(&store, &gone), 0, 1);
    let found = store.load_all(&[&name, &gone, &new]).await;
    assert_eq!(found, [Some(cell(1, "made")), Some(cell(2, "made")), None]);
    let all = [
        swap(&name, Some(1), Some(cell(3, "here"))),
        swap(&gone, Some(2), Some(cell(4, "there"))),
        make(&new, 5),
    ];
    assert_eq!(store.cells.swap(&timeline, &all).await, Ok(vec![Swapped::Done; 3]));
    let there = cluster.nodes()[1].server.tell(&format!("CLUSTER COUNTKEYSINSLOT {slot}"));
    assert_eq!(there, ":2", "cells of the slot at the new master");
    cluster.move_key(&key(&store, &name), 0, 1);
    cluster.finish_move(slot, 0, 1);
    // A handle that knew where the slot was follows it, and so does one that never did.
    let next = [swap(&name, Some(3), Some(cell(6, "again"))), swap(&new, Some(5), None)];
    assert_eq!(store.cells.swap(&timeline, &next).await, Ok(vec![Swapped::Done; 2]));
    let mut other = Cells::connect(&config(&store)).await.expect("the store is there");
    let (on, found) = other.load(&[name, gone, new]).await.expect("the store is there");
    assert_eq!((on, found), (timeline, vec![Some(cell(6, "again")), Some(cell(4, "there")), None]));
}

/// A master lost a cell and redirects callers to another master, with `ASK` and then with `MOVED`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_lost_a_cell_is_noticed_though_its_slot_moves() {
    let (cluster, mut store, [name, ..]) = own().await;
    let slot = cluster.slot(&key(&store, &name));
    assert_eq!(store.swap(make(&name, 1)).await, Swapped::Done);
    let timeline = store.timeline().await;
    let mut other = store.cells.another();
    cluster.begin_to_move(slot, 0, 1);
    // The master still knows that the slot is moving, and has lost its cells.
    cluster.nodes()[0].start_again();
    cluster.wait_until_whole().await;
    let moved = store.cells.swap(&timeline, &[make(&name, 2)]).await;
    let Err(CellsError::Moved { found }) = moved else { panic!("{moved:?}") };
    assert_ne!(found, timeline);
    cluster.finish_move(slot, 0, 1);
    assert_eq!(
        other.swap(&timeline, &[make(&name, 2)]).await,
        Err(CellsError::Moved { found: found.clone() })
    );
    assert_eq!(other.load(std::slice::from_ref(&name)).await, Ok((found, vec![None])));
}

/// Several handles count in a cell of a slot that moves through all masters meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_while_many_count_in_it_loses_nothing() {
    const ROUNDS: usize = 15;
    let (cluster, mut store, [name, ..]) = own().await;
    let slot = cluster.slot(&key(&store, &name));
    let timeline = store.timeline().await;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let counting = (0..3_u64).map(|seed| {
        let (mut cells, timeline, name) = (store.cells.another(), timeline.clone(), name.clone());
        let stopped = stopped.clone();
        tokio::spawn(async move {
            let mut dice = fastrand::Rng::with_seed(seed);
            let (mut there, mut counted) = (None::<Cell>, 0_u64);
            while !*stopped.borrow() {
                let count = there.as_ref().map_or(0, count_in);
                let next = cell(dice.u64(..), (count + 1).to_be_bytes());
                let expected = there.as_ref().map(|cell| cell.version);
                let asked = [swap(&name, expected, Some(next.clone()))];
                match cells.swap(&timeline, &asked).await.expect("the client follows the move").remove(0) {
                    Swapped::Done => (there, counted) = (Some(next), counted + 1),
                    Swapped::Other(other) => there = other,
                }
            }
            counted
        })
    });
    let counting: Vec<_> = counting.collect();
    let all =
        async || store.cells.another().load(std::slice::from_ref(&name)).await.expect("the store is there").1;
    for round in 0..ROUNDS {
        let (from, to) = (round % 3, (round + 1) % 3);
        let before = all().await.remove(0).as_ref().map_or(0, count_in);
        let goes_on = async || {
            wait_for(async || all().await.remove(0), |cell| count_in(cell) > before).await;
        };
        goes_on().await;
        cluster.begin_to_move(slot, from, to);
        cluster.move_key(&key(&store, &name), from, to);
        goes_on().await;
        cluster.finish_move(slot, from, to);
    }
    stop.send_replace(true);
    let mut counted = 0;
    for counting in counting {
        counted += counting.await.expect("no panic");
    }
    let found = all().await.remove(0).expect("the cell was made");
    println!("{counted} counted while a slot moved {ROUNDS} times");
    assert_eq!(count_in(&found), counted);
    assert_eq!(store.timeline().await, timeline);
}

/// A master that had no slot is not in the timeline. Nothing is done there until there is another timeline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_comes_to_a_new_master_makes_another_timeline() {
    let (mut cluster, mut store, [name, other, _]) = own().await;
    let slot = cluster.slot(&key(&store, &name));
    assert_eq!(store.swap(make(&name, 1)).await, Swapped::Done);
    let timeline = store.timeline().await;
    let new = cluster.join(None).await;
    assert_eq!(store.timeline().await, timeline, "a master without slots changes no timeline");
    cluster.begin_to_move(slot, 0, 3);
    cluster.move_key(&key(&store, &name), 0, 3);
    let next = [swap(&name, Some(1), Some(cell(2, "two")))];
    for outcome in [
        text(store.cells.swap(&timeline, &next).await),
        text(store.cells.load(std::slice::from_ref(&name)).await),
    ] {
        assert!(outcome.contains(&new.address().to_string()) && outcome.contains("none yet"), "{outcome}");
    }
    cluster.finish_move(slot, 0, 3);
    // A swap on other masters only does not notice it.
    assert_eq!(store.cells.another().swap(&timeline, &[make(&other, 1)]).await, Ok(vec![Swapped::Done]));
    let moved = store.cells.swap(&timeline, &next).await;
    let Err(CellsError::Moved { found }) = moved else { panic!("{moved:?}") };
    assert_ne!(found, timeline);
    assert_eq!(store.cells.swap(&found, &next).await, Ok(vec![Swapped::Done]));
    assert_eq!(store.timeline().await, found);
}

/// The master writes what its replica never receives, and is replaced by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_takes_over_makes_another_timeline_for_all_cells() {
    let (mut cluster, mut store, [name, other, _]) = own().await;
    let replica = cluster.join(Some(0)).await;
    let master = Arc::clone(&cluster.nodes()[0].server);
    let mut durable = config(&store);
    durable.replicas = 1;
    let mut durable = Cells::connect(&durable).await.expect("the store is there");
    let timeline = durable.timeline().await.expect("the store is there");
    assert_eq!(durable.swap(&timeline, &[make(&name, 1)]).await, Ok(vec![Swapped::Done]));
    // The other masters have no replica, so what they do may be undone.
    let alone = durable.swap(&timeline, &[make(&other, 1)]).await;
    let server = cluster.nodes()[1].server.address();
    assert_eq!(alone, Err(CellsError::NotDurable(format!("{server}: it is on 0 replicas, of 1"))));
    // This handle has asked for the time before. The timeline decides which clock that is.
    let mut timed = store.cells.another();
    assert_eq!(timed.timeline().await, Ok(timeline.clone()));
    timed.time().await.expect("the store is there");
    // From here on the replica receives nothing.
    replica.stop();
    assert_eq!(master.tell("CLIENT KILL TYPE replica"), ":1");
    assert_eq!(store.try_swap(&[swap(&name, Some(1), Some(cell(2, "lost")))]).await, Ok(vec![Swapped::Done]));
    master.kill();
    replica.go_on();
    wait_for(async || Some(replica.tell("CLUSTER FAILOVER TAKEOVER")), |said| said == "+OK").await;
    wait_for(async || Some(replica.tell("INFO replication")), |info| info.contains("role:master")).await;
    // A swap on other masters only goes on with the known timeline, and loses nothing.
    let goes_on = swap(&other, Some(1), Some(cell(2, "kept")));
    assert_eq!(timed.another().swap(&timeline, &[goes_on]).await, Ok(vec![Swapped::Done]));
    let next = [swap(&name, Some(2), Some(cell(3, "three")))];
    let moved = until_moved(&mut store.cells, &timeline, &next).await;
    assert_ne!(moved, timeline);
    let there = Swapped::Other(Some(cell(1, "made")));
    assert_eq!(
        store.cells.swap(&moved, &next).await,
        Ok(vec![there]),
        "the swap shows the cell that is there"
    );
    assert_eq!(store.load(&other).await, Some(cell(2, "kept")));
    // All handles that look see the same timeline, and learn of it before they are told another time.
    let (on, _) = timed.load(std::slice::from_ref(&other)).await.expect("the store is there");
    assert_eq!(on, moved);
    assert_eq!(
        Cells::connect(&config(&store)).await.expect("the store is there").timeline().await,
        Ok(moved)
    );
}

/// Swaps until the timeline has moved, and returns the new one. The first call after the change may find that the
/// master is gone.
async fn until_moved(cells: &mut Cells, timeline: &Timeline, swaps: &[Swap]) -> Timeline {
    for _ in 0..200 {
        match cells.swap(timeline, swaps).await {
            Err(CellsError::Moved { found }) => return found,
            Err(CellsError::Unreachable(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
            other => panic!("{other:?}"),
        }
    }
    panic!("the timeline never changes")
}

/// The time is that of one master. The time of another master is not told before the new timeline is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_is_that_of_one_master_until_the_timeline_is_another_one() {
    let (cluster, mut store, _) = own().await;
    let before = store.timeline().await;
    store.cells.time().await.expect("the store is there");
    let id = |server: &Server| {
        let info = server.tell("INFO replication");
        info.lines()
            .find_map(|line| line.strip_prefix("master_replid:"))
            .expect("the server has a replication id")
            .to_owned()
    };
    let clock =
        cluster.nodes().iter().min_by_key(|node| id(&node.server)).expect("the cluster has three masters");
    clock.server.kill();
    let gone = text(store.cells.time().await);
    assert!(gone.contains(&clock.server.address().to_string()), "{gone}");
    clock.start_again();
    cluster.wait_until_whole().await;
    let moved = store.cells.time().await;
    let Err(CellsError::Moved { found }) = moved else { panic!("{moved:?}") };
    assert_ne!(found, before);
    store.cells.time().await.expect("the store is there");
    assert_eq!(store.timeline().await, found);
}

/// One master is stopped, killed, and started again. The cells of the others go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_one_master_is_gone_the_cells_of_the_others_go_on() {
    let (cluster, mut store, [name, other, third]) = own().await;
    let mut patient = config(&store);
    patient.timeout = Duration::from_secs(1);
    store.cells = Cells::connect(&patient).await.expect("the store is there");
    let timeline = store.timeline().await;
    let made = store.try_swap(&[make(&name, 1), make(&other, 1), make(&third, 1)]).await;
    assert_eq!(made, Ok(vec![Swapped::Done; 3]));
    let (node, mut version) = (&cluster.nodes()[0], 1);
    let mut others_go_on = async |cells: &mut Cells, within: Duration| {
        let begun = CLOCK.now();
        let next = cell(version + 1, "next");
        let both = [&other, &third].map(|name| swap(name, Some(version), Some(next.clone())));
        assert_eq!(cells.swap(&timeline, &both).await, Ok(vec![Swapped::Done; 2]));
        let found = cells.load(&[other.clone(), third.clone()]).await.expect("the store is there");
        assert_eq!(found, (timeline.clone(), vec![Some(next.clone()), Some(next)]));
        let took = CLOCK.now().since(begun);
        assert!(took < within, "{took:?}");
        version += 1;
    };
    let server = node.server.address().to_string();
    let asked = [swap(&name, Some(1), Some(cell(2, "two")))];
    node.server.stop();
    // The handle does not know yet that the master is stopped.
    others_go_on(&mut store.cells, Duration::from_millis(900)).await;
    for _ in 0..2 {
        let late = text(store.cells.swap(&timeline, &asked).await);
        assert!(late.contains(&server) && late.contains("1s"), "{late}");
        others_go_on(&mut store.cells, Duration::from_millis(900)).await;
    }
    node.server.go_on();
    let mut there = store.load(&name).await.expect("the cell was made").version;
    assert!([1, 2].contains(&there), "an unanswered swap may be done or not: version {there}");
    node.server.kill();
    for _ in 0..3 {
        let gone = text(store.cells.swap(&timeline, &[swap(&name, Some(there), None)]).await);
        assert!(gone.contains(&server), "{gone}");
        let gone = text(store.cells.load(std::slice::from_ref(&name)).await);
        assert!(gone.contains(&server), "{gone}");
        others_go_on(&mut store.cells, Duration::from_millis(900)).await;
    }
    // If a batch was for all masters, the error does not tell what the others did.
    let all = text(store.cells.swap(&timeline, &[make(&name, 7), make("more", 1)]).await);
    assert!(all.contains(&server), "{all}");
    // A new allocator cannot know the timeline while a master does not answer.
    let blind = text(Cells::connect(&patient).await);
    assert!(blind.contains(&server), "{blind}");
    node.start_again();
    cluster.wait_until_whole().await;
    let moved = until_moved(&mut store.cells, &timeline, &[swap(&name, Some(there), None)]).await;
    assert_ne!(moved, timeline, "a replaced master may have lost cells, so the timeline changes");
    there = 9;
    assert_eq!(store.cells.swap(&moved, &[make(&name, there)]).await, Ok(vec![Swapped::Done]));
    // A handle that used only the other masters learns of the new timeline when it looks.
    assert_eq!(store.timeline().await, moved);
}

/// If the answer of one master is lost, it is unknown what any master did, although the others have answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_one_master_that_is_lost_says_nothing_of_what_was_done() {
    let (cluster, mut store, names) = own().await;
    // From here on clients are told to go through the wires.
    let mut wires = vec![];
    for node in cluster.nodes() {
        let wire = Wire::to(node.server.address()).await;
        let told = format!("CONFIG SET cluster-announce-port {}", wire.address().port());
        assert_eq!(node.server.tell(&told), "+OK");
        wires.push(wire);
    }
    let all_know =
        |slots: &Vec<String>| slots.iter().all(|known| wires.iter().all(|wire| known.contains(&port(wire))));
    let nodes = async || Some(cluster.nodes().iter().map(|node| node.server.tell("CLUSTER NODES")).collect());
    wait_for(nodes, all_know).await;
    store.cells = Cells::connect(&config(&store)).await.expect("the store is there");
    let timeline = store.timeline().await;
    for round in 0..9 {
        let wire = &wires[round % 3];
        let names = names.each_ref().map(|name| format!("{name}}}{round}"));
        wire.lose_an_answer();
        let lost = text(store.cells.swap(&timeline, &names.each_ref().map(|name| make(name, 1))).await);
        assert!(lost.contains(&port(wire)), "{lost}");
        // All masters received the batch and did it.
        let found = store.cells.load(&names).await.expect("the store is there");
        assert_eq!(found, (timeline.clone(), vec![Some(cell(1, "made")); 3]));
        let next = names.each_ref().map(|name| swap(name, Some(1), Some(cell(2, "next"))));
        assert_eq!(store.cells.swap(&timeline, &next).await, Ok(vec![Swapped::Done; 3]));
    }
}

fn port(wire: &Wire) -> String {
    format!("127.0.0.1:{}", wire.address().port())
}

/// Any hosts of the URL may be gone or silent. Masters that the URL does not name are found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_is_down_is_passed_over() {
    let (shared, closed) =
        (Cluster::shared().await, std::net::TcpListener::bind("127.0.0.1:0").expect("a port"));
    // This host accepts connections and answers none.
    let silent = closed.local_addr().expect("the listener is bound");
    let gone = std::net::TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a port");
    let good = shared.nodes()[1].server.address();
    let url = shared.url_by(&format!("{gone},{silent},{good}"));
    let config = CellsConfig { url: url.parse().expect("a URL"), ..shared.config(&prefix()) };
    let mut cells = Cells::connect(&config).await.expect("the last one is there");
    let timeline = cells.timeline().await.expect("the store is there");
    let batch: Vec<Swap> = (0..30).map(|n| make(&format!("{n}"), n)).collect();
    assert_eq!(cells.swap(&timeline, &batch).await, Ok(vec![Swapped::Done; 30]));
    let url = shared.url_by(&format!("{gone},{gone}"));
    let none = text(Cells::connect(&CellsConfig { url: url.parse().expect("a URL"), ..config }).await);
    assert!(none.contains(&gone.to_string()), "{none}");
}

/// The URL must say whether the server is in a cluster, or the server is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_url_that_says_otherwise_than_the_server_is_refused() {
    let cluster = Cluster::shared().await;
    let server = tokio::task::block_in_place(|| Server::shared(StoreKind::Redis));
    for (url, is) in [
        (format!("{}?cluster=true", server.url()), "cluster_enabled is \"0\""),
        (cluster.nodes()[0].server.url(), "cluster_enabled is \"1\""),
    ] {
        let config = CellsConfig { url: url.parse().expect("a URL"), ..cluster.config(&prefix()) };
        let refused = text(Cells::connect(&config).await);
        assert!(refused.starts_with("unfit: ") && refused.contains(is), "{refused}");
    }
}

/// The rights that docs/stores.md names are enough for a user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_do_what_is_needed_can_do_all() {
    let cluster = Cluster::shared().await;
    let mut config = cluster.config(&prefix());
    let may = "+@connection +info +time +evalsha +script|load +getrange +set +del +wait +cluster|slots";
    for node in &cluster.nodes()[..3] {
        let made =
            node.server.tell(&format!("ACL SETUSER narrow reset on >narrow ~{}:* {may}", config.prefix));
        assert_eq!(made, "+OK");
    }
    let url = cluster.url().replace(&format!(":{}@", cluster.nodes()[0].server.password()), "narrow:narrow@");
    config.url = url.parse().expect("a URL");
    let mut cells = Cells::connect(&config).await.expect("the user has the rights");
    let timeline = cells.timeline().await.expect("the user has the rights");
    cells.time().await.expect("the user has the rights");
    let batch: Vec<Swap> = (0..30).map(|n| make(&format!("{n}"), n)).collect();
    assert_eq!(cells.swap(&timeline, &batch).await, Ok(vec![Swapped::Done; 30]));
    config.replicas = 1;
    let mut cells = Cells::connect(&config).await.expect("the user has the rights");
    let alone = cells.swap(&timeline, &[make("more", 1)]).await;
    assert!(matches!(&alone, Err(CellsError::NotDurable(text)) if text.contains("of 1")), "{alone:?}");
}

/// A batch with keys on several servers goes to all of them. A slot that no server has is reported.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_no_server_has_is_told() {
    let (cluster, mut store, [name, other, _]) = own().await;
    assert_eq!(store.try_swap(&[make(&name, 1), make(&other, 1)]).await, Ok(vec![Swapped::Done; 2]));
    let timeline = store.timeline().await;
    let slot = cluster.slot(&key(&store, &name));
    for node in cluster.nodes() {
        assert_eq!(node.server.tell(&format!("CLUSTER DELSLOTS {slot}")), "+OK");
    }
    let asked = [swap(&name, Some(1), None)];
    let gone = text(store.cells.swap(&timeline, &asked).await);
    let server = cluster.nodes()[0].server.address().to_string();
    assert!(gone.contains("CLUSTERDOWN") && gone.contains(&server), "{gone}");
    let gone = text(store.cells.swap(&timeline, &asked).await);
    assert!(gone.contains(&format!("slot {slot}")), "{gone}");
    assert_eq!(store.cells.swap(&timeline, &[swap(&other, Some(1), None)]).await, Ok(vec![Swapped::Done]));
}
