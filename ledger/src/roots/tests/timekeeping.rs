//! The keeper of the time of a store without a clock, and how well the followers know that time.

use crate::cells::{Cell, Swap};
use crate::roots::timekeeping::{StampRead, Timekeeping, Todo};
use crate::roots::{RootClock, TimeSource};
use lessor_protocol::Moment;
use lessor_protocol::moment::millis as at;
use std::time::Duration;

/// What the calendar of the first allocator shows at the start, in milliseconds.
const CALENDAR: u64 = 1_000_000;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The cell of the stamp.
#[derive(Default)]
struct Store {
    cell: Option<Cell>,
    drawn: u64,
}

impl Store {
    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    fn swap(&mut self, swap: Swap) -> bool {
        let is_expected = self.cell.as_ref().map(|cell| cell.version) == swap.expected;
        if is_expected {
            self.cell = swap.next;
        }
        is_expected
    }
}

struct Allocator {
    time: Timekeeping,
    clock: RootClock,
    /// The calendar at the origin of its own clock, in milliseconds.
    calendar: u64,
}

impl Allocator {
    fn new(calendar: u64) -> Self {
        let (time, clock) = (Timekeeping::new(0), RootClock::new(0, TimeSource::Allocators));
        Allocator { time, clock, calendar }
    }

    /// Reads the cell once, which takes the millisecond before `now`. A write that follows takes 4 ms, and is done or
    /// its answer is lost. Returns what comes after that.
    fn looks(&mut self, store: &mut Store, now: u64, is_lost: bool) -> &'static str {
        let wall = at(self.calendar + now);
        let mut todo = self.time.begin(at(now - 1), &self.clock, wall, store.draw());
        if let Todo::Read = todo {
            let (asked, answered) = (at(now - 1), at(now));
            let reading = StampRead { cell: store.cell.clone(), began: asked, asked, answered };
            let drawn = &mut store.drawn;
            let draw = || {
                *drawn += 1;
                *drawn
            };
            todo = self.time.on_read(reading, &mut self.clock, wall, draw).expect("a good stamp");
        }
        match todo {
            Todo::Know => "knows",
            Todo::Read => "reads",
            Todo::Wait => "waits",
            Todo::Write(swap) => match store.swap(swap) {
                true if is_lost => {
                    self.time.mark_write_unknown();
                    "is unsure"
                }
                true => {
                    self.time.on_written(&mut self.clock, at(now), at(now + 4));
                    "writes"
                }
                false => "is late",
            },
        }
    }

    fn says(&self, now: u64) -> Option<u64> {
        self.clock.now(at(now)).map(|there| there.as_nanos() / 1_000_000)
    }
}

/// A keeper that has written stamps at 1, 251, 501 and 751 ms, and a follower that looked each millisecond.
fn both() -> (Store, Allocator, Allocator) {
    let (mut store, mut keeper, mut follower) =
        (Store::default(), Allocator::new(CALENDAR), Allocator::new(0));
    for now in 1..=751 {
        if now % 250 == 1 {
            assert_eq!(keeper.looks(&mut store, now, false), "writes", "at {now}");
        }
        follower.looks(&mut store, now, false);
    }
    (store, keeper, follower)
}

#[test]
fn a_follower_knows_the_time_as_well_as_reads_and_writes_are_close() {
    let (mut store, keeper, mut follower) = both();
    // Stamps were written at 251, 501 and 751. The one at 501 was read within 1 ms, and the next one said that it was
    // there 4 ms later.
    assert_eq!(keeper.says(755), Some(CALENDAR + 755));
    assert_eq!(follower.says(751), Some(CALENDAR + 751), "it is never ahead");
    let latest = follower.clock.latest(at(751)).expect("it is known");
    let most = at(CALENDAR + 751 + 8) + TimeSource::Allocators.step();
    assert!(latest >= at(CALENDAR + 751) && latest <= most, "{latest:?}");
    assert_eq!(follower.looks(&mut store, 752, false), "knows");
    assert!(!follower.time.is_keeper() && keeper.time.is_keeper());
}

#[test]
fn a_newcomer_knows_no_time_before_it_saw_two_stamps() {
    let (mut store, _, _) = both();
    let mut newcomer = Allocator::new(0);
    for now in 760..=900 {
        assert_eq!(newcomer.looks(&mut store, now, false), "reads");
        assert_eq!(newcomer.says(now), None, "it may be any time since the stamp");
    }
}

#[test]
fn what_is_known_holds_for_a_second_and_a_follower_takes_over_after_that() {
    let (mut store, keeper, mut follower) = both();
    assert!(keeper.says(1_750).is_some() && keeper.says(1_752).is_none(), "it was the keeper at 751");
    // The follower first saw the last stamp at 751.
    for now in 752..=2_001 {
        assert_eq!(follower.looks(&mut store, now, false), "knows", "at {now}");
    }
    assert_eq!(follower.looks(&mut store, 2_002, false), "writes");
    assert!(follower.time.is_keeper());
    assert_eq!(follower.says(2_006), Some(CALENDAR + 2_006), "it goes on with the earliest that it can be");
    assert_eq!((follower.time.life(), keeper.time.life()), (keeper.time.life(), follower.time.life()));
}

#[test]
fn a_keeper_that_comes_back_follows_the_one_that_took_over() {
    let (mut store, mut keeper, mut follower) = both();
    (752..=2_002).for_each(|now| _ = follower.looks(&mut store, now, false));
    assert_eq!(keeper.looks(&mut store, 2_010, false), "is late", "it wrote in the place of its own stamp");
    keeper.time.mark_write_unknown();
    assert_eq!(keeper.looks(&mut store, 2_011, false), "knows");
    assert!(!keeper.time.is_keeper());
    let (early, late) = (keeper.says(2_011), keeper.clock.late(at(2_011)));
    assert_eq!(early, Some(CALENDAR + 2_002), "it is no earlier than the stamp that it read");
    assert_eq!(late, Some(at(CALENDAR + 2_011)), "it went on by that, or by less");
}

#[test]
fn if_none_is_left_that_knows_another_life_begins_by_the_calendar() {
    let (mut store, keeper, _) = both();
    let mut newcomer = Allocator::new(5_000_000);
    for now in 3_000..=4_999 {
        assert_ne!(newcomer.looks(&mut store, now, false), "writes", "at {now}");
        assert_eq!(newcomer.says(now), None);
    }
    let began = (5_000..5_010).find(|now| newcomer.looks(&mut store, *now, false) == "writes");
    let began = began.expect("two seconds after it saw the stamp first");
    assert!(newcomer.says(began + 4) >= Some(5_000_000 + began), "{:?}", newcomer.says(began + 4));
    assert!(newcomer.time.life() > keeper.time.life());
}

#[test]
fn a_stamp_whose_answer_was_lost_is_found_and_the_time_goes_on() {
    let (mut store, mut keeper, mut follower) = both();
    assert_eq!(keeper.looks(&mut store, 1_001, true), "is unsure");
    assert_eq!(follower.looks(&mut store, 1_002, false), "knows");
    assert_eq!(keeper.looks(&mut store, 1_251, false), "writes", "it read its own, and writes the next one");
    assert_eq!(keeper.says(1_255), Some(CALENDAR + 1_255));
    assert_eq!(follower.looks(&mut store, 1_256, false), "knows");
    let (early, late) = (follower.says(1_256), follower.clock.late(at(1_256)));
    assert!(early <= Some(CALENDAR + 1_256) && late >= Some(at(CALENDAR + 1_256)), "{early:?}, {late:?}");
}

/// The bug: the keeper went on to keep the time, and no other allocator came to know it.
#[test]
fn a_keeper_that_misses_the_answers_to_its_stamps_leaves_the_time_to_another() {
    let (mut store, mut keeper, mut newcomer) =
        (Store::default(), Allocator::new(CALENDAR), Allocator::new(0));
    let mut known = None;
    for now in 1..=6_000 {
        if now % 250 == 1 {
            keeper.looks(&mut store, now, true);
        }
        newcomer.looks(&mut store, now, false);
        known = known.or(newcomer.says(now).map(|_| now));
    }
    let known = known.expect("it keeps the time by now");
    assert!((2_000..3_000).contains(&known), "{known}");
    assert!(newcomer.time.is_keeper() && !keeper.time.is_keeper());
}

#[test]
fn a_keeper_that_misses_answers_and_is_alone_keeps_the_time() {
    let (mut store, mut keeper) = (Store::default(), Allocator::new(CALENDAR));
    keeper.looks(&mut store, 1, false);
    let life = keeper.time.life();
    for now in (251..20_000).step_by(250) {
        keeper.looks(&mut store, now, true);
        keeper.looks(&mut store, now + 1, false);
        assert_eq!(keeper.says(now + 6), Some(CALENDAR + now + 6), "it reads its own stamp");
    }
    assert_eq!(keeper.time.life(), life);
}

#[test]
fn a_keeper_whose_clock_is_set_ahead_begins_another_life() {
    let (mut store, mut keeper, mut follower) = both();
    let life = keeper.time.life();
    // The keeper's clock shows 400 ms more.
    assert_eq!(keeper.looks(&mut store, 1_401, false), "writes");
    assert_eq!(follower.looks(&mut store, 1_002, false), "writes");
    assert!(follower.time.is_keeper() && follower.time.life() > life);
}

#[test]
fn a_keeper_whose_clock_stood_still_is_followed_back() {
    let (mut store, mut keeper, mut follower) = both();
    // The keeper's clock shows 400 ms less than before.
    (752..=1_401).for_each(|now| assert_eq!(follower.looks(&mut store, now, false), "knows", "at {now}"));
    assert_eq!(keeper.looks(&mut store, 1_001, false), "writes");
    assert_eq!(
        follower.looks(&mut store, 1_402, false),
        "knows",
        "its stamp was late, as far as can be told"
    );
    assert_eq!(keeper.looks(&mut store, 1_251, false), "writes");
    assert_eq!(follower.looks(&mut store, 1_652, false), "reads", "it was written before it was there");
    assert_eq!(follower.says(1_652), None);
}

#[test]
fn a_keeper_goes_slowly_towards_its_calendar() {
    let (mut store, mut keeper) = (Store::default(), Allocator::new(CALENDAR));
    keeper.time = Timekeeping::new(1_000);
    assert_eq!(keeper.looks(&mut store, 1, false), "writes");
    // Its calendar is right again, 60 s later than it thought.
    keeper.calendar += 60_000;
    for now in (251..=100_251).step_by(250) {
        assert_eq!(keeper.looks(&mut store, now, false), "writes", "at {now}");
    }
    let ahead = keeper.says(100_255).expect("it is the keeper") - (CALENDAR + 100_255);
    assert_eq!(ahead, 0, "9 millionths of 100 s are less than a millisecond");
    let exact = keeper.clock.now(at(100_255)).expect("it is the keeper").since(at(CALENDAR + 100_255));
    assert!(exact >= Duration::from_micros(890) && exact < millis(1), "{exact:?}");
}

/// The bug: the next life, or the next stamp, after the last number overflowed.
#[test]
fn a_stamp_that_none_can_follow_is_refused() {
    for (life, number, is_good) in [(1, 7, true), (u64::MAX, 7, false), (1, u64::MAX, false)] {
        let text = format!(
            r#"{{"format":1,"life":{life},"keeper":9,"number":{number},"said":1000000,"done":null}}"#
        );
        let cell = Some(Cell { version: 1, value: text.as_bytes().to_vec() });
        let mut allocator = Allocator::new(CALENDAR);
        let reading = StampRead { cell, began: at(1), asked: at(1), answered: at(2) };
        let read = allocator.time.on_read(reading, &mut allocator.clock, at(CALENDAR), || 1);
        assert_eq!(read.is_ok(), is_good, "{text}");
    }
}

/// The bug: a life that began by a calendar beyond the year 2262 was refused by all allocators.
#[test]
fn a_life_of_any_calendar_can_be_followed() {
    for wall in [Moment::from_nanos(1 << 63), Moment::NEVER] {
        let read = |cell: Option<Cell>| {
            let mut allocator = Allocator::new(CALENDAR);
            let reading = StampRead { cell, began: at(1), asked: at(1), answered: at(2) };
            allocator.time.on_read(reading, &mut allocator.clock, wall, || 1)
        };
        let Ok(Todo::Write(swap)) = read(None) else { panic!("it begins a life") };
        assert!(matches!(read(swap.next), Ok(Todo::Read)), "{wall:?}");
    }
}
