//! A vendor's limit over two tenants over four users. Sessions ask and spend at any of them in any order, die, and come
//! back late. Every limit must keep its promise over all that is spent at it or below it.

use crate::play::{MANY, Play, Step, honest_step, rule};
use lessor_ledger::Rule;
use lessor_ledger::pool::Plan;
use lessor_ledger::rule::SlidingWindow;
use lessor_sim::setup::plan;
use proptest::prelude::*;
use std::time::Duration;

/// The pool above each pool: 0 is the vendor, 1 and 2 are tenants, the others are users.
const ABOVE: [Option<usize>; 7] = [None, Some(0), Some(0), Some(1), Some(1), Some(2), Some(2)];

/// Two at each pool.
const SESSIONS: usize = 2 * ABOVE.len();

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        22 => honest_step(SESSIONS, 40_000_000),
        1 => (0..SESSIONS).prop_map(|who| Step::Die { who }),
        1 => (0..ABOVE.len()).prop_map(|pool| Step::Forget { pool }),
        1 => (1u64..12, any::<bool>()).prop_map(|(users, die)| Step::Flood { pool: 3, users, die }),
        2 => Just(Step::Rush),
    ]
}

/// Creates a family whose pools of one level have the same rule, and books of their own.
fn family(rules: [Rule; 3], lessees_max: usize) -> Play {
    let plan = |level: usize| Plan { lessees_max, ..plan(vec![rules[level]], false) };
    Play::new(&ABOVE, [0, 1, 1, 2, 2, 2, 2].map(plan).into(), 2, Duration::ZERO)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_limit_of_a_family_keeps_its_promise_over_all_below_it(
        rules in prop::array::uniform3(rule()),
        lessees_max in prop_oneof![2usize..8, Just(MANY)],
        steps in prop::collection::vec(step(), 1..300),
    ) {
        family(rules, lessees_max).run(&steps);
    }
}

/// Returns what two sessions that want all of their vendor's permits get in a minute.
fn shares(who: [usize; 2]) -> [u64; 2] {
    let minute = Duration::from_secs(60);
    let sliding =
        |limit| Rule::SlidingWindow(SlidingWindow::try_new(limit, minute, Duration::ZERO).expect("valid"));
    let mut play = family([sliding(400), sliding(10_000), sliding(10_000)], MANY);
    for _ in 0..600 {
        play.now = play.now + Duration::from_millis(100);
        for who in who {
            let permits = play.sessions[who].hand;
            play.step(Step::Spend { who, permits });
            play.step(Step::Ask { who, keep: 0, want: 50, waiting: 50, demand_milli: 0 });
        }
    }
    who.map(|who| play.sessions[who].spent)
}

/// Users of two tenants share the vendor's permits as if they asked it themselves, although no pool of theirs knows of
/// the other's.
#[test]
fn a_scarce_parent_is_shared_among_all_below_it() {
    let by_themselves = shares([0, 1]);
    assert!(by_themselves.iter().sum::<u64>() >= 396 && by_themselves.iter().all(|&got| got > 0));
    assert_eq!(shares([6, 12]), by_themselves);
}
