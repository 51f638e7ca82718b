//! A daemon slews the clock of one machine as fast as chrony does by default, so a node and the allocator disagree on
//! the length of a second. The node is cut off, and tries to spend what it holds when the allocator may have lent it
//! again.

use super::{CLOCK, SPENDER, judge, pause};
use lessor_protocol::Moment;
use scenarios::faults::Faulty;
use scenarios::process::Node;
use scenarios::proxy::Proxy;
use scenarios::proxy::fault::Fault;
use scenarios::shim::Shim;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// chrony's default `maxslewrate`, in parts per million.
const SLEW_PPM: i64 = 83_333;

const LIMIT: u64 = 600;
const PER: Duration = Duration::from_secs(1);
const CONFIG: &str = r#"
[[limit]]
name = "vendor"
term = { min = "2s", max = "2s" }
rules = [{ kind = "sliding_window", limit = 600, per = "1s", margin = "50ms" }]
"#;

/// Permits that the node must hold for its spending to show anything, and how soon after the start it must hold them.
const ENOUGH: u64 = 50;
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// How many other nodes there are, and how many calls each of them tries at once: enough to take all permits as soon as
/// they are lent.
const OTHERS: usize = 2;
const CALLS: u64 = 200;

/// One node holds a lease of two seconds and is cut off. `after` its last ask it tries to spend all of it, while others
/// use all that is lent. The clocks of the node and the allocator are slewed by so many millionths. Returns how many
/// permits it spent then.
fn spend_at_the_end(node_ppm: i64, allocator_ppm: i64, after: Duration) -> u64 {
    let mut allocator = Faulty::start(CONFIG);
    allocator.set(&format!("slew_ppm {allocator_ppm}"));
    let shim = Shim::new();
    shim.set(&format!("slew_ppm {node_ppm}"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let proxy = runtime.block_on(Proxy::start(allocator.address()));
    let mut spender = Command::new(SPENDER);
    let mut node = Node::start_by(spender.envs(shim.environment()), &proxy.url(), "vendor", "slewed");
    let begin = CLOCK.now();
    while CLOCK.now().since(begin) < Duration::from_secs(2) {
        node.spend(1);
        pause(Duration::from_millis(5));
    }
    // The node asks once more, so that its lease is as new as it can be.
    let asked = proxy.requests();
    while proxy.requests() == asked {
        node.spend(5);
        pause(Duration::from_millis(1));
    }
    let (mut asked, mut last) = (proxy.requests(), CLOCK.now());
    runtime.block_on(proxy.drain());
    // The answer is still on its way back. If the node asks again meanwhile, that ask is the last one.
    let held = loop {
        let held = node.available();
        if proxy.requests() != asked {
            (asked, last) = (proxy.requests(), CLOCK.now());
        } else if held > ENOUGH {
            break held;
        }
        assert!(CLOCK.now().since(begin) < ANSWERED_WITHIN, "the node holds {held}: the test proves nothing");
        pause(Duration::from_millis(1));
    };
    proxy.set(Fault::Cut);
    let is_over = AtomicBool::new(false);
    let (late, others) = std::thread::scope(|scope| {
        let others: Vec<_> = (0..OTHERS)
            .map(|number| {
                let (url, is_over) = (allocator.url(), &is_over);
                scope.spawn(move || {
                    let mut node = Node::start(SPENDER, &url, "vendor", &format!("other-{number}"));
                    let mut admitted = vec![];
                    while !is_over.load(Ordering::Relaxed) {
                        admitted.extend(node.spend(CALLS));
                        pause(Duration::from_millis(5));
                    }
                    admitted
                })
            })
            .collect();
        pause((last + after).since(CLOCK.now()));
        // The process's own time is of no use here. It is certain that the calls were made before the answer.
        let before = CLOCK.now();
        let late = node.spend(held).len();
        let spent = (before, CLOCK.now(), late as u64);
        pause(3 * PER);
        is_over.store(true, Ordering::Relaxed);
        let others: Vec<Vec<Moment>> =
            others.into_iter().map(|other| other.join().expect("no panic")).collect();
        (spent, others)
    });
    let (before, by, permits) = late;
    println!(
        "{permits} of {held} permits spent {:?} after the last ask, where the node's clock is slewed by {node_ppm} ppm and the allocator's by {allocator_ppm} ppm",
        before.since(last)
    );
    let mut calls: Vec<(Moment, u64)> = others.into_iter().flatten().map(|at| (at, 1)).collect();
    assert!(calls.len() as u64 > 2 * LIMIT, "the other nodes made only {} calls", calls.len());
    calls.push((by, permits));
    calls.sort_unstable();
    judge(LIMIT, PER, calls);
    allocator.kill();
    permits
}

/// The node's clock is slow: by it, its lease lasts until 2,179 ms after its ask. The allocator waits for 2,005 ms.
#[test]
fn a_node_whose_clock_is_slewed_spends_nothing_after_its_lease() {
    let late = spend_at_the_end(-SLEW_PPM, 0, Duration::from_millis(2_110));
    assert_eq!(late, 0, "permits were spent after the allocator may lend them again");
}

/// The allocator's clock is fast: by it, the lease is over after 1,851 ms. The node may spend for 1,998 ms.
#[test]
fn an_allocator_whose_clock_is_slewed_takes_nothing_back_too_soon() {
    spend_at_the_end(0, SLEW_PPM, Duration::from_millis(1_930));
}
