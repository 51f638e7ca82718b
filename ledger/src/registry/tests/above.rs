//! Tests of what an allocator says to its upstream, and what it believes of the answers.

use super::*;
use crate::CarryOver;
use crate::registry::DueAbove;
use crate::registry::Upstream;
use crate::registry::limit::PoolId;
use crate::roots::TimeSource;
use lessor_protocol::wire::{ASKS_MAX, GrantBody};
use lessor_protocol::{Answer, Clock, Grant, Rate, Refusal, RefusalReason};

const LEASED: &str = "[[limit]]\nname = \"a\"\nupstream = \"http://centre:1\"\n";

fn upstream(registry: &Registry) -> Upstream {
    registry.upstreams().pop_first().expect("there is one")
}

fn due(registry: &mut Registry, now: u64) -> DueAbove {
    let upstream = upstream(registry);
    registry.asks_above(millis(now), &upstream, Duration::from_millis(1))
}

/// Makes an allocator that a node asked. Also returns what it says to its upstream.
fn asked(epoch: u64) -> (Registry, DueAbove) {
    let mut registry = config(LEASED).registry(Past::None, millis(0), epoch);
    registry.leases(millis(0), &caller(1), &[ask("a", None, 0, 0, 4)]);
    let due = due(&mut registry, 0);
    assert_eq!((due.asks.len(), due.asks[0].spent_total, due.asks[0].held), (1, 0, 0));
    (registry, due)
}

fn hear(registry: &mut Registry, due: &DueAbove, now: u64) {
    let grant = Grant { permits: 4, term: Duration::from_secs(1), ceiling: 9, ..NOTHING };
    let body = GrantBody::of("a", None, Answer::Grant(grant));
    let upstream = upstream(registry);
    registry.on_grant_above(
        millis(now),
        &upstream,
        due.session,
        millis(0),
        &due.askers,
        Granted::of(&[body]),
    );
}

fn available(registry: &mut Registry, now: u64) -> u64 {
    let limit = registry.limit("a").expect("it is there");
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

/// The bug: when books were dropped while the uplink lived on, the pool counted from zero in the same session. The
/// upstream took what nodes still held for given back.
#[test]
fn books_that_went_are_never_told_of_in_the_session_that_they_were_lent_in() {
    let (mut registry, first) = asked(7);
    hear(&mut registry, &first, 1);
    assert_eq!(available(&mut registry, 1), 4);
    let keyed = config(&format!("{LEASED}keyed = true"));
    registry.put(millis(2), &keyed.limits[0], CarryOver::AsIs, false).expect("there is room");
    assert_ne!(due(&mut registry, 3).session, first.session);
    // Another run, after a panic.
    assert_ne!(asked(8).1.session, first.session);
}

/// The clock by which a loan of a store ends may have stood still. An upstream ends its loans by its own.
#[test]
fn what_a_store_lent_is_held_back_and_what_an_upstream_lent_is_not() {
    for (is_store, left) in [(true, 0), (false, 4)] {
        let mut config = config(LEASED);
        if is_store {
            config.limits[0].upstream = Some(Upstream::Store(TimeSource::Store));
        }
        let mut registry = config.registry(Past::None, millis(0), 7);
        registry.leases(millis(0), &caller(1), &[ask("a", None, 0, 0, 4)]);
        let due = due(&mut registry, 0);
        hear(&mut registry, &due, 1);
        assert_eq!(available(&mut registry, 1), 4);
        registry.hold_back_store(millis(2));
        assert_eq!(available(&mut registry, 2), left, "of a store: {is_store}");
    }
}

#[test]
fn what_was_lent_is_not_lent_on_once_the_upstream_has_paused_the_limit() {
    let (mut registry, first) = asked(7);
    hear(&mut registry, &first, 1);
    assert_eq!(available(&mut registry, 1), 4);
    let again = due(&mut registry, 900);
    assert_eq!(again.asks.len(), 1, "the loan ends soon");
    let paused = Refusal { reason: RefusalReason::Paused, retry_after: Duration::from_secs(5) };
    let (upstream, body) = (upstream(&registry), GrantBody::of("a", None, Answer::Refusal(paused)));
    let granted = Granted::of(std::slice::from_ref(&body));
    registry.on_grant_above(millis(901), &upstream, again.session, millis(900), &again.askers, granted);
    assert_eq!(available(&mut registry, 901), 0);
}

/// Number of keys that always want something, of the limit whose name comes first.
const BUSY: usize = 10_000;

/// The bug: the first limits and keys by name took all of an exchange, which has room for 1,000 asks. Of 10,000 busy
/// keys 2,000 were ever asked for, and the loan of a limit with a later name was never renewed.
#[test]
fn no_key_or_limit_starves_and_loans_are_renewed_while_more_is_due_than_one_exchange_takes() {
    let limit = |name| {
        format!(
            "[[limit]]\nname = \"{name}\"\nkeyed = true\nkeys_max = 20000\nupstream = \"http://centre:1\"\n"
        )
    };
    let config = config(&["a", "z"].map(limit).concat());
    let mut registry = config.registry(Past::None, millis(0), 7);
    let keys: Vec<String> = (0..BUSY).map(|key| format!("k{key:05}")).collect();
    let wants = |seq, at: u64, registry: &mut Registry| {
        let mut entries: Vec<_> = keys.iter().map(|key| ask("a", Some(key), 0, 0, 4)).collect();
        entries.push(ask("z", Some("last"), 0, 0, 4));
        registry.leases(millis(at), &caller(seq), &entries);
    };
    wants(1, 0, &mut registry);
    let (mut asked, mut of_last, mut took) =
        (std::collections::BTreeMap::<String, u64>::new(), vec![], Duration::ZERO);
    for exchange in 0..100_u64 {
        let now = exchange * 10;
        let clock = Clock::since_boot();
        let began = clock.now();
        let due = due(&mut registry, now);
        took += clock.now().since(began);
        assert!(due.asks.len() <= ASKS_MAX);
        let answers = due.asks.iter().map(|ask| {
            let key = ask.key.clone().expect("each has one");
            let grant = match ask.limit.as_str() {
                // Grants all, as long as it is asked in time.
                "z" => Grant {
                    permits: ask.want,
                    kept: ask.held,
                    term: Duration::from_millis(400),
                    ceiling: 9,
                    ..NOTHING
                },
                // Has nothing for now.
                _ => Grant { ceiling: 9, ..NOTHING },
            };
            match ask.limit.as_str() {
                "z" => of_last.push(now),
                _ => *asked.entry(key).or_default() += 1,
            }
            GrantBody::of(&ask.limit, ask.key.as_deref(), Answer::Grant(grant))
        });
        let answers: Vec<_> = answers.collect();
        let upstream = upstream(&registry);
        registry.on_grant_above(
            millis(now),
            &upstream,
            due.session,
            millis(now),
            &due.askers,
            Granted::of(&answers),
        );
        if exchange == 39 {
            println!("after 40 exchanges {} of {BUSY} keys were asked for", asked.len());
        }
    }
    let often = asked.values().min().zip(asked.values().max());
    println!(
        "{} keys asked, {often:?} times; the last limit at {of_last:?} ms; 100 looks took {took:?}",
        asked.len()
    );
    assert_eq!(asked.len(), BUSY);
    assert!(often.is_some_and(|(least, most)| most - least <= 1), "all wait alike: {often:?}");
    // The loan lasts 400 ms from each exchange on, and is renewed before it ends.
    assert!(of_last.first() == Some(&0) && of_last.last() >= Some(&700), "{of_last:?}");
    assert!(of_last.windows(2).all(|two| two[1] - two[0] < 400), "{of_last:?}");
}

/// The bug: a store that needs longer for a thousand roots than an exchange may take was asked for a thousand again and
/// again, and lent nothing.
#[test]
fn a_store_that_cannot_answer_many_asks_in_time_is_asked_fewer_at_once() {
    let mut config = config("[[limit]]\nname = \"a\"\nkeyed = true\nupstream = \"http://centre:1\"\n");
    config.limits[0].upstream = Some(Upstream::Store(TimeSource::Store));
    let mut registry = config.registry(Past::None, millis(0), 7);
    let keys: Vec<String> = (0..ASKS_MAX).map(|key| format!("k{key:04}")).collect();
    let entries: Vec<_> = keys.iter().map(|key| ask("a", Some(key), 0, 0, 4)).collect();
    registry.leases(millis(0), &caller(1), &entries);
    let (mut failed, mut lent) = (0, std::collections::BTreeSet::new());
    for exchange in 0..20 {
        let due = due(&mut registry, exchange);
        if due.asks.len() > 300 {
            registry.on_failure_above(&due.askers);
            failed += 1;
            continue;
        }
        let grant =
            |ask: &AskBody| Grant { permits: ask.want, term: Duration::from_secs(1), ceiling: 9, ..NOTHING };
        let body = |ask: &AskBody| GrantBody::of(&ask.limit, ask.key.as_deref(), Answer::Grant(grant(ask)));
        let answers: Vec<_> = due.asks.iter().map(body).collect();
        lent.extend(due.asks.iter().filter_map(|ask| ask.key.clone()));
        let (upstream, at) = (upstream(&registry), millis(exchange));
        registry.on_grant_above(at, &upstream, due.session, at, &due.askers, Granted::of(&answers));
    }
    assert_eq!((failed, lent.len()), (2, ASKS_MAX));
}

/// The bug: an allocator that was told to stop while it looked for asks that are due wrote its last ask, and dropped
/// it. It had nothing more to say then, and the upstream counted what was not lent on as spent.
#[test]
fn the_last_of_an_allocator_is_said_until_that_is_answered() {
    let (mut registry, first) = asked(1);
    hear(&mut registry, &first, 1);
    registry.stop();
    let dropped = due(&mut registry, 2);
    assert_eq!((dropped.asks.len(), dropped.asks[0].held, dropped.asks[0].want), (1, 0, 0));
    let last = due(&mut registry, 3);
    assert_eq!(last.asks, dropped.asks);
    registry.on_failure_above(&last.askers);
    let again = due(&mut registry, 4);
    assert_eq!(again.asks, last.asks);
    let (upstream, body) = (upstream(&registry), GrantBody::of("a", None, Answer::Grant(NOTHING)));
    let granted = Granted::of(std::slice::from_ref(&body));
    registry.on_grant_above(millis(5), &upstream, again.session, millis(4), &again.askers, granted);
    assert!(due(&mut registry, 6).asks.is_empty());
}

/// The bug: one upstream that disputed its session made the loans of all upstreams void. None was renewed before it ended.
/// A dispute that lasted began a session with each exchange.
#[test]
fn an_upstream_that_disputes_a_session_leaves_the_loans_of_others_as_they_are() {
    let other = "[[limit]]\nname = \"b\"\nupstream = \"http://other:1\"\n";
    let config = config(&format!("{LEASED}{other}"));
    let mut registry = config.registry(Past::None, millis(0), 7);
    let [centre, other] = ["centre", "other"].map(|host| Upstream::Address(format!("http://{host}:1")));
    registry.leases(millis(0), &caller(1), &[ask("a", None, 0, 0, 4), ask("b", None, 0, 0, 4)]);
    let due = |registry: &mut Registry, at, upstream: &Upstream| {
        registry.asks_above(millis(at), upstream, Duration::from_millis(1))
    };
    let hear = |registry: &mut Registry, at, upstream: &Upstream, due: &DueAbove, body: GrantBody| {
        let (now, granted) = (millis(at), Granted::of(std::slice::from_ref(&body)));
        registry.on_grant_above(now, upstream, due.session, now, &due.askers, granted)
    };
    let grant = Grant { permits: 4, term: Duration::from_secs(1), ceiling: 9, ..NOTHING };
    let renewed = |kept| GrantBody::of("b", None, Answer::Grant(Grant { kept, permits: 4 - kept, ..grant }));
    let first = due(&mut registry, 0, &other);
    hear(&mut registry, 0, &other, &first, renewed(0));
    let wrong = || {
        let error = lessor_protocol::wire::ErrorBody {
            code: code::TOTALS_WRONG.to_owned(),
            detail: String::new(),
            field: None,
        };
        GrantBody::wrong("a", None, error)
    };
    let (mut sessions, mut renewals) = (vec![], vec![0]);
    for at in (0..3_000).step_by(100) {
        let disputed = due(&mut registry, at, &centre);
        if !disputed.asks.is_empty() {
            sessions.push(disputed.session);
            let outcome = hear(&mut registry, at, &centre, &disputed, wrong());
            assert!(outcome.begins_session, "at {at} ms");
        }
        let asks = due(&mut registry, at, &other);
        assert_eq!(asks.session, first.session, "at {at} ms");
        if let Some(ask) = asks.asks.first() {
            let held = ask.held;
            hear(&mut registry, at, &other, &asks, renewed(held));
            renewals.push(at);
        }
        let seq = 2 + at / 100;
        registry.leases(millis(at), &caller(seq), &[ask("a", None, 0, 0, 4), ask("b", None, 0, 0, 4)]);
    }
    assert!(renewals.last() >= Some(&2_000), "{renewals:?}");
    assert!(renewals.windows(2).all(|two| two[1] - two[0] < 1_000), "before the loan ends: {renewals:?}");
    assert!((2..=4).contains(&sessions.len()), "a session a second: {sessions:?}");
    assert!(sessions.windows(2).all(|two| two[0] < two[1]), "{sessions:?}");
}
