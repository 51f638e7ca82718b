//! What an allocator says to one that it leases limits from, and what it believes of the answers.

use super::*;
use crate::allocator::DueAbove;
use crate::config::Upstream;
use crate::limits::PoolId;
use lessor_protocol::wire::GrantBody;
use lessor_protocol::{Carry, Grant, Rate};

const LEASED: &str = "[[limit]]\nname = \"a\"\nupstream = \"http://centre:1\"\n";

fn upstream(allocator: &Allocator) -> Upstream {
    allocator.upstreams().pop_first().expect("there is one")
}

fn due(allocator: &mut Allocator, now: u64) -> DueAbove {
    let upstream = upstream(allocator);
    allocator.asks_above(millis(now), &upstream, Duration::from_millis(1))
}

/// An allocator that a node asked, and what it says to the one above.
fn asked(epoch: u64) -> (Allocator, DueAbove) {
    let mut allocator = Allocator::new(&Config::parse(LEASED).expect("valid"), Past::None, millis(0), epoch);
    allocator.leases(millis(0), &caller(1), &[ask("a", None, 0, 0, 4)]);
    let due = due(&mut allocator, 0);
    assert_eq!((due.asks.len(), due.asks[0].spent_total, due.asks[0].held), (1, 0, 0));
    (allocator, due)
}

fn hear(allocator: &mut Allocator, due: &DueAbove, now: u64) {
    let grant = Grant { permits: 4, term: Duration::from_secs(1), ceiling: 9, ..NOTHING };
    let body = GrantBody::of("a", None, Answer::Grant(grant));
    let upstream = upstream(allocator);
    allocator.hear_above(millis(now), &upstream, due.session, millis(0), &due.askers, &[body]);
}

fn available(allocator: &mut Allocator, now: u64) -> u64 {
    let limit = allocator.limit("a").expect("it is there");
    limit.view(millis(now), &PoolId::default()).map_or(0, |view| view.available)
}

const NOTHING: Grant = Grant {
    kept: 0,
    permits: 0,
    term: Duration::ZERO,
    horizon: Duration::ZERO,
    ceiling: 0,
    ask_after: Duration::ZERO,
    retry_after: None,
    rate: Rate::Free,
    in_flight: None,
};

/// The bug: books that went while an uplink lived on began from zero in the same session, and what nodes still held was taken
/// to have come back.
#[test]
fn books_that_went_are_never_told_of_in_the_session_that_they_were_lent_in() {
    let (mut allocator, first) = asked(7);
    hear(&mut allocator, &first, 1);
    assert_eq!(available(&mut allocator, 1), 4);
    let keyed = Config::parse(&format!("{LEASED}keyed = true")).expect("valid");
    allocator.put(millis(2), &keyed.limits[0], Carry::AsIs, false).expect("there is room");
    assert_ne!(due(&mut allocator, 3).session, first.session);
    // Another life, after a panic.
    assert_ne!(asked(8).1.session, first.session);
}
