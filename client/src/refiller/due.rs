//! The background task's look at the pools before each exchange: a [`Round`] decides which of them are due. Nothing is
//! sent here.

use super::{Refiller, STRIPE_WORTH};
use crate::local_pool::{CLOCK, LocalPool};
use lessor_holder::round::{LookOutcome, Round};
use lessor_holder::timing::LOOK_AGAIN;
use lessor_protocol::Moment;
use std::sync::Arc;

/// Pools looked at before other tasks run: some tenths of a millisecond. A larger number holds other tasks of the thread
/// up for longer, and a smaller one makes them run more often than they need.
const LOOKED_MAX: usize = 1_000;

impl Refiller {
    /// Returns the pools that are due now, and when the next one will be. Looks at them in parts between which other
    /// tasks run: after an event about a million keys it looks at each.
    pub(super) async fn look(&mut self) -> (Vec<Arc<LocalPool>>, Moment) {
        let (now, quiet_until) = (CLOCK.now(), self.connection.quiet_until());
        if now < quiet_until {
            return (vec![], quiet_until);
        }
        self.shared.wake_list.take(&mut self.known);
        let mut round = Round::new(now, self.began, self.connection.rtt());
        let known = std::mem::take(&mut self.known);
        self.time_calls(&known, now);
        for (number, pool) in (1..).zip(known) {
            if !pool.is_forgotten() {
                self.look_at(pool, &mut round, now);
            }
            if number % LOOKED_MAX == 0 {
                tokio::task::yield_now().await;
            }
        }
        if now >= self.forgets || !self.sweep.is_over() {
            self.forgets = now + LOOK_AGAIN;
            self.shared.forget_idle(&mut self.sweep);
        }
        round.finish(|pool| pool.refill().deadline(pool.slot(), now))
    }

    /// Has the `round` look at `pool`, and keeps the pool unless it rests.
    fn look_at(&mut self, pool: Arc<LocalPool>, round: &mut Round<Arc<LocalPool>>, now: Moment) {
        pool.let_go();
        let mut refill = pool.refill();
        if pool.takes_doubt() {
            refill.doubt(now);
        }
        if pool.slot().take_contended() {
            pool.slot().stripe(self.stripes, STRIPE_WORTH);
        }
        if now >= refill.not_before() {
            pool.listen(true);
        }
        let is_key = pool.name().key.is_some();
        let stands = round.look(pool.clone(), &mut refill, pool.slot(), pool.seen(), is_key);
        drop(refill);
        // The next caller that needs a resting pool puts it into the list again.
        if stands == LookOutcome::Rests {
            pool.count_up();
        } else if pool.keep() {
            self.known.push(pool);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{in_parts, rest};
    use super::*;
    use crate::by_hand;
    use lessor_protocol::wire::ASKS_MAX;
    use std::collections::BTreeSet;
    use std::time::Duration;

    /// The bug: changes for all keys were made in one go, and a million kept a thread for half a second.
    #[tokio::test]
    async fn work_on_all_pools_lets_other_tasks_run() {
        let shared = by_hand::shared();
        for key in 0..20_000 {
            shared.pool("user", Some(&key.to_string()));
        }
        let others = tokio::spawn(async {
            for _turn in 0..10 {
                tokio::task::yield_now().await;
            }
        });
        let mut seen = BTreeSet::new();
        let mut longest = 0;
        in_parts(&shared, |pools| {
            longest = longest.max(pools.len());
            seen.extend(pools.iter().map(|pool| pool.name().key.clone()));
        })
        .await;
        assert_eq!(seen.len(), 20_001, "each key, and the limit itself");
        assert!(longest < 2_000, "{longest} at once");
        assert!(others.is_finished(), "ten turns beside twenty parts");
    }

    /// The bug: after an event about all keys they were looked at in one go, and a million kept a thread for a good part
    /// of a second.
    #[tokio::test]
    async fn a_look_at_many_pools_lets_other_tasks_run() {
        let shared = by_hand::shared();
        let mut refiller = by_hand::refiller(&shared);
        for key in 0..20_000 {
            shared.pool("user", Some(&key.to_string())).make_known();
        }
        let others = tokio::spawn(async {
            for _turn in 0..10 {
                tokio::task::yield_now().await;
            }
        });
        let (due, _) = refiller.look().await;
        assert!(others.is_finished(), "ten turns beside twenty parts");
        assert_eq!(due.len(), 1, "the limit itself");
        assert!(refiller.known.len() < 2, "the keys rest");
    }

    /// The bug: all leased pools were looked at between two parts of a sweep.
    #[tokio::test(start_paused = true)]
    async fn a_sweep_goes_on_while_nothing_is_due() {
        let shared = by_hand::shared();
        let mut refiller = by_hand::refiller(&shared);
        for key in 0..20_000 {
            shared.pool("user", Some(&key.to_string()));
        }
        shared.wake_list.take(&mut vec![]);
        let (due, next) = refiller.look().await;
        assert!(due.is_empty() && next == Moment::NEVER, "nothing is leased: {} due, {next:?}", due.len());
        assert!(!refiller.sweep.is_over());
        rest(&shared, &mut refiller.sweep, LOOK_AGAIN).await;
        assert!(refiller.sweep.is_over());
        assert_eq!(shared.pools().len(), 1, "the plain pool is kept");
    }

    /// The bug: the first thousand pools of the list were asked for each time, and the pools behind them never.
    #[tokio::test]
    async fn of_more_pools_than_fit_into_an_exchange_each_has_its_turn() {
        let shared = by_hand::shared();
        let mut refiller = by_hand::refiller(&shared);
        let pools: Vec<_> = (0..2_500).map(|key| shared.pool("user", Some(&key.to_string()))).collect();
        for pool in &pools {
            // One caller waits, for ever.
            pool.line().1.join(1);
            pool.make_known();
        }
        let mut asked = BTreeSet::new();
        for _exchange in 0..4 {
            let (due, _) = refiller.look().await;
            assert!(due.len() <= ASKS_MAX);
            for pool in due {
                pool.refill().write(pool.slot(), pool.seen(), CLOCK.now(), Duration::ZERO);
                asked.insert(pool.key().to_owned());
            }
        }
        assert_eq!(
            asked.iter().filter(|key| !key.is_empty()).count(),
            2_500,
            "each key in one of four exchanges"
        );
    }
}
