//! What a user would pick instead if there were only one process. Each limiter is built as its documentation shows,
//! with its default clock and mode, and with permits for more calls than all samples make.

use crate::sample::Case;
use governor::clock::DefaultClock;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use limitador::limit::{Context, Limit, Namespace};
use std::collections::HashMap;
use std::error::Error;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};
use throttlecrab::AdaptiveStore;
use tokio::sync::Semaphore;

/// A rate that no loop can exhaust: one permit a nanosecond, the finest step of limiters that count in time.
const PLENTY: u32 = 1_000_000_000;

type Governor = RateLimiter<NotKeyed, InMemoryState, DefaultClock>;

pub(super) fn cases() -> Result<Vec<Case>, Box<dyn Error>> {
    let plenty = Quota::per_second(NonZeroU32::new(PLENTY).ok_or("a rate of zero")?);
    let governor = |name| {
        let limiter = Governor::direct(plenty);
        Case::new(name, move || black_box(&limiter).check().is_ok())
    };
    Ok(vec![
        governor("governor/hit"),
        governor_refusal()?,
        governor("governor/hit-2-threads").on_two_threads(),
        tokio_semaphore(),
        leaky_bucket(),
        ratelimit()?,
        throttlecrab(),
        limitador(),
    ])
}

fn governor_refusal() -> Result<Case, Box<dyn Error>> {
    let rare = Quota::with_period(Duration::from_secs(3600)).ok_or("a period of zero")?;
    let limiter = Governor::direct(rare);
    limiter.check().map_err(|_| "a new governor refused its first call")?;
    Ok(Case::new("governor/refusal", move || black_box(black_box(&limiter).check()).is_err()))
}

/// No limiter by itself: nothing refills it, and it reads no clock.
fn tokio_semaphore() -> Case {
    let semaphore = Semaphore::new(Semaphore::MAX_PERMITS);
    let call = move || black_box(&semaphore).try_acquire().map(|permit| permit.forget()).is_ok();
    Case::new("tokio-semaphore/hit", call)
}

fn leaky_bucket() -> Case {
    let plenty = usize::MAX / 2;
    let limiter = leaky_bucket::RateLimiter::builder().max(plenty).initial(plenty).build();
    Case::new("leaky-bucket/hit", move || black_box(&limiter).try_acquire(1))
}

fn ratelimit() -> Result<Case, Box<dyn Error>> {
    let plenty = u64::from(PLENTY);
    let limiter = ratelimit::Ratelimiter::builder(plenty).initial_available(plenty).build()?;
    Ok(Case::new("ratelimit/hit", move || black_box(&limiter).try_wait().is_ok()))
}

/// This limiter takes the time from its caller, and `&mut self`: threads would share it behind a lock.
fn throttlecrab() -> Case {
    let plenty = i64::from(PLENTY);
    let limiter = Mutex::new(throttlecrab::RateLimiter::new(AdaptiveStore::new()));
    let call = move || {
        #[expect(clippy::disallowed_methods, reason = "its interface takes the wall clock")]
        let now = SystemTime::now();
        let mut limiter = black_box(&limiter).lock().expect("no panic");
        limiter.rate_limit("user-42", plenty, plenty, 1, 1, now).is_ok_and(|(is_allowed, _)| is_allowed)
    };
    Case::new("throttlecrab/hit", call)
}

/// One limit without conditions or variables. The context that a server would make for each request is made once.
fn limitador() -> Case {
    let limiter = limitador::RateLimiter::new(1);
    limiter.add_limit(Limit::new("vendor", u64::from(PLENTY), 1, vec![], vec![]));
    let (namespace, context) = (Namespace::from("vendor"), Context::from(HashMap::new()));
    let call = move || {
        let checked = black_box(&limiter).check_rate_limited_and_update(&namespace, &context, 1);
        checked.is_ok_and(|checked| !checked.limited)
    };
    Case::new("limitador/hit", call)
}
