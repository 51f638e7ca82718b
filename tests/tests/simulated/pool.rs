//! Random sequences of asks, goodbyes, replays and lies against one pool, by several sessions.

use crate::play::{MANY, Play, Step, honest_step, rule};
use lessor_ledger::Rule;
use lessor_ledger::pool::Plan;
use lessor_protocol::{Ask, PERMITS_MAX};
use lessor_sim::setup::plan;
use proptest::prelude::*;
use std::time::Duration;

const SESSIONS: usize = 4;

fn step() -> impl Strategy<Value = Step> {
    let any_number = || prop_oneof![4 => 0u64..20, 1 => 0u64..=PERMITS_MAX, 1 => Just(PERMITS_MAX)];
    let five = (any_number(), any_number(), any_number(), any_number(), any_number());
    let lie = (five, prop::option::of(any_number()), any_number()).prop_map(
        |((spent_total, held, want, waiting, demand_milli), running, busy)| Ask {
            spent_total,
            held,
            want,
            waiting,
            demand_milli,
            running,
            unguarded: busy / 2,
            busy,
            ..Ask::default()
        },
    );
    prop_oneof![
        22 => honest_step(SESSIONS, 8_000_000),
        3 => any::<usize>().prop_map(|message| Step::Replay { message }),
        3 => (prop_oneof![1u64..30, any_number()], lie).prop_map(|(seq, ask)| Step::Lie { seq, ask }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_truth_and_lies_breaks_the_books_or_the_cap(
        rules in prop::collection::vec(rule(), 1..3), ease_off in any::<bool>(),
        steps in prop::collection::vec(step(), 1..300),
    ) {
        // Two caps would disagree on how long a call may take, so they are refused together.
        prop_assume!(rules.iter().filter(|rule| matches!(rule, Rule::Concurrency(_))).count() < 2);
        let plan = Plan { lessees_max: MANY, ..plan(rules, ease_off) };
        Play::new(&[None], vec![plan], SESSIONS, Duration::from_millis(40)).run(&steps);
    }
}
