//! What the head says of paused limits and blocked nodes.

use super::*;
use crate::overrides::{Decision, Suspended};
use lessor_protocol::NodeName;

/// Stores have heads of earlier versions, which have no stamps.
#[test]
fn a_head_names_its_suspensions_as_it_always_did() {
    let mut head = Head::begin(1, &Timeline::new("a"), millis(0), true);
    let block = Decision::Block(NodeName::try_new("n").expect("valid"));
    head.suspensions_mut().decide("a", &block, millis(0)).expect("there is room");
    let text = String::from_utf8(head.write()).expect("text");
    let gates = r#""gates":{"serial":1000000,"limits":{"a":{"blocked":["n"],"node_stamps":{"n":1000000}}}}"#;
    assert!(text.contains(gates), "{text}");
    assert_eq!(Head::read(text.as_bytes()), Ok(head));
    let earlier = text.replace(r#","node_stamps":{"n":1000000}"#, "");
    assert!(Head::read(earlier.as_bytes()).is_ok_and(|head| head.suspensions().of("a").is_some()));
}

/// A head with a pause of an hour and one without an end, after ten minutes.
fn paused() -> Head {
    let mut head = Head::begin(1, &Timeline::new("a"), millis(0), true);
    for (limit, span) in [("a", Some(3_600 * SECOND)), ("b", None)] {
        head.suspensions_mut().decide(limit, &Decision::Pause(span), millis(0)).expect("there is room");
    }
    let signer = Signer { session: 1, node: String::new() };
    head.sign(&signer, millis(600_000));
    head
}

/// How long the two pauses last from `now` on.
fn left(head: &Head, now: Moment) -> [Option<Duration>; 2] {
    let until = |limit| head.suspensions().of(limit).and_then(Suspended::until);
    ["a", "b"].map(|limit| until(limit).map(|until| until.since(now)))
}

/// The bug: a pause of an hour ended at once, or after a day, for an allocator that heard of it later.
#[test]
fn a_pause_lasts_as_long_however_the_clock_of_the_store_is_set() {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let there = millis(600_000);
    for now in [there + minutes(85), there.before(minutes(24 * 60)), there] {
        let stepped = {
            let mut head = paused();
            head.begin_era(now);
            head
        };
        let moved = {
            let mut head = paused();
            head.lose(&Timeline::new("b"), TimeSource::Store, now);
            head
        };
        for mut head in [stepped, moved] {
            let lasts = [Some(minutes(50)), Some(Moment::NEVER.since(now))];
            assert_eq!(left(&head, now), lasts);
            // Another allocator knows the pauses as they were dated before.
            head.keep_suspensions(paused().suspensions());
            assert_eq!(left(&head, now), lasts);
            let mut known = paused().suspensions().clone();
            known.merge(head.suspensions());
            assert_eq!(known, *head.suspensions());
            // That overrules no decision, made before or after it.
            known.decide("a", &Decision::Resume, now).expect("there is room");
            known.merge(head.suspensions());
            assert!(known.of("a").is_none());
        }
    }
    // A store that lost its head counts eras again, and the last date holds.
    let (mut twice, mut before) = (paused(), there);
    for now in [there + minutes(60), there] {
        let known = twice.suspensions().clone();
        twice.suspensions_mut().date_anew(2, before, now);
        twice.keep_suspensions(&known);
        assert_eq!(left(&twice, now)[0], Some(minutes(50)));
        before = now;
    }
    let mut over = paused();
    let signer = Signer { session: 1, node: String::new() };
    over.sign(&signer, millis(7_200_000));
    over.begin_era(millis(0));
    assert_eq!(left(&over, millis(0))[0], Some(Duration::ZERO), "what was over is not there again");
}
