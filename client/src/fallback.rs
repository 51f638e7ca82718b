//! What a limit does while the allocator cannot be reached and its lease is over. The background task enters and leaves
//! the fallback and reports it; callers see it in their answers. Nothing here waits.

use crate::events::Event;
use crate::local_pool::{CLOCK, Condition, LocalPool};
use crate::shared::Shared;
use lessor_holder::safe_allowance::{Paid, SafeAllowance};
use lessor_protocol::lock_anyway::LockAnyway;
use lessor_protocol::rare::Rare;
use lessor_protocol::{ClockBounds, Fallback, Moment, SafeShare};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

// What events have said, in one word:   2       1 .. 0
//                                       of key  not heard, heard, heard and asked
const NOT_HEARD: u8 = 0;
const HEARD: u8 = 1;
const HEARD_AND_ASKED: u8 = 2;
/// One of the events was about this key alone.
const OF_KEY: u8 = 1 << 2;

/// The state of shadow mode and fallback of one pool.
#[derive(Debug, Default)]
pub(crate) struct Standby {
    /// The fallback that the last grant named, as an index into [`Fallback::ALL`].
    expected: AtomicU8,
    /// Whether the limit is in shadow mode, by the last grant.
    shadow: AtomicBool,
    /// Whether an operator has paused the limit or blocked this node: that takes precedence over any fallback.
    stopped: AtomicBool,
    /// Whether an event said so that no later ask has confirmed or refuted: [`NOT_HEARD`], or [`HEARD`] or
    /// [`HEARD_AND_ASKED`], and [`OF_KEY`].
    heard_stop: AtomicU8,
    active: AtomicBool,
    /// Permits let pass in fallback.
    passed: AtomicU64,
    /// The safe share on which this process may go on.
    allowance: Mutex<Rare<SafeAllowance>>,
}

impl Standby {
    /// Takes in what a grant says. Returns whether the limit enters or leaves shadow mode by it.
    pub(crate) fn on_grant(&self, shadow: bool, fallback: Fallback) -> bool {
        self.expect(fallback);
        self.shadow.swap(shadow, Ordering::Relaxed) != shadow
    }

    /// Takes in the safe share, if any, of the answer to an ask that was first sent at `first_sent`.
    pub(crate) fn tell_share(&self, share: Option<SafeShare>, first_sent: Moment, clocks: ClockBounds) {
        if share.is_some() {
            self.allowance.lock_anyway().tell(share, first_sent, clocks);
        }
    }

    /// Notes whether an operator has paused the limit, by an answer. Returns whether that changed.
    pub(crate) fn set_stopped(&self, stopped: bool) -> bool {
        self.change_heard(|heard| (heard & !OF_KEY == HEARD_AND_ASKED).then_some(NOT_HEARD));
        self.stopped.swap(stopped, Ordering::Relaxed) != stopped
    }

    /// Notes that an event says that an operator has paused the limit or, if it `is_of_key`, this key alone.
    pub(crate) fn hear_stop(&self, is_of_key: bool) {
        let of_key = if is_of_key { OF_KEY } else { 0 };
        self.change_heard(|heard| Some(HEARD | (heard & OF_KEY) | of_key));
    }

    /// Notes that an ask is written. An earlier one may have been answered before the operator decided.
    pub(crate) fn on_ask(&self) {
        let asked = |heard| HEARD_AND_ASKED | (heard & OF_KEY);
        self.change_heard(|heard| (heard & !OF_KEY == HEARD).then(|| asked(heard)));
    }

    fn change_heard(&self, change: impl Fn(u8) -> Option<u8>) {
        let _ = self.heard_stop.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    /// Whether an event says that an operator has paused the limit, and no later ask was answered since.
    pub(crate) fn has_heard_stop(&self) -> bool {
        self.heard_stop.load(Ordering::Relaxed) != NOT_HEARD
    }

    /// As [`Standby::has_heard_stop`], of this key alone.
    fn has_heard_stop_of_key(&self) -> bool {
        self.heard_stop.load(Ordering::Relaxed) & OF_KEY != 0
    }

    /// Whether an answer says that an operator has paused the limit.
    pub(crate) fn is_told_to_stop(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn is_stopped(&self) -> bool {
        self.is_told_to_stop() || self.has_heard_stop()
    }

    /// Whether the limit is in shadow mode.
    pub(crate) fn in_shadow_mode(&self) -> bool {
        self.shadow.load(Ordering::Relaxed)
    }

    /// Whether every call that would be refused passes.
    pub(crate) fn lets_all_pass(&self) -> bool {
        self.in_shadow_mode() || self.is(Fallback::Open)
    }

    /// Whether some calls that would be refused pass.
    pub(crate) fn lets_some_pass(&self) -> bool {
        self.lets_all_pass() || self.is(Fallback::SafeShare)
    }

    /// Takes `permits` of this process's safe share, if the share applies now and they are due.
    pub(crate) fn take_share(&self, permits: u64, now: Moment) -> Option<Paid> {
        if !self.is(Fallback::SafeShare) {
            return None;
        }
        self.allowance.lock_anyway().unusual()?.try_take(permits, now)
    }

    /// Undoes [`Standby::take_share`].
    pub(crate) fn put_back_share(&self, taken: Paid) {
        self.allowance.lock_anyway().put_back(taken);
    }

    /// Charges the safe share for `permits` that were spent without asking it. Returns false if the share does not
    /// apply now.
    pub(crate) fn owe_share(&self, permits: u64, now: Moment) -> bool {
        let pays = |allowance: &mut SafeAllowance| allowance.owe(permits, now);
        self.is(Fallback::SafeShare) && self.allowance.lock_anyway().unusual().is_some_and(pays)
    }

    /// Whether any of the safe share may be spent, now or later.
    pub(crate) fn has_share(&self) -> bool {
        self.allowance.lock_anyway().wait(1, CLOCK.now()).is_some()
    }

    /// Time until the safe share has `permits`; `None` if it does not apply now, or never will have them.
    pub(crate) fn share_in(&self, permits: u64, now: Moment) -> Option<Duration> {
        if self.is(Fallback::SafeShare) { self.allowance.lock_anyway().wait(permits, now) } else { None }
    }

    /// Counts permits that passed because no allocator answers. Returns false if they passed for another reason.
    pub(crate) fn counts(&self, permits: u64) -> bool {
        let is_counted = self.lets_some_pass() && !self.in_shadow_mode();
        if is_counted {
            self.passed.fetch_add(permits, Ordering::Relaxed);
        }
        is_counted
    }

    /// Permits let pass so far because no allocator answered.
    pub(crate) fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Puts the limit into its fallback.
    pub(crate) fn begin_outage(&self) {
        self.active.store(true, Ordering::Relaxed);
    }

    /// Whether no window still holds a spend from the safe share.
    pub(crate) fn is_forgettable(&self, now: Moment) -> bool {
        self.allowance.lock_anyway().is_forgettable(now)
    }

    /// Takes over the spends of `earlier` from its safe share.
    pub(crate) fn inherit(&self, earlier: &Standby) {
        let mut earlier = earlier.allowance.lock_anyway().clone();
        if let Some(earlier) = earlier.unusual() {
            self.allowance.lock_anyway().inherit(earlier);
        }
    }

    /// Notes the fallback that a grant for another key of the same limit named.
    pub(crate) fn on_grant_of_limit(&self, fallback: Fallback) {
        self.expect(fallback);
    }

    /// Whether no safe share was told: a share takes memory of its own.
    #[cfg(test)]
    pub(crate) fn takes_no_room(&self) -> bool {
        self.allowance.lock_anyway().is_usual()
    }

    fn expect(&self, fallback: Fallback) {
        let place = Fallback::ALL.iter().position(|known| *known == fallback).unwrap_or(0);
        self.expected.store(u8::try_from(place).unwrap_or(0), Ordering::Relaxed);
    }

    /// The fallback that applies without an allocator.
    fn fallback(&self) -> Fallback {
        Fallback::ALL[usize::from(self.expected.load(Ordering::Relaxed))]
    }

    /// Whether the limit is in `fallback` now.
    fn is(&self, fallback: Fallback) -> bool {
        self.active.load(Ordering::Relaxed) && self.fallback() == fallback
    }
}

/// Puts the `pools` whose leases are over into fallback, after an exchange has failed.
pub(crate) fn enter(shared: &Shared, pools: &[Arc<LocalPool>], now: Moment) {
    for pool in pools {
        let standby = pool.standby();
        let is_of_no_use = pool.condition().is_for_good();
        if now < pool.slot().deadline() || is_of_no_use || is_stopped(shared, pool) {
            continue;
        }
        if pool.name().key.is_some() && standby.fallback() == Fallback::Closed {
            // A new key has heard of no fallback yet: the one told for the plain limit holds for the key too.
            standby.expect(shared.pool(&pool.name().limit, None).standby().fallback());
        }
        if matches!(pool.condition(), Condition::Good | Condition::Quarantine) {
            // Also a pool that was not asked for: its calls would wait, or be told that permits come back.
            pool.set_condition(Condition::Unreachable);
        }
        fall(shared, pool);
        if standby.lets_some_pass() {
            // Callers in line need not wait any more, or not for an answer. They wake each other one after the other.
            pool.call_first();
        }
    }
}

/// Prepares the new pool of a key, by what the limit's plain pool `plain` was told, and in fallback if no allocator
/// answers. The caller holds the lock under which pools are added.
pub(crate) fn begin(shared: &Shared, pool: &LocalPool, plain: &LocalPool) {
    let standby = pool.standby();
    standby.expect(plain.standby().fallback());
    standby.inherit(plain.standby());
    if !shared.is_unreachable() {
        return;
    }
    pool.set_condition(Condition::Unreachable);
    if !plain.standby().is_stopped() && !shared.is_denied() {
        fall(shared, pool);
    }
}

/// Whether an operator has paused `pool`, as far as is known.
fn is_stopped(shared: &Shared, pool: &LocalPool) -> bool {
    let standby = pool.standby();
    // An idle key is not asked for when its limit is paused. The pause is over once another key was granted something.
    // That says nothing of a pause of this key alone.
    let is_over = || {
        let has_key = pool.name().key.is_some() && !standby.has_heard_stop_of_key();
        has_key && !shared.pool(&pool.name().limit, None).standby().is_stopped()
    };
    standby.is_told_to_stop() || (standby.has_heard_stop() && !is_over())
}

fn fall(shared: &Shared, pool: &LocalPool) {
    let standby = pool.standby();
    standby.begin_outage();
    pool.refresh_passes();
    let fallback = standby.fallback();
    if shared.fallen().insert(pool.name().limit.clone(), fallback).is_none() {
        entered(shared, pool, fallback);
    }
}

/// Ends all fallbacks, because an allocator answers again. Returns the limits that were in fallback. The caller then
/// calls [`leave`] for all current pools, and [`left`].
pub(crate) fn end(shared: &Shared) -> BTreeMap<Arc<str>, Fallback> {
    // A pool that is made at this moment exists already, or is made knowing that the outage is over.
    let _no_new_pools = shared.no_new_pools();
    std::mem::take(&mut *shared.fallen())
}

/// Takes `pools` out of fallback.
pub(crate) fn leave(pools: &[Arc<LocalPool>]) {
    for pool in pools {
        pool.standby().active.store(false, Ordering::Relaxed);
        pool.refresh_passes();
        if pool.condition() == Condition::Unreachable {
            // A pool that holds nothing is not asked for before it is called: that call must ask, and not be refused.
            pool.set_condition(Condition::Good);
        }
    }
}

/// Reports that no pool of the `fallen` limits is in fallback any more.
pub(crate) fn left(shared: &Shared, fallen: BTreeMap<Arc<str>, Fallback>) {
    for pool in shared.plain_pools().iter().filter(|pool| fallen.contains_key(&pool.name().limit)) {
        pool.tally().tell_fallback(None);
    }
    for (limit, fallback) in fallen {
        tracing::info!(%limit, %fallback, "the allocator answers again: the limit is out of fallback");
        shared.tell(Event::FallbackLeft { limit, fallback });
    }
}

fn entered(shared: &Shared, pool: &LocalPool, fallback: Fallback) {
    pool.tally().tell_fallback(Some(fallback));
    let limit = &*pool.name().limit;
    match fallback {
        Fallback::Open => tracing::error!(
            limit,
            "no allocator answers and no lease is live: EVERY CALL PASSES until one answers, and the cap does not hold"
        ),
        // Among the pools of a limit, the plain one speaks for all keys.
        Fallback::SafeShare if pool.name().key.is_none() && !pool.standby().has_share() => tracing::warn!(
            limit,
            "no allocator answers and no lease is live: this process has no part of the reserve, \
             so calls are refused until one answers"
        ),
        Fallback::SafeShare => tracing::warn!(
            limit,
            "no allocator answers and no lease is live: \
             calls go on with this process's part of the reserve until one answers"
        ),
        Fallback::Closed | _ => {
            tracing::warn!(
                limit,
                "no allocator answers and no lease is live: calls are refused until one answers"
            )
        }
    }
    shared.tell(Event::FallbackEntered { limit: limit.into(), fallback });
}

impl LocalPool {
    /// Permits let pass in fallback.
    pub(crate) fn fallback_passed(&self) -> u64 {
        self.standby().passed()
    }
}
