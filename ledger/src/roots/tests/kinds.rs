//! Roots that cap what is in flight, that refill at intervals, or that keep a steady flow.

use super::*;
use crate::fixtures::{at_intervals, first_use, flow, in_flight};
use crate::rule::TokenBucket;
use lessor_protocol::InFlight;

fn by(rule: Rule, version: u64) -> RootSpec {
    let rules = vec![stricter(&rule, TimeSource::Store).expect("it can be kept")];
    let plan = Plan {
        rules,
        clocks: ClockBounds::try_new(0).expect("no drift"),
        ..(**spec(1, 1).compiled.plan()).clone()
    };
    RootSpec { compiled: CompiledPlan::new(plan, TimeSource::Store), ..spec(1, version) }
}

/// At most nine calls at once, of up to `seconds` each.
fn cap(seconds: u64, version: u64) -> RootSpec {
    by(in_flight(9, Duration::from_secs(seconds)), version)
}

fn runs(spent_total: u64, running: u64, want: u64) -> Ask {
    Ask { spent_total, running: Some(running), ..wants(want) }
}

impl World {
    /// Asks until the session holds `permits`: the one that comes first is lent a part, and the rest when it asks
    /// again. It asks 98 times at most. Returns the last `seq` and grant.
    fn takes(&mut self, who: u64, at: u64, spec: &RootSpec, permits: u64) -> (u64, Grant) {
        let mut held = 0;
        for seq in 1..99 {
            let ask = Ask { held, ..wants(permits - held) };
            let grant = self.lent(who, seq, at, spec, ask);
            held += grant.permits;
            if held == permits {
                return (seq, grant);
            }
        }
        panic!("{held} of {permits}")
    }

    /// Goes on with a clock that is exact.
    pub(super) fn at(&mut self, at: u64) {
        self.clock = RootClock::new(0, TimeSource::Store);
        self.clock.on_answer(millis(at), millis(at), millis(at)).expect("the first");
    }

    fn text(&self) -> String {
        String::from_utf8(self.cell().expect("it is written").value).expect("text")
    }
}

#[test]
fn what_an_allocator_has_in_flight_is_kept_with_the_root() {
    let (mut world, spec) = (World::new(true), cap(5, 1));
    let (seq, first) = world.takes(1, 0, &spec, 6);
    assert_eq!(
        first.in_flight,
        Some(InFlight { longest: 5 * SECOND + TimeSource::Store.uncertainty(), hold: Some(9) })
    );
    assert!(world.text().starts_with(r#"{"format":3,"#), "older versions leave it alone: {}", world.text());
    // Four were spent, and run; two came back.
    assert_eq!(world.lent(1, seq + 1, 100, &spec, runs(4, 4, 0)).permits, 0);
    world.takes(2, 110, &spec, 5);
    // The first one is silent: its lease ends, and its calls five seconds after that.
    for (seq, at) in (100..).zip((1_000..=5_000).step_by(1_000)) {
        world.at(at);
        let ask = Ask { held: 5, running: Some(0), ..wants(4) };
        assert_eq!(world.lent(2, seq, at, &spec, ask).permits, 0, "at {at} ms");
    }
    let ask = Ask { held: 5, running: Some(0), ..wants(4) };
    world.at(7_200);
    assert_eq!(world.lent(2, 200, 7_200, &spec, ask).permits, 4);
}

#[test]
fn calls_go_on_through_every_change_of_the_cap() {
    let rate = sliding(9, SECOND);
    let (mut world, long) = (World::new(true), cap(60, 1));
    let (seq, _) = world.takes(1, 0, &long, 6);
    world.lent(1, seq + 1, 10, &long, runs(6, 6, 0));
    // The cap goes, and comes back for shorter calls. It is unknown which session was told what.
    let gone = world.ask(2, 1, 20, &by(rate, 2), wants(9)).answer.expect("no race was lost").expect("good");
    assert_eq!(gone.answer.permits(), 0);
    assert!(world.text().starts_with(r#"{"format":3,"#), "it knows of calls: {}", world.text());
    world.at(10_000);
    assert!(world.lent(2, 2, 10_000, &by(rate, 2), wants(9)).permits > 0, "a rate does not count them");
    world.at(14_000);
    for (seq, at) in [(3, 14_000), (4, 40_000), (5, 61_000)] {
        world.at(at);
        let short = world.ask(3, seq, at, &cap(1, 3), wants(9)).answer.expect("no race was lost");
        assert_eq!(
            short.expect("good").answer.permits(),
            0,
            "at {at} ms: the first calls may take until 62 s"
        );
    }
    world.at(63_000);
    assert!(world.lent(3, 6, 63_000, &cap(1, 3), wants(9)).permits > 0);
}

/// The bug: a root whose bucket begins below its capacity is never as a new one again, and the cell of each key that
/// was ever used stayed in the store. The root of a limit without keys stays: what it has saved up is lent after days,
/// too.
#[test]
fn the_root_of_a_bucket_that_begins_with_less_than_it_holds_is_taken_away_after_days() {
    let rule = TokenBucket::try_new(8, 8, SECOND, 4).expect("valid");
    let (mut world, spec) = (World::new(true), by(Rule::TokenBucket(rule), 1));
    assert_eq!(world.lent(1, 1, 0, &spec, wants(1)).permits, 1);
    let (day, value) = (86_400_000, world.cell().expect("it is written").value);
    for (at, is_gone) in [(60_000, false), (day, false), (2 * day - 1, false), (2 * day, true)] {
        let may_go = |is_of_key| is_forgettable(&spec, &world.head, &value, is_of_key, millis(at));
        assert_eq!((may_go(true), may_go(false)), (is_gone, false), "at {at} ms");
    }
}

#[test]
fn no_lease_reaches_over_the_instant_at_which_a_bucket_refills() {
    let (mut world, spec) = (World::new(true), by(at_intervals(8, 8, SECOND), 1));
    world.takes(1, 0, &spec, 5);
    assert!(world.text().starts_with(r#"{"format":3,"#), "{}", world.text());
    world.at(900);
    let (_, last) = world.takes(2, 900, &spec, 3);
    // The bucket refills a second after it was made, by the clock of the store.
    assert!(last.term <= Duration::from_millis(100) - TimeSource::Store.uncertainty(), "{last:?}");
    // An allocator that is up to 10 ms behind may take that instant for not over yet, and lends none of the refill.
    world.at(995);
    assert_eq!(world.lent(3, 1, 995, &spec, wants(9)).permits, 0);
    world.at(1_000);
    assert!(world.lent(3, 2, 1_000, &spec, wants(9)).permits > 0);
}

#[test]
fn a_steady_flow_is_kept_as_the_bucket_that_promises_as_much() {
    let flow = |refill| flow(2, refill, SECOND);
    let (mut world, spec) = (World::new(true), by(flow(10), 1));
    world.takes(1, 0, &spec, 2);
    world.at(50);
    assert_eq!(world.lent(1, 100, 50, &spec, Ask { spent_total: 2, ..wants(5) }).permits, 0);
    world.at(150);
    let next = world.lent(1, 101, 150, &spec, Ask { spent_total: 2, ..wants(5) });
    assert_eq!((next.permits, next.ceiling), (1, 2), "a tenth of a second after the first two were spent");
    let Rule::TokenBucket(nothing) = by(flow(0), 1).compiled.plan().rules[0] else {
        panic!("it is a bucket")
    };
    assert_eq!((nothing.capacity(), nothing.initial()), (0, 0), "of a flow of nothing not even the burst");
}

/// The bug: a root that still counted was looked at every twelve seconds, however long its window.
#[test]
fn a_root_that_still_counts_is_looked_at_less_and_less_often_until_it_is_taken_away() {
    let (mut world, spec) = (World::new(true), by(sliding(9, 3_600 * SECOND), 1));
    let (seq, _) = world.takes(1, 0, &spec, 5);
    world.lent(1, seq + 1, 0, &spec, Ask { spent_total: 5, ..wants(0) });
    let value = world.cell().expect("it is written").value;
    let (mut at, mut looks) = (12_000, vec![]);
    while !is_forgettable(&spec, &world.head, &value, true, millis(at)) {
        looks.push(at / 1_000);
        let wait = root::looks_again_in(&spec, &world.head, &value, millis(at));
        at += u64::try_from(wait.as_millis()).expect("a moment").max(12_000);
    }
    println!("looked at after {looks:?} s, and taken away after {at} ms");
    assert!(looks.len() <= 12 && at < HOUR + 60_000, "{looks:?}, {at}");
}

const HOUR: u64 = 3_600_000;

/// The bug: after a gap of unknown length, a window was in quarantine for as long as a whole one, however little was
/// left of it. Now it lends nothing more, and ends when it would have ended.
#[test]
fn a_window_of_first_use_is_over_when_it_would_have_been_after_an_unknown_gap() {
    let (mut world, spec) = (World::new(true), by(first_use(9, Duration::from_millis(HOUR)), 1));
    let (seq, _) = world.takes(1, 0, &spec, 5);
    // 50 minutes later the session says that all were spent, and a minute after that the store begins another era.
    let later = HOUR / 60 * 50;
    world.at(later);
    world.lent(1, seq + 1, later, &spec, Ask { spent_total: 5, ..wants(0) });
    world.head.begin_era(millis(later + HOUR / 60));
    let mut refused = |at: u64, seq| {
        world.at(at);
        let answer = world.ask(2, seq, at, &spec, wants(1)).answer.expect("no race was lost").expect("good");
        answer.answer.permits() == 0
    };
    let mut lent_at = None;
    for minute in 51..180 {
        // None of the four that were left is lent: if the window is over by now, they would be of the next one.
        if !refused(minute * HOUR / 60, minute) {
            lent_at = Some(minute);
            break;
        }
    }
    println!("lent again in minute {lent_at:?}");
    // Ten minutes were left when it was written, and it was read in minute 51.
    assert_eq!(lent_at, Some(61));
}

/// The bug: each gap of unknown length emptied the bucket, and put off its refill by a whole period. Now its level
/// stays, and it refills after as much time as was left.
#[test]
fn a_bucket_at_intervals_goes_on_after_unknown_gaps() {
    let day = Duration::from_secs(86_400);
    let (mut world, spec) = (World::new(true), by(at_intervals(8, 8, day), 1));
    let (mut seq, _) = world.takes(1, 0, &spec, 5);
    seq += 1;
    world.at(100);
    world.lent(1, seq, 100, &spec, Ask { spent_total: 5, ..wants(0) });
    // Every three hours another era begins. An hour before that the root is asked.
    let (mut levels, mut spent) = (vec![], 0);
    for hour in 1..60 {
        let at = hour * HOUR;
        if hour % 3 == 0 {
            world.head.begin_era(millis(at));
        }
        world.at(at);
        seq += 1;
        let answer = world.ask(2, seq, at, &spec, Ask { spent_total: spent, ..wants(9) }).answer;
        let lent = answer.expect("no race was lost").expect("good").answer.permits();
        spent += lent;
        levels.push(lent);
    }
    println!("{levels:?}, {spent} in all");
    // Three were left, and 8 come every 24 hours that are counted. Of each 3 hours at least 2 are counted.
    assert!((3 + 8..=3 + 2 * 8).contains(&spent), "{spent}");
    assert!(levels.iter().take(24).sum::<u64>() == 3, "{levels:?}");
}
