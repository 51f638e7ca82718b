//! What roots answer, and what they do where another allocator was faster, or something is gone.

use super::*;
use crate::Rule;
use crate::cells::{Cell, Swap, Swapped, Table, Timeline, VALUE_MAX};
use crate::fixtures::{SECOND, bucket, millis, sliding};
use crate::overrides::Version;
use crate::pool::{Books, Holder, Plan, SessionId};
use crate::share::Share;
use lessor_protocol::{Ask, ClockBounds, Grant, Moment};
use serde_json::Value;
use std::time::Duration;

mod groups;
mod kinds;
mod large;
mod leaving;
mod several;
mod suspensions;
mod timekeeping;

fn spec(limit: u64, version: u64) -> RootSpec {
    crowded(limit, version, 10)
}

fn crowded(limit: u64, version: u64, lessees_max: usize) -> RootSpec {
    let plan = Plan {
        is_root: true,
        lessees_max,
        ..Plan::of(vec![stricter(&sliding(limit, SECOND), TimeSource::Store).expect("it can be kept")])
    };
    RootSpec {
        compiled: CompiledPlan::new(plan, TimeSource::Store),
        version: Some(Version::of_file(version)),
        parent_ref: ParentRef::default(),
    }
}

fn holder(who: u64) -> Holder {
    Holder { id: SessionId(who), share: Share::EVEN, rtt: Duration::from_millis(1) }
}

/// A store, and what all allocators know of it.
struct World {
    table: Table,
    head: Head,
    clock: RootClock,
    drawn: u64,
}

impl World {
    fn new(fresh: bool) -> World {
        let timeline = Timeline::new("a");
        let mut clock = RootClock::new(0, TimeSource::Store);
        clock.on_answer(millis(0), millis(0), millis(0)).expect("it said nothing before");
        let head = Head::begin(1, &timeline, millis(0), fresh);
        World { table: Table::new(timeline), head, clock, drawn: 0 }
    }

    fn cell(&self) -> Option<Cell> {
        self.table.load(&[cell_of("a", None)]).remove(0)
    }

    fn exchange(&self, who: u64, seq: u64, spec: &RootSpec, ask: Ask, cell: Option<Cell>) -> Exchange {
        let ask = RootAsk { name: cell_of("a", None), spec: spec.clone(), ask, safe: None, groups: vec![] };
        Exchange::new(holder(who), seq, vec![(ask, cell)])
    }

    fn swaps(&mut self, exchange: &mut Exchange, at: u64) -> Vec<Swap> {
        let drawn = &mut self.drawn;
        exchange.swaps(&self.head, &self.clock, millis(at), || {
            *drawn += 1;
            *drawn
        })
    }

    fn swap(&mut self, exchange: &mut Exchange, swaps: &[Swap]) -> usize {
        let swapped = self.table.swap(&self.head.timeline(), swaps).expect("the timeline is right");
        exchange.swapped(swapped)
    }

    /// Asks until no other allocator is faster.
    fn ask(&mut self, who: u64, seq: u64, at: u64, spec: &RootSpec, ask: Ask) -> RootAnswer {
        let mut exchange = self.exchange(who, seq, spec, ask, self.cell());
        loop {
            let swaps = self.swaps(&mut exchange, at);
            if swaps.is_empty() {
                return exchange.finish(millis(at)).remove(0);
            }
            self.swap(&mut exchange, &swaps);
        }
    }

    fn lent(&mut self, who: u64, seq: u64, at: u64, spec: &RootSpec, ask: Ask) -> Grant {
        let answer = self.ask(who, seq, at, spec, ask).answer.expect("no race was lost");
        answer.expect("a good ask").answer.grant().expect("not refused")
    }
}

fn wants(permits: u64) -> Ask {
    Ask { want: permits, waiting: permits, ..Ask::default() }
}

#[test]
fn who_is_slower_is_lent_what_is_left() {
    let (mut world, spec) = (World::new(true), spec(100, 1));
    // Both look before either writes.
    let mut slow = world.exchange(1, 1, &spec, wants(80), None);
    let stale = world.swaps(&mut slow, 0);
    assert!(world.lent(2, 1, 0, &spec, wants(80)).permits > 0);
    assert_eq!(world.swap(&mut slow, &stale), 1, "it came too late");
    let again = world.swaps(&mut slow, 0);
    assert_eq!(world.swap(&mut slow, &again), 0);
    let first = slow
        .finish(millis(0))
        .remove(0)
        .answer
        .expect("answered")
        .expect("good")
        .answer
        .grant()
        .expect("lent");
    let rest = world.lent(3, 1, 0, &spec, wants(100)).permits;
    let value = world.cell().expect("it is written").value;
    let mut pool = read(&spec, &world.head, Some(&value), millis(0)).expect("it can be read").pool;
    assert!(first.permits + rest <= 100 && pool.view(millis(0)).books.outstanding <= 100);
}

/// The bug: two allocators found no root. One made it and was lent of it, the store was emptied, and the other made it.
#[test]
fn a_root_that_is_made_is_not_believed_where_the_store_was_emptied_before() {
    let (mut world, spec) = (World::new(true), spec(100, 1));
    let mut slow = world.exchange(1, 1, &spec, wants(80), None);
    let stale = world.swaps(&mut slow, 0);
    assert!(world.lent(2, 1, 0, &spec, wants(80)).permits > 0);
    world.table = Table::new(Timeline::new("a"));
    assert_eq!(world.swap(&mut slow, &stale), 0, "there is none again");
    assert!(slow.has_created_roots(), "so it looks at the head, which is gone");
    slow.discard_made();
    let answer = slow.finish(millis(0)).remove(0);
    assert_eq!((answer.cell, answer.answer), (None, Some(Err(RootError::Gone))));
    // The head that is made then does not vouch for it either: it knows nothing of what the first allocator was lent.
    world.head = Head::begin(2, &Timeline::new("a"), millis(10), false);
    let answer = world.ask(3, 1, 20, &spec, wants(10)).answer.expect("no race was lost").expect("good");
    assert_eq!(answer.answer.permits(), 0, "it waits until what was lent is over");
    // A root that was there is swapped by its version.
    let mut world = World::new(true);
    world.lent(2, 1, 0, &spec, wants(10));
    let mut known = world.exchange(1, 1, &spec, wants(10), world.cell());
    let swaps = world.swaps(&mut known, 0);
    world.swap(&mut known, &swaps);
    assert!(!known.has_created_roots());
}

#[test]
fn a_lease_is_told_to_end_sooner_than_the_root_takes_it_to() {
    let (mut world, spec) = (World::new(true), spec(100, 1));
    let term = world.lent(1, 1, 0, &spec, wants(10)).term;
    let value = world.cell().expect("it is written").value;
    let out = |at: u64| {
        let mut pool = read(&spec, &world.head, Some(&value), millis(at)).expect("it can be read").pool;
        pool.view(millis(at)).books.outstanding
    };
    let ends = u64::try_from(term.as_millis()).expect("a moment");
    assert!(out(ends) == 10 && out(ends + 9) == 10, "an allocator may be that much behind");
    assert_eq!(out(ends + 15), 0);
}

/// The last asks of an allocator for a limit that was removed there, while others go on with it.
#[test]
fn an_allocator_whose_limit_was_removed_gives_back_and_neither_makes_nor_changes_a_root() {
    let mut world = World::new(true);
    let (there, removed) = (spec(100, 1), RootSpec { version: None, ..spec(7, 1) });
    let answer = world.ask(1, 1, 0, &removed, Ask::default()).answer;
    assert_eq!(answer, Some(Err(RootError::Removed)));
    assert_eq!(world.cell(), None);
    world.lent(1, 1, 0, &there, wants(10));
    assert_eq!(world.lent(1, 2, 1, &removed, Ask { spent_total: 4, ..Ask::default() }).permits, 0);
    assert_eq!(world.lent(2, 1, 2, &there, wants(100)).ceiling, 100, "it goes by what others say");
    let value = world.cell().expect("it is written").value;
    let mut pool = read(&there, &world.head, Some(&value), millis(3)).expect("it can be read").pool;
    let Books { spent, returned, .. } = pool.view(millis(3)).books;
    assert_eq!((spent, returned), (4, 6));
}

#[test]
fn a_bucket_refills_from_when_the_store_had_heard_of_the_permit_for_sure() {
    let rules = vec![stricter(&bucket(1, 1, SECOND), TimeSource::Store).expect("it can be kept")];
    let clocks = ClockBounds::try_new(0).expect("no drift");
    let plan = Plan { rules, clocks, ..(**spec(1, 1).compiled.plan()).clone() };
    let spec = RootSpec {
        compiled: CompiledPlan::new(plan, TimeSource::Store),
        version: Some(Version::of_file(1)),
        parent_ref: ParentRef::default(),
    };
    let mut world = World::new(true);
    assert_eq!(world.lent(1, 1, 0, &spec, wants(1)).permits, 1);
    // At the next look it took the store 8 ms to answer. When in those 8 ms it looked at its clock is unknown.
    world.clock = RootClock::new(0, TimeSource::Store);
    world.clock.on_answer(millis(12), millis(12), millis(20)).expect("the first");
    let spent = Ask { spent_total: 1, ..wants(1) };
    assert_eq!(world.lent(1, 2, 20, &spec, spent).permits, 0);
    // The time was 12 to 20, so the refill comes at 1,020, by the clock of an allocator that knows the time.
    world.clock = RootClock::new(0, TimeSource::Store);
    world.clock.on_answer(millis(1_019), millis(1_019), millis(1_019)).expect("the first");
    assert_eq!(world.lent(1, 3, 1_019, &spec, spent).permits, 0);
    assert_eq!(world.lent(1, 4, 1_020, &spec, spent).permits, 1);
}

/// An allocator that heard the store's clock before knows whether it was set. Any other goes by the last signature.
#[test]
fn an_era_is_gone_by_at_first_only_if_an_allocator_has_just_signed_it() {
    let mut head = Head::begin(1, &Timeline::new("a"), millis(0), true);
    head.sign(&Signer { session: 1, node: "one".to_owned() }, millis(10_000));
    for at in [9_991, 10_000, 10_400, 10_999] {
        assert!(head.is_watched(millis(at)), "{at}");
    }
    for at in [0, 9_989, 11_000, 53_000] {
        assert!(!head.is_watched(millis(at)), "{at}");
    }
}

#[test]
fn what_is_gone_is_not_made_anew_without_another_look() {
    let (mut world, spec) = (World::new(true), spec(100, 1));
    world.lent(1, 1, 0, &spec, wants(50));
    let mut exchange = world.exchange(2, 1, &spec, wants(100), world.cell());
    let swaps = world.swaps(&mut exchange, 0);
    assert_eq!(exchange.swapped(vec![Swapped::Other(None)]), 0);
    assert!(world.swaps(&mut exchange, 0).is_empty() && swaps.len() == 1);
    let answer = exchange.finish(millis(0)).remove(0);
    assert_eq!((answer.answer, answer.cell), (Some(Err(RootError::Gone)), None));
}

#[test]
fn after_a_loss_nothing_is_lent_before_all_that_was_is_over() {
    let spec = spec(100, 1);
    let mut world = World::new(false);
    let refused = |answer: RootAnswer| {
        answer.answer.expect("answered").expect("good").answer.grant().is_none_or(|grant| grant.permits == 0)
    };
    assert!(refused(world.ask(1, 1, 0, &spec, wants(10))));
    assert!(refused(world.ask(1, 2, 2_900, &spec, wants(10))), "leases of two seconds, and a window");
    assert!(world.lent(1, 3, 3_200, &spec, wants(10)).permits > 0);
    // Another timeline: what is written may not be the last that was.
    world.head.lose(&Timeline::new("b"), TimeSource::Store, millis(4_000));
    world.table.move_to(Timeline::new("b"));
    assert!(refused(world.ask(2, 1, 4_000, &spec, wants(10))));
}

/// The bug: the loss was dated by the clock of the server before, and limits were shut until the next one showed that time.
#[test]
fn a_server_whose_clock_is_behind_is_waited_out_by_its_own_clock() {
    let (mut world, spec) = (World::new(true), spec(100, 1));
    let signer = Signer { session: 1, node: String::new() };
    world.head.sign(&signer, millis(60_000));
    world.head.lose(&Timeline::new("b"), TimeSource::Store, millis(15_000));
    let quarantine = |at| {
        let read = read(&spec, &world.head, None, millis(at)).expect("it can be read");
        let mut pool = read.pool;
        pool.view(millis(at)).quarantine
    };
    assert!(quarantine(15_000) > Duration::from_secs(2), "leases of two seconds, and a window");
    assert_eq!(quarantine(18_200), Duration::ZERO);
    assert!(
        !world.head.signatures().any(|(_, at)| at > millis(15_000)),
        "no allocator has signed later than now"
    );
}

#[test]
fn a_time_that_began_anew_lets_nothing_go_sooner() {
    let (mut world, spec) = (World::new(true), spec(100, 1));
    let lent = world.lent(1, 1, 0, &spec, wants(100)).permits;
    // The clock of the store was set a minute ahead.
    world.head.begin_era(millis(60_000));
    world.clock = RootClock::new(0, TimeSource::Store);
    world.clock.on_answer(millis(60_000), millis(60_000), millis(60_000)).expect("the first");
    let value = world.cell().expect("it is written").value;
    let mut pool = read(&spec, &world.head, Some(&value), millis(60_000)).expect("it can be read").pool;
    assert_eq!(pool.view(millis(60_000)).books.outstanding, lent);
}

#[test]
fn the_newest_configuration_is_the_one_that_holds() {
    let (mut world, old, new) = (World::new(true), spec(100, 1), spec(10, 2));
    world.lent(1, 1, 0, &old, wants(1));
    assert_eq!(world.lent(2, 1, 0, &new, wants(1)).ceiling, 10);
    assert_eq!(
        world.lent(1, 2, 5, &old, Ask { spent_total: 1, ..wants(1) }).ceiling,
        10,
        "the old one follows"
    );
}

#[test]
fn other_rules_under_the_same_version_are_not_gone_by_and_are_told_of() {
    let (mut world, old) = (World::new(true), spec(100, 1));
    assert!(!world.ask(1, 1, 0, &old, wants(1)).is_contested);
    let other = world.ask(2, 1, 0, &spec(10, 1), wants(1));
    assert!(other.is_contested);
    let grant = other.answer.expect("answered").expect("good").answer.grant().expect("lent");
    assert_eq!(grant.ceiling, 100);
    assert!(!world.ask(2, 2, 5, &spec(10, 2), wants(1)).is_contested, "a higher one is right");
    assert!(!world.ask(1, 2, 5, &old, wants(1)).is_contested, "and a lower one follows");
}

/// An operator decides between two files. An allocator that has not heard of the decision follows all the same.
#[test]
fn what_was_put_over_the_api_holds_until_a_newer_file_says_otherwise() {
    let (mut world, file) = (World::new(true), spec(100, 1));
    let put = |limit, file, serial| RootSpec { version: Some(Version { file, serial }), ..spec(limit, file) };
    let spent = |seq| Ask { spent_total: seq - 1, ..wants(1) };
    world.lent(1, 1, 0, &file, wants(1));
    let mut ceiling = |who, seq, at, spec: &RootSpec| {
        let asked = world.ask(who, seq, at, spec, spent(seq));
        (
            asked.answer.expect("answered").expect("good").answer.grant().expect("lent").ceiling,
            asked.is_contested,
        )
    };
    assert_eq!(ceiling(2, 1, 0, &put(10, 1, 1)), (10, false));
    assert_eq!(ceiling(1, 2, 5, &file), (10, false), "it has not heard of that");
    assert_eq!(ceiling(2, 2, 10, &put(20, 1, 2)), (20, false));
    assert_eq!(ceiling(1, 3, 15, &put(10, 1, 1)), (20, false), "it has heard of the first only");
    assert_eq!(ceiling(1, 4, 20, &spec(30, 2)), (30, false), "its file is newer");
    assert_eq!(ceiling(2, 3, 25, &put(20, 1, 2)), (30, false));
    assert_eq!(ceiling(2, 4, 30, &put(40, 2, 3)), (40, false), "that was put after it");
    assert_eq!(ceiling(1, 5, 35, &put(50, 2, 3)), (40, true), "which of these is newer is unknown");
}

/// Allocators that know only files write the version as a number, and leave alone what they cannot read.
#[test]
fn a_root_that_goes_by_a_file_is_written_as_it_always_was() {
    let mut world = World::new(true);
    let text = |world: &World| String::from_utf8(world.cell().expect("it is written").value).expect("text");
    world.lent(1, 1, 0, &spec(100, 1), wants(1));
    assert!(text(&world).starts_with(r#"{"format":1,"era":1,"version":1,"rules""#), "{}", text(&world));
    let put = RootSpec { version: Some(Version { file: 1, serial: 4 }), ..spec(10, 1) };
    world.lent(2, 1, 0, &put, wants(1));
    assert!(text(&world).starts_with(r#"{"format":2,"era":1,"version":[1,4],"rules""#), "{}", text(&world));
    let value = text(&world).replace("\"format\":2", "\"format\":6");
    let read = read(&put, &world.head, Some(value.as_bytes()), millis(0));
    assert!(matches!(read, Err(RootError::Format)), "{read:?}");
}

#[test]
fn a_root_that_no_store_would_keep_lends_nothing() {
    let (mut world, spec) = (World::new(true), crowded(1_000_000, 1, 10_000));
    assert!(world.ask(1, 1, 0, &spec, wants(1)).answer.is_some());
    // Nine thousand sessions that hold nothing yet. To ask for each takes a minute: each ask looks at all of them.
    let mut root: Value = serde_json::from_slice(&world.cell().expect("it is in use").value).expect("JSON");
    let sessions = root.pointer_mut("/pool/lessees").and_then(Value::as_array_mut).expect("sessions");
    let mut other = sessions[0].clone();
    other["out"] = 0.into();
    for id in 2..=9_000_u64 {
        other["id"] = id.into();
        sessions.push(other.clone());
    }
    let value = root.to_string().into_bytes();
    assert!(value.len() > VALUE_MAX, "{} bytes", value.len());
    let cell = Some(Cell { version: 1, value });
    let mut exchange = world.exchange(9_001, 1, &spec, wants(1), cell);
    assert!(world.swaps(&mut exchange, 0).is_empty());
    assert!(matches!(exchange.finish(millis(0)).remove(0).answer, Some(Err(RootError::TooLarge(_)))));
}

#[test]
fn what_cannot_be_read_is_waited_out_and_what_is_newer_is_left_alone() {
    let (mut world, spec) = (World::new(true), spec(100, 1));
    let mut put = |value: &str| {
        let expected = world.cell().map(|cell| cell.version);
        let next = Some(Cell { version: 1_000 + value.len() as u64, value: value.as_bytes().to_vec() });
        let swap = Swap { name: cell_of("a", None), expected, next };
        world.table.swap(&Timeline::new("a"), &[swap]).expect("the timeline is right");
        world.ask(1, 1, 0, &spec, wants(1)).answer.expect("answered")
    };
    assert_eq!(put("{\"format\":6,\"what\":1}"), Err(RootError::Format));
    let answer = put("no JSON").expect("an answer");
    assert!(answer.answer.grant().is_none_or(|grant| grant.permits == 0), "{answer:?}");
}

#[test]
fn a_head_is_read_as_it_was_written_and_nothing_else_is() {
    let mut head = Head::begin(7, &Timeline::new("a"), millis(0), false);
    head.sign(&Signer { session: 3, node: "east".to_owned() }, millis(5));
    assert_eq!(Head::read(&head.write()), Ok(head.clone()));
    assert!(Head::read(b"{}").is_err());
    let newer = String::from_utf8(head.write()).expect("text").replace("\"format\":1", "\"format\":2");
    assert!(Head::read(newer.as_bytes()).is_err_and(|why| why.contains("format 2")));
    // An allocator that knew of neither field knew the first file at most.
    head.keep_newest(Version::of_file(1));
    let before = String::from_utf8(head.write()).expect("text");
    assert!(!before.contains("newest"), "{before}");
    assert_eq!(Head::read(before.as_bytes()).map(|head| head.newest()), Ok(Version::of_file(1)));
    head.keep_newest(Version { file: 0, serial: 4 });
    head.keep_newest(Version { file: 2, serial: 3 });
    assert_eq!(head.newest(), Version { file: 2, serial: 4 });
    assert_eq!(Head::read(&head.write()), Ok(head.clone()));
    head.sign(&Signer { session: 4, node: "west".to_owned() }, millis(120_000));
    assert_eq!(
        head.signed().map(|signed| signed.node.as_str()).collect::<Vec<_>>(),
        ["west"],
        "east is gone"
    );
}

#[test]
fn who_does_not_know_what_is_above_is_answered_nothing() {
    let (mut world, old) = (World::new(true), spec(10, 1));
    let parent_ref = |parent: Option<&str>, file| ParentRef {
        limit: "a".to_owned(),
        parent: parent.map(str::to_owned),
        known: Version::of_file(file),
    };
    let old = RootSpec { parent_ref: parent_ref(None, 1), ..old };
    assert!(world.lent(1, 1, 0, &old, wants(1)).permits > 0);
    let above = [("a".to_owned(), "all".to_owned())].into();
    world.head.keep_families(&Families::new(Version::of_file(2), above));
    let answer = world.ask(1, 2, 10, &old, wants(1)).answer;
    assert_eq!(answer, Some(Err(RootError::Below("all".to_owned()))));
    let new = RootSpec { parent_ref: parent_ref(Some("all"), 2), ..spec(10, 2) };
    assert!(world.lent(2, 1, 20, &new, wants(1)).permits > 0);
    assert_eq!(Head::read(&world.head.write()), Ok(world.head));
}
