//! A store that is several servers: one loses what it has, and an allocator that asks another one does not notice.

use super::*;
use crate::cells::CellsError;
use crate::fixtures::Quiet;
use std::collections::BTreeMap;

/// Two servers. The first has all cells, and the second has lost something each time its id changes.
pub(super) struct Servers {
    pub(super) ids: [u64; 2],
    pub(super) cells: BTreeMap<String, Cell>,
    /// Seconds by which their clock is ahead.
    pub(super) ahead: i64,
}

impl Servers {
    pub(super) fn new() -> Self {
        Servers { ids: [1, 1], cells: BTreeMap::new(), ahead: 0 }
    }

    /// Returns the head that is there.
    fn head(&self) -> Head {
        Head::read(&self.cells[HEAD].value).expect("a head")
    }

    fn timeline(&self) -> Timeline {
        Timeline::new(format!("{}+{}", self.ids[0], self.ids[1]))
    }

    /// Answers a call. A swap looks at the first server alone.
    pub(super) fn answer(&mut self, call: Call, now: Moment) -> Result<Said, CellsError> {
        match call {
            Call::Time if self.ahead < 0 => {
                Ok(Said::Time(now.before(Duration::from_secs(self.ahead.unsigned_abs()))))
            }
            Call::Time => Ok(Said::Time(now + Duration::from_secs(self.ahead.unsigned_abs()))),
            Call::Load(names) => {
                let cells = names.iter().map(|name| self.cells.get(name).cloned());
                Ok(Said::Loaded(self.timeline(), cells.collect()))
            }
            Call::Swap(timeline, _) if !timeline.as_str().starts_with(&format!("{}+", self.ids[0])) => {
                Err(CellsError::Moved { found: self.timeline() })
            }
            Call::Swap(_, swaps) => {
                Ok(Said::Swapped(swaps.into_iter().map(|swap| self.swap(swap)).collect()))
            }
        }
    }

    fn swap(&mut self, swap: Swap) -> Swapped {
        let there = self.cells.get(&swap.name);
        if there.map(|cell| cell.version) != swap.expected {
            return Swapped::Other(there.cloned());
        }
        match swap.next {
            Some(next) => _ = self.cells.insert(swap.name, next),
            None => _ = self.cells.remove(&swap.name),
        }
        Swapped::Done
    }
}

/// An allocator, and what it asks.
pub(super) struct Allocator {
    pub(super) member: Member,
    pub(super) session: u64,
    pub(super) host: Quiet,
}

impl Allocator {
    pub(super) fn new(session: u64) -> Self {
        let member = Member::new(session.to_string(), 0, TimeSource::Store).on_several_servers();
        let host = Quiet { drawn: session << 32, wall: millis(0), is_fresh: true, ..Quiet::default() };
        Allocator { member, session, host }
    }

    pub(super) fn carry(&mut self, servers: &mut Servers, mut next: Next, now: Moment) -> Vec<u64> {
        loop {
            match next {
                Next::Call(call) => {
                    next = self.member.on_answer(servers.answer(call, now), now, &mut self.host)
                }
                Next::Done(answers) => {
                    let answers = answers.expect("nothing fails").into_iter().flatten();
                    let lent = answers.map(|answer| {
                        answer.expect("a good ask").answer.grant().map_or(0, |grant| grant.permits)
                    });
                    return lent.collect();
                }
            }
        }
    }

    /// Signs if it is time to, and may fail.
    pub(super) fn signs(&mut self, servers: &mut Servers, at: u64) {
        let now = millis(at);
        let mut next = self.member.sign(self.session, now, &mut self.host);
        while let Some(Next::Call(call)) = next {
            next = Some(self.member.on_answer(servers.answer(call, now), now, &mut self.host));
        }
    }

    pub(super) fn sign(&mut self, servers: &mut Servers, at: u64) {
        self.sign_by(servers, at, millis(at));
    }

    /// Signs while the calendar of its machine shows `wall`.
    fn sign_by(&mut self, servers: &mut Servers, at: u64, wall: Moment) {
        self.host.wall = wall;
        let first = self.member.sign(self.session, millis(at), &mut self.host).expect("it is time to");
        self.carry(servers, first, millis(at));
    }

    /// Returns what the allocator is lent, and whether it went by the head that it knew.
    fn lent(&mut self, servers: &mut Servers, seq: u64, at: u64, permits: u64) -> (u64, bool) {
        let (now, name) = (millis(at), cell_of("a", None));
        self.host.wall = now;
        self.host.asks =
            vec![Some(RootAsk { name, spec: spec(100, 1), ask: wants(permits), safe: None, groups: vec![] })];
        let first = self.member.ask(self.session, seq, Duration::from_millis(1), now, &mut self.host);
        let knew = matches!(&first, Next::Call(Call::Swap(..)));
        (self.carry(servers, first, now)[0], knew)
    }
}

/// The allocator that did not notice lends by the head that it wrote for another second, and no longer. The one that
/// noticed dates the loss to when that second is over.
fn is_waited_out(lose: impl Fn(&mut Servers)) {
    let mut servers = Servers::new();
    let (mut east, mut west) = (Allocator::new(1), Allocator::new(2));
    east.sign(&mut servers, 0);
    west.sign(&mut servers, 0);
    assert!(west.lent(&mut servers, 1, 0, 10).0 > 0);
    west.sign(&mut servers, 1_000);
    lose(&mut servers);
    // The first allocator asks anew whatever it knew.
    east.member.give_up(millis(1_010));
    east.sign(&mut servers, 1_010);
    assert_eq!(east.member.timeline(), Some(&servers.timeline()));
    let (late, knew) = west.lent(&mut servers, 2, 1_990, 50);
    assert!(late > 0 && knew, "{late}");
    // Those leases end by 3,990, and their permits have left every window a second later.
    for at in [4_100, 4_900] {
        assert_eq!(east.lent(&mut servers, at, at, 50).0, 0, "at {at} ms");
        east.sign(&mut servers, at + 1);
    }
    let (again, knew) = west.lent(&mut servers, 3, 4_950, 50);
    assert_eq!((again, knew), (0, false), "it wrote its head too long ago");
    assert!(east.lent(&mut servers, 5_600, 5_600, 50).0 > 0);
}

#[test]
fn a_loss_at_a_server_that_is_not_asked_is_waited_out() {
    is_waited_out(|servers| servers.ids[1] = 2);
}

#[test]
fn a_head_that_is_lost_is_waited_out_too() {
    is_waited_out(|servers| _ = servers.cells.remove(HEAD));
}

/// A loss that one allocator found at 1,010 ms: by 2,260 ms no other one lends by an earlier head.
fn found_a_loss() -> (Servers, Allocator) {
    let (mut servers, mut east) = (Servers::new(), Allocator::new(1));
    east.sign(&mut servers, 0);
    servers.ids[1] = 2;
    east.member.give_up(millis(1_010));
    east.sign(&mut servers, 1_010);
    assert_eq!((servers.head().era(), servers.head().lost()), (2, Some(millis(2_260))));
    (servers, east)
}

/// A loss is dated by the time of an era. Another one begins, and allocators may lend by the earlier head for as long.
#[test]
fn a_loss_is_dated_as_much_later_when_the_clock_of_the_store_is_set() {
    let (mut servers, mut east) = found_a_loss();
    servers.ahead = 60;
    east.sign(&mut servers, 1_260);
    assert_eq!(east.host.held_back, 1, "its own clock may have stood still");
    assert_eq!((servers.head().era(), servers.head().lost()), (3, Some(millis(62_510))));
}

/// The clock of the store does not fit the calendar of an allocator that starts: it may have been set.
#[test]
fn one_that_starts_goes_by_no_time_that_its_calendar_does_not_show() {
    let hour = Duration::from_secs(3_600);
    let (mut servers, mut east, mut north) = (Servers::new(), Allocator::new(1), Allocator::new(2));
    east.sign(&mut servers, 0);
    let out = east.lent(&mut servers, 1, 0, 60).0;
    assert!(out > 0);
    north.sign_by(&mut servers, 10, millis(10).before(hour));
    assert_eq!((servers.head().era(), servers.head().lost()), (2, None));
    let lent = north.lent(&mut servers, 1, 20, 100).0;
    assert!((1..=100 - out).contains(&lent), "{lent}, and {out} are out");
    let (mut servers, _) = found_a_loss();
    let mut north = Allocator::new(2);
    north.sign_by(&mut servers, 1_020, millis(1_020).before(hour));
    assert_eq!((servers.head().era(), servers.head().lost()), (3, Some(millis(2_270))));
}

/// The swap of the head takes 400 ms. Another allocator may have found a loss just after it was sent.
#[test]
fn a_head_holds_from_when_it_was_sent() {
    let (mut servers, mut east) = (Servers::new(), Allocator::new(1));
    east.sign(&mut servers, 0);
    assert!(east.lent(&mut servers, 1, 0, 10).0 > 0);
    let (mut now, session) = (millis(1_000), east.session);
    let mut next = east.member.sign(session, now, &mut east.host).expect("it is time to");
    while let Next::Call(call) = next {
        let took = Duration::from_millis(if matches!(call, Call::Swap(..)) { 400 } else { 0 });
        let said = servers.answer(call, now);
        now = now + took;
        next = east.member.on_answer(said, now, &mut east.host);
    }
    assert_eq!(now, millis(1_400));
    let knew = [1_999, 2_000].map(|at| east.lent(&mut servers, at, at, 1).1);
    assert_eq!(knew, [true, false]);
}

/// What is known of roots goes by the time of the life before.
#[test]
fn one_that_keeps_the_time_holds_back_when_another_life_of_it_begins() {
    let (mut servers, mut east) = (Servers::new(), Allocator::new(1));
    east.member = Member::new("1".to_owned(), 0, TimeSource::Allocators);
    east.sign(&mut servers, 0);
    let before = east.host.held_back;
    east.sign(&mut servers, 300);
    assert_eq!(east.host.held_back, before, "the same life");
    servers.cells.clear();
    east.sign(&mut servers, 600);
    assert!(east.host.held_back > before);
}

#[test]
fn a_root_that_was_not_asked_for_long_and_looks_new_is_taken_away() {
    let (mut servers, mut east) = (Servers::new(), Allocator::new(1));
    east.sign(&mut servers, 0);
    assert!(east.lent(&mut servers, 1, 0, 10).0 > 0);
    east.sign(&mut servers, 11_000);
    assert!(servers.cells.contains_key(&cell_of("a", None)), "it may have sessions");
    east.sign(&mut servers, 30_000);
    assert_eq!(servers.cells.keys().collect::<Vec<_>>(), [HEAD]);
    assert_eq!(east.lent(&mut servers, 2, 30_100, 10).0, 10, "it is made anew");
}

/// Reading roots takes longer than the head holds.
#[test]
fn a_head_that_was_written_too_long_ago_is_not_lent_by() {
    let mut servers = Servers::new();
    let mut west = Allocator::new(2);
    west.sign(&mut servers, 0);
    west.host.asks = vec![Some(RootAsk {
        name: cell_of("a", None),
        spec: spec(100, 1),
        ask: wants(1),
        safe: None,
        groups: vec![],
    })];
    let first = west.member.ask(2, 1, Duration::from_millis(1), millis(900), &mut west.host);
    let Next::Call(call) = first else { panic!("{first:?}") };
    assert!(matches!(&call, Call::Load(names) if names.len() == 2), "{call:?}");
    let said = servers.answer(call, millis(900));
    let next = west.member.on_answer(said, millis(1_000), &mut west.host);
    assert!(matches!(&next, Next::Done(Err(MemberError::NotSigned))), "{next:?}");
    assert_eq!(servers.cells.len(), 1, "the head alone");
}

/// An allocator that is started as fresh has read a stamp of another one, and not yet its head, when the store is
/// emptied. The other allocator may have lent.
#[test]
fn a_store_is_not_new_to_one_that_has_read_a_stamp_of_another() {
    let mut servers = Servers::new();
    let (mut east, mut west) = (Allocator::new(1), Allocator::new(2));
    for allocator in [&mut east, &mut west] {
        allocator.member = Member::new(allocator.session.to_string(), 0, TimeSource::Allocators);
    }
    let loses = |servers: &Servers| servers.head().lost().is_some();
    east.sign(&mut servers, 0);
    assert!(!loses(&servers), "the store was new to the first");
    let first = west.member.sign(2, millis(10), &mut west.host).expect("it is time to");
    let Next::Call(call) = first else { panic!("{first:?}") };
    let said = servers.answer(call, millis(11));
    let next = west.member.on_answer(said, millis(11), &mut west.host);
    assert!(matches!(&next, Next::Call(Call::Load(_))), "it reads until it knows the time: {next:?}");
    servers.cells.clear();
    west.carry(&mut servers, next, millis(12));
    assert!(loses(&servers), "what the first one lent is waited out");
}
