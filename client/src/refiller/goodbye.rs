//! The goodbye of the background task when its client is shut down: it gives everything back and reports what was
//! spent.

use super::Refiller;
use crate::local_pool::{CLOCK, PoolName};
use crate::transport::ExchangeError;
use lessor_holder::backoff::Backoff;
use lessor_holder::connection::Exchange;
use lessor_holder::timing::patience;
use lessor_protocol::PERMITS_MAX;
use lessor_protocol::wire::{ASKS_MAX, LeaveRequest, SpentBody};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longest time for which a stopping client waits until its goodbye is heard.
const GOODBYE: Duration = Duration::from_secs(1);

impl Refiller {
    /// Closes every pool and gives everything back.
    pub(super) async fn goodbye(mut self) {
        self.shared.close();
        let pools = self.shared.pools();
        let spent: Vec<SpentBody> = pools
            .iter()
            .map(|pool| {
                let mut refill = pool.refill();
                let spent_total = refill.close(pool.slot());
                let (running, held) = (refill.left_running(), refill.gives_back(spent_total));
                let shadow_refused = refill.shadow_refused(pool.seen());
                let PoolName { limit, key } = pool.name();
                SpentBody {
                    limit: limit.to_string(),
                    key: key.as_deref().map(str::to_owned),
                    spent_total,
                    running,
                    held: Some(held.min(PERMITS_MAX)),
                    shadow_refused,
                }
            })
            .collect();
        self.known = pools;
        self.tell();
        let said = tokio::time::timeout(GOODBYE, async {
            for part in spent.chunks(ASKS_MAX) {
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

/// Whether a goodbye that failed with `error` may be heard soon: the allocator, or a proxy in front of it, may be busy
/// or restarting.
fn may_pass(error: &ExchangeError) -> bool {
    matches!(error, ExchangeError::Unreachable(_))
        || matches!(error, ExchangeError::Status { status, .. } if [429, 502, 503, 504].contains(status))
}
