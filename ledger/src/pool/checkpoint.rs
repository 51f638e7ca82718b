//! Checkpoints of a pool in a store, and how much the pool may lend by them. A [`Checkpoint`] is the pool as if one session
//! held all outstanding permits and a few more, up to a *high-water mark*. While a checkpoint is durable, the pool lends up to
//! its mark without another write. An allocator that finds only the checkpoint counts all those permits as spent at their end.
//!
//! Why it holds: the pool of a checkpoint is one that might have existed, with one session in place of all. Each permit
//! lent since was lent below the mark, and is spent by the end that the checkpoint states.

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

/// Part of what is left, one in eight, by which the high-water mark may exceed what is out. If fewer than eight permits
/// are left, each answer that lends waits for the disk.
const AHEAD_PART: u64 = 8;

/// A pool as an allocator writes it down for its next process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// When the checkpoint was written.
    written: At,
    /// Outstanding permits, and those that may be lent before the next checkpoint.
    out: u64,
    /// Latest instant at which one of these permits can be spent. Until then nodes go by deadlines that they were told,
    /// even of an empty lease.
    until: At,
    /// Nothing is granted before this.
    #[serde(rename = "opens")]
    quarantine_until: At,
    /// In-flight permits of an earlier process, whose sessions never report: expiry and number, soonest first.
    #[serde(default, rename = "landings", skip_serializing_if = "Vec::is_empty")]
    orphaned: Vec<(At, u64)>,
    /// The books of its rules, in their order.
    rules: Vec<Saved>,
    vendor: SavedFeedback,
}

impl Checkpoint {
    /// Returns the calls in flight; `None` if they are impossible. All rules that count calls must agree, or the books
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
    /// Highest total of permits that the pool may have granted since it was made.
    granted: u64,
    /// Latest end of the leases that hold these permits.
    until: Moment,
}

impl HighWater {
    /// Returns what both marks allow, as a mark of the pool and checkpoint of `other`.
    fn within(self, other: HighWater) -> HighWater {
        HighWater { granted: self.granted.min(other.granted), until: self.until.min(other.until), ..other }
    }
}

/// What a pool knows of its checkpoints.
#[derive(Clone, Debug, Default)]
pub(super) struct Checkpoints {
    /// The latest end of any lease that was granted, also of one that holds nothing.
    latest_end: Moment,
    /// End of deadlines that an earlier process told nodes.
    earlier: Moment,
    made: Rare<Made>,
}

/// State once a checkpoint was made; without a store none is.
#[derive(Clone, Copy, Debug)]
struct Made {
    /// Number of the newest checkpoint. It also rises when all checkpoints become unusable.
    number: u64,
    /// What the pool may lend by the newest durable checkpoint and all made since: a crash may leave any of them.
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
    /// Carries every field.
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
    /// Carries every field.
    pub(super) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        carrier.moment(&mut self.latest_end);
        carrier.moment(&mut self.earlier);
        carrier.rare(&mut self.made, Made::carry);
    }

    /// Notes that a lease until `end` is about to be granted.
    pub(super) fn on_lease(&mut self, end: Moment) {
        self.latest_end = self.latest_end.max(end);
    }

    /// Returns the end of deadlines that an earlier process told nodes.
    pub(super) fn earlier(&self) -> Moment {
        self.earlier
    }

    /// Takes over the end of earlier deadlines from the pool that this one continues.
    pub(super) fn goes_on(&mut self, earlier: Moment) {
        self.earlier = earlier;
    }

    /// Resumes the pool numbered `pool` from a checkpoint that allows `granted` permits in all, in leases that end by `until`.
    fn resume(&mut self, pool: u64, granted: u64, until: Moment) {
        self.latest_end = until;
        let high_water = Some(HighWater { pool, number: 1, granted, until });
        self.made = Made { number: 1, high_water, ..*Made::USUAL }.into();
    }

    /// Makes all checkpoints unusable, because the rules have changed.
    pub(super) fn forget(&mut self) {
        if let Some(made) = self.made.unusual() {
            made.number += 1;
            made.high_water = None;
        }
    }
}

impl Plan {
    /// Whether a pool of this plan has checkpoints. A pool that leases from another allocator has none.
    pub fn has_checkpoints(&self) -> bool {
        !self.is_borrowed
    }

    /// Whether the first grant opens a window. Then no grant is written down before it is made.
    pub(super) fn opens_windows(&self) -> bool {
        let opens = |windows| matches!(windows, Windows::FirstUse { .. });
        self.rules.iter().any(|rule| matches!(rule, Rule::FixedWindow(rule) if opens(rule.windows())))
    }
}

impl Pool {
    /// Makes a checkpoint at `now` that should last for about `span`, and the mark that applies once it is durable.
    /// `None` where books are not kept, see [`Plan::has_checkpoints`].
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

    /// Applies `mark`, whose checkpoint is durable now. A mark of an older checkpoint, or of another pool, changes nothing.
    pub fn raise_high_water(&mut self, mark: HighWater) {
        if (mark.pool, mark.number) == (self.number, self.checkpoints.made.number) {
            self.checkpoints.made.high_water = Some(mark);
        }
    }

    /// Whether all grants are within the mark of the newest durable checkpoint, so that an answer made now may leave at
    /// once. If not, none may leave before another checkpoint is durable.
    pub fn is_covered(&self) -> bool {
        if !self.plan.has_checkpoints() {
            return true;
        }
        match self.checkpoints.made.high_water {
            Some(mark) => self.books.granted <= mark.granted && self.checkpoints.latest_end <= mark.until,
            None => self.books.granted == 0 && self.checkpoints.latest_end == Moment::ORIGIN,
        }
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

    /// Whether the pool has a checkpoint, durable or about to be.
    pub fn has_checkpoint(&self) -> bool {
        self.checkpoints.made.number > 0
    }

    /// Returns the pool of `checkpoint` as it stands at `now`; `None` if no pool of this plan can have had it. Permits
    /// that were out, or may have been lent up to the high-water mark, count as spent at the latest possible instant.
    pub fn from_checkpoint(plan: Arc<Plan>, checkpoint: &Checkpoint, gap: Gap, now: Moment) -> Option<Pool> {
        let since = Since { gap, written: checkpoint.written, now, clocks: plan.clocks };
        let (out, until) = (checkpoint.out, since.moment(checkpoint.until));
        if checkpoint.written > checkpoint.until || out > PERMITS_MAX || !plan.has_checkpoints() {
            return None;
        }
        let quarantine_until = since.moment(checkpoint.quarantine_until);
        // A pool in quarantine has lent nothing, but nodes may still go by the flow of earlier rules.
        let end = until.max(quarantine_until);
        let mut earlier = Session::new(Share::EVEN, Moment::ORIGIN);
        (earlier.outstanding, earlier.end) = (out, end);
        earlier.calls = checkpoint.calls(since)?.into();
        let place = Place::own(SessionId::UNKNOWN);
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

    /// Returns expiry and number of the orphaned calls of an earlier process.
    fn orphaned_earlier(&self) -> Vec<(At, u64)> {
        let earlier = self.sessions.get(Place::own(SessionId::UNKNOWN)).into_iter();
        earlier
            .flat_map(|it| it.calls.orphaned().expiries())
            .map(|(at, permits)| (at.into(), permits))
            .collect()
    }

    /// Creates a session that is not known here and may go by a deadline that an earlier process told it.
    pub(super) fn newcomer(&self, share: Share) -> Session {
        let mut session = Session::new(share, self.now);
        session.end = self.now.max(self.checkpoints.earlier);
        // A pool that leases must report the wants of new sessions before it has anything to lend them.
        session.is_unproven &= !self.plan.is_borrowed;
        session
    }

    /// Estimates the permits to lend within `span` at the rate since the last checkpoint. Only a part of what is left,
    /// because a crash burns them.
    fn to_be_lent(&self, span: Duration) -> u64 {
        if self.now < self.quarantine_until || self.sessions.live() == 0 || self.plan.opens_windows() {
            return 0;
        }
        let (at, granted, ahead) = self.checkpoints.made.last;
        let lent = u128::from(self.books.granted.saturating_sub(granted));
        // A burst is not a rate: it is averaged over `span` at least.
        let over = self.now.since(at).max(span).as_nanos().max(1);
        let lent = u64::try_from(lent * span.as_nanos() / over).unwrap_or(u64::MAX);
        lent.max(ahead / 2).min(self.left() / AHEAD_PART)
    }
}
