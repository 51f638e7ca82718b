//! What a store knows of a pool, and what the pool may lend by that. A [`Checkpoint`] is the pool as it would stand had it lent to
//! one session all that is out, and a little more: up to a *high-water mark*. While a checkpoint is durable, the pool lends up to
//! its mark and nothing has to be written. An allocator that finds only the checkpoint takes all of that for spent at its end.
//!
//! Why it holds: the pool of a checkpoint is one that might have been, with one session in the place of all. Whatever was lent
//! since was lent below its mark and is spent by the end of that.

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

/// How long a pool should lend by one checkpoint: what a crash burns beside leases. Shorter means more writes, longer burns more.
pub const CHECKPOINT_LASTS: Duration = Duration::from_millis(250);

/// The high-water mark is above what is out by at most one in so many of what is left. Where less is left than that, each answer
/// that lends waits for the disk.
const AHEAD_PART: u64 = 8;

/// The session that holds all that an earlier process lent. No other is ever called that.
const EARLIER: SessionId = SessionId(u64::MAX);

/// A pool as an allocator writes it down for its next process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// When.
    written: At,
    /// What is out, and what may be lent until there is another checkpoint.
    out: u64,
    /// When the last of that can have been spent: until then nodes go by what they were told, be it of nothing.
    until: At,
    /// Nothing is granted before this.
    #[serde(rename = "opens")]
    quarantine_until: At,
    /// In-flight permits of an earlier process, whose sessions never report: when how many expire, soonest first.
    #[serde(default, rename = "landings", skip_serializing_if = "Vec::is_empty")]
    orphaned: Vec<(At, u64)>,
    /// The books of its rules, in their order.
    rules: Vec<Saved>,
    vendor: SavedFeedback,
}

impl Checkpoint {
    /// What is in flight; `None` if that cannot be. The rules that count it agree, or the books are not gone on with.
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
    /// Which checkpoint of which pool.
    pool: u64,
    number: u64,
    /// Up to this total of permits that were ever granted.
    granted: u64,
    /// In leases that end until then.
    until: Moment,
}

impl HighWater {
    /// What may be lent of both.
    fn within(self, other: HighWater) -> HighWater {
        HighWater { granted: self.granted.min(other.granted), until: self.until.min(other.until), ..other }
    }
}

/// What a pool knows of its checkpoints.
#[derive(Clone, Debug, Default)]
pub(super) struct Checkpoints {
    /// The latest end of any lease that was granted, also of one that holds nothing.
    latest_end: Moment,
    /// Until then nodes may go by what an earlier life told them.
    earlier: Moment,
    made: Rare<Made>,
}

/// What is to be known once there is one. Without a store there is none.
#[derive(Clone, Copy, Debug)]
struct Made {
    /// So many were made, or could not be used any more.
    number: u64,
    /// What it may lend, by the newest that is durable and by all that have been made since: any of those may be the one
    /// that is found.
    high_water: Option<HighWater>,
    /// When the newest was made, what had been granted until then, and what it allows beyond that.
    last: (Moment, u64, u64),
    /// How long it should last.
    span: Duration,
}

impl Usual for Made {
    const USUAL: &'static Self =
        &Made { number: 0, high_water: None, last: (Moment::ORIGIN, 0, 0), span: Duration::ZERO };
}

impl Made {
    /// Carries what it is.
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
    /// Carries what they are.
    pub(super) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        carrier.moment(&mut self.latest_end);
        carrier.moment(&mut self.earlier);
        carrier.rare(&mut self.made, Made::carry);
    }

    /// A lease until `end` is about to be granted.
    pub(super) fn on_lease(&mut self, end: Moment) {
        self.latest_end = self.latest_end.max(end);
    }

    /// Until then nodes may go by what an earlier life told them.
    pub(super) fn earlier(&self) -> Moment {
        self.earlier
    }

    /// It goes on with a pool that knew of an earlier life until then.
    pub(super) fn goes_on(&mut self, earlier: Moment) {
        self.earlier = earlier;
    }

    /// Goes on with the pool that has this `number`, by a checkpoint that allows no more than is `granted`, `until` a moment.
    fn resume(&mut self, pool: u64, granted: u64, until: Moment) {
        self.latest_end = until;
        let high_water = Some(HighWater { pool, number: 1, granted, until });
        self.made = Made { number: 1, high_water, ..*Made::USUAL }.into();
    }

    /// The rules are others: by no checkpoint that there is may anything be lent.
    pub(super) fn forget(&mut self) {
        self.made.number += 1;
        self.made.high_water = None;
    }
}

impl Plan {
    /// Whether a pool of this has checkpoints: not one that lends on what another allocator lends it.
    pub fn has_checkpoints(&self) -> bool {
        !self.is_borrowed
    }

    /// Whether what is lent first opens a window: then nothing is written down as lent before it is.
    pub(super) fn opens_windows(&self) -> bool {
        let opens = |windows| matches!(windows, Windows::FirstUse { .. });
        self.rules.iter().any(|rule| matches!(rule, Rule::FixedWindow(rule) if opens(rule.windows())))
    }
}

impl Pool {
    /// What is to be written down at `now`, so that for about `span` nothing else has to be; and what may be lent as soon
    /// as that is durable. `None` where books are not kept, see [`Plan::has_checkpoints`].
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

    /// The checkpoint that came with `mark` is durable. Of an older one, or another pool, nothing follows.
    pub fn raise_high_water(&mut self, mark: HighWater) {
        if (mark.pool, mark.number) == (self.number, self.checkpoints.made.number) {
            self.checkpoints.made.high_water = Some(mark);
        }
    }

    /// Whether all that was lent may be known: what was answered since the newest durable checkpoint is below its mark.
    /// If not, no answer may leave before there is another checkpoint.
    pub fn is_covered(&self) -> bool {
        if !self.plan.has_checkpoints() {
            return true;
        }
        match self.checkpoints.made.high_water {
            Some(mark) => self.books.granted <= mark.granted && self.checkpoints.latest_end <= mark.until,
            None => self.books.granted == 0 && self.checkpoints.latest_end == Moment::ORIGIN,
        }
    }

    /// Whether what is answered now may leave at once.
    pub fn may_be_known(&self) -> bool {
        self.is_covered()
    }

    /// Whether another checkpoint is worth its write: half of what the last one allows is lent, or it counts as lent what no session
    /// wants any more.
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

    /// Whether there is a checkpoint of it, durable or about to be.
    pub fn has_checkpoint(&self) -> bool {
        self.checkpoints.made.number > 0
    }

    /// Returns the pool of `checkpoint`, as it stands at `now`; `None` if no pool by this plan can have been so. What was out, or may
    /// have been lent up to the high-water mark, is taken for spent when the last of that can have been.
    pub fn from_checkpoint(plan: Arc<Plan>, checkpoint: &Checkpoint, gap: Gap, now: Moment) -> Option<Pool> {
        let since = Since { gap, written: checkpoint.written, now, clocks: plan.clocks };
        let (out, until) = (checkpoint.out, since.moment(checkpoint.until));
        if checkpoint.written > checkpoint.until || out > PERMITS_MAX || !plan.has_checkpoints() {
            return None;
        }
        let quarantine_until = since.moment(checkpoint.quarantine_until);
        // What waits for a quarantine has lent nothing, but a flow may still be that of other rules.
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

    /// Orphaned calls of an earlier process: when how many permits expire.
    fn orphaned_earlier(&self) -> Vec<(At, u64)> {
        let earlier = self.sessions.get(Place::own(EARLIER)).into_iter();
        earlier
            .flat_map(|it| it.calls.orphaned().expiries())
            .map(|(at, permits)| (at.into(), permits))
            .collect()
    }

    /// A session that is not known here, and may go by a deadline that an earlier life told it.
    pub(super) fn newcomer(&self, share: Share) -> Session {
        let mut session = Session::new(share, self.now);
        session.end = self.now.max(self.checkpoints.earlier);
        // What is wanted must be known above before there is anything to lend.
        session.is_unproven &= !self.plan.is_borrowed;
        session
    }

    /// Permits that will be wanted within `span`, if it goes on as since the last checkpoint, but only a part of what is left: a
    /// crash burns them.
    fn to_be_lent(&self, span: Duration) -> u64 {
        if self.now < self.quarantine_until || self.sessions.live() == 0 || self.plan.opens_windows() {
            return 0;
        }
        let (at, granted, ahead) = self.checkpoints.made.last;
        let lent = u128::from(self.books.granted.saturating_sub(granted));
        // A burst is no rate.
        let over = self.now.since(at).max(span).as_nanos().max(1);
        let lent = u64::try_from(lent * span.as_nanos() / over).unwrap_or(u64::MAX);
        lent.max(ahead / 2).min(self.left() / AHEAD_PART)
    }
}
