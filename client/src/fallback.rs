//! What becomes of a limit while the allocator cannot be reached and its lease is over, and who is told. The background
//! task enters and leaves it; callers see it in what they are answered, and nothing here waits.

use crate::events::Event;
use crate::local_pool::{CLOCK, Condition, LocalPool};
use crate::shared::Shared;
use lessor_holder::safe_allowance::{Paid, SafeAllowance};
use lessor_protocol::rare::Rare;
use lessor_protocol::{ClockBounds, Fallback, Moment, SafeShare};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One pool's part in it.
#[derive(Debug, Default)]
pub(crate) struct Standby {
    /// The fallback that the last grant named, by its place in [`Fallback::ALL`].
    expected: AtomicU8,
    /// Whether the limit is in shadow mode, as far as we were told.
    shadow: AtomicBool,
    /// An operator has paused the limit, or blocked this node: that goes before any fallback.
    stopped: AtomicBool,
    active: AtomicBool,
    /// Permits that were let pass.
    passed: AtomicU64,
    /// What of the reserve this process may go on with.
    allowance: Mutex<Rare<SafeAllowance>>,
}

impl Standby {
    /// Takes in what a grant says. True if the limit enters or leaves shadow mode by that.
    pub(crate) fn on_grant(&self, shadow: bool, fallback: Fallback) -> bool {
        self.expect(fallback);
        self.shadow.swap(shadow, Ordering::Relaxed) != shadow
    }

    /// The answer to an ask that was first sent at `first_sent` told of a part of the reserve, or of none.
    pub(crate) fn tell_share(&self, share: Option<SafeShare>, first_sent: Moment, clocks: ClockBounds) {
        if share.is_some() {
            self.allowance().tell(share, first_sent, clocks);
        }
    }

    /// Notes whether an operator has paused the limit. True if that is news.
    pub(crate) fn stops(&self, stopped: bool) -> bool {
        self.stopped.swap(stopped, Ordering::Relaxed) != stopped
    }

    /// Whether the limit is in shadow mode.
    pub(crate) fn is_tried_out(&self) -> bool {
        self.shadow.load(Ordering::Relaxed)
    }

    /// Whether everything that would be refused is let pass.
    pub(crate) fn lets_all_pass(&self) -> bool {
        self.is_tried_out() || self.is(Fallback::Open)
    }

    /// Whether anything is.
    pub(crate) fn lets_some_pass(&self) -> bool {
        self.lets_all_pass() || self.is(Fallback::SafeShare)
    }

    /// Takes `permits` of this process's part of the reserve, if it goes by that now and they are due.
    pub(crate) fn take_share(&self, permits: u64, now: Moment) -> Option<Paid> {
        if !self.is(Fallback::SafeShare) {
            return None;
        }
        self.allowance().unusual()?.try_take(permits, now)
    }

    /// Undoes [`Standby::take_share`].
    pub(crate) fn put_back_share(&self, taken: Paid) {
        self.allowance().put_back(taken);
    }

    /// Has that part pay for `permits` that were spent without asking it. False if this process does not go by it now.
    pub(crate) fn owe_share(&self, permits: u64, now: Moment) -> bool {
        let pays = |allowance: &mut SafeAllowance| allowance.owe(permits, now);
        self.is(Fallback::SafeShare) && self.allowance().unusual().is_some_and(pays)
    }

    /// Whether any of the reserve may be spent now or later.
    fn has_share(&self) -> bool {
        self.allowance().wait(1, CLOCK.now()).is_some()
    }

    /// How long until that could be.
    pub(crate) fn share_in(&self, permits: u64, now: Moment) -> Option<Duration> {
        if self.is(Fallback::SafeShare) { self.allowance().wait(permits, now) } else { None }
    }

    /// Counts permits that were let pass because no allocator answers. False if they were let pass for another reason.
    pub(crate) fn counts(&self, permits: u64) -> bool {
        let is_counted = self.lets_some_pass() && !self.is_tried_out();
        if is_counted {
            self.passed.fetch_add(permits, Ordering::Relaxed);
        }
        is_counted
    }

    /// Permits that were ever let pass because no allocator answered.
    pub(crate) fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// The limit goes by its fallback from now on.
    pub(crate) fn begin_outage(&self) {
        self.active.store(true, Ordering::Relaxed);
    }

    /// Whether nothing of a part of the reserve is spent that some window still holds.
    pub(crate) fn is_forgettable(&self, now: Moment) -> bool {
        self.allowance().is_forgettable(now)
    }

    /// Takes over what `earlier` has spent of its part of the reserve.
    pub(crate) fn inherit(&self, earlier: &Standby) {
        let mut earlier = earlier.allowance().clone();
        if let Some(earlier) = earlier.unusual() {
            self.allowance().inherit(earlier);
        }
    }

    /// A grant for another key of the same limit named this fallback.
    pub(crate) fn on_grant_of_limit(&self, fallback: Fallback) {
        self.expect(fallback);
    }

    /// Whether no part of the reserve was told: that takes room of its own.
    #[cfg(test)]
    pub(crate) fn takes_no_room(&self) -> bool {
        self.allowance().is_usual()
    }

    fn expect(&self, fallback: Fallback) {
        let place = Fallback::ALL.iter().position(|known| *known == fallback).unwrap_or(0);
        self.expected.store(u8::try_from(place).unwrap_or(0), Ordering::Relaxed);
    }

    /// What happens in fallback.
    fn fallback(&self) -> Fallback {
        Fallback::ALL[usize::from(self.expected.load(Ordering::Relaxed))]
    }

    /// Whether the limit is in `fallback` now.
    fn is(&self, fallback: Fallback) -> bool {
        self.active.load(Ordering::Relaxed) && self.fallback() == fallback
    }

    fn allowance(&self) -> MutexGuard<'_, Rare<SafeAllowance>> {
        // Numbers: no panic can have left them half changed.
        self.allowance.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An exchange has failed: those of `pools` whose leases are over are in fallback from now on.
pub(crate) fn enter(shared: &Shared, pools: &[Arc<LocalPool>], now: Moment) {
    for pool in pools {
        let standby = pool.standby();
        let is_of_no_use = pool.condition().is_for_good();
        if now < pool.slot().deadline() || is_of_no_use || standby.stopped.load(Ordering::Relaxed) {
            continue;
        }
        if pool.name().key.is_some() && standby.fallback() == Fallback::Closed {
            // A key that is new has heard nothing yet: what was told of another key of its limit holds for it too.
            standby.expect(shared.pool(&pool.name().limit, None).standby().fallback());
        }
        if matches!(pool.condition(), Condition::Good | Condition::Quarantine) {
            // Also one that was not asked for: its calls would wait, or be told that permits come back.
            pool.set_condition(Condition::Unreachable);
        }
        fall(shared, pool);
        if standby.lets_some_pass() {
            // Callers in line need not wait any more, or not for an answer. They are woken one after the other.
            pool.call_first();
        }
    }
}

/// Begins the new pool of a key of the limit with the pool `plain`: by what was told of the limit, and in fallback if no
/// allocator answers. The caller holds the lock under which pools are added.
pub(crate) fn begin(shared: &Shared, pool: &LocalPool, plain: &LocalPool) {
    let standby = pool.standby();
    standby.expect(plain.standby().fallback());
    standby.inherit(plain.standby());
    if !shared.is_unreachable() {
        return;
    }
    pool.set_condition(Condition::Unreachable);
    if !plain.standby().stopped.load(Ordering::Relaxed) {
        fall(shared, pool);
    }
}

fn fall(shared: &Shared, pool: &LocalPool) {
    let standby = pool.standby();
    standby.begin_outage();
    pool.mind_passing();
    let fallback = standby.fallback();
    if shared.fallen().insert(pool.name().limit.clone(), fallback).is_none() {
        entered(shared, pool, fallback);
    }
}

/// The allocator answers again. Returns the limits that were in fallback: [`leave`] is to be called for all pools there are now,
/// and then [`left`].
pub(crate) fn end(shared: &Shared) -> BTreeMap<Arc<str>, Fallback> {
    // A pool that is made at this moment is there, or is made by what is known now.
    let _no_new_pools = shared.no_new_pools();
    std::mem::take(&mut *shared.fallen())
}

/// These `pools` are in no fallback any more.
pub(crate) fn leave(pools: &[Arc<LocalPool>]) {
    for pool in pools {
        pool.standby().active.store(false, Ordering::Relaxed);
        pool.mind_passing();
        if pool.condition() == Condition::Unreachable {
            // What holds nothing is not asked about before it is called: that call has to ask, and not to be refused.
            pool.set_condition(Condition::Good);
        }
    }
}

/// No pool of the `fallen` limits is in fallback any more: tells so.
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
            "no allocator and no lease: EVERY CALL PASSES until it answers again, and nothing holds the cap"
        ),
        // Of the keys of a limit, this one speaks for all.
        Fallback::SafeShare if pool.name().key.is_none() && !pool.standby().has_share() => tracing::warn!(
            limit,
            "no allocator and no lease, and no part of the reserve was told to this process: calls are refused until it answers again"
        ),
        Fallback::SafeShare => tracing::warn!(
            limit,
            "no allocator and no lease: calls go on with this process's part of the reserve until it answers again"
        ),
        Fallback::Closed | _ => {
            tracing::warn!(limit, "no allocator and no lease: calls are refused until it answers again")
        }
    }
    shared.tell(Event::FallbackEntered { limit: limit.into(), fallback });
}

impl LocalPool {
    /// Permits that were let pass in fallback.
    pub(crate) fn fallback_passed(&self) -> u64 {
        self.standby().passed()
    }
}
