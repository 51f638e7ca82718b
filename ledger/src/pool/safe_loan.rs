//! Safe shares of a limit in a shared store: a pool that leases from a root hands out the safe shares that the root
//! lends it, see [`super::safe_shares`].
//!
//! Why it holds: the root counts the permits that the nodes of an allocator have, as the allocator says, and the
//! permits that it may hand out beside. From an ask until its answer, the allocator hands out no more than it said that
//! its nodes have. So if the ask or the answer is lost, the root counts at least what the nodes have. The allocator may
//! hand out what an answer lends for [`HANDS_OUT`]. The root counts that for longer, and then until a share has ended
//! and its permits have left every window.

use super::safe_shares::{LENT_FOR, Taken};
use super::{Pool, SessionId};
use crate::share::Owner;
use lessor_protocol::{Moment, SafeShare};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long an allocator hands out what was lent to it, counted from its ask.
pub(super) const HANDS_OUT: Duration = Duration::from_secs(10);

const _: () = assert!(HANDS_OUT.as_millis() < LENT_FOR.as_millis(), "the time of a store is not exact");

/// Shortest time between two asks on behalf of sessions without a safe share: the root may have none for them.
const MORE_EVERY: Duration = Duration::from_secs(1);

/// The state of safe shares that an allocator tells a root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SafeAsk {
    /// Permits that its nodes may spend in a window of `span`, or may have spent.
    pub given: u64,
    /// Number of nodes that have them, or may have spent them.
    pub holders: u64,
    /// The window by which `given` is counted.
    pub span: Duration,
    /// Permits that other nodes want.
    pub more: u64,
}

/// The safe shares that a root has lent to a pool.
#[derive(Clone, Debug, Default)]
pub(super) struct SafeLoan {
    /// Permits that all shares handed out may allow in a window of `span`, how long each may last, and until when
    /// shares may be handed out.
    permits: u64,
    span: Duration,
    lasts: Duration,
    until: Moment,
    /// When the last ask told of safe shares, and whether a share was handed out or extended since.
    asked: Moment,
    is_used: bool,
    /// Permits that nodes had by that ask.
    said: u64,
    /// Sessions that found no safe share since the last answer, at most as many as may have one.
    wanting: BTreeSet<SessionId>,
}

impl SafeLoan {
    /// Returns when to ask the root about safe shares.
    pub(super) fn due(&self) -> Moment {
        let renews = if self.is_used { self.asked + HANDS_OUT / 2 } else { Moment::NEVER };
        match self.wanting.is_empty() {
            true => renews,
            false if self.asked == Moment::ORIGIN => Moment::ORIGIN,
            false => renews.min(self.asked + MORE_EVERY),
        }
    }

    /// Returns the window by which the root counts permits, if it has told one.
    pub(super) fn span(&self) -> Option<Duration> {
        Some(self.span).filter(|span| !span.is_zero())
    }

    /// Stops handing out shares until the root lends some anew.
    pub(super) fn forget(&mut self) {
        (self.permits, self.until) = (0, Moment::ORIGIN);
    }
}

impl Pool {
    /// Hands out a safe share of `permits` to the session `id`, out of what the root lends. At most `most` sessions
    /// have one. `None` if there is none for this session.
    pub(super) fn hand_out_safe_share(
        &mut self,
        id: SessionId,
        permits: u64,
        lasts: Duration,
        most: usize,
    ) -> Option<SafeShare> {
        let (now, clocks, owner) = (self.now, self.plan.clocks, self.owner_of(id));
        let loan = self.borrower.as_mut()?.safe_loan_mut();
        // The root counts each share for as long as the root told, whatever the configuration says since.
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

    /// Returns what the pool tells its root of safe shares with an ask; `None` if its limit has none. No further share
    /// is handed out until the answer.
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

    /// Takes the root's answer to an ask first sent at `first_sent`. The pool may hand out safe shares like `lent`,
    /// with its permits in all.
    pub fn on_safe_share_above(&mut self, first_sent: Moment, lent: SafeShare) {
        let (now, clocks) = (self.now, self.plan.clocks);
        let Some(borrower) = self.borrower.as_mut() else { return };
        let loan = borrower.safe_loan_mut();
        let before = std::mem::replace(&mut loan.span, lent.span);
        (loan.permits, loan.lasts) = (lent.permits, lent.lasts);
        loan.until = clocks.holder_end(first_sent, HANDS_OUT);
        loan.wanting.clear();
        let span = loan.span();
        // Some shares may have become free since the ask, by shorter windows.
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
