//! Tests of publications with a store in memory: what they read, write and follow, and what they do if another
//! allocator is faster.

use super::*;
use crate::cells::Table;
use crate::fixtures::Quiet;
use crate::overrides::{SUSPENDED_MAX, Suspended, Suspensions};
use crate::roots::Signer;
use lessor_protocol::NodeName;
use serde_json::json;

const NOW: Moment = Moment::from_nanos(1_000_000_000_000);

/// A store with an allocator.
struct World {
    table: Table,
    here: Quiet,
}

impl World {
    fn new() -> World {
        World { table: Table::new(Timeline::new("a")), here: Quiet { wall: NOW, ..Quiet::default() } }
    }

    fn is_paused(&self, limit: &str) -> bool {
        self.here.suspensions.of(limit).and_then(Suspended::until).is_some()
    }

    /// Makes a world whose store has a head.
    fn with_head() -> World {
        let mut world = World::new();
        world.write(HEAD, Head::begin(1, &Timeline::new("a"), NOW, true).write());
        world
    }

    /// Writes a cell as another allocator.
    fn write(&mut self, name: &str, value: Vec<u8>) {
        let expected = self.cell(name).map(|cell| cell.version);
        // The other allocator draws its versions from elsewhere.
        let version = expected.map_or(1_000, |version| version + 1_000);
        let swap = Swap { name: name.to_owned(), expected, next: Some(Cell { version, value }) };
        let swapped = self.table.swap(&Timeline::new("a"), &[swap]).expect("it is on that timeline");
        assert_eq!(swapped, [Swapped::Done]);
    }

    fn cell(&self, name: &str) -> Option<Cell> {
        self.table.load(&[name.to_owned()]).remove(0)
    }

    fn head(&self) -> Head {
        Head::read(&self.cell(HEAD).expect("there is one").value).expect("it can be read")
    }

    fn overrides(&self) -> LimitOverrides {
        LimitOverrides::read(&self.cell(OVERRIDES).expect("there are some").value).expect("they can be read")
    }

    /// Puts or removes a limit as another allocator.
    fn put_elsewhere(&mut self, name: &str, put: Option<Value>) {
        let cell = self.cell(OVERRIDES);
        let mut there = cell.map_or_else(LimitOverrides::default, |cell| {
            LimitOverrides::read(&cell.value).expect("they can be read")
        });
        there.decide(name, Version::of_file(1), put).expect("there is room");
        self.write(OVERRIDES, there.write());
    }

    /// Decides about a suspension as another allocator.
    fn decide_elsewhere(&mut self, limit: &str, decision: &Decision) {
        let mut head = self.head();
        head.suspensions_mut().decide(limit, decision, NOW).expect("there is room");
        self.write(HEAD, head.write());
    }

    /// Returns the answer of the store to the call in `next`.
    fn answer(&mut self, next: &Next) -> Said {
        match next {
            Next::Call(Call::Time) => Said::Time(NOW),
            Next::Call(Call::Load(names)) => {
                Said::Loaded(self.table.timeline().clone(), self.table.load(names))
            }
            Next::Call(Call::Swap(timeline, swaps)) => {
                Said::Swapped(self.table.swap(timeline, swaps).expect("it is on that timeline"))
            }
            Next::Pause(_) | Next::Check | Next::Done(_) => panic!("no call but {next:?}"),
        }
    }

    /// Carries one call, or passes a pause or a check.
    fn step(&mut self, publish: &mut Publish, next: &Next) -> Next {
        match next {
            Next::Call(_) => {
                let said = self.answer(next);
                publish.on_answer(Ok(said), &mut self.here)
            }
            Next::Pause(_) | Next::Check => publish.go_on(&mut self.here),
            Next::Done(_) => panic!("it is over: {next:?}"),
        }
    }

    /// Goes on until the next need is one that `is_it` accepts.
    fn until(&mut self, publish: &mut Publish, mut next: Next, is_it: impl Fn(&Next) -> bool) -> Next {
        for _ in 0..20 {
            if is_it(&next) {
                return next;
            }
            next = self.step(publish, &next);
        }
        panic!("it goes on and on: {next:?}");
    }

    /// Goes on until the publication is over.
    fn finish(&mut self, publish: &mut Publish, next: Next) -> Result<Published, PublishError> {
        let next = self.until(publish, next, |next| matches!(next, Next::Done(_)));
        let Next::Done(done) = next else { panic!("not over: {next:?}") };
        done
    }

    fn publish(&mut self, mut publish: Publish) -> Result<Published, PublishError> {
        let next = publish.begin();
        self.finish(&mut publish, next)
    }
}

fn is_swap(next: &Next) -> bool {
    matches!(next, Next::Call(Call::Swap(..)))
}

fn is_check(next: &Next) -> bool {
    matches!(next, Next::Check)
}

fn limit(n: u64) -> Option<Value> {
    Some(json!({ "n": n }))
}

fn pause_of(limit: &str) -> Publish {
    Publish::suspension(limit, Decision::Pause(None))
}

#[test]
fn a_suspension_is_followed_here_once_the_head_has_it() {
    let mut world = World::with_head();
    let mut publish = pause_of("a");
    let first = publish.begin();
    assert!(matches!(first, Next::Call(Call::Time)), "pauses are on the clock of the store");
    let load = world.step(&mut publish, &first);
    assert!(matches!(&load, Next::Call(Call::Load(names)) if *names == [HEAD]));
    let swap = world.step(&mut publish, &load);
    let said = world.answer(&swap);
    assert!(world.head().suspensions().of("a").is_some(), "the store has it");
    assert!(!world.is_paused("a"), "that is not known here yet");
    let done = publish.on_answer(Ok(said), &mut world.here);
    assert!(matches!(done, Next::Done(Ok(Published { was_so: false, .. }))), "{done:?}");
    assert!(world.is_paused("a"));
    let again = world.publish(pause_of("a")).expect("there is room");
    assert!(again.was_so, "it was paused");
}

/// The bug: no decision of an operator got into a store without a clock, because the store was asked for the time.
#[test]
fn in_a_store_without_a_clock_the_time_is_that_of_the_head() {
    let mut world = World::with_head();
    let until = world.head().written() + Duration::from_secs(60);
    for publish in [
        Publish::suspension("a", Decision::Pause(Some(Duration::from_secs(60)))),
        Publish::limit("b", limit(1)),
    ] {
        let mut publish = publish.by_time_of(TimeSource::Allocators);
        let first = publish.begin();
        assert!(matches!(first, Next::Call(Call::Load(_))), "{first:?}");
        assert!(world.finish(&mut publish, first).is_ok());
    }
    assert!(world.is_paused("a"));
    let head = world.head();
    let paused = head.suspensions().of("a").and_then(Suspended::until);
    assert_eq!(paused, Some(until), "it is paused");
    assert!(world.cell(OVERRIDES).is_some(), "it is put");
}

#[test]
fn a_suspension_is_decided_again_where_another_allocator_was_faster() {
    let mut world = World::with_head();
    let mut publish = pause_of("a");
    let first = publish.begin();
    let swap = world.until(&mut publish, first, is_swap);
    world.decide_elsewhere("b", &Decision::Pause(None));
    let lost = world.step(&mut publish, &swap);
    assert!(matches!(lost, Next::Pause(span) if span == PAUSE), "{lost:?}");
    assert_eq!(world.here.suspensions, Suspensions::default(), "nothing is followed here");
    let again = world.step(&mut publish, &lost);
    assert!(matches!(again, Next::Call(Call::Time)), "{again:?}");
    assert!(world.finish(&mut publish, again).is_ok_and(|published| !published.was_so));
    assert!(["a", "b"].map(|limit| world.head().suspensions().of(limit).is_some()) == [true; 2]);
    assert_eq!(world.here.suspensions, *world.head().suspensions());
}

/// The bug: the store had gone back to an earlier state, and the decision followed from that. The allocator knew later
/// decisions, went on with these, and told the store so.
#[test]
fn a_suspension_is_decided_upon_what_is_known_here_where_the_store_has_lost_that() {
    let mut world = World::with_head();
    world.publish(pause_of("b")).expect("there is room");
    // The clock of the store was set back, too.
    let later = NOW + Duration::from_secs(60);
    world.here.suspensions.decide("c", &Decision::Pause(None), later).expect("there is room");
    let cell = world.cell(HEAD).expect("there is one");
    let begun = Head::begin(2, &Timeline::new("a"), NOW, true).write();
    let next = Some(Cell { version: cell.version + 1, value: begun });
    let swap = Swap { name: HEAD.to_owned(), expected: Some(cell.version), next };
    world.table.swap(&Timeline::new("a"), &[swap]).expect("it is on that timeline");
    world.publish(pause_of("a")).expect("there is room");
    for limit in ["a", "b", "c"] {
        assert!(world.is_paused(limit) && world.head().suspensions().of(limit).is_some(), "{limit}");
    }
}

#[test]
fn without_a_head_it_pauses_until_there_is_one() {
    let (mut world, mut tries) = (World::new(), vec![]);
    for mut publish in [pause_of("a"), Publish::limit("a", limit(1))] {
        let first = publish.begin();
        let load = world.step(&mut publish, &first);
        let none = world.step(&mut publish, &load);
        assert!(matches!(none, Next::Pause(span) if span == PAUSE), "{none:?}");
        tries.push((publish, none));
    }
    world.write(HEAD, Head::begin(1, &Timeline::new("a"), NOW, true).write());
    for (mut publish, next) in tries {
        assert!(world.finish(&mut publish, next).is_ok());
    }
    assert!(world.is_paused("a") && world.here.overrides == world.overrides());
}

#[test]
fn a_limit_is_followed_here_once_the_cell_has_it_and_the_head_is_told_then() {
    let mut world = World::with_head();
    world.put_elsewhere("b", limit(1));
    let mut publish = Publish::limit("a", limit(2));
    let first = publish.begin();
    let load = world.step(&mut publish, &first);
    assert!(matches!(&load, Next::Call(Call::Load(names)) if *names == [HEAD, OVERRIDES]));
    let check = world.step(&mut publish, &load);
    assert!(matches!(check, Next::Check), "before it writes: {check:?}");
    assert_eq!(world.here.overrides, world.overrides(), "the precondition is asked of the newest");
    let (before, swap) = (world.here.overrides.clone(), world.step(&mut publish, &check));
    let said = world.answer(&swap);
    assert_ne!(world.overrides(), before, "the store has it");
    assert_eq!(world.here.overrides, before, "that is not known here yet");
    let Next::Done(Ok(published)) = publish.on_answer(Ok(said), &mut world.here) else {
        panic!("it is over")
    };
    assert_eq!(world.here.overrides, world.overrides());
    assert_eq!(published.newest, Version { file: 1, serial: 2 });
    assert_eq!(world.head().newest().serial, 0, "another publication tells the head");
    assert!(world.publish(Publish::newest(published.newest)).is_ok());
    assert_eq!(world.head().newest(), published.newest);
}

#[test]
fn a_limit_is_checked_and_put_again_where_another_allocator_was_faster() {
    let mut world = World::with_head();
    let mut publish = Publish::limit("a", limit(1));
    let first = publish.begin();
    let swap = world.until(&mut publish, first, is_swap);
    world.put_elsewhere("a", limit(2));
    let lost = world.step(&mut publish, &swap);
    assert!(matches!(lost, Next::Pause(span) if span == PAUSE), "{lost:?}");
    assert_eq!(world.here.overrides, LimitOverrides::default(), "nothing is followed here");
    let again = world.until(&mut publish, lost, is_check);
    assert_eq!(world.here.overrides, world.overrides(), "the other limit is followed before the check");
    let published = world.finish(&mut publish, again).expect("there is room");
    assert_eq!(published.newest.serial, 2);
    let there = world.overrides();
    let put: Vec<_> = there.holding(1).map(|(name, by)| (name, by.put.clone(), by.version.serial)).collect();
    assert_eq!(put, [("a", limit(1), 2)], "it is later than the other");
}

#[test]
fn a_precondition_that_does_not_hold_leaves_the_store_as_it_is() {
    let mut world = World::with_head();
    world.put_elsewhere("a", limit(1));
    let before = (world.cell(HEAD), world.cell(OVERRIDES));
    let mut publish = Publish::limit("a", None);
    let first = publish.begin();
    world.until(&mut publish, first, is_check);
    drop(publish);
    assert_eq!((world.cell(HEAD), world.cell(OVERRIDES)), before);
}

/// Before the limit was put, it had no suspension to follow.
#[test]
fn a_limit_that_was_suspended_before_it_was_put_is_suspended() {
    let mut world = World::with_head();
    world.decide_elsewhere("a", &Decision::Pause(None));
    assert!(world.publish(Publish::limit("a", limit(1))).is_ok());
    assert!(world.is_paused("a"));
}

#[test]
fn where_there_is_no_room_nothing_changes() {
    let mut world = World::with_head();
    for n in 1..SUSPENDED_MAX {
        let node = NodeName::try_new(&format!("n{n}")).expect("valid");
        let mut head = world.head();
        head.suspensions_mut().decide("a", &Decision::Block(node), NOW).expect("there is room");
        world.write(HEAD, head.write());
    }
    let large = || Some(json!({ "rules": "x".repeat(crate::cells::VALUE_MAX / 3) }));
    for name in ["a", "b"] {
        world.put_elsewhere(name, large());
    }
    let before = (world.cell(HEAD), world.cell(OVERRIDES));
    assert!(matches!(world.publish(pause_of("b")), Err(PublishError::SuspensionsFull(_))));
    assert_eq!(world.here.suspensions, Suspensions::default(), "nothing is followed here");
    assert!(matches!(world.publish(Publish::limit("c", large())), Err(PublishError::OverridesFull(_))));
    assert_eq!(world.here.overrides, world.overrides(), "only what the store has is followed");
    assert_eq!((world.cell(HEAD), world.cell(OVERRIDES)), before);
}

#[test]
fn a_store_that_fails_or_cannot_be_read_ends_it_in_words() {
    let mut world = World::with_head();
    let silent = CellsError::Unreachable("no answer".to_owned());
    let mut publish = pause_of("a");
    publish.begin();
    let failed = publish.on_answer(Err(silent.clone()), &mut world.here);
    assert!(matches!(failed, Next::Done(Err(PublishError::Store(why))) if why == silent));
    let mut publish = pause_of("a");
    publish.begin();
    let other = publish.on_answer(Ok(Said::Swapped(vec![])), &mut world.here);
    assert!(matches!(other, Next::Done(Err(PublishError::Mismatch))), "{other:?}");
    world.write(OVERRIDES, b"{".to_vec());
    assert!(matches!(world.publish(Publish::limit("a", None)), Err(PublishError::Unreadable(_))));
    world.write(HEAD, b"{".to_vec());
    assert!(matches!(world.publish(pause_of("a")), Err(PublishError::Unreadable(_))));
    assert!(
        world.publish(Publish::newest(Version::of_file(3))).is_ok(),
        "a head of another version is left alone"
    );
}

#[test]
fn a_head_is_told_only_what_is_newer_and_again_where_another_allocator_was_faster() {
    let (mut world, newest) = (World::with_head(), Version { file: 1, serial: 3 });
    let mut publish = Publish::newest(newest);
    let first = publish.begin();
    let swap = world.until(&mut publish, first, is_swap);
    world.decide_elsewhere("a", &Decision::Pause(None));
    let lost = world.step(&mut publish, &swap);
    assert!(matches!(lost, Next::Pause(_)), "{lost:?}");
    assert!(world.finish(&mut publish, lost).is_ok());
    assert_eq!(world.head().newest(), newest);
    let before = world.cell(HEAD);
    for newest in [newest, Version { file: 1, serial: 2 }] {
        assert!(world.publish(Publish::newest(newest)).is_ok());
    }
    assert_eq!(world.cell(HEAD), before, "it says so");
    let mut empty = World::new();
    assert!(empty.publish(Publish::newest(newest)).is_ok());
    assert_eq!(empty.cell(HEAD), None, "it makes no head");
}

/// The bug: after a change of the store's clock a pause was dated by the new clock, and then once more from the old one
/// to the new one: five minutes were over at once, or lasted a day.
#[test]
fn a_pause_waits_until_the_head_is_of_the_clock_of_the_store() {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let signer = Signer { session: 1, node: String::new() };
    for before in [NOW + minutes(10), NOW.before(minutes(10))] {
        for moves in [false, true] {
            let mut world = World::new();
            let timeline = Timeline::new(if moves { "0" } else { "a" });
            let mut head = Head::begin(1, &timeline, before, true);
            head.sign(&signer, before);
            world.write(HEAD, head.write());
            let mut publish = Publish::suspension("a", Decision::Pause(Some(minutes(5))));
            let first = publish.begin();
            let waits = world.until(&mut publish, first, |next| matches!(next, Next::Pause(_)));
            // An allocator finds that the clock is another one.
            match moves {
                true => head.lose(&Timeline::new("a"), TimeSource::Store, NOW),
                false => head.begin_era(NOW),
            }
            world.write(HEAD, head.write());
            assert!(world.finish(&mut publish, waits).is_ok_and(|published| !published.was_so));
            let until = world.here.suspensions.of("a").and_then(Suspended::until);
            assert_eq!(until, Some(NOW + minutes(5)));
        }
    }
    // The clocks of two servers may agree, and another timeline is waited for all the same.
    let mut world = World::new();
    world.write(HEAD, Head::begin(1, &Timeline::new("0"), NOW, true).write());
    let mut publish = pause_of("a");
    let first = publish.begin();
    world.until(&mut publish, first, |next| matches!(next, Next::Pause(_)));
}
