//! The goodbye of the background task when its client is shut down: it gives everything back and reports what was
//! spent.

use super::Refiller;
use crate::local_pool::{CLOCK, LocalPool, PoolName};
use crate::transport::ExchangeError;
use lessor_holder::backoff::Backoff;
use lessor_holder::connection::Exchange;
use lessor_holder::timing::patience;
use lessor_protocol::PERMITS_MAX;
use lessor_protocol::wire::{ASKS_MAX, LeaveRequest, SpentBody};
use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longest time for which a stopping client waits until its goodbye is heard.
const GOODBYE: Duration = Duration::from_secs(1);

impl Refiller {
    /// Closes every pool and gives everything back.
    pub(super) async fn goodbye(mut self) {
        self.shared.close();
        let pools = self.shared.pools();
        let reports = reports(&pools);
        self.known = pools;
        self.tell();
        let said = tokio::time::timeout(GOODBYE, async {
            for part in reports.chunks(ASKS_MAX) {
                self.say_goodbye(part).await?;
                self.shared.exchanges.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), ExchangeError>(())
        });
        match said.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "could not give the leases back; they end by themselves")
            }
            Err(_) => tracing::warn!("could not give the leases back in time; they end by themselves"),
        }
    }

    /// Reports `spent` until the allocator hears it, perhaps twice. Permits that it does not hear of count as spent
    /// there, for long if the window is long.
    async fn say_goodbye(&mut self, spent: &[SpentBody]) -> Result<(), ExchangeError> {
        // An allocator that restarts is back soon, and many clients may stop at once.
        let mut backoff = Backoff::default();
        loop {
            let Exchange { place, session, seq, rtt, .. } = self.connection.begin(CLOCK.now());
            let request = LeaveRequest { session, seq, spent: spent.to_vec() };
            // A connection that no longer leads anywhere takes only a part of the time.
            let said = self.transports[place].leave(&self.node, &request);
            match tokio::time::timeout(patience(GOODBYE, rtt), said).await {
                Err(_) => tracing::debug!("no answer to a goodbye; sending it again"),
                Ok(Err(error)) if may_pass(&error) => {
                    tracing::debug!(%error, "a goodbye was not heard; sending it again")
                }
                Ok(done) => return done,
            }
            tokio::time::sleep(backoff.failed(self.rng.u64(..))).await;
        }
    }
}

/// Closes the `pools` and returns their last reports, those that give most back first: there may be no time for all of
/// them. Pools without anything to say only fill the last request up. The allocator forgets them by itself.
fn reports(pools: &[Arc<LocalPool>]) -> Vec<SpentBody> {
    let mut reports: Vec<_> = pools.iter().map(|pool| report(pool)).collect();
    reports.sort_by_key(|(has_to_say, report)| (Reverse(report.held), !has_to_say));
    let needed = reports.iter().filter(|(has_to_say, _)| *has_to_say).count();
    reports.truncate(needed.div_ceil(ASKS_MAX).max(1) * ASKS_MAX);
    reports.into_iter().map(|(_, report)| report).collect()
}

/// Closes `pool` and returns its last report, and whether that tells the allocator anything.
fn report(pool: &LocalPool) -> (bool, SpentBody) {
    let mut refill = pool.refill();
    let spent_total = refill.close(pool.slot());
    let seen = pool.seen();
    // Another session may have the safe share.
    let has_to_say = refill.has_to_say(spent_total, seen) || pool.standby().has_share();
    let PoolName { limit, key } = pool.name();
    let report = SpentBody {
        limit: limit.to_string(),
        key: key.as_deref().map(str::to_owned),
        spent_total,
        running: refill.left_running(),
        held: Some(refill.gives_back(spent_total).min(PERMITS_MAX)),
        shadow_refused: refill.shadow_refused(seen),
    };
    (has_to_say, report)
}

/// Whether a goodbye that failed with `error` may be heard soon: the allocator, or a proxy in front of it, may be busy
/// or restarting.
fn may_pass(error: &ExchangeError) -> bool {
    matches!(error, ExchangeError::Unreachable(_))
        || matches!(error, ExchangeError::Status { status, .. } if [429, 502, 503, 504].contains(status))
}

#[cfg(test)]
mod tests {
    use super::super::tests::refiller;
    use super::*;
    use crate::by_hand;
    use axum::routing::post;
    use axum::{Json, Router};
    use lessor_holder::answer::{AnswerTiming, Outcome};
    use lessor_holder::refill::Seen;
    use lessor_protocol::{Answer, Grant, Rate};
    use std::sync::Mutex;
    use tokio::net::TcpListener;

    /// The bug: all pools were reported in the order of their making, a thousand in each request. The pools that had
    /// something to give back came last, and the time was over before.
    #[tokio::test]
    async fn what_is_given_back_is_said_first_and_idle_pools_are_left_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
        let heard = Arc::new(Mutex::new(vec![]));
        let hears = heard.clone();
        let leave = async move |Json(request): Json<LeaveRequest>| {
            hears.lock().expect("no panic").push(request.spent);
        };
        tokio::spawn(
            axum::serve(listener, Router::new().route("/v1/nodes/{node}/leave", post(leave))).into_future(),
        );

        let (shared, now) = (by_hand::shared(), CLOCK.now());
        for limit in 0..3_000 {
            shared.pool(&format!("limit-{limit}"), None);
        }
        let key = shared.pool("user", Some("a"));
        key.refill().write(key.slot(), Seen { waiting: 5, ..Seen::default() }, now, Duration::ZERO);
        let (term, horizon) = (Duration::from_secs(2), Duration::from_secs(2));
        let grant = Grant {
            kept: 0,
            permits: 5,
            term,
            horizon,
            ceiling: 5,
            ask_after: Duration::ZERO,
            retry_after: None,
            rate: Rate::Free,
            in_flight: None,
        };
        let timing = AnswerTiming { first_sent: now, now, clocks: Default::default() };
        let outcome = key.refill().on_answer(key.slot(), Ok(&Answer::Grant(grant)), timing, false, 0);
        assert_eq!(outcome, Outcome::Installed);

        refiller(&shared, &[&url]).goodbye().await;
        let heard = heard.lock().expect("no panic");
        assert_eq!(heard.len(), 1, "requests");
        assert_eq!((heard[0][0].key.as_deref(), heard[0][0].held), (Some("a"), Some(5)));
        assert!(heard[0].len() <= ASKS_MAX && heard[0][1].held == Some(0));
    }
}
