//! What a store knows of a pool, and what the pool may lend by that. A [`Record`] is the pool as it would stand had it lent a
//! *block* to one session. The block is all that is out, and what the pool is about to lend. While that is written down, the pool
//! lends within the block and nothing has to be written. An allocator that finds only the record takes the block for spent at its
//! end.
//!
//! Why it holds: the pool of a record is one that might have been, with one session in the place of all. Whatever was lent
//! since was lent of its block and is spent by the end of that.

use super::family::Place;
use super::feedback::SavedFeedback;
use super::flights::Flights;
use super::lingering::Lingering;
use super::rates::Turn;
use super::session::Session;
use super::{Books, Plan, Pool, SessionId};
use crate::Rule;
use crate::rule::{At, Gap, Part, Saved, Since, Windows};
use crate::share::Share;
use lessor_protocol::{Moment, PERMITS_MAX};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// How long a block lasts: what a crash burns beside leases. Shorter would be more to write, and longer more to burn.
pub const BLOCK: Duration = Duration::from_millis(250);

/// Of what is left, a block holds one in so many beside what is out. Where less is left than that, each answer that lends
/// waits for the disk.
const AHEAD_PART: u64 = 8;

/// Who holds the block of a pool that was restored. No session is ever called that.
const EARLIER: SessionId = SessionId(u64::MAX);

/// A pool as it is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// When.
    written: At,
    /// What is out, and what may be lent until there is another record.
    out: u64,
    /// When the last of that can have been spent: until then nodes go by what they were told, be it of nothing.
    until: At,
    /// Nothing is granted before this.
    opens: At,
    /// Of what is in flight, what was so in an earlier life already, whose sessions will not say a word: when how much of
    /// that has landed, soonest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    landings: Vec<(At, u64)>,
    /// The books of its rules, in their order.
    rules: Vec<Saved>,
    vendor: SavedFeedback,
}

impl Record {
    /// What is in flight, `permits` in all; `None` if that cannot be.
    fn flights(&self, permits: u64, since: Since) -> Option<Flights> {
        let landings = &self.landings;
        let is_sane = landings.is_sorted_by_key(|(at, _)| *at) && landings.iter().all(|(_, part)| *part > 0);
        let lingering = landings.iter().try_fold(0_u64, |sum, (_, part)| sum.checked_add(*part))?;
        let running = permits.checked_sub(lingering).filter(|_| is_sane)?;
        let landings = landings.iter().map(|&(at, part)| (since.moment(at), part));
        Some(Flights::silent(running, Lingering::of(landings)))
    }
}

/// What may be lent by a record, once it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Which record of which pool.
    pool: u64,
    number: u64,
    /// Up to this total of permits that were ever granted.
    granted: u64,
    /// In leases that end until then.
    until: Moment,
}

impl Block {
    /// What may be lent of both.
    fn within(self, other: Block) -> Block {
        Block { granted: self.granted.min(other.granted), until: self.until.min(other.until), ..other }
    }
}

/// What a pool knows of its records.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Records {
    /// So many were made, or could not be used any more.
    number: u64,
    /// What it may lend, by the newest that is durable and by all that have been made since: any of those may be the one
    /// that is found.
    block: Option<Block>,
    /// When the newest was made, what had been granted until then, and what it allows beyond that.
    last: (Moment, u64, u64),
    /// How long a block should last.
    span: Duration,
    /// The latest end of any lease that was told, also of one that holds nothing.
    told: Moment,
    /// Until then nodes may go by what an earlier life told them.
    earlier: Moment,
}

impl Records {
    /// A lease until `end` is about to be told.
    pub(super) fn tell(&mut self, end: Moment) {
        self.told = self.told.max(end);
    }

    /// Until then nodes may go by what an earlier life told them.
    pub(super) fn earlier(&self) -> Moment {
        self.earlier
    }

    /// It goes on with a pool that knew of an earlier life until then.
    pub(super) fn goes_on(&mut self, earlier: Moment) {
        self.earlier = earlier;
    }

    /// The rules are others: by no record that there is may anything be lent.
    pub(super) fn forget(&mut self) {
        self.number += 1;
        self.block = None;
    }
}

impl Plan {
    /// Whether its books can be restored: not on what another allocator lends.
    pub fn is_kept(&self) -> bool {
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
    /// as that is durable. `None` where books are not kept, see [`Plan::is_kept`].
    pub fn write_down(&mut self, now: Moment, span: Duration) -> Option<(Record, Block)> {
        if !self.plan.is_kept() {
            return None;
        }
        self.advance(now);
        let ahead = self.to_be_lent(span);
        let told = self.records.told.max(self.now);
        let is_in_use = told > self.now && !self.plan.opens_windows();
        let more = if is_in_use { self.plan.terms.grantor_end(self.now + span, self.term) } else { self.now };
        let until = told.max(more);
        let mut ledgers = self.ledgers.clone();
        ledgers.charge(ahead);
        let record = Record {
            written: self.now.into(),
            out: self.books.outstanding + ahead,
            until: until.into(),
            opens: self.opens.into(),
            landings: self.landings_of_earlier(),
            rules: ledgers.save()?,
            vendor: self.feedback.save(),
        };
        self.records.number += 1;
        self.records.last = (self.now, self.books.granted, ahead);
        self.records.span = span;
        let granted = self.books.granted + ahead;
        let block = Block { pool: self.number, number: self.records.number, granted, until };
        self.records.block = self.records.block.map(|old| old.within(block));
        Some((record, block))
    }

    /// The record that came with `block` is durable. Of an older one, or another pool, nothing follows.
    pub fn may_lend(&mut self, block: Block) {
        if (block.pool, block.number) == (self.number, self.records.number) {
            self.records.block = Some(block);
        }
    }

    /// Whether all that was lent may be known: what was answered since the newest durable record was lent of its block.
    /// If not, no answer may leave before there is another record.
    pub fn is_covered(&self) -> bool {
        if !self.plan.is_kept() {
            return true;
        }
        match self.records.block {
            Some(block) => self.books.granted <= block.granted && self.records.told <= block.until,
            None => self.books.granted == 0 && self.records.told == Moment::ORIGIN,
        }
    }

    /// Whether what is answered now may leave at once.
    pub fn may_be_known(&self) -> bool {
        self.is_covered()
    }

    /// Whether another record is worth while: its block is half used up, or counts as lent what no session wants any more.
    pub fn wants_record(&self) -> bool {
        if !self.is_covered() {
            return true;
        }
        let Some(block) = self.records.block else { return false };
        let (_, granted, ahead) = self.records.last;
        if self.sessions.live() == 0 {
            return ahead > 0 || self.books.granted > granted;
        }
        block.granted - self.books.granted.min(block.granted) < ahead.div_ceil(2)
            || (ahead > 0 && self.records.told + self.records.span / 2 > block.until)
    }

    /// Whether there is a record of it, durable or about to be.
    pub fn is_recorded(&self) -> bool {
        self.records.number > 0
    }

    /// The pool of a `record`, as it stands at `now`: what was out, or may have been lent of its block, is taken for spent
    /// when the last of that can have been. `None` if no pool by this plan can have been so.
    pub fn restored(plan: Arc<Plan>, record: &Record, gap: Gap, now: Moment) -> Option<Pool> {
        let since = Since { gap, written: record.written, now, terms: plan.terms };
        let then = since.moment(record.written);
        let (out, until) = (record.out, since.moment(record.until));
        let is_sane = record.written <= record.until && then <= now && out <= PERMITS_MAX;
        if !is_sane || !plan.is_kept() {
            return None;
        }
        let mut pool = Pool::new(plan, then);
        if !pool.ledgers.restore(&record.rules, since, (out, until)) {
            return None;
        }
        pool.opens = since.moment(record.opens);
        let flights = record.flights(pool.ledgers.in_flight()?, since)?;
        pool.lend_earlier(out, flights, until);
        pool.books = Books { granted: out, outstanding: out, ..Books::default() };
        pool.outlived = until;
        pool.feedback.restore(&record.vendor, since);
        pool.forget_seats(now);
        pool.recount_ahead();
        (pool.records.told, pool.records.earlier) = (until, until);
        // By the record that there is nothing more may be lent.
        pool.records.number = 1;
        pool.records.block = Some(Block { pool: pool.number, number: 1, granted: out, until });
        pool.advance(now);
        pool.audit();
        Some(pool)
    }

    /// Of what is in flight, what was so in an earlier life, and when it has landed.
    fn landings_of_earlier(&self) -> Vec<(At, u64)> {
        let earlier = self.sessions.get(Place::own(EARLIER)).into_iter();
        earlier
            .flat_map(|it| it.flights.lingering().landings())
            .map(|(at, permits)| (at.into(), permits))
            .collect()
    }

    /// Lends all that an earlier life may have lent, to one session that will never report. That is `out` permits and what was in
    /// `flights`, until then and for the longest call after that. It is also all of a steady flow: what had been lent of that,
    /// and what was left, is unknown.
    fn lend_earlier(&mut self, out: u64, flights: Flights, until: Moment) {
        // What waits for a quarantine has lent nothing, but a flow may still be that of other rules.
        let until = until.max(self.opens);
        let mut session = Session::new(Share::EVEN, Moment::ORIGIN);
        (session.outstanding, session.end) = (out, until);
        session.flights = flights;
        if let Some(flow) = self.flow.as_mut() {
            let part = flow.whole();
            flow.recharge(Part::default(), part);
            session.turn = Turn::silent(part, until);
        }
        let place = Place::own(EARLIER);
        if session.is_live() || session.flights.lands().is_some() {
            self.sessions.insert(place, session);
        }
    }

    /// An earlier life may have told sessions until `lost` that they may go on by themselves: that is not written down.
    pub fn forget_seats(&mut self, lost: Moment) {
        let span = self.safe_span().unwrap_or_default();
        self.seats.forget(lost, span, self.plan.terms);
    }

    /// A session that is not known here, and may go by a deadline that an earlier life told it.
    pub(super) fn newcomer(&self, share: Share) -> Session {
        let mut session = Session::new(share, self.now);
        session.end = self.now.max(self.records.earlier);
        session
    }

    /// Permits that will be wanted within `span`, if it goes on as since the last record, but only a part of what is left: a
    /// crash burns them.
    fn to_be_lent(&self, span: Duration) -> u64 {
        if self.now < self.opens || self.sessions.live() == 0 || self.plan.opens_windows() {
            return 0;
        }
        let (at, granted, ahead) = self.records.last;
        let lent = u128::from(self.books.granted.saturating_sub(granted));
        // A burst is no rate.
        let over = self.now.since(at).max(span).as_nanos().max(1);
        let lent = u64::try_from(lent * span.as_nanos() / over).unwrap_or(u64::MAX);
        lent.max(ahead / 2).min(self.left() / AHEAD_PART)
    }
}
