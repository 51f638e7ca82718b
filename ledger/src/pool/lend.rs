//! Lending from a pool: sizes a grant against what is left and what others need, charges it to every rule, dates the
//! lease that holds it, and says when the session asks next.

mod next_ask;

use super::Pool;
use super::borrow::Borrower;
use super::claims::{of_all, poll};
use super::family::{self, Above, Place};
use super::large::ForCall;
use super::loan::Loan;
use super::rates::callable;
use crate::rule::{Draw, Pace};
use crate::sizing::{self, Asker, Scarcity, Sized, State, Supply};
use lessor_protocol::lease::{millis_up, whole_millis};
use lessor_protocol::sizing::lasts;
use lessor_protocol::{Ask, Grant, InFlight, Moment, Rate};
use std::time::Duration;

/// Part of a term, a sixteenth, for which a session holds permits if it wants more than its average share of a sliding window,
/// even while there are plenty. Such a window counts a permit from its *spend*, so the time for which it was held is lost.
const GREEDY_PART: u32 = 16;

/// Lower bound of the time by [`GREEDY_PART`]: on a short window the round trip costs more than the hoarding.
const GREEDY_MIN: Duration = Duration::from_millis(60);

/// The grant that one pool would make if it were alone.
pub(super) struct Offer {
    permits: u64,
    /// Whether the permits are all that its first call lacks, and from when on the session accrues its share if it is lent
    /// these.
    call: Option<Moment>,
    state: State,
    /// Permits that could be lent before the grant.
    left: u64,
    pace: Option<Pace>,
    /// Whether the session should hold little, because others want what it would hold unspent.
    is_greedy: bool,
    /// Whether the lease is not extended: the session has long held more than its share unspent, or leaves its permits
    /// to callers that wait.
    ends_lease: bool,
    /// Rest of the wait that the session was told, if others share.
    wait: Option<Duration>,
    /// Permits that the session should have in hand and in use, where permits are spent again.
    hold: Option<u64>,
    /// For display: the scarcity of the whole pool, whether the session wants permits and is offered none, and what
    /// other sessions take.
    pub(super) standing: Scarcity,
    pub(super) is_nothing: bool,
    pub(super) others: Draw,
}

/// One of the pools that lend the same permits, with the session's place there and the pool's offer.
struct Link<'a> {
    pool: &'a mut Pool,
    place: Place,
    offer: Option<Offer>,
}

impl Link<'_> {
    fn offer(&self) -> &Offer {
        self.offer.as_ref().expect("each has made one")
    }
}

impl Pool {
    /// Sizes a grant, charges it here and in all pools `above`, where the session is `mirror`, and dates the lease that
    /// holds it. Each pool sizes its offer as if it were alone, and the least is lent.
    pub(super) fn lend(
        &mut self,
        place: Place,
        above: &mut [Above<'_>],
        mirror: Place,
        ask: &Ask,
        newcomer: bool,
    ) -> Grant {
        let own = Link { pool: self, place, offer: None };
        if above.is_empty() {
            return lend(&mut [own], ask, newcomer);
        }
        let above = above.iter_mut().map(|above| Link { pool: &mut *above.pool, place: mirror, offer: None });
        lend(&mut std::iter::once(own).chain(above).collect::<Vec<_>>(), ask, newcomer)
    }
}

/// Makes a grant of all pools of `chain` to `ask`, which may come from a `newcomer`, and charges it to each of them.
fn lend(chain: &mut [Link<'_>], ask: &Ask, newcomer: bool) -> Grant {
    let kept = chain[0].pool.sessions[chain[0].place].outstanding;
    // Permits out beyond a lowered limit end by themselves, with their lease.
    let is_over = chain.iter().any(|link| link.pool.ledgers.excess() > 0 || link.pool.is_over());
    let fits = !is_over && chain.iter().all(|link| !link.pool.outlives(link.place));
    let (rate, flow) = lend_rate(chain, ask, is_over);
    let most = chain.iter().map(|link| link.pool.most(link.place, flow.is_some())).min().unwrap_or(0);
    let is_reusable = chain.iter().all(|link| link.pool.ledgers.are_reusable());
    // Sessions share a steady flow by turns.
    let is_spent = !is_reusable && flow.is_none();
    // What one of them lacked may have been what the session waits for.
    let ended = chain.iter().map(|link| link.pool.waits_ended()).max().unwrap_or(Moment::ORIGIN);
    let mut least = u64::MAX;
    for link in chain.iter_mut() {
        let offer = link.pool.offer(link.place, ask, newcomer, (is_reusable, is_spent), ended, least);
        least = least.min(offer.permits);
        link.offer = Some(offer);
    }
    let ends_lease = chain.iter().any(|link| link.offer().ends_lease);
    let callable = flow.map_or(u64::MAX, |(_, term)| callable(&rate, term).saturating_sub(kept));
    let fitting = if fits { least } else { 0 };
    let permits = fitting.min(callable).min(most.saturating_sub(kept));
    let worth = |link: &Link<'_>| {
        let worth = link.pool.worth(link.place, ask, kept + permits, link.offer());
        link.pool.reach(link.place, kept + permits, worth)
    };
    let worth = chain.iter().map(worth).min().unwrap_or_default();
    let term = if is_over || ends_lease { Duration::ZERO } else { flow.map_or(worth, |(_, term)| term) };
    for link in chain.iter_mut() {
        let call = link.offer().call.filter(|_| permits == link.offer().permits);
        if call.is_some() {
            link.pool.end_turn_of(link.place);
        }
        link.pool.charge(link.place, permits, term, call.unwrap_or(link.pool.now));
    }
    for Link { pool, place, offer } in chain.iter_mut() {
        pool.make_forecast(*place, ask, offer.as_ref().expect("each has made one"));
    }
    let grant = |link: &Link<'_>| {
        let Link { pool, place, .. } = link;
        let (ask_after, retry_after) = pool.next_ask(*place, ask, permits, link.offer());
        let horizon = pool.horizon(*place, link.offer()).min(term);
        let cap = |longest| InFlight { longest: millis_above(longest), hold: link.offer().hold };
        let (ceiling, in_flight) = (pool.call_max_of(*place), pool.longest.map(cap));
        Grant { kept, permits, term, horizon, ceiling, ask_after, retry_after, rate: Rate::Free, in_flight }
    };
    let grant = match &*chain {
        [link] => grant(link),
        chain => chain.iter().map(grant).reduce(family::least).expect("there is one at least"),
    };
    match flow.map(|(index, _)| &mut chain[index]) {
        Some(Link { pool, place, .. }) => pool.in_turn(*place, ask, Grant { rate, ..grant }),
        None => grant,
    }
}

/// Lends a part of the steady flow, if a pool of `chain` has one. Returns the part, the index of that pool, and how long
/// the lease lasts: as long as suits the flow, as far as all rules allow. While a limit `is_over`, no lease begins.
fn lend_rate(chain: &mut [Link<'_>], ask: &Ask, is_over: bool) -> (Rate, Option<(usize, Duration)>) {
    let Some(index) = chain.iter().position(|link| link.pool.flow.is_some()) else {
        return (Rate::Free, None);
    };
    let suits = chain[index].pool.sessions[chain[index].place].term;
    let term = chain.iter().map(|link| link.pool.term(suits)).min().unwrap_or_default();
    // A rate that is told without a lease would be charged for ever.
    let term = if is_over { Duration::ZERO } else { term };
    let Link { pool, place, .. } = &mut chain[index];
    let (rate, term) = pool.lend_rate(*place, ask, term);
    (rate, Some((index, term)))
}

impl Pool {
    /// Sizes the grant that the pool would make alone, where the pools below lend at most `below`. Permits are spent again
    /// (`is_reusable`), for good (`is_spent`), or belong to a steady flow. Waits that were told before `ended` are over.
    fn offer(
        &mut self,
        place: Place,
        ask: &Ask,
        newcomer: bool,
        (is_reusable, is_spent): (bool, bool),
        ended: Moment,
        below: u64,
    ) -> Offer {
        let (left, evens_out) = (self.left(), self.evens_out());
        if evens_out.is_some() {
            let draws = self.sessions.draws();
            self.note_excess(draws.and(Draw { at_once: 0, demand_milli: ask.demand_milli }));
        }
        let (supply, pace) = self.supply(place, left, evens_out);
        let mut asker = self.asker(place, ask);
        // Scarcity of the whole pool: a session of high priority does not see lower ones.
        let standing = Scarcity::of(self.sessions.claims().needs() + u128::from(asker.claim.need), supply);
        let (others, supply, owed) = self.peers(asker.claim.share, supply);
        let sharers = others.count();
        let supply = supply.less(self.kept_for_large(place));
        let first = if newcomer { sizing::newcomer_cap(ask.waiting, sharers, supply) } else { u64::MAX };
        let wants = asker.want.min(first);
        let yields = is_spent && self.yields(place);
        asker.want = wants.min(self.identity_may_take(place, others, supply, is_spent));
        asker.want = if yields { asker.want.min(ask.waiting) } else { asker.want };
        if is_spent {
            asker.turn = self.turn(place, sharers + 1, supply.left);
        }
        // A group's guarantee goes before the share of an identity, but not for sessions that the identity may have made up.
        let owed = owed.min(if self.sessions[place].is_unproven { asker.want } else { wants });
        let (Sized { permits, state }, hold) = match is_reusable {
            true => self.share_in_flight(place, asker, supply.left),
            false => (sizing::grant(asker, others, supply), None),
        };
        let (may_hold, ends_lease) = match is_spent && state != State::Abundant {
            true => self.may_hold(place, ask, asker.claim, others, supply),
            false => (u64::MAX, false),
        };
        let is_greedy = !matches!(state, State::Draining { .. })
            && self.ledgers.count_from_spend()
            && sizing::is_greedy(asker.claim, others, supply.sustained);
        let large = if is_reusable { 0 } else { self.lacks_for_large(place, ask, pace) };
        let permits = permits.max(large.min(asker.want)).min(may_hold).max(owed);
        let standing = if is_reusable { state.into() } else { standing };
        // Permits on their way from the allocator above arrive before an operator has looked.
        let is_ample = self.ledgers.loan().is_some_and(Loan::is_ample);
        let is_nothing = permits == 0 && asker.want > 0 && !is_ample;
        let is_last = is_spent
            && permits == 1
            && owed == 0
            && supply.left <= sharers.max(1)
            && matches!(state, State::Draining { .. });
        let leaves = || if is_last { self.leaves_last(place, ask) } else { None };
        let told = if is_spent && sharers > 0 { self.told_wait(place, ended) } else { None };
        let wait = told.or_else(leaves);
        let lacks = ask.largest.saturating_sub(ask.held);
        // Nearly all calls take one permit, or no more than is lent anyway.
        let (permits, call) = match (wait, is_spent && lacks > permits.max(1)) {
            (Some(_), _) => (0, None),
            (None, false) => {
                self.end_turn_of(place);
                (permits, None)
            }
            (None, true) => {
                // A pool that leases may know of less than a permit in a term.
                let sustained = self.ledgers.average(self.term);
                let all = Supply { left, stock: left, sustained, ..supply };
                let (_, all, _) = self.peers(asker.claim.share, all);
                let (wants, available) = (asker.want, all.left);
                // No share would ever pay where nothing is known to come.
                let pays_in = sizing::pays_in(asker.claim, others, all, lacks.saturating_sub(permits));
                let pays_in = if sustained == 0 { Duration::ZERO } else { pays_in };
                let (sized, since) = (permits, asker.since);
                let part = sizing::part_of_all(asker.claim, others, all.sustained, available);
                let is_abundant = state == State::Abundant;
                let lends = ForCall { sized, wants, since, pays_in, available, part, is_abundant, below };
                self.for_first_call(place, ask, lends)
            }
        };
        // Guaranteed permits are lent all the same. The lease is extended then, or they would be lent for nothing.
        let gives_back = yields && ask.waiting == 0 && self.ledgers.take_back();
        let ends_lease = (ends_lease || gives_back) && permits == 0;
        if is_spent {
            self.note_patience(place, ask, permits);
            self.note_distance(place, ask, permits);
        }
        let draws = self.sessions.draws();
        Offer {
            permits,
            call,
            state,
            left,
            pace,
            is_greedy,
            ends_lease,
            wait,
            hold,
            standing,
            is_nothing,
            others: draws,
        }
    }

    /// Sizes a grant where a permit is spent again when its call ends. No permit comes back by being spent, so the
    /// first session would keep all of them. Each session is told how many to hold: its share of all there are. `left`
    /// permits can be lent to `place` now.
    fn share_in_flight(&self, place: Place, asker: Asker, left: u64) -> (Sized, Option<u64>) {
        let (share, wanted) = (asker.claim.share, self.sessions.wanted());
        // Sessions of higher priority have what they want; those of lower priority are not seen.
        let first = u64::try_from(wanted.before(share.priority).needs).unwrap_or(u64::MAX);
        let kept = self.sessions[place].outstanding;
        let own = of_all(share, kept.saturating_add(asker.want));
        let most = self.ledgers.loan().map_or(u64::MAX, Loan::hold);
        let all = self.left().saturating_add(self.books.outstanding).min(most).saturating_sub(first);
        let share = sizing::even_share(own, wanted.peers(share.priority), all);
        let (state, most) = match share {
            None => (State::Abundant, (left / 2).max(1)),
            // At least one for a session that has none, but not at each ask of a session that asks all the time.
            Some(share) => {
                let one = u64::from(kept == 0 && asker.since >= poll(self.term));
                (State::Scarce, share.saturating_sub(kept).max(one))
            }
        };
        let permits = asker.want.min(most).min(left);
        let hold = share.unwrap_or(all).min(self.plan.sharing.lease_max);
        (Sized { permits, state }, Some(hold))
    }

    /// Returns how long a lease that holds `permits` should last. While at least half of the pool is left, the lease of a slow
    /// user may last until its permits are spent. Each renewal is an exchange, and a surplus of that size hurts no session.
    fn worth(&self, place: Place, ask: &Ask, permits: u64, offer: &Offer) -> Duration {
        let term = self.sessions[place].term;
        let plenty = offer.state == State::Abundant && offer.left.saturating_mul(2) >= self.ceiling();
        // Permits that are spent again do not become fewer: others would wait for as long as the lease lasts.
        if !plenty || ask.waiting > 0 || self.ledgers.are_reusable() {
            return term;
        }
        whole_millis(lasts(permits, ask.demand_milli).clamp(term, self.plan.sharing.term_max))
    }

    /// Returns how long a session should hold permits in advance.
    fn horizon(&self, place: Place, offer: &Offer) -> Duration {
        let term = self.sessions[place].term;
        let above = self.borrower.as_deref().map_or(Duration::MAX, Borrower::horizon);
        let horizon = match offer.state {
            State::Draining { lasts } => lasts.min(term),
            State::Abundant | State::Scarce if offer.is_greedy => (term / GREEDY_PART).max(GREEDY_MIN),
            State::Abundant | State::Scarce => term,
        };
        horizon.min(above)
    }

    fn charge(&mut self, place: Place, permits: u64, term: Duration, accrues_from: Moment) {
        let session = &self.sessions[place];
        self.ledgers.release_ahead(session.outstanding, session.end);
        self.ledgers.charge(permits);
        self.pacer.unusual().into_iter().for_each(|pacer| pacer.lent(permits));
        self.feedback.lent(permits);
        self.group_was_lent(place, permits);
        self.identity_was_lent(place, permits);
        self.books.granted += permits;
        self.books.outstanding += permits;
        let end = self.plan.clocks.grantor_end(self.now, term);
        let (outstanding, end) = self.sessions.update_lease(place, |session| {
            session.outstanding += permits;
            if permits > 0 {
                session.lent = accrues_from;
            }
            if !term.is_zero() {
                // Never earlier than before: until the node hears of the new end, it goes by the old one. Even an empty
                // lease counts: the node goes by its end with the next permits.
                session.end = session.end.max(end);
            }
            (session.outstanding, session.end)
        });
        if !term.is_zero() {
            self.checkpoints.on_lease(end);
        }
        self.ledgers.charge_ahead(outstanding, end);
    }

    /// Returns how long a lease of `term` made now may last without being charged ahead; zero if none would end in time.
    fn term(&self, term: Duration) -> Duration {
        self.clipped(term, self.lease_end())
    }

    fn clipped(&self, term: Duration, end: Option<Moment>) -> Duration {
        term.min(end.map_or(Duration::MAX, |end| self.plan.clocks.term_until(self.now, end)))
    }

    /// Returns the most that `place` may hold: no bound if its lease ends with the window, and otherwise what the next
    /// window has room for. A steady flow is never lent ahead.
    fn most(&self, place: Place, is_paced: bool) -> u64 {
        let (session, end) = (&self.sessions[place], self.lease_end());
        let outlives = end.is_some_and(|end| session.end > end);
        if !outlives && !self.clipped(session.term, end).is_zero() {
            return u64::MAX;
        }
        let ahead = self.clipped(session.term, self.lease_end_ahead());
        if is_paced || ahead.is_zero() { 0 } else { self.room(place, ahead) }
    }

    /// Returns how long a lease of `term` that holds `held` may last: into the next window if that has room for all of
    /// `held`, otherwise until the window ends. So no session has to ask just because a window is over.
    fn reach(&self, place: Place, held: u64, term: Duration) -> Duration {
        let ahead = self.clipped(term, self.lease_end_ahead());
        if held <= self.room(place, ahead) { ahead } else { self.term(term) }
    }

    /// Returns the most that the lease of `place` may hold once it is renewed for `term`, limited by the window that it
    /// reaches. What is kept back in one window is kept back in the next, because all that is out was lent beside it.
    fn room(&self, place: Place, term: Duration) -> u64 {
        if !self.ledgers.count_ahead() {
            return u64::MAX;
        }
        let session = &self.sessions[place];
        let end = self.plan.clocks.grantor_end(self.now, term).max(session.end);
        self.ledgers.room_ahead(end, (session.outstanding, session.end))
    }

    /// Whether the lease of `place` ends after the last instant for which a rule may lend, because it is older than the
    /// rule. Its node would spend new permits until that end.
    fn outlives(&self, place: Place) -> bool {
        self.lease_end_ahead().is_some_and(|end| self.sessions[place].end > end)
    }
}

/// Rounds `span` up to whole milliseconds, as the wire carries it.
pub(super) fn millis_above(span: Duration) -> Duration {
    Duration::from_millis(millis_up(span))
}
