//! Tests of pools that come and go with their keys, and of the sums over them.

mod past;
mod resting;
mod room;

use super::*;
use crate::CarryOver;
use crate::fixtures::millis;
use crate::pool::{Books, Holder, PoolView};
use crate::registry::Upstream;
use crate::registry::fixtures::Config;
use crate::rejection::{AskRejection, Reason};
use crate::rule::{Gap, Ledger};
use crate::share::Share;
use crate::sizing::Scarcity;
use lessor_protocol::{Answer, Ask, Key};
use std::collections::BTreeSet;
use std::ops::Bound;

/// Checks that the sums match the existing pools, and that every permit is accounted for.
#[track_caller]
fn audit(limit: &mut Limit, now: Moment) {
    let count = limit.pools.len();
    limit.pools.reach_all(&mut limit.tally);
    for entry in limit.pools.entries() {
        entry.with(|kept| limit.tally.count(&mut kept.counted, kept.pool.view(now)));
    }
    let views = limit.views(now, Bound::Unbounded, count + 1);
    let total = views.iter().fold(Books::default(), |sum, (_, view)| sum.plus(view.books));
    let sums = limit.figures(now).sums;
    assert!(sums.balance(), "{sums:?}");
    assert_eq!(sums.outstanding, total.outstanding);
    assert_eq!(sums.sessions, views.iter().map(|(_, view)| view.sessions).sum::<u64>());
    assert_eq!(sums.available, views.iter().map(|(_, view)| u128::from(view.available)).sum::<u128>());
    assert!(sums.granted >= total.granted && sums.spent >= total.spent && sums.burned >= total.burned);
    let (forecast, standing) = (limit.figures(now).forecast, |view: &PoolView| view.forecast.standing);
    let stand = |so| views.iter().filter(|(_, view)| standing(view) == so).count() as u64;
    assert_eq!([forecast.drain, forecast.trickle], [Scarcity::Draining, Scarcity::Scarce].map(stand));
    assert_eq!(forecast.time_to_empty, views.iter().filter_map(|(_, view)| view.time_to_empty).min());
}

fn ids(limit: &Limit) -> impl Iterator<Item = &PoolId> {
    std::iter::successors(limit.pools.next(None), |id| limit.pools.next(Some(id)))
}

/// Takes the pools that are to be written.
fn unwritten(limit: &mut Limit) -> Vec<PoolId> {
    let (mut pools, _) = limit.take_unwritten();
    pools.extend(std::iter::from_fn(|| limit.next_of_all()).map(|(id, _)| id));
    pools
}

fn limit(options: &str) -> Limit {
    let rule = "{ kind = \"token_bucket\", capacity = 10, refill = 10, per = \"1s\" }";
    let text = format!("[[limit]]\nname = \"a\"\nrules = [{rule}]\n{options}");
    let config = Config::parse(&text).expect("valid");
    Limit::new(config.limits[0].clone(), config.clocks, Past::None, millis(0))
}

fn key(text: &str) -> PoolId {
    Some(Key::try_new(text).expect("valid")).into()
}

const A: Holder = Holder { id: SessionId(1), share: Share::EVEN, rtt: Duration::ZERO };

/// Asks for `want` permits of `key`, having spent `spent_total`. Returns the permits granted.
fn ask(
    limit: &mut Limit,
    at: u64,
    key: &str,
    seq: u64,
    spent_total: u64,
    want: u64,
) -> Result<u64, AskRejection> {
    let ask = Ask { spent_total, want, waiting: want, ..Ask::default() };
    limit.renew(millis(at), &self::key(key), A, seq, ask).map(Answer::permits)
}

#[test]
fn a_key_has_a_pool_from_its_first_use_until_it_looks_new_again() {
    let mut limit = limit("keyed = true");
    assert_eq!(limit.figures(millis(0)).pools, 0);
    assert_eq!(limit.view(millis(0), &key("x")), None, "looking makes nothing");
    assert_eq!(ask(&mut limit, 0, "x", 1, 0, 4), Ok(4));
    assert_eq!(ask(&mut limit, 0, "y", 1, 0, 5), Ok(5), "counted apart");
    assert_eq!(ask(&mut limit, 20, "x", 2, 4, 0), Ok(0));
    audit(&mut limit, millis(20));
    limit.sweep(millis(400), 10);
    assert_eq!(limit.figures(millis(400)).pools, 2, "neither bucket is full again");
    audit(&mut limit, millis(400));
    limit.sweep(millis(11_000), 10);
    let figures = limit.figures(millis(11_000));
    assert_eq!((figures.pools, figures.sums.sessions, figures.sums.available), (0, 0, 0));
    let sums = figures.sums;
    assert_eq!((sums.granted, sums.spent, sums.burned), (9, 4, 5), "what was done stays counted");
    assert!(sums.balance());
}

/// The limit may not look at pools of unused keys for seconds. Their forecasts end all the same.
#[test]
fn how_keys_stand_is_over_when_they_are_quiet() {
    let mut limit = limit("keyed = true");
    let keys: Vec<String> = (0..50).map(|index| format!("k{index}")).collect();
    for (index, text) in keys.iter().enumerate() {
        let demand_milli = if index < 20 { 1_000 } else { 200_000 };
        let ask = Ask { want: 1, demand_milli, ..Ask::default() };
        limit.renew(millis(0), &key(text), A, 1, ask).expect("there is room");
    }
    let forecast = limit.figures(millis(0)).forecast;
    assert_eq!((forecast.drain, forecast.trickle), (30, 0));
    assert!(forecast.time_to_empty.is_some_and(|empty| empty < Duration::from_millis(150)), "{forecast:?}");
    assert_eq!(limit.figures(millis(0)).by_standing(), [("rich", 20), ("drain", 30), ("trickle", 0)]);
    audit(&mut limit, millis(0));
    assert_eq!(
        limit.figures(millis(500)).forecast,
        ForecastSum::default(),
        "three terms, and a quarter of a second"
    );
    // Pools that are asked again do not count twice, and pools that go take their forecasts with them.
    for (text, at) in keys.iter().take(10).zip(400..) {
        let ask = Ask { want: 100, waiting: 100, demand_milli: 200_000, ..Ask::default() };
        limit.renew(millis(at), &key(text), A, 2, ask).expect("there is room");
    }
    let forecast = limit.figures(millis(410)).forecast;
    assert_eq!((forecast.drain, forecast.trickle), (10, 0));
    assert_eq!(forecast.time_to_empty, Some(Duration::ZERO), "a hundred wait, for ten at most");
    audit(&mut limit, millis(410));
    limit.sweep(millis(60_000), 100);
    limit.sweep(millis(120_000), 100);
    assert_eq!(limit.pools.len(), 0);
    assert_eq!(limit.figures(millis(120_000)).forecast, ForecastSum::default());
}

#[test]
fn at_the_bound_a_new_key_is_refused_and_old_ones_go_on() {
    let mut limit = limit("keyed = true\nkeys_max = 2");
    assert_eq!(ask(&mut limit, 0, "x", 1, 0, 1), Ok(1));
    assert_eq!(ask(&mut limit, 0, "y", 1, 0, 1), Ok(1));
    let refused = ask(&mut limit, 1, "z", 1, 0, 1).expect_err("there is no room");
    assert_eq!((refused.reason, refused.field.as_deref()), (Reason::KeysFull, Some("key")));
    assert_eq!(refused.detail, "\"a\" has 2 keys in use, as many as it may; those go on");
    assert_eq!(ask(&mut limit, 2, "x", 2, 1, 1), Ok(1));
    audit(&mut limit, millis(2));
    assert_eq!(ask(&mut limit, 11_000, "z", 1, 0, 1), Ok(1), "the others look new again");
    audit(&mut limit, millis(11_000));
}

/// Each new key pays for more of the sweep than it adds, so no timer is needed to keep up with a flood.
#[test]
fn a_flood_of_keys_is_swept_as_it_comes() {
    let mut limit = limit("keyed = true\nkeys_max = 10000");
    for n in 0..5_000u64 {
        // Ten keys a second, each remembered for ten seconds and a little.
        ask(&mut limit, n * 100, &n.to_string(), 1, 0, 1).expect("there is room");
        assert!(limit.pools.len() <= 150, "{} pools after {n} keys", limit.pools.len());
    }
    audit(&mut limit, millis(500_000));
}

#[test]
fn a_limit_without_keys_keeps_its_pool() {
    let mut limit = limit("");
    for at in [0, 5_000] {
        limit.sweep(millis(at), 10);
        assert_eq!(limit.figures(millis(at)).pools, 1);
    }
    assert_eq!(limit.key(Some("x")).expect_err("no keys").reason, Reason::KeyMismatch);
    assert_eq!(limit.key(None), Ok(None));
}

#[test]
fn keys_are_checked() {
    let limit = limit("keyed = true");
    assert_eq!(limit.key(None).expect_err("no key").reason, Reason::KeyMismatch);
    assert_eq!(limit.key(Some("")).expect_err("empty").detail, "key is empty");
    let long = limit.key(Some(&"x".repeat(1 << 20))).expect_err("a megabyte");
    assert_eq!(long.detail, "key is 1048576 bytes long, at most 256 are allowed");
    assert_eq!(limit.key(Some("user 42")), Ok(key("user 42").key));
}

/// A report that comes after its lease has burned takes permits off `burned` in the books. Prometheus would read a
/// counter that falls as a restart, so burned permits and late reports are counted apart.
#[test]
fn what_burned_is_a_count_that_never_falls() {
    let mut limit = limit("keyed = true");
    assert_eq!(ask(&mut limit, 0, "x", 1, 0, 5), Ok(5));
    assert_eq!(ask(&mut limit, 200, "x", 2, 3, 0), Ok(0));
    let sums = limit.figures(millis(200)).sums;
    assert_eq!((sums.burned, sums.reported_late), (5, 5));
    assert_eq!((sums.spent, sums.returned), (3, 2));
    audit(&mut limit, millis(200));
}

#[test]
fn after_a_loss_pools_of_new_keys_wait_too() {
    let config = Config::parse("[[limit]]\nname = \"a\"\nkeyed = true\nrules = [{ kind = \"sliding_window\", limit = 10, per = \"5s\", margin = \"0s\" }]").expect("valid");
    let mut limit = Limit::new(config.limits[0].clone(), config.clocks, Past::Lost(millis(0)), millis(0));
    let wait = limit.quarantine(millis(0));
    let window = Ledger::new(&config.limits[0].rules[0], config.clocks, millis(0)).account().memory();
    assert!(
        wait > std::time::Duration::from_secs(7) && wait < window + config.clocks.quarantine() + wait / 100
    );
    let early = Ask { want: 1, waiting: 1, ..Ask::default() };
    let answer = limit.renew(millis(1_000), &key("x"), A, 1, early).expect("a refusal is an answer");
    assert!(matches!(answer, Answer::Refusal(_)), "{answer:?}");
    assert_eq!(limit.figures(millis(1_000)).sums.answered.by_outcome()[3], ("quarantine", 1));
    assert_eq!(ask(&mut limit, 8_000, "y", 1, 0, 1), Ok(1));
    audit(&mut limit, millis(8_000));
}

/// A window keeps a limit shut for ten seconds after a loss. Meanwhile its bucket is changed to a hundred times the
/// refill, with which it would have filled up in that time.
#[test]
fn what_refills_by_rules_of_now_does_so_from_now_on() {
    let with = |bucket: &str| {
        let window = "{ kind = \"sliding_window\", limit = 9000, per = \"10s\", margin = \"0s\" }";
        let bucket = format!("{{ kind = \"token_bucket\", per = \"1s\", {bucket} }}");
        let text = format!("[[limit]]\nname = \"a\"\nrules = [{window}, {bucket}]");
        Config::parse(&text).expect("valid").limits.remove(0)
    };
    let clocks = ClockBounds::try_new(0).expect("no drift");
    let slow = with("capacity = 10, refill = 1");
    let mut limit = Limit::new(slow, clocks, Past::Lost(millis(0)), millis(0));
    limit.change(with("capacity = 1000, refill = 100"), CarryOver::AsIs, millis(10_000));
    assert!(!limit.quarantine(millis(10_000)).is_zero());
    let view = limit.view(millis(13_000), &PoolId::default()).expect("it is there");
    assert_eq!((view.available, view.quarantine), (300, Duration::ZERO));
}

/// The bug: a new cap began to lend when its own calls would have ended, while longer calls of the cap before went on.
#[test]
fn a_cap_that_comes_waits_for_calls_that_another_one_let_begin() {
    let window = "{ kind = \"sliding_window\", limit = 10, per = \"1s\", margin = \"0s\" }";
    let with = |cap: &str| {
        let text = format!("clock_drift_ppm = 0\n[[limit]]\nname = \"a\"\nrules = [{window}{cap}]");
        Config::parse(&text).expect("valid").limits.remove(0)
    };
    let cap = |longest| with(&format!(", {{ kind = \"concurrency\", limit = 5, longest = \"{longest}\" }}"));
    let none = with("");
    let clocks = ClockBounds::try_new(0).expect("no drift");
    let mut limit = Limit::new(cap("1m"), clocks, Past::None, millis(0));
    // A lease of a little over 2 s, and then the call.
    let opens = |limit: &mut Limit, at: u64, config: &LimitConfig| {
        let preview = limit.preview(config, CarryOver::AsIs, millis(at), Bound::Unbounded, 1);
        limit.change(config.clone(), CarryOver::AsIs, millis(at));
        assert_eq!(preview.reset_quarantine, Some(limit.quarantine(millis(at))));
        at / 1_000 + limit.quarantine(millis(at)).as_secs()
    };
    assert_eq!(opens(&mut limit, 10_000, &cap("5s")), 72, "until those of a minute have ended");
    assert_eq!(opens(&mut limit, 20_000, &none), 23, "no rule counts them");
    limit.sweep(millis(60_000), 1);
    assert!(!limit.is_forgettable(millis(60_000)), "they go on");
    assert_eq!(opens(&mut limit, 60_000, &cap("1s")), 72, "whatever came between");
    assert_eq!(opens(&mut limit, 80_000, &cap("5s")), 87, "longer calls than before");
    assert!(limit.is_forgettable(millis(90_000)));
}

#[test]
fn pages_follow_each_other_in_the_order_of_keys() {
    let mut limit = limit("keyed = true");
    for name in ["d", "a", "c", "b", "e"] {
        ask(&mut limit, 0, name, 1, 0, 1).expect("there is room");
    }
    let (mut seen, mut from) = (BTreeSet::new(), Bound::Unbounded);
    loop {
        let page = limit.views(millis(0), from, 2);
        let Some((last, _)) = page.last() else { break };
        from = Bound::Excluded(last.clone());
        assert!(page.iter().all(|(key, _)| seen.insert(key.clone())), "each once");
    }
    assert_eq!(seen.len(), 5);
}

/// The bug: a page of pools had all of their sessions, ten thousand in each of hundreds of pools.
#[test]
fn a_page_of_holdings_ends_by_pools_and_sessions() {
    let mut limit = limit("keyed = true");
    for name in ["a", "b", "c"] {
        for session in 1..=3 {
            let holder = Holder { id: SessionId(session), ..A };
            let ask = Ask { want: 1, ..Ask::default() };
            limit.renew(millis(0), &key(name), holder, 1, ask).expect("there is room");
        }
    }
    let mut sessions = |max: usize| -> Vec<usize> {
        let page = limit.holdings(millis(0), Bound::Unbounded, max);
        page.iter().map(|(.., holdings)| holdings.len()).collect()
    };
    assert_eq!(
        [0, 1, 4, 5, 9, 100].map(&mut sessions),
        [vec![], vec![3], vec![3], vec![3; 2], vec![3; 3], vec![3; 3]]
    );
}

#[test]
fn a_key_with_rules_of_its_own_goes_by_them() {
    let rule = "{ kind = \"token_bucket\", capacity = 20, refill = 20, per = \"1s\" }";
    let mut limit = limit(&format!("keyed = true\noverride = [{{ key = \"acme\", rules = [{rule}] }}]"));
    for (key, full) in [("acme", 20), ("bob", 10)] {
        ask(&mut limit, 0, key, 1, 0, 1).expect("there is room");
        let view = limit.view(millis(0), &self::key(key)).expect("it was made");
        assert_eq!(view.available + view.books.outstanding, full, "{key}");
    }
    audit(&mut limit, millis(0));
}

/// The names of a pattern have a bound of their own, whatever keys they have, and each is forgotten with its last pool.
#[test]
fn a_pattern_has_so_many_names_and_each_is_forgotten_once() {
    let rule = "{ kind = \"token_bucket\", capacity = 10, refill = 10, per = \"1s\" }";
    let text = format!("[[limit]]\nname = \"a/*\"\nkeyed = true\nnames_max = 2\nrules = [{rule}]");
    let config = Config::parse(&text).expect("valid");
    let mut limit = Limit::new(config.limits[0].clone(), config.clocks, Past::None, millis(0));
    let mut ask = |at: u64, name: &str, key: &str| {
        let id = limit.pool_id(name, Some(key))?;
        let ask = Ask { want: 1, waiting: 1, ..Ask::default() };
        let answer = limit.renew(millis(at), &id, A, at, ask).map(Answer::permits);
        let figures = limit.figures(millis(at));
        answer.map(|permits| (permits, figures.names, figures.pools))
    };
    assert_eq!(ask(1, "a/x", "k"), Ok((1, 1, 1)));
    assert_eq!(ask(2, "a/x", "l"), Ok((1, 1, 2)));
    assert_eq!(ask(3, "a/y", "k"), Ok((1, 2, 3)));
    let refused = ask(4, "a/z", "k").expect_err("two names are there");
    assert_eq!((refused.reason, refused.field.as_deref()), (Reason::NamesFull, Some("limit")));
    assert_eq!(refused.detail, "\"a/*\" has 2 names in use, as many as it may; those go on");
    assert_eq!(ask(5, "a/y", "l"), Ok((1, 2, 4)), "a name that is there may have more keys");
    // Both keys of both names look new again: one sweep forgets them all.
    assert_eq!(ask(60_000, "a/z", "k"), Ok((1, 1, 1)));
    audit(&mut limit, millis(60_000));
}

fn told(grant: lessor_protocol::Grant) -> AnswerAbove<'static> {
    AnswerAbove { answer: Answer::Grant(grant), safe: None, groups: &[] }
}

/// The bug: a ceiling that the upstream had not told yet was shown as the most permits there can be, also on
/// dashboards.
#[test]
fn the_ceiling_of_a_leased_limit_is_what_it_was_told() {
    let config = |text: &str| Config::parse(text).expect("valid");
    let of = |config: Config| Limit::new(config.limits[0].clone(), config.clocks, Past::None, millis(0));
    let mut leased = of(config("[[limit]]\nname = \"a\"\nupstream = \"http://centre:7400\""));
    assert_eq!(leased.figures(millis(0)).ceiling, 0, "it is not known yet");
    let grant = lessor_protocol::Grant {
        kept: 0,
        permits: 3,
        term: Duration::from_secs(1),
        horizon: Duration::from_secs(1),
        ceiling: 70,
        ask_after: Duration::ZERO,
        retry_after: None,
        rate: lessor_protocol::Rate::Free,
        in_flight: None,
    };
    leased.on_grant_above(millis(0), &PoolId::default(), millis(0), told(grant));
    assert_eq!(leased.figures(millis(0)).ceiling, 70);
    let rule = "{ kind = \"sliding_window\", limit = 30, per = \"1s\" }";
    let mut in_store = config(&format!("[[limit]]\nname = \"a\"\nrules = [{rule}]"));
    in_store.limits[0].upstream = Some(Upstream::Store(crate::roots::TimeSource::Store));
    let mut shared = of(in_store);
    assert_eq!(shared.figures(millis(0)).ceiling, 30, "its rules say so");
    shared.on_grant_above(millis(0), &PoolId::default(), millis(0), told(grant));
    assert_eq!(shared.figures(millis(0)).ceiling, 30, "of a key that has others it is told otherwise");
}

/// The bug: after a change a key that was never used began with a full bucket by the new rules, while used keys kept
/// their level. After a loss of books it began as if it had refilled by the new rules since the quarantine.
#[test]
fn a_new_key_has_no_more_after_a_change_than_one_that_was_there() {
    let with = |bucket: &str, options: &str| {
        let rule = format!("{{ kind = \"token_bucket\", per = \"1s\", {bucket} }}");
        let text = format!("[[limit]]\nname = \"a\"\nkeyed = true\nrules = [{rule}]\n{options}");
        Config::parse(&text).expect("valid").limits.remove(0)
    };
    let clocks = ClockBounds::try_new(0).expect("no drift");
    let slow = with("capacity = 10, refill = 1", "");
    let own = "override = [{ key = \"own\", rules = [{ kind = \"token_bucket\", per = \"1s\", capacity = 50, refill = 1 }] }]";
    let fast = with("capacity = 1000, refill = 100", own);
    let has = |limit: &mut Limit, at: u64, text: &str| {
        ask(limit, at, text, 1, 0, 0).expect("there is room");
        limit.view(millis(at), &key(text)).expect("it is there").available
    };
    for (past, level) in [(Past::None, 10), (Past::Lost(millis(0)), 3)] {
        let mut limit = Limit::new(slow.clone(), clocks, past, millis(0));
        let opens = limit.quarantine(millis(0)).as_millis() as u64;
        assert_eq!(has(&mut limit, opens + 3_000, "there"), level);
        limit.change(fast.clone(), CarryOver::AsIs, millis(opens + 3_000));
        for text in ["there", "new", "own"] {
            let had = has(&mut limit, opens + 3_000, text);
            println!("{text} has {had} after {past:?}");
            assert_eq!(had, level, "{text} after {past:?}");
        }
        audit(&mut limit, millis(opens + 3_000));
        assert_eq!(has(&mut limit, opens + 5_000, "there"), level + 200);
        assert_eq!(has(&mut limit, opens + 5_000, "newer"), level + 200);
        let later = opens + 60_000;
        assert_eq!(has(&mut limit, later, "newest"), 1_000);
        limit.sweep(millis(later), 100);
        limit.sweep(millis(later + 60_000), 100);
        let pools = ids(&limit).filter_map(|id| id.key.as_ref()).map(Key::as_str);
        assert_eq!(pools.collect::<Vec<_>>(), ["own"; 0], "all look new again");
    }
}

#[test]
fn the_most_that_one_call_can_take_is_the_same_before_and_after_a_change() {
    let mut limit = limit("lease_max = 4");
    assert_eq!(limit.figures(millis(0)).ceiling, 4);
    let config = limit.config().clone();
    limit.change(config, CarryOver::AsIs, millis(0));
    assert_eq!(limit.figures(millis(0)).ceiling, 4, "not all that the bucket holds");
}

#[test]
fn a_pool_that_is_not_there_looks_as_it_would_if_it_was_made() {
    let mut limit = limit("keyed = true");
    let view = limit.view_or_new(millis(0), &key("a"));
    assert_eq!((view.available, limit.has(&key("a"))), (10, false));
    ask(&mut limit, 0, "a", 1, 0, 4).expect("there is room");
    assert_eq!(limit.view_or_new(millis(0), &key("a")).available, 6);
}

/// The bug: a top-up that was not added was answered, and remembered, as if it had been.
#[test]
fn a_top_up_that_is_refused_in_quarantine_may_be_sent_again() {
    let rule = "{ kind = \"fixed_window\", limit = 100, per = \"10s\", anchor = \"first_use\" }";
    let config = Config::parse(&format!("[[limit]]\nname = \"a\"\nrules = [{rule}]")).expect("valid");
    let mut limit = Limit::new(config.limits[0].clone(), config.clocks, Past::Lost(millis(0)), millis(0));
    let pool = PoolId::default();
    let refused = limit.top_up(millis(1), pool.clone(), 50, Some("once")).expect_err("in quarantine");
    assert_eq!((refused.reason, refused.field.as_deref()), (Reason::Invalid, Some("limit")));
    assert_eq!((limit.figures(millis(1)).topped_up, limit.topped_up_as("once")), (0, None));
    let left = limit.view(millis(0), &pool).expect("it is there").quarantine;
    let opens = millis(1) + left;
    assert_eq!(limit.top_up(opens, pool.clone(), 50, Some("once")), Ok(true));
    assert_eq!(limit.view(opens, &pool).map(|view| view.available), Some(150));
}
