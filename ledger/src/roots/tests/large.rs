//! A call that takes nearly all permits of a root, made by a node whose allocator leases from it.

use super::*;
use crate::pool::{GrantOutcome, Pool};
use std::sync::Arc;

/// Round trip of an exchange with the root.
const RTT: Duration = Duration::from_millis(2);

/// Milliseconds between two looks of node, allocator and root.
const STEP: usize = 5;

/// Longest time between two asks of the node, in milliseconds: it asks before its lease ends.
const RENEWS: u64 = 100;

/// Time in which the call must have its permits, in milliseconds. It is less than half of three terms of 161 ms, after
/// which a line that stands still may give all back and begin anew.
const SOON: u64 = 200;

/// The bug: an allocator told the root what a call had lacked before much had come, which was more than its callers
/// waited for. The root took it for a call that it cannot let through. Asks followed each other slowly, and the node
/// gave all back meanwhile.
#[test]
fn a_call_that_takes_nearly_all_of_a_root_has_it_soon() {
    let (mut world, spec) = (World::new(true), spec(1, 1));
    let rules = vec![stricter(&sliding(300, 10 * SECOND), TimeSource::Store).expect("it can be kept")];
    let root = Plan { rules, ease_off: true, ..(**spec.compiled.plan()).clone() };
    let below = Plan { rules: vec![], is_borrowed: true, is_root: false, ease_off: false, ..root.clone() };
    let spec = RootSpec { compiled: CompiledPlan::new(root, TimeSource::Store), ..spec };
    let mut pool = Pool::new(Arc::new(below), millis(0));
    let (mut held, mut next) = (0, 0);
    for (seq, at) in (1..).zip((0..SOON).step_by(STEP)) {
        world.at(at);
        if at >= next {
            let ask = Ask { held, largest: 295, want: 295 - held, waiting: 295, ..Ask::default() };
            let grant = pool.renew(millis(at), holder(7), seq, ask).expect("a good ask").grant();
            let grant = grant.expect("not refused");
            held = grant.kept + grant.permits;
            if held == 295 {
                return;
            }
            next = at + RENEWS.min(u64::try_from(grant.ask_after.as_millis()).expect("not for long"));
        }
        if pool.asks_above(millis(at), RTT) <= millis(at) {
            let ask = pool.ask_above(millis(at), RTT).expect("it leases");
            let grant = world.lent(1, seq, at, &spec, ask);
            assert_eq!(pool.on_grant_above(millis(at), millis(at), &grant), GrantOutcome::Believed);
        }
    }
    panic!("{held} of 295 after {SOON} ms");
}
