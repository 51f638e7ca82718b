//! Safe shares: equal parts of the reserve, with which sessions may go on while no allocator answers. A pool has a
//! fixed number of them, and counts what they take of the reserve. A session keeps its share for as long as it asks,
//! and never reports what it spent on that share.
//!
//! A safe share is free again once its holder may not spend on it any more and its spends have left every window. So
//! all safe shares together allow in any window at most what is kept back, whichever session dies, is cut off or begins
//! anew. A share that is taken anew has to fit into what no session has: the reserve may have been raised a moment ago,
//! and be spent.
//!
//! A share never ends sooner than its session was told before. An answer that ends it sooner, after a change of the
//! configuration, may be lost.
//!
//! The root of a shared store lends its safe shares to allocators, which hand them out ([`super::safe_loan`]). For each
//! allocator the root counts what the allocator's nodes have, and what the allocator may hand out beside.

use super::rare::{Rare, Usual};
use super::safe_loan::SafeAsk;
use super::{Above, Plan, Pool, SessionId};
use crate::Rule;
use crate::packed::Carrier;
use crate::share::{Owner, Safe};
use lessor_protocol::moment::nanos;
use lessor_protocol::{ClockBounds, Moment, Refusal, RefusalReason, SafeShare};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long a root counts what an allocator may hand out, from its ask on. The allocator hands out for a shorter time
/// ([`super::safe_loan::HANDS_OUT`]): the time of a store is not exact.
pub(super) const LENT_FOR: Duration = Duration::from_secs(12);

/// The safe shares of one pool.
#[derive(Clone, Debug)]
pub(super) struct SafeShares {
    /// No session gets a new one before this: an earlier process may have told others.
    opens: Moment,
    given: Rare<Given>,
}

/// The safe shares that are taken.
#[derive(Clone, Debug)]
struct Given {
    taken: BTreeMap<SessionId, Taken>,
    /// When the first of them is free, or earlier.
    soonest: Moment,
    /// When all of them are free.
    last: Moment,
    /// Permits that all of them together allow in one window of the current rules.
    permits: u64,
    /// The identity that last found none free, and when; the origin if none ever did.
    wanted: (Owner, Moment),
}

impl Usual for Given {
    const USUAL: &'static Self = &Given {
        taken: BTreeMap::new(),
        soonest: Moment::NEVER,
        last: Moment::ORIGIN,
        permits: 0,
        wanted: (Owner::NONE, Moment::ORIGIN),
    };
}

/// The safe share of a session, or the safe shares of an allocator's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) permits: u64,
    /// Number of sessions that have them.
    pub(super) holders: u64,
    pub(super) span: Duration,
    pub(super) free_from: Moment,
    /// The identity of the session, if it has one.
    pub(super) owner: Owner,
}

impl Taken {
    /// Returns the permits that it allows in any interval of length `span`.
    pub(super) fn within(&self, span: Duration) -> u64 {
        if span <= self.span {
            return self.permits;
        }
        let permits = u128::from(self.permits) * u128::from(nanos(span));
        // Each holder may spend one permit more than the even flow brings: an interval may begin and end with a permit.
        let permits = permits / u128::from(nanos(self.span).max(1)) + u128::from(self.holders);
        u64::try_from(permits).unwrap_or(u64::MAX)
    }
}

impl SafeShares {
    /// Creates a set in which none is taken.
    pub(super) fn new(now: Moment) -> Self {
        SafeShares { opens: now, given: Rare::default() }
    }

    /// Assumes that an earlier process told sessions of safe shares until `lost`, in windows of up to `span`.
    /// Allocators may have handed out shares of a root after that.
    pub(super) fn forget(&mut self, lost: Moment, span: Duration, is_root: bool, clocks: ClockBounds) {
        let handed_out = if is_root { clocks.grantor_end(lost, LENT_FOR) } else { lost };
        self.opens = clocks.grantor_end(handed_out, SafeShare::LASTS_MAX) + clocks.stretched(span);
    }

    /// Returns the moment before which no session gets a new one.
    pub(super) fn opens(&self) -> Moment {
        self.opens
    }

    /// Returns the shares that are taken, each with its session.
    pub(super) fn taken(&self) -> impl Iterator<Item = (SessionId, Taken)> {
        self.given.taken.iter().map(|(id, taken)| (*id, *taken))
    }

    /// Whether the session `id` has one.
    pub(super) fn has(&self, id: SessionId) -> bool {
        self.given.taken.contains_key(&id)
    }

    /// Returns the identity that last found none free, and when.
    pub(super) fn wanted(&self) -> Option<(Owner, Moment)> {
        Some(self.given.wanted).filter(|(_, at)| *at > Moment::ORIGIN)
    }

    /// Records that a session of `owner` found none free at `now`.
    pub(super) fn note_wanted(&mut self, owner: Owner, now: Moment) {
        self.given.unusual().into_iter().for_each(|given| given.wanted = (owner, now));
    }

    /// Goes on with the shares that were `taken`, in windows of `span`.
    pub(super) fn goes_on(
        &mut self,
        opens: Moment,
        taken: impl Iterator<Item = (SessionId, Taken)>,
        span: Option<Duration>,
    ) {
        self.opens = opens;
        self.given = Rare::default();
        taken.for_each(|(id, taken)| {
            self.given.taken.insert(id, taken);
        });
        self.count(span);
    }

    /// Returns the number of sessions that have one.
    pub(super) fn holders(&self) -> u64 {
        self.given.taken.values().map(|taken| taken.holders).fold(0, u64::saturating_add)
    }

    /// Carries what they are.
    pub(super) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        carrier.moment(&mut self.opens);
        carrier.rare(&mut self.given, Given::carry);
    }

    /// Returns the moment until which none becomes free.
    pub(super) fn rest_until(&self) -> Moment {
        self.given.soonest
    }

    /// Whether none is taken.
    pub(super) fn are_free(&self) -> bool {
        self.given.taken.is_empty()
    }

    /// Returns the permits that must be kept back for them.
    pub(super) fn permits(&self) -> u64 {
        self.given.permits
    }

    /// Frees shares that are over by `now`. `span` is the longest window of the rules.
    pub(super) fn advance(&mut self, now: Moment, span: Option<Duration>) {
        if self.given.soonest <= now {
            self.given.taken.retain(|_, taken| taken.free_from > now);
            self.count(span);
        }
    }

    /// Counts what the shares allow in windows of `span`.
    pub(super) fn count(&mut self, span: Option<Duration>) {
        match self.given.unusual() {
            Some(given) if !given.taken.is_empty() => given.count(span),
            Some(_) | None => self.given = Rare::default(),
        }
    }

    /// Keeps every share taken for `longer`, as spends count for longer than before. Windows of `span` count.
    pub(super) fn go_by(&mut self, longer: Duration, span: Option<Duration>) {
        if let Some(given) = self.given.unusual() {
            given.taken.values_mut().for_each(|taken| taken.free_from = taken.free_from + longer);
        }
        self.count(span);
    }

    /// Adds `taken` for nodes that the pool does not know. Windows of `span` count.
    pub(super) fn hold(&mut self, taken: Taken, span: Option<Duration>) {
        self.given.taken.insert(SessionId::UNKNOWN, taken);
        self.count(span);
    }

    /// Replaces the shares by the shares of `other`, where spends count for `longer` and windows of `span` count.
    pub(super) fn hold_all(&mut self, other: &SafeShares, longer: Duration, span: Option<Duration>) {
        self.opens = self.opens.max(other.opens);
        self.given = other.given.clone();
        self.go_by(longer, span);
    }

    /// Ends the share of the session `id`, which has spent nothing after `now`.
    fn leave(&mut self, id: SessionId, now: Moment, clocks: ClockBounds, span: Option<Duration>) {
        if let Some(taken) = self.given.unusual().and_then(|given| given.taken.get_mut(&id)) {
            taken.free_from = taken.free_from.min(now + clocks.stretched(taken.span));
            self.count(span);
        }
    }

    /// Gives `id` a safe share like `share`, or extends it, and returns whether `id` has it. All shares together fit
    /// into `permits`, and there are at most `most`. A session with a different share, from before a change, keeps that
    /// until it ends.
    pub(super) fn take(
        &mut self,
        (id, owner): (SessionId, Owner),
        share: SafeShare,
        (permits, most): (u64, usize),
        now: Moment,
        clocks: ClockBounds,
    ) -> bool {
        let is_same = |taken: &Taken| (taken.permits, taken.span) == (share.permits, share.span);
        let has_room =
            self.given.taken.len() < most && share.permits <= permits.saturating_sub(self.given.permits);
        let ends = clocks.grantor_end(now, share.lasts);
        let mut free_from = ends + clocks.stretched(share.span);
        match self.given.taken.get(&id) {
            Some(taken) if !is_same(taken) => return false,
            None if !has_room || now < self.opens => return false,
            Some(taken) => free_from = free_from.max(taken.free_from),
            None => self.given.permits = self.given.permits.saturating_add(share.permits),
        }
        // All other shares stay as they are, so an ask looks at none of them.
        self.given.soonest = self.given.soonest.min(free_from);
        self.given.last = self.given.last.max(free_from);
        let taken = Taken { permits: share.permits, holders: 1, span: share.span, free_from, owner };
        self.given.taken.insert(id, taken);
        true
    }

    /// Returns the permits that the allocator `id` may hand out in all until [`LENT_FOR`] has passed, in shares that
    /// last as `share` does. That is at most the permits of `share` less what other allocators have, and at most `room`
    /// more than it had. What its nodes have counts in any case.
    fn lend(
        &mut self,
        id: SessionId,
        ask: SafeAsk,
        share: SafeShare,
        room: u64,
        now: Moment,
        clocks: ClockBounds,
    ) -> u64 {
        let before = self.given.taken.get(&id).copied();
        let own = before.map_or(0, |taken| taken.within(share.span));
        let others = self.given.permits.saturating_sub(own);
        let most = share.permits.saturating_sub(others).min(own.saturating_add(room));
        let lent = if now < self.opens { 0 } else { ask.given.saturating_add(ask.more).min(most) };
        let counted = lent.max(ask.given);
        if counted == 0 {
            if let Some(given) = self.given.unusual() {
                given.taken.remove(&id);
            }
        } else {
            // Shares that were given go by another window if the rules have changed.
            let span = if ask.given > 0 { ask.span.min(share.span) } else { share.span };
            let ends = clocks.grantor_end(clocks.grantor_end(now, LENT_FOR), share.lasts);
            let free_from = ends + clocks.stretched(ask.span.max(share.span));
            // Some of the shares that were given may last until the end that was told before.
            let earlier = before.filter(|_| ask.given > 0).map(|taken| taken.free_from);
            let free_from = earlier.map_or(free_from, |earlier| earlier.max(free_from));
            // Each permit that is lent anew may go to another node.
            let holders = ask.holders.saturating_add(ask.more).min(counted);
            self.given
                .taken
                .insert(id, Taken { permits: counted, holders, span, free_from, owner: Owner::NONE });
        }
        if let Some(before) = before.filter(|_| !ask.span.is_zero() && ask.span < share.span) {
            let gone = before.permits.saturating_sub(counted);
            let gone = Taken { permits: gone, free_from: now + clocks.stretched(share.span), ..before };
            self.linger(gone, Some(share.span));
        }
        self.count(Some(share.span));
        lent
    }

    /// Keeps counting `gone`, which has left the shorter windows of before and may be in the current windows of `span`.
    pub(super) fn linger(&mut self, gone: Taken, span: Option<Duration>) {
        if gone.permits > 0 {
            let known = self.given.taken.entry(SessionId::UNKNOWN).or_insert(Taken { permits: 0, ..gone });
            known.permits = known.permits.saturating_add(gone.permits);
            (known.holders, known.span) = (known.holders.max(gone.holders), known.span.min(gone.span));
            known.free_from = known.free_from.max(gone.free_from);
            self.count(span);
        }
    }
}

impl Given {
    /// Carries what they are.
    fn carry(&mut self, carrier: &mut Carrier<'_>) {
        carrier.moment(&mut self.soonest);
        carrier.moment(&mut self.last);
        carrier.number(&mut self.permits);
        carrier.number(&mut self.wanted.0.0);
        carrier.moment(&mut self.wanted.1);
        let blank = Taken {
            permits: 0,
            holders: 1,
            span: Duration::ZERO,
            free_from: Moment::ORIGIN,
            owner: Owner::NONE,
        };
        let mut taken: VecDeque<(SessionId, Taken)> = std::mem::take(&mut self.taken).into_iter().collect();
        carrier.list(
            &mut taken,
            || (SessionId(0), blank),
            |carrier, (id, taken)| {
                carrier.number(&mut id.0);
                carrier.number(&mut taken.permits);
                carrier.number(&mut taken.holders);
                carrier.span(&mut taken.span);
                carrier.moment(&mut taken.free_from);
                carrier.number(&mut taken.owner.0);
            },
        );
        self.taken.extend(taken);
    }

    /// As [`SafeShares::count`].
    fn count(&mut self, span: Option<Duration>) {
        let within = |taken: &Taken| span.map_or(taken.permits, |span| taken.within(span));
        self.permits = self.taken.values().map(within).fold(0, u64::saturating_add);
        let free = || self.taken.values().map(|taken| taken.free_from);
        self.soonest = free().min().unwrap_or(Moment::NEVER);
        self.last = free().max().unwrap_or(Moment::ORIGIN);
    }
}

impl Pool {
    /// Takes what the allocator `id` says that its nodes have of safe shares, and want beside. Returns what it may hand
    /// out in all until it asks again.
    pub fn lend_safe(&mut self, now: Moment, id: SessionId, ask: SafeAsk) -> Option<SafeShare> {
        self.advance(now);
        let Safe { nodes, lasts } = self.plan.sharing.safe?;
        let most = self.plan.sharing.reserve / nodes.max(1) * nodes;
        let share = SafeShare { permits: most, span: self.safe_span()?, lasts };
        let room = self.safe_room();
        let permits = self.safe_shares.lend(id, ask, share, room, self.now, self.plan.clocks);
        self.audit();
        Some(SafeShare { permits, ..share })
    }

    /// Assumes that an earlier process told sessions until `lost` of safe shares that are not known here.
    pub fn forget_safe_shares(&mut self, lost: Moment) {
        let span = self.safe_span().unwrap_or_default();
        self.safe_shares.forget(lost, span, self.plan.is_root, self.plan.clocks);
    }

    /// Returns the permits that no session has, beyond what all safe shares allow.
    pub(super) fn safe_room(&self) -> u64 {
        self.ledgers.available().saturating_sub(self.safe_shares.permits())
    }

    /// Returns the permits that are never lent: the configured reserve, or what earlier safe shares still allow if that
    /// is more. A pool that leases keeps nothing back: the allocator above does.
    pub(super) fn reserve(&self) -> u64 {
        match self.borrower {
            Some(_) => 0,
            None => self.plan.sharing.reserve.max(self.safe_shares.permits()),
        }
    }

    /// Adapts the safe shares to the current rules. Until now spends counted by the rules of `before`.
    pub(super) fn count_safe_shares_by_others(&mut self, before: &Plan) {
        let (longer, span) = (counts_longer(&self.plan, before), self.safe_span());
        self.safe_shares.go_by(longer, span);
    }

    /// Returns how long nothing is lent because nodes may go on with safe shares of earlier rules. Where the current
    /// rules do not count in windows, nothing that is kept back makes up for the spends of these nodes.
    pub(crate) fn shut_for_shares(&self) -> Duration {
        let counts = self.safe_shares.are_free() || self.borrower.is_some() || self.safe_span().is_some();
        if counts { Duration::ZERO } else { self.safe_shares.given.last.since(self.now) }
    }

    /// Returns the refusal while [`Pool::shut_for_shares`] lasts, here or in a pool `above`.
    pub(super) fn refused_for_shares(&self, above: &[Above<'_>]) -> Option<Refusal> {
        let above = above.iter().map(|above| above.pool.shut_for_shares());
        let wait = above.fold(self.shut_for_shares(), Duration::max);
        (!wait.is_zero()).then_some(Refusal { reason: RefusalReason::Quarantine, retry_after: wait })
    }

    /// Ends the safe share of the session `id`, which has left.
    pub(super) fn leave_safe_share(&mut self, id: SessionId) {
        let span = self.safe_span();
        self.safe_shares.leave(id, self.now, self.plan.clocks, span);
    }

    /// Returns the longest window of the rules, their margin included; where the limit is leased, the window that was
    /// told. `None` if a rule has no windows.
    pub(super) fn safe_span(&self) -> Option<Duration> {
        match &self.borrower {
            Some(borrower) => borrower.safe_span(),
            None => safe_span(&self.plan.rules),
        }
    }
}

/// Returns how much longer a spent permit counts by the rules of `plan` than by the rules of `before`.
pub(super) fn counts_longer(plan: &Plan, before: &Plan) -> Duration {
    let stretched = |plan: &Plan| plan.clocks.stretched(counts_for(&plan.rules));
    stretched(plan).saturating_sub(stretched(before))
}

/// Returns how long a spent permit counts by `rules`, buckets left out.
pub(super) fn counts_for(rules: &[Rule]) -> Duration {
    let counts = rules.iter().map(|rule| match rule {
        Rule::SlidingWindow(rule) | Rule::SlidingLog(rule) => rule.per() + rule.margin(),
        Rule::FixedWindow(rule) => rule.windows().longest(),
        Rule::Concurrency(rule) => rule.longest(),
        Rule::TokenBucket(_) | Rule::LeakyBucket(_) => Duration::ZERO,
    });
    counts.max().unwrap_or_default()
}

/// Returns the longest window of `rules`, their margin included. `None` if a rule does not count in windows that begin
/// by themselves.
pub fn safe_span(rules: &[Rule]) -> Option<Duration> {
    let mut spans = rules.iter().map(|rule| match rule {
        Rule::SlidingWindow(rule) | Rule::SlidingLog(rule) => Some(rule.per() + rule.margin()),
        // Windows of first use begin with a call that the allocator does not hear of.
        Rule::FixedWindow(rule) if rule.windows().anchor() == Some("first_use") => None,
        Rule::FixedWindow(rule) => Some(rule.windows().longest()),
        Rule::TokenBucket(_) | Rule::LeakyBucket(_) | Rule::Concurrency(_) => None,
    });
    spans.try_fold(Duration::ZERO, |longest, span| Some(longest.max(span?))).filter(|span| !span.is_zero())
}
