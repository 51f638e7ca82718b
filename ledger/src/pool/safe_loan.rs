//! Safe shares of a limit in a shared store: a pool that leases from a root hands out what the root lends it of them, see
//! [`super::safe_shares`].
//!
//! Why it holds: the root counts what the nodes of an allocator have, as that says, and what it may hand out beside. From an ask on the
//! allocator hands out no more than it said that its nodes have, until it is answered. So whichever of both is lost, the root counts
//! at least what nodes have. What an answer lends may be handed out for [`HANDS_OUT`]. The root counts it for longer than that, and
//! then for as long as a share lasts and until its permits have left every window.

use super::safe_shares::{LENT_FOR, Taken};
use super::{Pool, SessionId};
use crate::share::Owner;
use lessor_protocol::{Moment, SafeShare};
use std::collections::BTreeSet;
use std::time::Duration;

/// For so long an allocator hands out what was lent to it, from its ask on.
pub(super) const HANDS_OUT: Duration = Duration::from_secs(10);

const _: () = assert!(HANDS_OUT.as_millis() < LENT_FOR.as_millis(), "the time of a store is not exact");

/// Sessions that want one and have none are told to the root so often at most: there may be none for them.
const MORE_EVERY: Duration = Duration::from_secs(1);

/// What an allocator says of safe shares to a root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SafeAsk {
    /// Permits that its nodes may spend in a window of `span`, or may have spent.
    pub given: u64,
    /// How many nodes those are.
    pub holders: u64,
    /// The window by which those permits are counted.
    pub span: Duration,
    /// Permits that other nodes want.
    pub more: u64,
}

/// What a pool was lent of safe shares.
#[derive(Clone, Debug, Default)]
pub(super) struct SafeLoan {
    /// What all that are handed out may allow in a window of `span`, how long each may last, and until when they may be.
    permits: u64,
    span: Duration,
    lasts: Duration,
    until: Moment,
    /// When the last ask said something of them, and whether one was handed out since, or taken longer.
    asked: Moment,
    is_used: bool,
    /// What nodes had by that.
    said: u64,
    /// Sessions that found none since the last answer, as many as may have one at most.
    wanting: BTreeSet<SessionId>,
}

impl SafeLoan {
    /// When the root is to be asked of them.
    pub(super) fn due(&self) -> Moment {
        let renews = if self.is_used { self.asked + HANDS_OUT / 2 } else { Moment::NEVER };
        match self.wanting.is_empty() {
            true => renews,
            false if self.asked == Moment::ORIGIN => Moment::ORIGIN,
            false => renews.min(self.asked + MORE_EVERY),
        }
    }

    /// The window by which permits count.
    pub(super) fn span(&self) -> Option<Duration> {
        Some(self.span).filter(|span| !span.is_zero())
    }

    /// Hands out nothing more before the root has lent something anew.
    pub(super) fn forget(&mut self) {
        (self.permits, self.until) = (0, Moment::ORIGIN);
    }
}

impl Pool {
    /// The safe share of the session `id`, one of `most` of so many permits, of what the root lends.
    pub(super) fn hand_out_safe_share(
        &mut self,
        id: SessionId,
        permits: u64,
        lasts: Duration,
        most: usize,
    ) -> Option<SafeShare> {
        let (now, clocks, owner) = (self.now, self.plan.clocks, self.owner_of(id));
        let loan = self.borrower.as_mut()?.safe_loan_mut();
        // The root counts each for as long as it said, whatever the configuration says since.
        let share = SafeShare { permits, span: loan.span, lasts: lasts.min(loan.lasts) };
        let is_lent = now < loan.until && self.safe_shares.permits() <= loan.permits && share.is_sane();
        if is_lent && self.safe_shares.take((id, owner), share, (loan.permits, most), now, clocks) {
            loan.is_used = true;
            loan.wanting.remove(&id);
            return Some(share);
        }
        if loan.wanting.len() < most {
            loan.wanting.insert(id);
        }
        None
    }

    /// What it says of safe shares to its root, with an ask; `None` if its limit has none. Nothing more is handed out until that is
    /// answered.
    pub fn ask_safe_above(&mut self, now: Moment) -> Option<SafeAsk> {
        self.advance(now);
        let safe = self.plan.sharing.safe?;
        let each = self.plan.sharing.reserve / safe.nodes.max(1);
        let now = self.now;
        let loan = self.borrower.as_mut()?.safe_loan_mut();
        let (given, holders) = (self.safe_shares.permits(), self.safe_shares.holders());
        let more = each.saturating_mul(loan.wanting.len() as u64);
        loan.permits = loan.permits.min(given);
        (loan.asked, loan.is_used, loan.said) = (now, false, given);
        Some(SafeAsk { given, holders, span: loan.span, more })
    }

    /// The root answered an ask that was first sent at `first_sent`: safe shares like `lent` may be handed out, as many as its permits
    /// are enough for.
    pub fn on_safe_share_above(&mut self, first_sent: Moment, lent: SafeShare) {
        let (now, clocks) = (self.now, self.plan.clocks);
        let Some(borrower) = self.borrower.as_mut() else { return };
        let loan = borrower.safe_loan_mut();
        let before = std::mem::replace(&mut loan.span, lent.span);
        (loan.permits, loan.lasts) = (lent.permits, lent.lasts);
        loan.until = clocks.holder_end(first_sent, HANDS_OUT);
        loan.wanting.clear();
        let span = loan.span();
        // Some may have been free since it asked, by shorter windows.
        let gone = loan.said.saturating_sub(self.safe_shares.permits());
        let stretched = clocks.stretched(lent.span);
        let longer = stretched.saturating_sub(clocks.stretched(before));
        self.safe_shares.go_by(longer, span);
        if !longer.is_zero() {
            let free_from = now + stretched;
            let gone = Taken { permits: gone, holders: 1, span: before, free_from, owner: Owner::NONE };
            self.safe_shares.linger(gone, span);
        }
    }
}
