//! The vendor as nodes see it, while a caller outside the fleet uses a part of its quota. It tells each caller what is left, and
//! refuses those for whom nothing is. Some nodes make things up.

use super::World;
use super::event::Message;
use crate::oracle::Verdict;
use crate::{MILLI, SECOND};
use lessor::RateLimitHeaders;
use lessor_ledger::Rule;
use lessor_ledger::pool::SessionId;
use lessor_protocol::{Announced, Left};
use std::time::Duration;

/// One in so many answers is looked at: others have no headers, or no node reads them.
const LOOKED_AT: u32 = 3;

impl World {
    /// From now on a caller outside the fleet uses `permits` of the vendor's quota.
    pub(super) fn spends_outside(&mut self, permits: u64) {
        self.log.note(self.real, "! a caller outside uses #", &[permits]);
        self.outside = (permits > 0).then_some(permits);
    }

    /// The vendor answers a call of `node`.
    pub(super) fn vendor_answers(&mut self, node: usize) {
        let Some(outside) = self.outside.filter(|_| self.rival.is_none() && self.rng.u32(..LOOKED_AT) == 0)
        else {
            return;
        };
        let (limit, now) = (self.setup.lender(node), self.now());
        let room = self.oracles.room(limit, now);
        let lasts = Some(Duration::from_nanos(self.rng.u64(0..2 * SECOND)));
        let mut headers = if room < outside {
            RateLimitHeaders::refused(lasts.filter(|_| self.rng.bool()))
        } else {
            RateLimitHeaders::default()
        };
        headers.left = Some(Left { permits: room.saturating_sub(outside), lasts });
        if self.rng.bool() {
            let ceiling = self.centre.plan.rules.iter().map(Rule::ceiling).min().unwrap_or(0);
            headers.announced[0] = Some(Announced { limit: ceiling.saturating_sub(outside), per: None });
        }
        let at = &mut self.nodes[node];
        let now = at.now(self.real);
        let is_urgent = at.feedback.see(&headers, now, at.slot.balance().free);
        if is_urgent {
            if headers.refused {
                at.refill.stop(&at.slot);
            }
            at.refill.report(now);
            self.log.note(
                self.real,
                "node # hears of the vendor that # are left",
                &[node as u64, room.saturating_sub(outside)],
            );
            // Its task wakes a moment later.
            self.sleep(node, now + Duration::from_nanos(MILLI / 10));
        }
    }

    /// What an ask says of the vendor reaches the pool.
    pub(super) fn pool_hears(&mut self, message: &Message) -> Verdict {
        let Some(observed) = message.observed else { return Ok(()) };
        let (limit, now) = (self.setup.limit(message.node), self.now());
        let before = self.centre.pool.view(limit, now.allocator);
        self.centre.pool.observe(limit, now.allocator, SessionId(message.session), &observed);
        let after = self.centre.pool.view(limit, now.allocator);
        let longest = self.setup.plan.sharing.vendor.longest;
        self.oracles.of(limit).hears(now, message.session, &observed, longest, [before, after])?;
        let (now, stocks) = (self.now(), self.stocks());
        self.oracles.books(now, &stocks)
    }
}
