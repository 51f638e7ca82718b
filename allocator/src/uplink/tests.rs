//! Tests of the tasks of upstreams: they begin, and begin again.

use super::*;
use crate::metrics::Stands;
use crate::samples::{self, LIMIT, STORE, allocator};

/// Starts the tasks of an allocator that has `upstream`, whose task then ends in a panic, and looks after them.
async fn lost(config: &str, upstream: &Upstream) -> (Arc<Shared>, Uplinks) {
    let shared = allocator(config);
    let mut uplinks = Uplinks::default();
    uplinks.keep_up(&shared);
    assert_eq!(uplinks.upstreams.values().collect::<Vec<_>>(), [upstream]);
    let (session, rtt) = (|due: DueAbove| due.session, Duration::ZERO);
    let look = || shared.with(|registry, now| session(registry.asks_above(now, upstream, rtt)));
    let before = look();
    uplinks.tasks.shutdown().await;
    let broken = uplinks.tasks.spawn(async { panic!("a bug") });
    uplinks.upstreams = HashMap::from([(broken.id(), upstream.clone())]);
    while !broken.is_finished() {
        tokio::task::yield_now().await;
    }
    uplinks.keep_up(&shared);
    assert_eq!(uplinks.upstreams.values().collect::<Vec<_>>(), [upstream], "it began again");
    assert!(!uplinks.upstreams.contains_key(&broken.id()) && uplinks.tasks.len() == 1);
    assert_ne!(look(), before, "it counts its exchanges from one");
    let ids: Vec<Id> = uplinks.upstreams.keys().copied().collect();
    uplinks.keep_up(&shared);
    assert!(uplinks.upstreams.contains_key(&ids[0]), "once is enough");
    (shared, uplinks)
}

/// The bug: looks of many keys that were followed by short exchanges had the registry alone nearly all the time.
#[test]
fn after_a_look_that_took_long_there_is_a_rest_or_an_exchange_of_that_length() {
    let millis = Duration::from_millis;
    for (look, since, rest) in
        [(50, 60, None), (50, 50, None), (50, 20, Some(millis(30))), (0, 0, None), (1, 0, Some(LOOK_EVERY))]
    {
        assert_eq!(rest_after(millis(look), millis(since)), rest, "{look} ms, {since} ms");
    }
}

/// The bug: a store that failed each exchange counted as of use in between, whenever nothing was due for a moment.
#[test]
fn a_store_that_failed_lately_is_not_of_use_because_nothing_is_due() {
    let at = |seconds: u64| Moment::from_nanos(seconds * 1_000_000_000);
    let failed = Some(Failures { first: at(40), last: at(50) });
    let over = [(None, 50), (failed, 50), (failed, 59), (failed, 60)];
    assert_eq!(over.map(|(failures, now)| is_over(failures, at(now))), [true, false, false, true]);
}

/// The bug: two failures within 50 ms were enough. Nodes left each region whenever its centre was restarted.
#[test]
fn an_upstream_is_silent_once_its_leases_are_over() {
    let at = |millis: u64| Moment::from_nanos(millis * 1_000_000);
    let failed = Some(Failures { first: at(100), last: at(150) });
    let silent = |earlier, silence, now| is_silent(earlier, silence, at(now));
    assert_eq!([150, 2_099, 2_100].map(|now| silent(failed, TERM_MAX, now)), [false, false, true]);
    assert_eq!([None, failed].map(|earlier| silent(earlier, Duration::ZERO, 150)), [false, true], "a store");
}

/// The bug: nothing was leased from the upstream any more.
#[tokio::test]
async fn a_task_that_ends_in_a_panic_begins_again() {
    let url = "http://127.0.0.1:1";
    let upstream = Upstream::Address(url.parse().expect("valid"));
    let config = format!("[[limit]]\nname = \"a\"\nupstream = \"{url}\"\n");
    let (shared, uplinks) = lost(&config, &upstream).await;
    assert_eq!(shared.store_fails(), None);
    shared.stop();
    uplinks.finish().await;
}

/// The bug: the allocator leased nothing from there until it was started again.
#[tokio::test]
async fn an_upstream_whose_token_was_missing_is_asked_once_the_token_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    let config = format!(
        "[upstream_auth]\ntoken_file = {token:?}\n[[limit]]\nname = \"a\"\nupstream = \"http://127.0.0.1:1\"\n"
    );
    let shared = allocator(&config);
    let mut uplinks = Uplinks::default();
    // The bug: no exchange failed, and the alert, which wants some of each upstream that is down, never fired.
    let failed = "lessor_upstream_exchanges_total{upstream=\"http://127.0.0.1:1\",result=\"failed\"}";
    for attempt in 1..=3 {
        uplinks.keep_up(&shared);
        uplinks.keep_up(&shared);
        let text = shared.metrics().render();
        assert!(text.contains(&format!("{failed} {attempt}\n")), "{text}");
        uplinks.failing.values_mut().for_each(|(tried, _)| *tried = Moment::ORIGIN);
        assert!(uplinks.tasks.is_empty() && uplinks.failing.len() == 1);
        let stands = shared.metrics().upstreams_stand();
        assert_eq!(stands, [("http://127.0.0.1:1".to_owned(), Stands::Down)], "it is seen");
        assert!(shared.upstreams_fail().is_some(), "nothing is lent");
    }
    std::fs::write(&token, "secret").expect("written");
    uplinks.keep_up(&shared);
    assert_eq!(shared.upstreams_fail(), None);
    uplinks.keep_up(&shared);
    assert_eq!((uplinks.tasks.len(), uplinks.failing.len()), (1, 0));
    shared.stop();
    uplinks.finish().await;
}

/// The bug: such an upstream counted as silent for as long as the allocator ran.
#[tokio::test]
async fn an_upstream_that_could_not_be_asked_is_forgotten_once_no_limit_is_leased_from_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    let limit = "upstream = \"http://127.0.0.1:1\"\n";
    let config = format!("[upstream_auth]\ntoken_file = {token:?}\n[[limit]]\nname = \"a\"\n{limit}");
    let shared = allocator(&format!("{config}[[limit]]\nname = \"b\"\n{limit}"));
    let mut uplinks = Uplinks::default();
    for (removed, failing) in [(None, 1), (Some("a"), 1), (Some("b"), 0)] {
        if let Some(name) = removed {
            assert!(shared.with(|registry, _| registry.remove(name)));
        }
        uplinks.keep_up(&shared);
        assert_eq!((uplinks.failing.len(), shared.silent_upstreams().all().len()), (failing, failing));
    }
    assert!(uplinks.tasks.is_empty() && !shared.silent_upstreams().any());
}

/// The bug: the allocator lent nothing any more, and was ready.
#[tokio::test]
async fn a_store_whose_task_ended_is_silent_until_it_answers_the_next_one() {
    let config = [STORE, LIMIT].concat();
    let parsed = samples::config(&config);
    let StoreConfig::Shared(store) = &parsed.server.store else { panic!("it is shared") };
    let (shared, _uplinks) = lost(&config, &Upstream::Store(store.time_source())).await;
    assert!(shared.store_fails().is_some_and(|why| why.contains("task")), "{:?}", shared.store_fails());
    assert!(shared.is_fresh() && shared.shared_store_status().has_lost_member(), "it may have lent");
}
