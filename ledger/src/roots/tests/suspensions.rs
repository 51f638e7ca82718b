//! What the head says of paused limits and blocked nodes.

use super::several::{Allocator, Servers};
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

/// The bug: the next era after the last number overflowed.
#[test]
fn a_head_of_an_era_that_none_can_follow_is_refused() {
    let written =
        String::from_utf8(Head::begin(1, &Timeline::new("a"), millis(0), true).write()).expect("text");
    let refused =
        |era: u64| Head::read(written.replace("\"era\":1", &format!("\"era\":{era}")).as_bytes()).is_err();
    assert!(!refused(2) && refused(u64::MAX));
}

/// The bug: all decisions after such a stamp had the same one. Of two of them the one that lends less holds, so a pause
/// never ended.
#[test]
fn a_head_with_a_decision_that_none_can_follow_is_refused() {
    let mut head = Head::begin(1, &Timeline::new("a"), millis(0), true);
    let node = NodeName::try_new("n").expect("valid");
    for decision in [Decision::Pause(Some(3_600 * SECOND)), Decision::Block(node)] {
        head.suspensions_mut().decide("a", &decision, millis(0)).expect("there is room");
    }
    head.suspensions_mut().date_anew(3, millis(0), millis(1));
    let written = String::from_utf8(head.write()).expect("text");
    let [pause, block] = [0, 1].map(|later| millis(0).as_nanos() / 1_000_000 + later);
    for said in [
        format!("\"serial\":{block}"),
        format!("\"pause_stamp\":{pause}"),
        "\"pause_era\":3".to_owned(),
        format!("\"node_stamps\":{{\"n\":{block}"),
    ] {
        let (name, number) = said.rsplit_once(':').expect("a name and its number");
        assert_eq!(written.matches(&said).count(), 1, "{said} in {written}");
        let with = |other: u64| {
            let number: u64 = number.parse().expect("a number");
            Head::read(written.replace(&said, &format!("{name}:{}", other.max(number))).as_bytes())
        };
        assert!(with(0).is_ok() && with(u64::MAX).is_err(), "{said}");
    }
    // A stamp above the serial can be followed.
    let stamp = format!("\"pause_stamp\":{pause}");
    let mut later =
        Head::read(written.replace(&stamp, "\"pause_stamp\":4000000000000000000").as_bytes()).expect("fits");
    let known = later.suspensions().clone();
    later.suspensions_mut().decide("a", &Decision::Resume, millis(2)).expect("there is room");
    later.keep_suspensions(&known);
    assert_eq!(later.suspensions().of("a").and_then(Suspended::until), None, "it was resumed");
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

/// The bug: the new server of a store that had lost everything has a clock of its own, and the pauses that allocators
/// brought there kept the dates of the old one. An hour was over at once, or lasted longer. Then an allocator that came
/// there ten minutes later dated the pause once more.
#[test]
fn a_pause_lasts_as_long_in_a_store_that_was_emptied_and_has_another_clock() {
    for ahead in [-600_i64, 86_400] {
        let mut servers = Servers::new();
        let mut all = [Allocator::new(1), Allocator::new(2)];
        let pause = Decision::Pause(Some(3_600 * SECOND));
        all[0].host.suspensions.decide("a", &pause, millis(0)).expect("there is room");
        for at in [0, 250, 500] {
            all.iter_mut().for_each(|allocator| allocator.sign(&mut servers, at));
        }
        (servers.ids, servers.ahead) = ([2, 2], ahead);
        servers.cells.clear();
        for at in (3..=2_400).map(|quarter| 250 * quarter) {
            all[0].signs(&mut servers, at);
        }
        all[1].signs(&mut servers, 600_000);
        let cell = servers.cells[HEAD].clone();
        let head = Head::read(&cell.value).expect("a head");
        for suspensions in [head.suspensions(), &all[0].host.suspensions, &all[1].host.suspensions] {
            let left =
                suspensions.of("a").and_then(Suspended::until).map(|until| until.since(head.written()));
            assert!(left.is_some_and(|left| left.abs_diff(3_000 * SECOND) < 5 * SECOND), "{ahead}: {left:?}");
        }
    }
}
