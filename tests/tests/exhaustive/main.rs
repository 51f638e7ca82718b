//! Every order in which two nodes, an allocator and a network can act, up to a depth: the shipping holder against the
//! shipping lender, explored by a model checker.
//!
//! The allocator may crash, and restart with its checkpoint or without. The network loses, repeats and reorders. Clocks
//! drift as far as they may. In every state that is reached no window holds too much, and permits that nodes can spend
//! count as outstanding. From every state all permits can be lent again once the trouble is over.
//!
//! `EXHAUSTIVE_DEPTH=5 cargo test -p scenarios --test exhaustive -- --nocapture --test-threads 1` explores further than
//! the default and prints the number of states. `docs/design/simulator.md` says how much memory it takes.

mod world;

use lessor_holder::permits::Permits;
use lessor_ledger::Rule;
use lessor_ledger::rule::{FixedWindow, SlidingWindow, TokenBucket};
use lessor_protocol::Clock;
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::hash::{Hash, Hasher};
use std::sync::Mutex;
use std::time::Duration;
use world::{LIMIT, Step, WAITS, WINDOW, World, digest};

/// A state of the checker. The lock is only for the checker's threads: the cells of a [`Hand`] are for one thread.
#[derive(Debug)]
struct State {
    world: Mutex<World>,
    digest: [u64; 2],
    wrong: Option<String>,
    is_stuck: bool,
}

impl State {
    fn new(mut world: World) -> State {
        // Spends older than two windows do not matter to the judge.
        let old = world.real - u64::try_from(2 * WINDOW.as_nanos()).expect("a moment");
        world.spends.retain(|spend| spend.real >= old);
        let (wrong, is_stuck) = (world.wrong(), !world.clone().drains());
        let digest = digest(&world);
        State { world: Mutex::new(world), digest, wrong, is_stuck }
    }

    fn world(&self) -> World {
        self.world.lock().expect("no panic while it is held").clone()
    }
}

impl Clone for State {
    fn clone(&self) -> State {
        State {
            world: Mutex::new(self.world()),
            digest: self.digest,
            wrong: self.wrong.clone(),
            is_stuck: self.is_stuck,
        }
    }
}

impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        self.digest == other.digest
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

/// The model: one rule, explored from each of [`OPENINGS`].
struct Fleet {
    rule: Rule,
}

/// The steps before the exploration: none; one node holds all; each holds a part; one has spent all and asks again.
const OPENINGS: [&[Step]; 4] = [
    &[],
    &[Step::Exchange(0), Step::Exchange(0)],
    &[Step::Ask(0), Step::Ask(1), Step::Arrive(0), Step::Arrive(1), Step::Arrive(2), Step::Arrive(3)],
    &[Step::Exchange(0), Step::Exchange(0), Step::Spend(0, LIMIT), Step::Wait(WAITS[0]), Step::Ask(0)],
];

impl Model for Fleet {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let opening = |steps: &&[Step]| {
            let mut world = World::new(self.rule);
            steps.iter().for_each(|step| world.go(*step));
            world
        };
        let worlds: Vec<World> = OPENINGS.iter().map(opening).collect();
        let held = worlds.iter().map(|world| world.nodes.each_ref().map(|node| node.hand.balance().free));
        assert_eq!(
            held.collect::<Vec<_>>(),
            [[0, 0], [LIMIT, 0], [1, 1], [0, 0]],
            "the permits held in each opening"
        );
        assert_eq!(worlds[3].spends.len(), 1, "everything is spent in the last opening");
        worlds.into_iter().map(State::new).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        actions.extend(state.world.lock().expect("no panic while it is held").steps());
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut world = last.world();
        world.go(step);
        Some(State::new(world))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no window holds too much, and what can be spent is out", |_, state: &State| {
                state.wrong.is_none()
            }),
            Property::always("all can be lent again", |_, state: &State| !state.is_stuck),
            Property::sometimes("the contract is used up", |_, state: &State| {
                let world = state.world.lock().expect("no panic while it is held");
                world.spends.iter().map(|spend| spend.permits).sum::<u64>() >= LIMIT
            }),
        ]
    }
}

/// The depth of the exploration, in steps.
fn depth() -> usize {
    std::env::var("EXHAUSTIVE_DEPTH").map_or(4, |depth| depth.parse().expect("EXHAUSTIVE_DEPTH is a number"))
}

fn explore(name: &str, rule: Rule) {
    let (clock, depth) = (Clock::since_boot(), depth());
    let began = clock.now();
    let checker = Fleet { rule }.checker().threads(2).target_max_depth(depth + 1);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!(
        "{name}: {} states, {} of them different, to a depth of {depth} from {} openings, in {:.1?}",
        checker.state_count(),
        checker.unique_state_count(),
        OPENINGS.len(),
        clock.now().since(began)
    );
    for (property, path) in checker.discoveries() {
        let steps: Vec<String> = path.clone().into_actions().iter().map(|step| format!("{step:?}")).collect();
        let last = path.last_state();
        let is_failure = property != "the contract is used up";
        assert!(!is_failure, "{name}: violated: {property}: {:?}, after {}", last.wrong, steps.join(", "));
    }
    assert!(checker.discovery("the contract is used up").is_some(), "{name}: nothing was spent");
}

#[test]
fn every_order_of_a_sliding_window() {
    let rule = SlidingWindow::try_new(LIMIT, WINDOW, Duration::ZERO).expect("valid");
    explore("sliding_window", Rule::SlidingWindow(rule));
}

#[test]
fn every_order_of_a_fixed_window() {
    explore("fixed_window", Rule::FixedWindow(FixedWindow::try_new(LIMIT, WINDOW).expect("valid")));
}

#[test]
fn every_order_of_a_token_bucket() {
    let rule = TokenBucket::try_new(LIMIT, LIMIT, WINDOW, LIMIT).expect("valid");
    explore("token_bucket", Rule::TokenBucket(rule));
}
