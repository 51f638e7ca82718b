//! All faults at once: several nodes, each behind a network whose fault changes every few hundred milliseconds, by a
//! seed. The seed determines which fault comes when. Over real sockets it does not determine which permit goes where.

use super::*;
use scenarios::proxy::fault::Fault;

/// Length of a storm: five windows of the contract.
const STORM: Duration = Duration::from_millis(7_500);

/// How long a fault lasts, in milliseconds: from less than a lease to more than some exchanges may take.
const SPELL: std::ops::RangeInclusive<u64> = 20..=400;

/// Longest delay: many times a term, and more than some of the clients wait.
const LONGEST: Duration = Duration::from_millis(300);

/// How long the exchanges of each client may take. Half of the clients give up before a delayed answer comes.
const TIMEOUTS: [Option<Duration>; 4] =
    [None, Some(Duration::from_millis(150)), None, Some(Duration::from_millis(250))];

/// Sets another fault for `node` again and again, until it is aborted.
async fn rage(node: Arc<Node>, mut dice: fastrand::Rng) {
    loop {
        node.proxy.set(Fault::draw(&mut dice, LONGEST));
        sleep(Duration::from_millis(dice.u64(SPELL))).await;
    }
}

/// Waits for one permit after another, until it is aborted.
async fn queue(node: Arc<Node>, vendor: Arc<Vendor>) {
    loop {
        vendor.wait(&node.limit, LONGEST).await;
        sleep(CALL_EVERY).await;
    }
}

async fn storm(seed: u64) {
    println!("storm {seed}");
    let allocator = Allocator::start().await;
    let vendor = vendor();
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut nodes = vec![];
    let mut tasks = vec![];
    for (i, timeout) in TIMEOUTS.into_iter().enumerate() {
        let node = Node::with_timeout(&allocator, &format!("node-{i}"), "vendor", timeout).await;
        let node = Arc::new(node);
        tasks.push(node.drive(&vendor));
        tasks.push(tokio::spawn(queue(node.clone(), vendor.clone())));
        tasks.push(tokio::spawn(rage(node.clone(), dice.fork())));
        nodes.push(node);
    }
    sleep(STORM).await;
    for task in tasks {
        task.abort();
        assert!(task.await.is_err_and(|error| error.is_cancelled()), "no task panics");
    }
    let in_the_storm = vendor.count();
    println!("{in_the_storm} calls in the storm");
    assert!(in_the_storm > LIMIT, "{in_the_storm} calls in five windows: the storm let nothing through");
    for node in &nodes {
        node.proxy.set(Fault::None);
        node.recover(&vendor).await;
    }
    let nodes = nodes
        .into_iter()
        .map(|node| Arc::into_inner(node).expect("all tasks of the node are over"))
        .collect();
    let (spent, burned) = wind_up(&allocator, nodes, &vendor).await;
    // A client that was told that its totals are wrong began a new session, and could not report what it had spent in
    // the old one.
    let admitted = vendor.count();
    let accounted = spent..=spent + burned;
    assert!(accounted.contains(&admitted), "{admitted} admitted, {spent} reported, {burned} presumed");
    allocator.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_faults_breaks_no_promise() {
    storm(1).await;
}

/// Each run draws another storm. Its seed is printed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_storm_breaks_no_promise() {
    storm(CLOCK.now().as_nanos()).await;
}
