//! The vendor as nodes see it while a caller outside the fleet uses a part of its quota. It tells each caller what is
//! left, and refuses callers when nothing is. Adversaries make reports up.

use super::World;
use super::event::Message;
use crate::oracle::{Instant, Stock, Verdict};
use crate::{MILLI, SECOND};
use lessor::RateLimitHeaders;
use lessor_ledger::Rule;
use lessor_ledger::pool::PoolView;
use lessor_protocol::wire::ObservedBody;
use lessor_protocol::{Announced, Left, PERMITS_MAX};
use std::time::Duration;

/// Answers of which one is looked at: others have no headers, or no node reads them.
const LOOKED_AT: u32 = 3;

impl World {
    /// Lets a caller outside the fleet use `permits` of the vendor's quota from now on.
    pub(super) fn spends_outside(&mut self, permits: u64) {
        self.log.note(self.real, "! a caller outside uses #", &[permits]);
        self.outside = (permits > 0).then_some(permits);
    }

    /// Tells the oracle of the region that `message` asks what it says of the vendor, which turned the pool from `before`
    /// into what it is now.
    pub(super) fn region_hears_of_vendor(
        &mut self,
        message: &Message,
        before: PoolView,
        Stock { view, at, .. }: Stock,
    ) -> Verdict {
        let (region, trust) = (self.setup.lender(message.asks[0].desk), self.setup.plan.sharing.vendor);
        let now = Instant { allocator: at, ..self.now() };
        message.asks.iter().filter_map(|ask| ask.observed).try_for_each(|observed| {
            let observed = ObservedBody::of(&observed).observed();
            self.oracles.of(region).hears(now, message.session, &observed, &trust, [before, view])
        })
    }

    /// Lets the vendor answer a call of `desk`.
    pub(super) fn vendor_answers(&mut self, desk: usize) {
        let Some(outside) = self.outside.filter(|_| self.rival.is_none() && self.rng.u32(..LOOKED_AT) == 0)
        else {
            return;
        };
        let (limit, now) = (self.setup.lender(desk), self.now());
        // No header says more.
        let room = self.oracles.room(limit, now).min(PERMITS_MAX);
        let lasts = Some(Duration::from_nanos(self.rng.u64(0..2 * SECOND)));
        let mut headers = if room < outside {
            RateLimitHeaders::refused(lasts.filter(|_| self.rng.bool()))
        } else {
            RateLimitHeaders::default()
        };
        headers.left = Some(Left { permits: room.saturating_sub(outside), lasts });
        if self.rng.bool() {
            let ceiling = self.centre.rules.iter().map(Rule::ceiling).min().unwrap_or(0);
            headers.announced[0] = Some(Announced { limit: ceiling.saturating_sub(outside), per: None });
        }
        let node = self.home(desk);
        let now = self.nodes[node].now(self.real);
        let at = &mut self.desks[desk];
        let is_urgent = at.feedback.see(&headers, now, at.slot.balance().free);
        if is_urgent {
            if headers.refused {
                at.refill.stop(&at.slot);
            }
            at.refill.report(now);
            self.log.note(
                self.real,
                "node # hears of the vendor that # are left",
                &[desk as u64, room.saturating_sub(outside)],
            );
            // The task wakes a moment later.
            self.sleep(node, now + Duration::from_nanos(MILLI / 10));
        }
    }
}
