//! The state that a pool keeps of one session: permits that are out, until when, and what it has said. Only its pool
//! writes it.

mod holdings;
mod resting;
mod told;

pub use holdings::Holding;
pub(super) use told::Told;

use super::ages::Age;
use super::calls::SessionCalls;
use super::rare::{MaybeMoment, Rare};
use super::rates::Turn;
use crate::share::{Owner, Share};
use lessor_protocol::{Ask, Moment};
use std::collections::VecDeque;
use std::time::Duration;

/// Names a session to its pools. The allocator draws one for each (node, session).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

impl SessionId {
    /// Stands for sessions that are not known. A restored pool has one for all sessions of the earlier process, and one
    /// for all that were told a safe share. An ask that is answered in passing has it in a pool that is not kept, so
    /// these never meet. No session is given this number.
    pub const UNKNOWN: SessionId = SessionId(u64::MAX);
}

/// The last report of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Goodbye {
    /// Permits spent since the session began.
    pub spent_total: u64,
    /// Permits whose calls go on, if the session says so.
    pub running: Option<u64>,
    /// The most permits that it gives back. `None`: as many as its last ask said that it holds.
    pub held: Option<u64>,
    /// Permits let pass in shadow mode since the session began.
    pub shadow_refused: u64,
}

/// Leases kept per session that ended without a report and may still prove unspent. A session that burns more leases in
/// a row than this without one report gets no credit for the oldest: the memory is bounded.
const BURNS_MAX: usize = 4;

/// One session's part of a pool. `granted so far = spent + returned + burned + outstanding`, per session.
#[derive(Clone, Debug)]
pub(super) struct Session {
    /// Its weight, priority and group by the limit's configuration, and its identity.
    pub share: Rare<Share>,
    /// Sequence number of the last ask that was answered, with what it was told and when.
    pub seq: u64,
    pub told: Told,
    pub answered: Moment,
    /// How long ago it was answered, as far as its claim depends on it, and when the pool reviews that.
    pub age: Age,
    pub age_reviewed: MaybeMoment,
    /// How long its leases last where nothing clips them.
    pub term: Duration,
    /// When permits were last lent to it: from then on it accrues its share. Earlier, if it had accrued more than it was lent.
    pub lent: Moment,
    /// The highest total of spent permits that it reported.
    pub spent: u64,
    /// Since when it has spent less than it holds, and what it had spent by then.
    pub turned_over: (Moment, u64),
    /// When its pool takes its lease to end, if it has one. While it asks, the end of its previous lease.
    pub expires: MaybeMoment,
    /// Permits lent to it and not accounted for; live until `end`.
    pub outstanding: u64,
    /// When the allocator takes `outstanding` for spent. Never moves back.
    pub end: Moment,
    /// Permits presumed spent and not yet confirmed either way.
    pub burned: u64,
    /// The part of `burned` that a report could still free, with the instant it was settled at; newest last.
    burns: Rare<VecDeque<Burn>>,
    pub said: Rare<Said>,
    /// The demand that it reported, in permits per 1,000 s, and the permits that its callers wait for: others share by
    /// them.
    pub demand_milli: u64,
    pub waiting: u64,
    /// The second in which it last said that calls wait, counted from one; zero if it never did.
    pub waited: u32,
    /// Permits that it kept and wanted: all that it would have in hand and in use.
    pub wanted: u64,
    /// Permits that it holds by its last ask.
    pub held: u64,
    /// Whether it has said goodbye. Its number is not believed any more: its node has to begin another session.
    pub has_left: bool,
    /// Whether it is of an identity and has not yet said what became of its first grant.
    pub is_unproven: bool,
    /// Calls that it may have in flight, where a rule counts them.
    pub calls: Rare<SessionCalls>,
    /// Its round-trip time, as it says.
    pub rtt: Duration,
    /// Its part of a steady flow, if the limit has one.
    pub turn: Rare<Turn>,
    /// When its pool reviews whether it can be forgotten, if it is a mirror.
    pub reviewed: Moment,
}

/// Reports that few sessions make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// The highest total of permits that it reported let pass in shadow mode.
    pub shadow_refused: u64,
    /// The number of its last report on the vendor, and the total of refusals in such reports.
    pub observed: u64,
    pub refused: u64,
}

impl Said {
    pub(super) const NOTHING: Said = Said { shadow_refused: 0, observed: 0, refused: 0 };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Burn {
    pub at: Moment,
    pub permits: u64,
}

/// What a report says about permits that were out. The parts of `outstanding` are `kept + spent + returned`. The parts
/// of `burned` are `spent_late + credited` and what stays burned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settlement {
    /// Still held, and live.
    pub kept: u64,
    /// Spent, of the live lease.
    pub spent: u64,
    /// Unspent, of the live lease.
    pub returned: u64,
    /// Spent, of leases that had ended.
    pub spent_late: u64,
    /// Unspent, of leases that had ended.
    pub credited: u64,
    /// Parts of `credited` that rules may still be charged for: when each was settled, and its permits.
    pub credits: Vec<Burn>,
}

impl Session {
    pub(super) fn new(share: Share, now: Moment) -> Self {
        Session {
            is_unproven: share.owner != Owner::NONE,
            share: Rare::of(share),
            term: Duration::ZERO,
            lent: Moment::ORIGIN,
            seq: 0,
            told: Told::NOTHING,
            answered: now,
            age: Age::Fresh,
            age_reviewed: MaybeMoment::NONE,
            turned_over: (now, 0),
            expires: MaybeMoment::NONE,
            spent: 0,
            outstanding: 0,
            end: now,
            burned: 0,
            burns: Rare::default(),
            said: Rare::default(),
            demand_milli: 0,
            waiting: 0,
            waited: 0,
            wanted: 0,
            held: 0,
            has_left: false,
            calls: Rare::default(),
            rtt: Duration::ZERO,
            turn: Rare::default(),
            reviewed: now,
        }
    }

    /// Starts a new turnover at `now` if the session has spent as much as it holds since the last one started. Since
    /// that start it counts as holding what it does not spend.
    pub(super) fn note_turnover(&mut self, now: Moment) {
        if self.spent.saturating_sub(self.turned_over.1) >= self.outstanding {
            self.turned_over = (now, self.spent);
        }
    }

    /// Whether the end of its lease will make a difference.
    pub(super) fn is_live(&self) -> bool {
        self.outstanding > 0 || self.calls.are_live() || self.turn.lent.charged().cap > 0
    }

    /// Returns the permits of its first grant when it reports on that for the first time, otherwise 0.
    pub(super) fn prove(&mut self) -> u64 {
        if !self.is_unproven || self.lent == Moment::ORIGIN {
            return 0;
        }
        self.is_unproven = false;
        self.outstanding + self.burned
    }

    /// Whether a silent session says no more than a newcomer with the same end: nothing is out, burned or in flight,
    /// and no total of calls is counted.
    pub(super) fn is_blank(&self) -> bool {
        !self.is_live() && self.burned == 0 && self.calls.are_blank()
    }

    /// Whether it is blank and has never said that it spent anything. If it asks again it is like a newcomer, and no
    /// rule counts anything of it.
    pub(super) fn is_unused(&self) -> bool {
        self.is_blank() && self.spent == 0 && *self.said == Said::NOTHING
    }

    /// Ends the lease without a report: all its permits are presumed spent. Returns their number.
    pub(super) fn burn(&mut self) -> u64 {
        let permits = std::mem::take(&mut self.outstanding);
        if permits > 0 {
            self.burned += permits;
            self.burns.push_back(Burn { at: self.end, permits });
            if self.burns.len() > BURNS_MAX {
                self.burns.pop_front();
            }
        }
        permits
    }

    /// Returns the burned permits that a report could still free; oldest first.
    pub(super) fn burns(&self) -> impl Iterator<Item = Burn> {
        self.burns.iter().copied()
    }

    /// Restores the permits that had `burned` in all before the session was put away, and the `burns` that could still
    /// be freed.
    pub(super) fn restore_burned(&mut self, burned: u64, burns: impl Iterator<Item = Burn>) {
        (self.burned, self.burns) = (burned, Rare::of(burns.collect()));
    }

    /// Counts from zero. The session will not report on leases that ended without a report: their permits stay spent.
    pub(super) fn reset_totals(&mut self) {
        (self.spent, self.burned) = (0, 0);
        self.said.unusual().into_iter().for_each(|said| said.shadow_refused = 0);
        self.turned_over.1 = 0;
        self.burns = Rare::default();
    }

    /// Returns what `ask` says about the permits that are out, or `None` if it cannot be true: more spent and held than
    /// was ever granted, or less spent than before.
    ///
    /// A total does not say which lease a permit was spent from. Each permit is put where it stays charged longest:
    /// held permits to the live lease first, spent ones next, the rest to leases that had ended, newest first.
    pub(super) fn settlement(&self, ask: &Ask) -> Option<Settlement> {
        let newly_spent = ask.spent_total.checked_sub(self.spent)?;
        if newly_spent.checked_add(ask.held)? > self.outstanding + self.burned {
            return None;
        }
        let kept = ask.held.min(self.outstanding);
        let held_late = ask.held - kept;
        let spent = newly_spent.min(self.outstanding - kept);
        let spent_late = newly_spent - spent;
        let mut stays = spent_late + held_late;
        let mut credits = vec![];
        for burn in self.burns.iter().rev() {
            let part = burn.permits.min(stays);
            stays -= part;
            if burn.permits > part {
                credits.push(Burn { at: burn.at, permits: burn.permits - part });
            }
        }
        Some(Settlement {
            kept,
            spent,
            returned: self.outstanding - kept - spent,
            spent_late,
            credited: self.burned - spent_late - held_late,
            credits,
        })
    }

    /// Returns the permits that it was lent, and by `goodbye` has neither spent nor gives back.
    pub(super) fn unreturned(&self, goodbye: Goodbye) -> u64 {
        let spent = goodbye.spent_total.saturating_sub(self.spent);
        let unspent = (self.outstanding + self.burned).saturating_sub(spent);
        unspent.saturating_sub(goodbye.held.unwrap_or(self.held))
    }

    /// Returns the part of the mirrored session's `settlement` that this mirror knows. If the mirror was forgotten
    /// since leases burned, nothing counts those leases here any more.
    pub(super) fn known_part(&self, settlement: &Settlement) -> Settlement {
        if self.burned >= settlement.spent_late + settlement.credited {
            return settlement.clone();
        }
        Settlement { spent_late: 0, credited: 0, credits: vec![], ..settlement.clone() }
    }

    /// Applies its own `settlement`.
    pub(super) fn settle(&mut self, settlement: &Settlement) {
        self.spent += settlement.spent + settlement.spent_late;
        self.outstanding = settlement.kept;
        self.burned -= settlement.spent_late + settlement.credited;
        if self.burns.is_empty() {
            return;
        }
        let mut spent = settlement.spent_late;
        let mut stays = self.burned;
        // Newest first: spent permits are final and leave the list, credited ones are the oldest and leave too.
        let mut burns = VecDeque::new();
        for burn in self.burns.iter().rev() {
            let final_part = burn.permits.min(spent);
            spent -= final_part;
            let open = (burn.permits - final_part).min(stays);
            stays -= open;
            if open > 0 {
                burns.push_front(Burn { at: burn.at, permits: open });
            }
        }
        self.burns = Rare::of(burns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_protocol::moment::at;

    fn session(outstanding: u64, burns: &[(u64, u64)]) -> Session {
        let mut session = Session::new(Share::EVEN, at(0));
        for &(end, permits) in burns {
            session.end = at(end);
            session.outstanding = permits;
            session.burn();
        }
        session.outstanding = outstanding;
        session
    }

    fn ask(spent_total: u64, held: u64) -> Ask {
        Ask { spent_total, held, ..Ask::default() }
    }

    #[test]
    fn a_live_lease_splits_into_kept_spent_and_returned() {
        let settlement = session(10, &[]).settlement(&ask(3, 5)).expect("true");
        assert_eq!((settlement.kept, settlement.spent, settlement.returned), (5, 3, 2));
    }

    #[test]
    fn claims_beyond_what_was_granted_are_not_believed() {
        assert_eq!(session(10, &[]).settlement(&ask(6, 5)), None);
        assert_eq!(session(10, &[]).settlement(&ask(u64::MAX, u64::MAX)), None);
        let mut spent = session(10, &[]);
        spent.spent = 7;
        assert_eq!(spent.settlement(&ask(6, 0)), None, "a total that falls");
    }

    #[test]
    fn what_may_have_been_spent_later_is_never_charged_as_earlier() {
        // 10 burned at 100, 10 live now; 4 spent since. They may all be of the live lease: they are put there.
        let settlement = session(10, &[(100, 10)]).settlement(&ask(4, 0)).expect("true");
        assert_eq!((settlement.spent, settlement.returned, settlement.spent_late), (4, 6, 0));
        assert_eq!(settlement.credits, [Burn { at: at(100), permits: 10 }]);
    }

    #[test]
    fn a_late_report_credits_the_oldest_and_charges_the_newest() {
        let mut late = session(0, &[(100, 10), (200, 10)]);
        // Held when the ask was written, so still possibly spent before the lease ended: 5 stay burned.
        let settlement = late.settlement(&ask(4, 5)).expect("true");
        assert_eq!((settlement.kept, settlement.spent_late, settlement.credited), (0, 4, 11));
        let credits = [Burn { at: at(200), permits: 1 }, Burn { at: at(100), permits: 10 }];
        assert_eq!(settlement.credits, credits);
        late.settle(&settlement);
        assert_eq!((late.spent, late.burned), (4, 5));
        assert_eq!(*late.burns, [Burn { at: at(200), permits: 5 }]);
        // The next report says that none of the 5 was spent.
        let settlement = late.settlement(&ask(4, 0)).expect("true");
        assert_eq!(settlement.credits, [Burn { at: at(200), permits: 5 }]);
    }

    #[test]
    fn many_burns_in_a_row_are_remembered_as_a_sum_only() {
        let burns: Vec<(u64, u64)> = (1..=10).map(|end| (end, 1)).collect();
        let settlement = session(0, &burns).settlement(&ask(0, 0)).expect("true");
        assert_eq!(settlement.credited, 10);
        assert_eq!(settlement.credits.len(), BURNS_MAX);
    }
}
