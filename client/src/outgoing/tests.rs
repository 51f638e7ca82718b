//! Tests of requests that cost permits of two limits: each attempt that goes out costs permits of both, once.

use super::*;
use crate::by_hand;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

/// A middleware that tries twice: the second time once the first attempt has failed or, if it waits, was dropped.
/// `between` runs before the second attempt.
struct Twice<F>(F);

#[async_trait::async_trait]
impl<F: Fn() + Send + Sync + 'static> Middleware for Twice<F> {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let first = {
            let again = request.try_clone().expect("the request has no body");
            let mut first = pin!(next.clone().run(again, extensions));
            poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx))).await
        };
        match first {
            Poll::Ready(Ok(response)) => Ok(response),
            Poll::Ready(Err(_)) | Poll::Pending => {
                (self.0)();
                next.run(request, extensions).await
            }
        }
    }
}

/// A vendor that answers each request but the first `silent` ones.
#[derive(Clone, Default)]
struct Vendor {
    silent: u64,
    arrived: Arc<AtomicU64>,
}

#[async_trait::async_trait]
impl Middleware for Vendor {
    async fn handle(
        &self,
        _: Request,
        _: &mut Extensions,
        _: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        if self.arrived.fetch_add(1, Ordering::SeqCst) < self.silent {
            std::future::pending::<()>().await;
        }
        Ok(http::Response::new("").into())
    }
}

/// Sends one request to `vendor`, which `outer`, a retry and `inner` let through.
async fn send(outer: &Limit, between: impl Fn() + Send + Sync + 'static, inner: Outgoing, vendor: Vendor) {
    let http = reqwest_middleware::ClientBuilder::new(reqwest::Client::new())
        .with(Outgoing::refusing(outer.clone(), Duration::ZERO))
        .with(Twice(between))
        .with(inner)
        .with(vendor)
        .build();
    http.get("http://vendor.invalid/").send().await.expect("the second attempt is answered");
}

/// Returns how many permits `limit` still holds.
fn left(limit: &Limit) -> u64 {
    (0..).take_while(|_| limit.try_acquire(1).is_ok()).count() as u64
}

/// The bug: the attempt after a refused or dropped one cost no permit of the outer limit.
#[tokio::test]
async fn an_attempt_after_one_that_was_not_let_through_costs_permits_of_both_limits() {
    for is_refused in [true, false] {
        let shared = by_hand::shared();
        let (outer, inner) = (by_hand::limit(&shared, "outer"), by_hand::limit(&shared, "inner"));
        by_hand::lend(&outer, 5);
        let nearer = match is_refused {
            true => Outgoing::refusing(inner.clone(), Duration::ZERO),
            false => Outgoing::waiting(inner.clone()),
        };
        let (vendor, lent) = (Vendor::default(), inner.clone());
        send(&outer, move || by_hand::lend(&lent, 5), nearer, vendor.clone()).await;
        assert_eq!(vendor.arrived.load(Ordering::SeqCst), 1, "refused: {is_refused}");
        assert_eq!((left(&outer), left(&inner)), (4, 4), "refused: {is_refused}");
    }
}

/// The bug: the attempt after a dropped one cost twice as many permits of the inner limit.
#[tokio::test]
async fn an_attempt_after_one_that_was_dropped_costs_no_more() {
    let shared = by_hand::shared();
    let (outer, inner) = (by_hand::limit(&shared, "outer"), by_hand::limit(&shared, "inner"));
    by_hand::lend(&outer, 5);
    by_hand::lend(&inner, 5);
    let vendor = Vendor { silent: 1, ..Vendor::default() };
    send(&outer, || (), Outgoing::waiting(inner.clone()), vendor.clone()).await;
    assert_eq!(vendor.arrived.load(Ordering::SeqCst), 2);
    assert_eq!((left(&outer), left(&inner)), (3, 3), "two attempts went out");
}

/// The bug: the permits of the other limit were spent, and taken again in the next round.
#[test]
fn of_two_reservations_the_good_one_is_given_back_if_the_other_is_not() {
    let shared = by_hand::shared();
    let (ended, good) = (by_hand::limit(&shared, "ended"), by_hand::limit(&shared, "good"));
    let reserve = || {
        by_hand::lend(&ended, 2);
        all(&[(ended.clone(), 2), (good.clone(), 2)][..]).try_reserve().expect("there are permits")
    };
    by_hand::lend(&good, 5);
    assert_eq!(all_good(reserve()).map(|reserved| reserved.len()), Some(2));
    assert_eq!(left(&good), 3, "dropped reservations are spent");
    by_hand::lend(&good, 5);
    let reserved = reserve();
    ended.pool().slot().end();
    assert!(all_good(reserved).is_none());
    assert_eq!((left(&ended), left(&good)), (0, 5));
}

#[test]
fn redirects_are_told_from_requests_as_they_were_sent_and_logged_once_for_each_limit() {
    let url = |text: &str| Url::parse(text).expect("a URL");
    let sent = url("http://vendor.invalid/a?b=1#here");
    assert!(!comes_from_elsewhere(&sent, &sent));
    assert!(!comes_from_elsewhere(&sent, &url("http://vendor.invalid/a?b=1")), "no fragment is sent");
    for other in ["http://vendor.invalid/b?b=1", "https://vendor.invalid/a?b=1", "http://vendor.invalid/a"] {
        assert!(comes_from_elsewhere(&sent, &url(other)), "{other}");
    }
    let shared = by_hand::shared();
    let (one, two) = (by_hand::limit(&shared, "one"), by_hand::limit(&shared, "two"));
    let outgoing = Outgoing::waiting(one.clone());
    let news = [&one, &two, &one.key("k")].map(|limit| outgoing.clone().is_news(limit));
    assert_eq!(news, [true, true, false]);
}
