//! What a store knows of a pool, and what the pool may lend by that. A [`Checkpoint`] is the pool as if one session held all
//! permits that are out, and a few more, up to a *high-water mark*. While a checkpoint is durable, the pool lends up to its
//! mark without another write. An allocator that finds only the checkpoint takes all those permits for spent at their end.
//!
//! Why it holds: the pool of a checkpoint is one that might have been, with one session in the place of all. Each
//! permit lent since was lent below its mark, and is spent by the end that the checkpoint states.

use super::calls::SessionCalls;
use super::family::Place;
use super::feedback::SavedFeedback;
use super::orphaned_calls::OrphanedCalls;
use super::rare::{Rare, Usual};
use super::rates::Turn;
use super::session::Session;
use super::snapshot::Resumed;
use super::{Plan, Pool, SessionId};
use crate::Rule;
use crate::packed::Carrier;
use crate::rule::{At, Gap, Part, Saved, Since, Windows};
use crate::share::Share;
use lessor_protocol::{Moment, PERMITS_MAX};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// How long a pool should lend by one checkpoint. A shorter time means more writes; a longer one burns more in a crash,
/// beside leases.
pub const CHECKPOINT_LASTS: Duration = Duration::from_millis(250);

/// Part of what is left, one in eight, by which the high-water mark is above what is out at most. Where fewer than
/// eight permits are left, each answer that lends waits for the disk.
const AHEAD_PART: u64 = 8;

/// Session that holds all that an earlier process lent. No other session has this id.
const EARLIER: SessionId = SessionId(u64::MAX);

/// A pool as an allocator writes it down for its next process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// When the checkpoint was written.
    written: At,
    /// Permits that are out, or may be lent until there is another checkpoint.
    out: u64,
    /// When the last of those can have been spent. Until then nodes go by the deadline that they were told, also of an
    /// empty lease.
    until: At,
    /// Nothing is granted before this.
    #[serde(rename = "opens")]
    quarantine_until: At,
    /// In-flight permits of an earlier process, whose sessions never report: when they expire, soonest first, and how many.
    #[serde(default, rename = "landings", skip_serializing_if = "Vec::is_empty")]
    orphaned: Vec<(At, u64)>,
    /// The books of its rules, in their order.
    rules: Vec<Saved>,
    vendor: SavedFeedback,
}

impl Checkpoint {
    /// Returns the calls in flight; `None` if they are impossible. Rules that count calls agree on them, or the books
    /// are not restored.
    fn calls(&self, since: Since) -> Option<SessionCalls> {
        let permits = self.rules.iter().find_map(Saved::in_flight).unwrap_or(0);
        let expiries = &self.orphaned;
        let is_sane = expiries.is_sorted_by_key(|(at, _)| *at) && expiries.iter().all(|(_, part)| *part > 0);
        let orphaned = expiries.iter().try_fold(0_u64, |sum, (_, part)| sum.checked_add(*part))?;
        let running = permits.checked_sub(orphaned).filter(|_| is_sane)?;
        let expiries = expiries.iter().map(|&(at, part)| (since.moment(at), part));
        Some(SessionCalls::silent(running, OrphanedCalls::of(expiries)))
    }
}

/// How much a pool may lend by a checkpoint, once that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HighWater {
    /// Pool and number of the checkpoint.
    pool: u64,
    number: u64,
    /// Total of permits that the pool may ever have granted.
    granted: u64,
    /// Latest end of their leases.
    until: Moment,
}

impl HighWater {
    /// Returns the mark of `other`, lowered to what both marks allow.
    fn within(self, other: HighWater) -> HighWater {
        HighWater { granted: self.granted.min(other.granted), until: self.until.min(other.until), ..other }
    }
}

/// What a pool knows of its checkpoints.
#[derive(Clone, Debug, Default)]
pub(super) struct Checkpoints {
    /// The latest end of any lease that was granted, also of one that holds nothing.
    latest_end: Moment,
    /// Until then nodes may go by deadlines that an earlier process told them.
    earlier: Moment,
    made: Rare<Made>,
}

/// What is known once a checkpoint was made. Without a store none is.
#[derive(Clone, Copy, Debug)]
struct Made {
    /// Number of the newest checkpoint, raised by one when the checkpoints that there are become unusable.
    number: u64,
    /// What the pool may lend by the newest durable checkpoint and by all that have been made since: any of those may
    /// be the one that is found.
    high_water: Option<HighWater>,
    /// When the newest checkpoint was made, how much had been granted by then, and how much more it allows.
    last: (Moment, u64, u64),
    /// How long the newest checkpoint should last.
    span: Duration,
}

impl Usual for Made {
    const USUAL: &'static Self =
        &Made { number: 0, high_water: None, last: (Moment::ORIGIN, 0, 0), span: Duration::ZERO };
}

impl Made {
    /// Carries all parts.
    fn carry(&mut self, carrier: &mut Carrier<'_>) {
        carrier.number(&mut self.number);
        carrier.moment(&mut self.last.0);
        carrier.number(&mut self.last.1);
        carrier.number(&mut self.last.2);
        carrier.span(&mut self.span);
        let blank = HighWater { pool: 0, number: 0, granted: 0, until: Moment::ORIGIN };
        carrier.option(
            &mut self.high_water,
            || blank,
            |carrier, mark| {
                carrier.number(&mut mark.pool);
                carrier.number(&mut mark.number);
                carrier.number(&mut mark.granted);
                carrier.moment(&mut mark.until);
            },
        );
    }
}

impl Checkpoints {
    /// Carries all parts.
    pub(super) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        carrier.moment(&mut self.latest_end);
        carrier.moment(&mut self.earlier);
        carrier.rare(&mut self.made, Made::carry);
    }

    /// Notes that a lease until `end` is about to be granted.
    pub(super) fn on_lease(&mut self, end: Moment) {
        self.latest_end = self.latest_end.max(end);
    }

    /// Returns until when nodes may go by deadlines that an earlier process told them.
    pub(super) fn earlier(&self) -> Moment {
        self.earlier
    }

    /// Goes on from a pool whose nodes may go by deadlines of an earlier process until `earlier`.
    pub(super) fn goes_on(&mut self, earlier: Moment) {
        self.earlier = earlier;
    }

    /// Goes on as the pool with the number `pool`, by a checkpoint that allows `granted` permits in all, in leases
    /// until `until`.
    fn resume(&mut self, pool: u64, granted: u64, until: Moment) {
        self.latest_end = until;
        let high_water = Some(HighWater { pool, number: 1, granted, until });
        self.made = Made { number: 1, high_water, ..*Made::USUAL }.into();
    }

    /// Forgets all checkpoints, because the rules are others: nothing may be lent by those that there are.
    pub(super) fn forget(&mut self) {
        self.made.number += 1;
        self.made.high_water = None;
    }
}

impl Plan {
    /// Whether a pool of this plan has checkpoints. One that leases from another allocator has none.
    pub fn has_checkpoints(&self) -> bool {
        !self.is_borrowed
    }

    /// Whether the first grant opens a window. Then nothing is written down as lent before it is.
    pub(super) fn opens_windows(&self) -> bool {
        let opens = |windows| matches!(windows, Windows::FirstUse { .. });
        self.rules.iter().any(|rule| matches!(rule, Rule::FixedWindow(rule) if opens(rule.windows())))
    }
}

impl Pool {
    /// Makes a checkpoint at `now` that should last for about `span`, and the mark up to which the pool may lend as
    /// soon as it is durable. `None` where books are not kept, see [`Plan::has_checkpoints`].
    pub fn checkpoint(&mut self, now: Moment, span: Duration) -> Option<(Checkpoint, HighWater)> {
        if !self.plan.has_checkpoints() {
            return None;
        }
        self.advance(now);
        let ahead = self.to_be_lent(span);
        let latest_end = self.checkpoints.latest_end.max(self.now);
        let is_in_use = latest_end > self.now && !self.plan.opens_windows();
        let more =
            if is_in_use { self.plan.clocks.grantor_end(self.now + span, self.term) } else { self.now };
        let until = latest_end.max(more);
        let mut ledgers = self.ledgers.clone();
        ledgers.charge(ahead);
        let checkpoint = Checkpoint {
            written: self.now.into(),
            out: self.books.outstanding + ahead,
            until: until.into(),
            quarantine_until: self.quarantine_until.into(),
            orphaned: self.orphaned_earlier(),
            rules: ledgers.save()?,
            vendor: self.feedback.save(),
        };
        self.checkpoints.made.number += 1;
        self.checkpoints.made.last = (self.now, self.books.granted, ahead);
        self.checkpoints.made.span = span;
        let granted = self.books.granted + ahead;
        let mark = HighWater { pool: self.number, number: self.checkpoints.made.number, granted, until };
        self.checkpoints.made.high_water = self.checkpoints.made.high_water.map(|old| old.within(mark));
        Some((checkpoint, mark))
    }

    /// Notes that the checkpoint that came with `mark` is durable. A mark of an older one, or of another pool, changes nothing.
    pub fn raise_high_water(&mut self, mark: HighWater) {
        if (mark.pool, mark.number) == (self.number, self.checkpoints.made.number) {
            self.checkpoints.made.high_water = Some(mark);
        }
    }

    /// Whether all that was answered is below the mark of the newest durable checkpoint. If not, no answer may leave
    /// before there is another checkpoint.
    pub fn is_covered(&self) -> bool {
        if !self.plan.has_checkpoints() {
            return true;
        }
        match self.checkpoints.made.high_water {
            Some(mark) => self.books.granted <= mark.granted && self.checkpoints.latest_end <= mark.until,
            None => self.books.granted == 0 && self.checkpoints.latest_end == Moment::ORIGIN,
        }
    }

    /// Whether an answer of now may leave at once.
    pub fn may_be_known(&self) -> bool {
        self.is_covered()
    }

    /// Whether another checkpoint is worth its write: half of the permits or of the time that the last one allows is
    /// used, or it counts permits as lent that no session wants any more.
    pub fn wants_checkpoint(&self) -> bool {
        if !self.is_covered() {
            return true;
        }
        let Some(mark) = self.checkpoints.made.high_water else { return false };
        let (_, granted, ahead) = self.checkpoints.made.last;
        if self.sessions.live() == 0 {
            return ahead > 0 || self.books.granted > granted;
        }
        mark.granted - self.books.granted.min(mark.granted) < ahead.div_ceil(2)
            || (ahead > 0 && self.checkpoints.latest_end + self.checkpoints.made.span / 2 > mark.until)
    }

    /// Whether there is a checkpoint of the pool, durable or about to be.
    pub fn has_checkpoint(&self) -> bool {
        self.checkpoints.made.number > 0
    }

    /// Returns the pool of `checkpoint`, as it stands at `now`; `None` if no pool by this plan can have been so.
    /// Permits that were out, or may have been lent up to the high-water mark, are taken for spent at the latest
    /// instant at which they can have been.
    pub fn from_checkpoint(plan: Arc<Plan>, checkpoint: &Checkpoint, gap: Gap, now: Moment) -> Option<Pool> {
        let since = Since { gap, written: checkpoint.written, now, clocks: plan.clocks };
        let (out, until) = (checkpoint.out, since.moment(checkpoint.until));
        if checkpoint.written > checkpoint.until || out > PERMITS_MAX || !plan.has_checkpoints() {
            return None;
        }
        let quarantine_until = since.moment(checkpoint.quarantine_until);
        // A pool in quarantine has lent nothing, but nodes may still go by a flow of other rules.
        let end = until.max(quarantine_until);
        let mut earlier = Session::new(Share::EVEN, Moment::ORIGIN);
        (earlier.outstanding, earlier.end) = (out, end);
        earlier.calls = checkpoint.calls(since)?.into();
        let place = Place::own(EARLIER);
        let mut pool = Pool::resume(
            plan,
            since,
            Resumed {
                books: [out, 0, 0, 0],
                sessions: vec![(place, earlier)],
                rules: &checkpoint.rules,
                vendor: &checkpoint.vendor,
                quarantine_until,
                old_rules_until: until,
                earlier: until,
            },
        )?;
        if let Some(flow) = pool.flow.as_mut() {
            // What had been lent of a steady flow, and what was left, is unknown.
            let part = flow.whole();
            flow.recharge(Part::default(), part);
            pool.sessions.update(place, |session| session.turn = Turn::silent(part, end).into());
        }
        if pool.sessions[place].is_blank() {
            pool.sessions.remove(place);
        }
        pool.forget_safe_shares(now);
        pool.checkpoints.resume(pool.number, out, until);
        pool.advance(now);
        pool.audit();
        Some(pool)
    }

    /// Returns the orphaned calls of an earlier process: when they expire, and how many permits.
    fn orphaned_earlier(&self) -> Vec<(At, u64)> {
        let earlier = self.sessions.get(Place::own(EARLIER)).into_iter();
        earlier
            .flat_map(|it| it.calls.orphaned().expiries())
            .map(|(at, permits)| (at.into(), permits))
            .collect()
    }

    /// Creates a session that is not known here, and that may go by a deadline that an earlier process told it.
    pub(super) fn newcomer(&self, share: Share) -> Session {
        let mut session = Session::new(share, self.now);
        session.end = self.now.max(self.checkpoints.earlier);
        // Where the pool leases, the wants of new sessions count, too: it must report them above before there is
        // anything to lend.
        session.is_unproven &= !self.plan.is_borrowed;
        session
    }

    /// Estimates the permits to be lent within `span`, if lending goes on as since the last checkpoint. It is at most a
    /// part of what is left, because a crash burns them.
    fn to_be_lent(&self, span: Duration) -> u64 {
        if self.now < self.quarantine_until || self.sessions.live() == 0 || self.plan.opens_windows() {
            return 0;
        }
        let (at, granted, ahead) = self.checkpoints.made.last;
        let lent = u128::from(self.books.granted.saturating_sub(granted));
        // A burst is no rate: it counts as spread over `span` at least.
        let over = self.now.since(at).max(span).as_nanos().max(1);
        let lent = u64::try_from(lent * span.as_nanos() / over).unwrap_or(u64::MAX);
        lent.max(ahead / 2).min(self.left() / AHEAD_PART)
    }
}
