//! Tests of exchanges of several threads at once.

use super::*;
use crate::overrides::Decision;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Two limits below a third, and one apart from these.
const LIMITS: &str = r#"
[[limit]]
name = "vendor"
ease_off = false
rules = [{ kind = "fixed_window", limit = 1000, per = "1d" }]

[[limit]]
name = "tenant"
keyed = true
parent = "vendor"
ease_off = false
rules = [{ kind = "fixed_window", limit = 700, per = "1d" }]

[[limit]]
name = "batch"
parent = "vendor"
ease_off = false
rules = [{ kind = "fixed_window", limit = 600, per = "1d" }]

[[limit]]
name = "other"
ease_off = false
rules = [{ kind = "fixed_window", limit = 500, per = "1d" }]
"#;

/// Plays one node in a thread of its own. The node asks for each pool in turn, in an order of its own, and spends all
/// that it gets, until nothing is left. Returns the permits that it was lent of each pool.
fn spend(registry: &Registry, time: &AtomicU64, node: usize) -> [u64; 4] {
    const NAMES: [(&str, Option<&str>); 4] =
        [("tenant", Some("a")), ("other", None), ("batch", None), ("tenant", Some("b"))];
    let name = NodeName::try_new(&format!("node-{node}")).expect("valid");
    let (mut lent, mut dry) = ([0; 4], 0);
    for seq in 1.. {
        let caller = Caller {
            node: name.clone(),
            session: 1,
            epoch: 0,
            seq,
            rtt: Duration::ZERO,
            owner: Default::default(),
        };
        let now = millis(time.fetch_add(50, Ordering::Relaxed));
        let places: Vec<usize> = (0..4).map(|step| (node + step) % 4).collect();
        let asks: Vec<Entry> =
            places.iter().map(|&place| ask(NAMES[place].0, NAMES[place].1, lent[place], 0, 7)).collect();
        let grants = registry.leases(now, &caller, &asks).grants;
        let got: u64 = grants.iter().map(|grant| grant.permits).sum();
        for (grant, &place) in grants.iter().zip(&places) {
            assert_eq!(grant.error, None);
            lent[place] += grant.permits;
        }
        dry = if got == 0 { dry + 1 } else { 0 };
        if dry == 200 {
            break;
        }
    }
    lent
}

#[test]
fn threads_that_ask_at_once_get_all_that_there_is_and_no_permit_twice() {
    for _ in 0..5 {
        let registry = config(LIMITS).registry(Past::None, millis(0), 7);
        let time = AtomicU64::new(0);
        let lent: Vec<[u64; 4]> = thread::scope(|scope| {
            let spend = |node| {
                scope.spawn({
                    let (registry, time) = (&registry, &time);
                    move || spend(registry, time, node)
                })
            };
            let threads: Vec<_> = (0..4).map(spend).collect();
            threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
        });
        let sum = |place: usize| lent.iter().map(|lent| lent[place]).sum::<u64>();
        let (of_vendor, other) = (sum(0) + sum(2) + sum(3), sum(1));
        assert_eq!((of_vendor, other), (1_000, 500), "{lent:?}");
        assert!(sum(0) <= 700 && sum(2) <= 600 && sum(3) <= 700, "{lent:?}");
    }
}

/// A thread may read the clock, and then wait for a limit that is locked by a thread that read the clock later.
#[test]
fn an_exchange_that_had_to_wait_is_as_late_as_the_one_before_it() {
    let mut registry = config(LIMITS).registry(Past::None, millis(0), 7);
    for name in ["other", "batch"] {
        let pause = Decision::Pause(Some(Duration::from_secs(10)));
        assert_eq!(registry.decide(millis(0), name, &pause), Some(Ok(false)));
        let second = Caller { node: NodeName::try_new("node-2").expect("valid"), ..caller(1) };
        let lent = |at: u64, caller: &Caller| {
            registry.leases(millis(at), caller, &[ask(name, None, 0, 0, 5)]).grants[0].permits
        };
        assert_eq!(lent(9_998, &caller(1)), 0, "it is paused");
        assert_eq!(lent(10_001, &caller(2)), 5);
        assert_eq!(lent(9_999, &second), 5, "the pause was over before");
    }
}

/// A thread that panics while it has a limit leaves its books half written. Nothing is lent by these, and other limits
/// go on until the registry starts over.
#[test]
fn books_that_a_panic_left_half_written_lend_nothing() {
    let registry = config(LIMITS).registry(Past::None, millis(0), 7);
    let bug = thread::scope(|scope| {
        let panics = scope.spawn(|| {
            let _limit = registry.limits.lock("vendor").expect("it is there");
            panic!("a bug, for the test");
        });
        panics.join()
    });
    assert!(bug.is_err());
    for name in ["vendor", "batch"] {
        let ask = [ask(name, None, 0, 0, 5)];
        let asked = catch_unwind(AssertUnwindSafe(|| registry.leases(millis(1), &caller(1), &ask)));
        assert!(asked.is_err(), "{name}: {asked:?}");
    }
    let other = registry.leases(millis(1), &caller(2), &[ask("other", None, 0, 0, 5)]);
    assert_eq!(other.grants[0].permits, 5);
}
