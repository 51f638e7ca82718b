//! Pools above each other, or one alone, against the same oracle. Each pool has a log, and all of them must allow what
//! is charged to all of them.

use super::*;

/// Which pool is above which: a vendor, two tenants, and users of each.
const ABOVE: [Option<usize>; 6] = [None, Some(0), Some(0), Some(1), Some(1), Some(2)];

/// The pools of a tree, each with its rules and the oracle's log.
pub(super) struct Tree {
    /// The pool above each.
    above: &'static [Option<usize>],
    family: Family,
    places: Vec<Place>,
    rules: Vec<Vec<Rule>>,
    logs: Vec<Vec<(u64, u64)>>,
}

impl Tree {
    pub(super) fn new(above: &'static [Option<usize>], rules: Vec<Vec<Rule>>) -> Self {
        let start = Moment::from_nanos(START);
        let mut family = Family::new(&rules[0], start);
        let mut places = vec![Place::FIRST];
        for (above, rules) in above.iter().zip(&rules).skip(1) {
            let above = places[above.expect("only the first has none")];
            places.push(family.add(above, rules, start));
        }
        Tree { above, family, places, logs: vec![vec![]; rules.len()], rules }
    }

    fn allows(&self, chain: &[usize], at: u64, permits: u64) -> bool {
        chain.iter().all(|&pool| allowed(&self.rules[pool], &self.logs[pool], at, permits))
    }

    /// Returns when the last call that shares a pool with `chain` is served, or `now`.
    fn tail(&self, chain: &[usize], now: u64) -> u64 {
        let last = |&pool: &usize| self.logs[pool].last().map(|&(at, _)| at);
        chain.iter().filter_map(last).max().map_or(now, |at| at.max(now))
    }

    /// Checks that `wait` from `now` is the first instant at which all pools of `chain` let `permits` in, behind all
    /// other calls.
    fn check_turn(&self, chain: &[usize], now: u64, wait: Duration, permits: u64) {
        if permits == 0 {
            assert_eq!(wait, Duration::ZERO, "a probe does not wait");
            return;
        }
        let (tail, turn) = (self.tail(chain, now), now + nanos(wait));
        assert!(turn >= tail, "it overtakes");
        assert!(self.allows(chain, turn, permits), "{permits} after {wait:?} are too early");
        assert!(
            turn == tail || !self.allows(chain, turn - 1, permits),
            "{permits} after {wait:?} are too late"
        );
    }

    fn step(&mut self, now: u64, pool: usize, step: Step) {
        let chain: Vec<usize> = std::iter::successors(Some(pool), |&pool| self.above[pool]).collect();
        let (at, place) = (Moment::from_nanos(now), self.places[pool]);
        let (outcome, permits, patience) = match step {
            Step::Wait(_) => return,
            Step::Try(permits) => {
                (self.family.acquire(at, place, permits, Some(Duration::ZERO)), permits, Some(0))
            }
            Step::Acquire(permits, patience) => {
                let within = patience.map(Duration::from_nanos);
                (self.family.acquire(at, place, permits, within), permits, patience)
            }
            Step::Peek(permits) => (self.family.peek(at, place, permits), permits, Some(0)),
        };
        match outcome.verdict {
            Verdict::Served(wait) => {
                self.check_turn(&chain, now, wait, permits);
                assert!(patience.is_none_or(|patience| nanos(wait) <= patience));
                if !matches!(step, Step::Peek(_)) && permits > 0 {
                    chain.iter().for_each(|&pool| self.logs[pool].push((now + nanos(wait), permits)));
                }
            }
            Verdict::NotFor(wait) => {
                self.check_turn(&chain, now, wait, permits);
                assert!(patience.is_some_and(|patience| nanos(wait) > patience));
            }
            Verdict::Never => assert!(!self.allows(&chain, now + 1_000_000_000 * MILLI, permits)),
            Verdict::TooLarge(ceiling) => {
                let rules = || chain.iter().flat_map(|&pool| &self.rules[pool]);
                let late = START + 1_000_000_000 * MILLI;
                assert!(ceiling < permits && rules().map(Rule::ceiling).min() == Some(ceiling));
                assert!(rules().any(|rule| !allows(rule, &[], late, permits)));
            }
        }
        let (waiting, left) = (self.tail(&chain, now) > now, outcome.remaining);
        assert!(left == 0 || !waiting && self.allows(&chain, now, left));
        assert!(waiting || !self.allows(&chain, now, left + 1), "more could be taken");
    }

    /// Takes each of `steps` at its pool.
    pub(super) fn run(mut self, steps: impl Iterator<Item = (Step, usize)>) {
        let mut now = START;
        for (step, pool) in steps {
            match step {
                Step::Wait(nanos) => now += nanos,
                Step::Try(_) | Step::Acquire(..) | Step::Peek(_) => self.step(now, pool, step),
            }
        }
        // Each call is admitted when it was told, and charged from then on.
        self.family.run_out();
        let admitted = self.family.admitted();
        let mut admitted: Vec<(u64, u64)> =
            admitted.map(|(_, admission)| (admission.at.as_nanos(), admission.permits)).collect();
        let mut logged = self.logs.swap_remove(0);
        admitted.sort_unstable();
        logged.sort_unstable();
        assert_eq!(admitted, logged);
    }
}

fn rule() -> impl Strategy<Value = Rule> {
    prop_oneof![sliding(), fixed(), bucket(), in_flight()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_family_admits_what_the_logs_of_all_its_pools_allow(
        rules in prop::collection::vec(rule(), ABOVE.len()),
        steps in steps(),
        pools in prop::collection::vec(0..ABOVE.len(), 60),
    ) {
        let tree = Tree::new(&ABOVE, rules.into_iter().map(|rule| vec![rule]).collect());
        tree.run(steps.into_iter().zip(pools));
    }
}

#[test]
fn a_pool_that_others_need_stays() {
    let mut family = Family::new(&[window(3)], at(0));
    let tenant = family.add(Place::FIRST, &[window(2)], at(0));
    let user = family.add(tenant, &[window(1)], at(0));
    assert!(!family.is_fresh(at(0), tenant), "a pool is below it");
    assert_eq!(family.acquire(at(0), user, 1, None).verdict, AT_ONCE);
    assert_eq!(family.acquire(at(10), user, 1, None).verdict, Verdict::Served(ns(90)));
    assert!(!family.is_fresh(at(99), user), "a call waits");
    assert!(!family.is_fresh(at(200), user), "those two were not reported");
    assert_eq!(family.admitted().map(|(place, _)| place).collect::<Vec<_>>(), [user, user]);
    assert!(family.is_fresh(at(200), user) && !family.is_fresh(at(200), Place::FIRST));
    family.remove(user);
    family.remove(tenant);
    assert!(family.is_fresh(at(200), Place::FIRST) && !family.is_empty());
    let again = family.add(Place::FIRST, &[window(1)], at(200));
    assert_eq!(family.peek(at(200), again, 1).remaining, 1, "a place that was left is as new");
}
