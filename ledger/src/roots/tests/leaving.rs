//! An allocator that stops takes its name off the head, whatever it was in the middle of.

use super::several::{Allocator, Servers};
use super::*;

/// Two allocators that have signed.
fn both() -> (Servers, Allocator, Allocator) {
    let mut servers = Servers::new();
    let (mut east, mut west) = (Allocator::new(1), Allocator::new(2));
    east.sign(&mut servers, 0);
    west.sign(&mut servers, 0);
    (servers, east, west)
}

/// The names in the head.
fn here(servers: &Servers) -> Vec<String> {
    Head::read(&servers.cells[HEAD].value).expect("a head").here(millis(300)).map(str::to_owned).collect()
}

fn leave(allocator: &mut Allocator, servers: &mut Servers) {
    let first = allocator.member.leave(millis(300), &mut allocator.host).expect("it was there");
    allocator.carry(servers, first, millis(300));
}

/// The bug: an allocator in the middle of a call forgot the head, and left without a word.
#[test]
fn it_leaves_in_the_middle_of_a_call() {
    let (mut servers, mut east, _) = both();
    let first = east.member.sign(1, millis(260), &mut east.host).expect("it is time to");
    let Next::Call(call) = first else { panic!("{first:?}") };
    let said = servers.answer(call, millis(260));
    let Next::Call(swap) = east.member.on_answer(said, millis(260), &mut east.host) else {
        panic!("it signs")
    };
    // The store does it, and no answer comes before the end.
    servers.answer(swap, millis(260)).expect("it is there");
    leave(&mut east, &mut servers);
    assert_eq!(here(&servers), ["2"]);
}

/// The bug: the allocator did not try again.
#[test]
fn it_leaves_though_another_one_signed_meanwhile() {
    let (mut servers, mut east, mut west) = both();
    west.sign(&mut servers, 260);
    leave(&mut east, &mut servers);
    assert_eq!(here(&servers), ["2"]);
    leave(&mut west, &mut servers);
    assert_eq!(here(&servers), [""; 0]);
}

#[test]
fn one_that_was_never_there_has_nothing_to_say() {
    let mut east = Allocator::new(1);
    assert!(east.member.leave(millis(0), &mut east.host).is_none());
}

/// The store is on another timeline than the head. The allocators that go on judge that head.
#[test]
fn it_writes_no_head_of_another_timeline() {
    let (mut servers, mut east, _) = both();
    east.member.give_up(millis(260));
    servers.ids = [2, 2];
    leave(&mut east, &mut servers);
    assert_eq!(here(&servers), ["1", "2"]);
}
