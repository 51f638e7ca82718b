//! How pools are added and forgotten, and what remains of forgotten ones.

use super::*;
use crate::by_hand::{self, Caller, Panics};
use crate::limit::Limit;
use crate::refusal::Refusal;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;
use std::task::{Context, Waker};

fn is_found(plain: &LocalPool, key: &str) -> bool {
    plain.keys().is_some_and(|keys| keys.get(key).is_some())
}

#[test]
fn keys_without_a_lease_or_a_handle_are_forgotten() {
    let shared = by_hand::shared();
    let plain = shared.pool("user", None);
    let kept = shared.pool("user", Some("kept"));
    let called = shared.pool("user", Some("called"));
    called.make_known();
    let forgotten = shared.pool("user", Some("forgotten"));
    let weak = Arc::downgrade(&forgotten);
    drop((called, forgotten));
    shared.forget_idle(&mut Sweep::default());
    assert!(is_found(&plain, "kept") && !is_found(&plain, "forgotten"));
    assert!(is_found(&plain, "called"), "the background task has yet to look at this key");
    assert_eq!((weak.strong_count(), shared.pools().len()), (0, 3));
    assert!(Arc::ptr_eq(&kept, &shared.pool("user", Some("kept"))));
}

/// The bug: a process that made names of limits up kept a pool for each for ever.
#[test]
fn of_more_limits_than_may_be_known_those_that_are_new_are_refused() {
    let shared = by_hand::shared();
    let known = shared.pool("api/0", None);
    for number in 1..LIMITS_MAX {
        shared.limits.insert(format!("api/{number}").into(), known.clone());
    }
    shared.wake_list.take(&mut vec![]);
    let one_more = by_hand::limit(&shared, "api/new");
    for limit in [&one_more, &one_more.key("a")] {
        assert!(matches!(limit.try_acquire(1), Err(Refusal::Full { .. })), "{limit:?}");
    }
    assert_eq!(one_more.key("").try_acquire(1), Err(Refusal::BadKey));
    assert_eq!(shared.limits.len(), LIMITS_MAX, "a refused limit is not kept");
    assert!(shared.changes.lock_anyway().bad_keys.is_empty(), "nor is the pool of its invalid keys");
    assert!(Arc::ptr_eq(&known, &shared.pool("api/0", None)), "known limits go on");
}

/// The bug: all keys were looked at in one go, during which no exchange of any limit began.
#[test]
fn many_keys_are_forgotten_in_parts() {
    let shared = by_hand::shared();
    let keys = 20 * SWEPT_MAX;
    for key in 0..keys {
        shared.pool("user", Some(&key.to_string()));
    }
    shared.wake_list.take(&mut vec![]);
    let (mut sweep, mut left, mut parts) = (Sweep::default(), keys, 0);
    loop {
        shared.forget_idle(&mut sweep);
        let now_left = shared.pools().len() - 1;
        assert!(left - now_left < 2 * SWEPT_MAX, "{} at once", left - now_left);
        (left, parts) = (now_left, parts + 1);
        if sweep.is_over() {
            break;
        }
    }
    assert!(left == 0 && parts >= 10, "{left} left after {parts} parts");
}

/// The bug: an event about one key looked at all keys of all limits.
#[test]
fn an_event_is_about_the_pools_that_it_names() {
    let shared = by_hand::shared();
    for (limit, key) in [("user", None), ("user", Some("a")), ("user", Some("b")), ("used/x", Some("a"))] {
        shared.pool(limit, key);
    }
    let about = |limit: Option<&str>, key: Option<&str>| {
        let mut event = push::Event::of_all(push::Kind::Lagged);
        (event.limit, event.key) = (limit.map(Into::into), key.map(Into::into));
        let named = |pool: Arc<LocalPool>| format!("{} {}", pool.name().limit, pool.key());
        let mut pools: Vec<String> = shared.about(&event).flatten().map(named).collect();
        pools.sort();
        pools
    };
    assert_eq!(about(Some("user"), Some("a")), ["user a"]);
    assert_eq!(about(Some("user"), None), ["user ", "user a", "user b"]);
    assert_eq!(about(Some("us*"), Some("a")), ["used/x a", "user a"]);
    assert_eq!(about(Some("user"), Some("c")), [""; 0]);
    assert_eq!(about(None, None).len(), 5, "with the plain pool of the second limit");
}

#[test]
fn a_process_that_makes_up_names_of_limits_makes_no_more_series_for_it() {
    let shared = by_hand::shared();
    for limit in 0..3 * LABELS_MAX {
        let pool = shared.pool(&format!("limit-{limit}"), None);
        let label = if limit < LABELS_MAX { format!("limit-{limit}") } else { "(others)".to_owned() };
        assert_eq!(pool.tally().label(), label);
        assert!(Arc::ptr_eq(&pool, &shared.pool(&format!("limit-{limit}"), None)), "a pool is made once");
    }
    assert_eq!(shared.tallies().len(), LABELS_MAX + 1);
    // The bug: such a name was a label of the histogram of waits.
    assert_eq!(shared.pool("no name at all", None).tally().label(), "(others)");
    assert_eq!(shared.tallies().len(), LABELS_MAX + 1);
    shared.close();
    assert_eq!(shared.pool("late", None).tally().label(), "(others)");
}

/// Counts the lines that are logged.
#[derive(Default)]
struct Lines(Arc<AtomicU64>);

impl tracing::Subscriber for Lines {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// The bug: each look-up of an invalid name logged a line, and so did each of a key of it. Strangers choose keys.
#[test]
fn an_invalid_name_of_a_limit_is_logged_once_whoever_calls() {
    let lines = Lines::default();
    let logged = lines.0.clone();
    // Beside a second subscriber, `tracing` does not ask a thread of another test whether the line is wanted here.
    let _of_other_threads = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
    tracing::subscriber::with_default(lines, || {
        let shared = by_hand::shared();
        for key in 0..300 {
            let limit = by_hand::limit(&shared, "vendor rest");
            assert_eq!(limit.key(&key.to_string()).try_acquire(1), Err(Refusal::UnknownLimit));
            assert_eq!(limit.try_acquire_key(&key.to_string(), 1), Err(Refusal::UnknownLimit));
        }
    });
    assert_eq!(logged.load(Ordering::Relaxed), 1);
}

/// The bug: a key was forgotten with its spends from the safe share, and spent the same share again.
#[test]
fn a_key_that_is_forgotten_does_not_spend_its_safe_share_again() {
    let shared = by_hand::shared();
    let span = std::time::Duration::from_secs(60);
    let share = lessor_protocol::SafeShare { permits: 10, span, lasts: 10 * span };
    let mut passed = 0;
    for _outage in 0..3 {
        let pool = shared.pool("user", Some("a"));
        pool.standby().on_grant(false, Fallback::SafeShare);
        pool.standby().tell_share(Some(share), CLOCK.now(), lessor_protocol::ClockBounds::default());
        crate::fallback::enter(&shared, &shared.pools(), CLOCK.now());
        passed += 10 * usize::from(pool.try_acquire_at(pool.hot_ref().hot_state(), 10).is_ok());
        crate::fallback::end(&shared);
        crate::fallback::leave(&shared.pools());
        // Stands for the background task's look at the pool.
        shared.wake_list.take(&mut vec![]);
        pool.let_go();
        drop(pool);
        shared.forget_idle(&mut Sweep::default());
    }
    assert!(passed <= 10, "{passed} of a share of 10");
}

/// The bug: the allocator remembers the number of a vendor's last answer, and a forgotten key began at 1 again.
#[test]
fn what_a_vendor_says_is_news_also_after_its_key_was_forgotten() {
    let shared = by_hand::shared();
    let observed = |refusals: u64| {
        let pool = shared.pool("user", Some("a"));
        (0..refusals).for_each(|_| {
            let refusal = crate::RateLimitHeaders::refused(Some(std::time::Duration::from_secs(1)));
            Limit::new(pool.clone(), Arc::new(Shared::new(shared.ticks.clone()))).report(&refusal);
        });
        let observed = pool.observed(CLOCK.now()).expect("the refusal was just now");
        assert_eq!(pool.vendor_refused(), refusals, "the count of a new pool begins at zero");
        shared.wake_list.take(&mut vec![]);
        pool.forget();
        observed
    };
    let (before, after) = (observed(3), {
        shared.limits.clear();
        observed(1)
    });
    assert!(after.number > before.number, "{after:?} after {before:?}");
    assert!(after.refused_total > before.refused_total, "{after:?} after {before:?}");
}

#[test]
fn a_key_that_cannot_be_is_refused_as_one() {
    let shared = by_hand::shared();
    let pool = shared.pool("user", Some(&"k".repeat(10_000)));
    assert_eq!(pool.try_acquire_at(pool.hot_ref().hot_state(), 1), Err(crate::Refusal::BadKey));
    assert_eq!(shared.pools().len(), 1, "an invalid key is not kept");
    let other = shared.pool("user", Some(""));
    assert!(Arc::ptr_eq(&pool, &other), "invalid keys share a pool");
    assert!(!Arc::ptr_eq(&pool, &shared.pool("item", Some(""))), "another limit counts its own refusals");
}

/// The bug: pools that were called after the background task last looked owned each other through the list of such pools,
/// and were never freed.
#[test]
fn a_closed_client_leaves_no_pool_behind() {
    let shared = by_hand::shared();
    let called = [shared.pool("vendor", None), shared.pool("user", Some("a"))];
    called.iter().for_each(|pool| pool.make_known());
    shared.close();
    let late = shared.pool("user", Some("b"));
    late.make_known();
    let pools = called.each_ref().map(Arc::downgrade).into_iter().chain([Arc::downgrade(&late)]);
    let pools: Vec<_> = pools.collect();
    drop((shared, called, late));
    assert_eq!(pools.iter().map(Weak::strong_count).sum::<usize>(), 0);
}

/// The bug: a client woke the callers of each pool before it closed the next one.
#[test]
fn a_waker_that_panics_leaves_no_pool_open() {
    let shared = by_hand::shared();
    let limits = ["one", "other"].map(|name| by_hand::limit(&shared, name));
    let mut waits = limits.each_ref().map(|limit| Box::pin(limit.acquire(1)));
    let waker = Waker::from(Arc::new(Panics::default()));
    for wait in &mut waits {
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert!(catch_unwind(AssertUnwindSafe(|| shared.close())).is_err());
    for limit in &limits {
        assert_eq!(limit.try_acquire(1), Err(Refusal::Closed));
    }
}

/// The bug: the last event was sent before the pools were closed, and with locks held.
#[test]
fn a_listener_whose_waker_panics_leaves_no_pool_open_and_no_caller_waiting() {
    let shared = by_hand::shared();
    let limit = by_hand::limit(&shared, "one");
    let mut waits = Caller::new(limit.acquire(1));
    assert_eq!(waits.run(), None, "no permit is free");
    let mut events = shared.listen();
    {
        let waker = Waker::from(Arc::new(Panics::default()));
        let mut next = Box::pin(events.next());
        assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(catch_unwind(AssertUnwindSafe(|| shared.close())).is_err());
    }
    assert_eq!(limit.try_acquire(1), Err(Refusal::Closed));
    assert_eq!(waits.run(), Some(Err(Refusal::Closed)), "the caller is woken");
    assert_eq!(events.try_next(), Some(Event::Closed));
}
