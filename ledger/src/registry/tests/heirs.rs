//! Tests of names and keys that fall from one limit, or one pool, to another.

use super::*;
use crate::CarryOver;
use crate::pool::{Holder, SessionId};
use crate::rule::Gap;
use crate::share::Share;
use lessor_protocol::Ask;

const RULE: &str = "rules = [{ kind = \"sliding_window\", limit = 10, per = \"10s\", margin = \"0s\" }]";

fn limits(names: &[&str]) -> Config {
    let limit = |name: &&str| format!("[[limit]]\nname = {name:?}\n{RULE}\n");
    config(&names.iter().map(limit).collect::<String>())
}

fn holder() -> Holder {
    Holder { id: SessionId(1), share: Share::EVEN, rtt: Duration::ZERO }
}

fn put(registry: &mut Registry, name: &str, now: u64) {
    registry.put(millis(now), &limits(&[name]).limits[0], CarryOver::AsIs, false).expect("room");
}

fn lent(registry: &Registry, name: &str, now: u64) -> u64 {
    let lent = |session| {
        // New sessions each time, so that none gives back what it was lent.
        let node = Caller { session: 100 * now + session, ..caller(now) };
        registry.leases(millis(now), &node, &[ask(name, None, 0, 0, 10)]).grants.remove(0).permits
    };
    (1..30).map(lent).sum()
}

/// The bug: after a change of the limit a key with rules of its own began by the rules of all other keys, once its own
/// unused pool had been forgotten. `vip` was lent by the bucket of the others, where it may have 200 a minute.
#[test]
fn a_key_with_rules_of_its_own_begins_by_them_after_a_change() {
    let text = |refill: u64| {
        format!(
            "[[limit]]\nname = \"a\"\nkeyed = true\n\
             rules = [{{ kind = \"token_bucket\", capacity = 100, refill = {refill}, per = \"20m\", initial = 5 }}]\n\
             [[limit.override]]\nkey = \"vip\"\n\
             rules = [{{ kind = \"sliding_window\", limit = 200, per = \"60s\", margin = \"0s\" }}]\n"
        )
    };
    let mut registry = config(&text(80)).registry(Past::None, millis(0), 7);
    registry.put(millis(10), &config(&text(90)).limits[0], CarryOver::AsIs, false).expect("room");
    registry.sweep(millis(20), 100);
    let limit = registry.limit("a").expect("it is there");
    let vip = limit.pool_id("a", Some("vip")).expect("a key");
    limit.renew(millis(30), &vip, holder(), 1, Ask::default()).expect("room");
    assert_eq!(limit.view(millis(30), &vip).map(|view| view.available), Some(200));
    // What it was lent counts for a minute, and not until a bucket has refilled.
    let spends = Ask { want: 200, waiting: 200, ..Ask::default() };
    let grant = limit.renew(millis(40), &vip, holder(), 2, spends).expect("true").grant().expect("it lends");
    let left = limit.view(millis(59_000), &vip).map(|view| view.available);
    assert_eq!(left, Some(200 - grant.permits));
}

/// The bug: a pattern was removed, and its names fell to a shorter one. When it came back it lent once more what the
/// shorter one had lent. It also did so at the next start, if the file had it again.
#[test]
fn a_pattern_that_comes_back_waits_for_what_was_lent_meanwhile() {
    let both = limits(&["u/*", "u/a*"]);
    for starts_again in [false, true] {
        let (mut registry, mut written) = writing(&both);
        let before = lent(&registry, "u/a0", 10);
        write(&mut registry, &mut written, 11);
        assert!(registry.remove("u/a*"));
        let meanwhile = lent(&registry, "u/a1", 20);
        assert!(before > 8 && meanwhile > 8, "{before} and {meanwhile}");
        write(&mut registry, &mut written, 21);
        match starts_again {
            true => registry = both.restored(&written, Gap::Counted, millis(30), 8),
            false => put(&mut registry, "u/a*", 30),
        }
        assert_eq!(lent(&registry, "u/a1", 4_000), 0, "{starts_again}");
        assert!(before + lent(&registry, "u/a0", 4_010) <= 10, "{starts_again}");
        // Nothing was lent by other names.
        assert_eq!(lent(&registry, "u/b", 4_020), 10, "{starts_again}");
        assert_eq!(lent(&registry, "u/a0", 14_000), 10, "{starts_again}: its pool waits for nothing else");
        assert_eq!(lent(&registry, "u/a1", 60_000), 10, "{starts_again}: all of that has left the window");
    }
}

/// The bug: after a start a pattern waited for what a limit had lent that was not configured any more. The pattern was
/// removed, too, and the name fell to a shorter pattern that waited for nothing.
#[test]
fn a_name_waits_though_the_pattern_is_removed_that_waited_for_it() {
    for (departed, name) in [("u/7", "u/7"), ("u/7*", "u/71")] {
        let (mut registry, mut written) = writing(&limits(&["*", "u/*", departed]));
        assert!(lent(&registry, name, 10) > 8 && lent(&registry, "v", 10) > 8);
        write(&mut registry, &mut written, 11);
        let mut registry = limits(&["*", "u/*"]).restored(&written, Gap::Counted, millis(30), 8);
        assert!(registry.remove("u/*"));
        assert_eq!(lent(&registry, name, 40), 0, "{departed}");
        let others = (lent(&registry, "u/8", 50), lent(&registry, "w", 60));
        assert_eq!(others, (10, 10), "nothing was lent by these: {departed}");
        registry.sweep_retired(millis(4_000), 10);
        assert_eq!(lent(&registry, name, 4_000), 0, "{departed}");
        registry.sweep_retired(millis(60_000), 10);
        assert_eq!(lent(&registry, name, 60_000), 10, "all of that has left the window: {departed}");
    }
}

/// The bug: a bucket that begins with less than it holds never looks new again, so no pool of a key was ever forgotten.
/// Once there were as many keys as may be, each new key was refused for ever.
#[test]
fn keys_whose_buckets_begin_with_less_than_they_hold_make_room_for_new_ones() {
    let rule = "{ kind = \"token_bucket\", capacity = 10, refill = 10, per = \"1s\", initial = 5 }";
    let text = format!("[[limit]]\nname = \"a\"\nkeyed = true\nkeys_max = 5\nrules = [{rule}]\n");
    let mut registry = config(&text).registry(Past::None, millis(0), 7);
    let lent = |registry: &Registry, now: u64, key: u64| {
        let node = Caller { session: now, ..caller(1) };
        registry.leases(millis(now), &node, &[ask("a", Some(&key.to_string()), 0, 0, 6)]).grants.remove(0)
    };
    (0..5).for_each(|key| assert!(lent(&registry, 10, key).permits > 0));
    assert_eq!(error(&lent(&registry, 20, 5)).0, code::KEYS_FULL, "those that were used a moment ago go on");
    (0..20).for_each(|n| registry.sweep(millis(100_000 + n), 100));
    let available = |registry: &mut Registry, key: &str| {
        let limit = registry.limit("a").expect("it is there");
        let id = limit.pool_id("a", Some(key)).expect("a key");
        limit.view(millis(101_000), &id).map(|view| view.available)
    };
    assert_eq!(
        available(&mut registry, "0"),
        Some(10),
        "what a key has saved up is kept while there is room"
    );
    (6..9).for_each(|key| assert!(lent(&registry, 102_000, key).permits > 0, "key {key}"));
    let there = (0..9).filter(|key: &u64| available(&mut registry, &key.to_string()).is_some());
    assert_eq!(there.count(), 5);
}

/// The bug: a limit with such a bucket was remembered for ever when it was removed. Its name stayed unknown, though it
/// fits a pattern.
#[test]
fn a_removed_limit_whose_bucket_begins_with_less_than_it_holds_is_forgotten() {
    let bucket =
        "rules = [{ kind = \"token_bucket\", capacity = 10, refill = 10, per = \"1s\", initial = 5 }]";
    let limit = |more: &str| format!("[[limit]]\nname = \"u/7\"\n{more}\n{bucket}\n");
    let pattern = format!("[[limit]]\nname = \"u/*\"\n{RULE}\n");
    for (more, key) in [("", None), ("keyed = true", Some("k"))] {
        let mut registry =
            config(&[limit(more), pattern.clone()].concat()).registry(Past::None, millis(0), 7);
        let grant = registry.leases(millis(10), &caller(1), &[ask("u/7", key, 0, 0, 1)]).grants.remove(0);
        assert_eq!(grant.permits, 1);
        assert!(registry.remove("u/7"));
        assert_eq!(lent(&registry, "u/7", 20), 0);
        (0..20).for_each(|n| registry.sweep_retired(millis(100_000 + n), 10));
        assert_eq!((registry.retired(), lent(&registry, "u/7", 100_100)), (0, 10));
    }
}

/// The bug: `--fresh` was of no effect on a limit that was new in the file, once the store knew any other one.
#[test]
fn only_what_nothing_written_can_have_lent_begins_afresh() {
    let limit = |name: &str, more: &str| format!("[[limit]]\nname = {name:?}\n{RULE}\n{more}");
    let (_, mut written) = writing(&limits(&["a", "r*", "below"]));
    let all = limit("a", "")
        + &limit("r*", "")
        + &limit("rx", "")
        + &limit("new/*", "")
        + &limit("above", "")
        + &limit("below", "parent = \"above\"\n")
        + &limit("new", "")
        + &limit("newer", "parent = \"new\"\n");
    let all = config(&all);
    let mut after = all.restored(&written, Gap::Counted, millis(10), 8);
    let waiting = |registry: &Registry| {
        let names = registry.quarantined(millis(10));
        names.into_iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(waiting(&after), ["above", "below", "new", "new/*", "newer", "rx"]);
    let begun = after.begin_unknown_afresh(&all.limits, all.clocks, &written, millis(10));
    assert_eq!(begun, ["new/*", "new", "newer"]);
    assert_eq!(
        waiting(&after),
        ["above", "below", "rx"],
        "they may have lent by other names, or have limits below"
    );
    let mut registry = after;
    registry.begin_writing(0);
    write(&mut registry, &mut written, 10);
    let again = all.restored(&written, Gap::Counted, millis(20), 9);
    assert!(written.limits.contains_key("new"), "it is known from the first batch on");
    assert_eq!(again.quarantined(millis(20)).len(), 3);
}

/// The bug: a limit with a new name in the file, in place of one that had lent all permits, lent them again at once.
#[test]
fn a_limit_that_may_have_another_name_now_does_not_begin_afresh() {
    let mut before = limits(&["a"]).registry(Past::None, millis(0), 7);
    let mut written = Written::default();
    before.begin_writing(0);
    assert_eq!(lent(&before, "a", 1), 10);
    write(&mut before, &mut written, 2);
    for (names, expected) in [(&["b"][..], 0), (&["a", "b"], 10)] {
        let config = limits(names);
        let mut after = config.restored(&written, Gap::Counted, millis(10), 8);
        let begun = after.begin_unknown_afresh(&config.limits, config.clocks, &written, millis(10));
        assert_eq!((lent(&after, "b", 20), begun.len()), (expected, usize::from(expected > 0)), "{names:?}");
    }
}

/// The bug: a limit that was gone for one start was forgotten while its month went on. With `--fresh` in the command of
/// a service manager it lent all permits once more when it came back, or when it came back by another name.
#[test]
fn a_limit_that_is_gone_for_a_start_does_not_begin_afresh_while_its_permits_count() {
    const DAY: u64 = 24 * 60 * 60 * 1000;
    const FIXED: &str = "kind = \"fixed_window\", limit = 10, per = \"30d\"";
    // What is lent by these counts for 30 days, too.
    const SLIDING: &str = "kind = \"sliding_window\", limit = 10, per = \"20d\", margin = \"10d\"";
    const LOG: &str = "kind = \"sliding_log\", limit = 10, per = \"20d\", margin = \"10d\"";
    // It gains nothing before the 30 days are over.
    const INTERVAL: &str = "kind = \"token_bucket\", capacity = 10, refill = 20, per = \"30d\", \
                            refill_style = \"interval\"";
    // Warm, it is full after ten days, and cold, after 30.
    const COLD: &str = "kind = \"token_bucket\", capacity = 10, refill = 1, per = \"1d\", \
                        warm_up = { over = \"300d\" }";
    let start = |written: &Written, text: &str, now: u64| {
        let config = config(text);
        let mut registry = config.restored(written, Gap::Counted, millis(now), 8);
        let begun = registry.begin_unknown_afresh(&config.limits, config.clocks, written, millis(now));
        registry.begin_writing(0);
        (registry, begun)
    };
    let run = |registry: &mut Registry, written: &mut Written, now: u64| {
        write(registry, written, now);
        registry.sweep_retired(millis(now + 10), 10);
        write(registry, written, now + 20);
    };
    let other = format!("[[limit]]\nname = \"c\"\n{RULE}\n");
    for (rule, removed) in
        [(FIXED, false), (FIXED, true), (SLIDING, false), (LOG, false), (INTERVAL, false), (COLD, false)]
    {
        let month = |name: &str| format!("[[limit]]\nname = {name:?}\nrules = [{{ {rule} }}]\n");
        let mut written = Written::default();
        let mut first = config(&(month("a") + &other)).registry(Past::None, millis(0), 7);
        first.begin_writing(0);
        assert_eq!(lent(&first, "a", 1), 10);
        if removed {
            assert!(first.remove("a"));
        }
        run(&mut first, &mut written, 100);
        // Whatever the number of starts in between, each of which writes all rows.
        for now in [DAY, 2 * DAY] {
            let (mut registry, begun) = start(&written, &other, now);
            assert_eq!(begun, [""; 0]);
            run(&mut registry, &mut written, now);
            assert!(written.limits.contains_key("a"), "what it lent counts");
        }
        for name in ["a", "b"] {
            let (after, begun) = start(&written, &(month(name) + &other), 3 * DAY);
            assert_eq!((lent(&after, name, 3 * DAY + 1), begun.len()), (0, 0), "{name}");
        }
        let (_, begun) = start(&written, &(month("b") + &other), 28 * DAY);
        assert_eq!(begun, [""; 0], "{rule}");
        // A month after it was seen last it may have any name.
        let (after, begun) = start(&written, &(month("b") + &other), 32 * DAY);
        assert_eq!((lent(&after, "b", 32 * DAY + 1), begun.len()), (10, 1));
        let (mut after, _) = start(&written, &other, 32 * DAY);
        run(&mut after, &mut written, 32 * DAY);
        assert_eq!(written.limits.keys().collect::<Vec<_>>(), ["c"], "it is forgotten");
    }
}

/// The bug: a limit that was put and removed replaced what an earlier run had left of another one of its name, once the
/// books were broken.
#[test]
fn what_an_earlier_run_left_is_kept_beside_a_shorter_limit_of_its_name() {
    let month = "[[limit]]\nname = \"a\"\nrules = [{ kind = \"fixed_window\", limit = 10, per = \"30d\" }]";
    let mut written = Written::default();
    let mut first = config(month).registry(Past::None, millis(0), 7);
    first.begin_writing(0);
    assert_eq!(lent(&first, "a", 1), 10);
    write(&mut first, &mut written, 100);
    let mut broken = limits(&["c"]).restored(&written, Gap::Counted, millis(1_000), 8);
    put(&mut broken, "a", 1_010);
    assert!(broken.remove("a"));
    let mut next = limits(&["c"]).registry(Past::None, millis(1_020), 9);
    next.keep_decisions_of(&mut broken, millis(1_020));
    assert!(next.departed["a"].counts(millis(20 * 24 * 60 * 60 * 1_000)), "a month is not over");
}

fn window(name: &str, per: &str) -> String {
    format!(
        "[[limit]]\nname = {name:?}\nrules = [{{ kind = \"fixed_window\", limit = 10, per = {per:?} }}]\n"
    )
}

/// The bug: a limit was put by the name of one that was gone. Its row replaced what the store knew of the other one, so
/// a third limit lent all permits once more.
#[test]
fn what_an_earlier_run_left_is_known_whatever_is_put_by_its_name() {
    for is_removed in [true, false] {
        let mut first = config(&window("a", "30d")).registry(Past::None, millis(0), 7);
        let mut written = Written::default();
        first.begin_writing(0);
        assert_eq!(lent(&first, "a", 1), 10);
        write(&mut first, &mut written, 100);
        let mut second = config(&window("c", "1s")).restored(&written, Gap::Counted, millis(1_000), 8);
        second.begin_writing(0);
        write(&mut second, &mut written, 1_000);
        let short = window("a", "1s");
        second.put(millis(1_010), &config(&short).limits[0], CarryOver::AsIs, false).expect("room");
        write(&mut second, &mut written, 1_020);
        if is_removed {
            assert!(second.remove("a"));
            second.sweep_retired(millis(20_000), 10);
            assert_eq!(second.retired(), 0);
            write(&mut second, &mut written, 20_000);
            assert!(written.limits.contains_key("a"), "a pattern waits for what the earlier one lent");
        }
        let of_api = if is_removed { String::new() } else { short };
        let new = config(&(of_api + &window("b", "30d") + &window("c", "1s")));
        let mut third = new.restored(&written, Gap::Counted, millis(30_000), 9);
        let begun = third.begin_unknown_afresh(&new.limits, new.clocks, &written, millis(30_000));
        assert_eq!((begun.len(), lent(&third, "b", 30_001)), (0, 0), "removed: {is_removed}");
    }
}

/// The bug: a limit had other rules in the file, and a new one had the earlier ones, which lent all permits once more.
#[test]
fn rules_of_a_limit_may_have_another_name_now() {
    let keyed = window("a", "30d").replace("rules", "keyed = true\nrules");
    for (before, now) in [(window("a", "30d"), window("a", "1s")), (keyed, window("a", "30d"))] {
        let mut written = Written::default();
        let mut first = config(&before).registry(Past::None, millis(0), 7);
        first.begin_writing(0);
        write(&mut first, &mut written, 100);
        // Also at a later start that names the new limit.
        let mut second = config(&now).restored(&written, Gap::Counted, millis(1_000), 8);
        let mut again = Written::default();
        second.begin_writing(0);
        write(&mut second, &mut again, 1_000);
        let new = config(&(now + &window("b", "30d")));
        for written in [written, again] {
            let mut third = new.restored(&written, Gap::Counted, millis(2_000), 9);
            assert_eq!(
                third.begin_unknown_afresh(&new.limits, new.clocks, &written, millis(2_000)),
                [""; 0],
                "{before}"
            );
            assert_eq!(lent(&third, "b", 2_001), 0, "{before}");
        }
    }
}

/// The bug: a leased limit that was gone kept other limits from beginning afresh for a year. Its upstream knows what is
/// out of it.
#[test]
fn a_leased_limit_that_is_gone_keeps_no_other_from_beginning_afresh() {
    for removed in [false, true] {
        let leased = "[[limit]]\nname = \"a\"\nupstream = \"http://centre:1\"\n";
        let other = format!("[[limit]]\nname = \"c\"\n{RULE}\n");
        let mut first = config(&(leased.to_owned() + &other)).registry(Past::None, millis(0), 7);
        let mut written = Written::default();
        first.begin_writing(0);
        if removed {
            assert!(first.remove("a"));
        }
        write(&mut first, &mut written, 100);
        assert!(written.limits.contains_key("a"));
        let mut second = config(&other).restored(&written, Gap::Counted, millis(200), 8);
        second.begin_writing(0);
        write(&mut second, &mut written, 300);
        let now = millis(60_000);
        let new = limits(&["b", "c"]);
        let mut third = new.restored(&written, Gap::Counted, now, 9);
        assert_eq!(third.begin_unknown_afresh(&new.limits, new.clocks, &written, now), ["b"], "{removed}");
    }
}
