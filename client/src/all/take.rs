//! Takes all parts of a call or none. Permits are set aside, which can be undone without a trace, until all parts have
//! them.

use super::lines::Lines;
use super::parts::Parts;
use super::{All, same};
use crate::guard::Guard;
use crate::local_pool::CLOCK;
use crate::pace::Taken;
use crate::reservation::Reservation;
use lessor_holder::safe_allowance::Paid;
use lessor_protocol::Moment;

/// The permits that one part pays, and what was set aside for them.
type Paying = (u64, Held);

/// What was set aside for one part.
#[derive(Clone, Copy, Debug)]
pub(super) enum Held {
    /// Nothing: the part costs nothing, or an earlier part on the same limit pays for it.
    Nothing,
    /// Permits and, in a steady flow, a turn.
    Permits(Option<Taken>),
    /// A part of this process's safe share, in a fallback.
    Share(Paid),
    /// Nothing: the limit is in shadow mode or an open fallback, and lets the call pass.
    Passes,
}

impl<P: Parts> All<P> {
    /// Returns the first part on the same limit as `part`: it pays for all of them.
    fn payer(&self, part: usize) -> usize {
        let (limit, _) = self.parts.at(part);
        (0..part).find(|&before| same(self.parts.at(before).0, limit)).unwrap_or(part)
    }

    /// Returns what `part` pays: its own cost and that of later parts on the same limit, or nothing if an earlier part
    /// pays.
    pub(super) fn cost(&self, part: usize) -> u64 {
        if self.payer(part) != part {
            return 0;
        }
        let (limit, permits) = self.parts.at(part);
        let later = (part + 1..self.parts.count()).map(|later| self.parts.at(later));
        later.filter(|(other, _)| same(other, limit)).fold(permits, |sum, (_, more)| sum.saturating_add(more))
    }

    /// Spends every part, or returns the part that is short. `lines` are the lines in which the caller stands.
    pub(super) fn take(&self, lines: Option<&Lines<'_>>) -> Result<(), usize> {
        let held = self.hold(lines)?;
        for (part, (cost, held)) in held.as_ref().iter().enumerate() {
            let pool = self.parts.at(part).0.pool();
            match held {
                Held::Nothing => {}
                Held::Permits(_) => pool.spend_held(*cost),
                Held::Share(_) | Held::Passes => pool.let_pass(*cost),
            }
        }
        Ok(())
    }

    /// As [`All::take`], for a call that ends when its guards are dropped.
    pub(super) fn start(&self, lines: Option<&Lines<'_>>) -> Result<P::Each<Guard>, usize> {
        let held = self.hold(lines)?;
        Ok(self.parts.each(|part| {
            let (limit, permits) = self.parts.at(part);
            let counted = self.settles(&held, part) && limit.pool().enter_held(permits);
            limit.guard(permits, counted)
        }))
    }

    /// As [`All::take`], for a call that is settled when it is over.
    pub(super) fn set_aside(&self, lines: Option<&Lines<'_>>) -> Result<P::Each<Reservation>, usize> {
        let held = self.hold(lines)?;
        Ok(self.parts.each(|part| {
            let (limit, permits) = self.parts.at(part);
            let number = if self.settles(&held, part) { limit.pool().reserve_held(permits) } else { None };
            limit.reservation(number, permits)
        }))
    }

    /// Whether permits were set aside for `part`. Counts the permits of a part that passes without a lease.
    fn settles(&self, held: &P::Each<Paying>, part: usize) -> bool {
        match held.as_ref()[self.payer(part)].1 {
            Held::Permits(_) => true,
            Held::Nothing => false,
            Held::Share(_) | Held::Passes => {
                let (limit, permits) = self.parts.at(part);
                limit.pool().let_pass(permits);
                false
            }
        }
    }

    /// Sets aside what every part pays. If a part is short, puts everything back and returns that part.
    fn hold(&self, lines: Option<&Lines<'_>>) -> Result<P::Each<Paying>, usize> {
        let mut held = self.parts.each(|part| (self.cost(part), Held::Nothing));
        match self.hold_each(held.as_mut(), lines) {
            Ok(()) => Ok(held),
            Err(short) => {
                held.as_ref()
                    .iter()
                    .enumerate()
                    .for_each(|(part, paying)| self.put_back(part, *paying, lines));
                Err(short)
            }
        }
    }

    fn hold_each(&self, held: &mut [Paying], lines: Option<&Lines<'_>>) -> Result<(), usize> {
        // One reading of the clock for all parts: they are checked within nanoseconds of each other.
        let now = CLOCK.now();
        if let Some(short) = lines.and_then(|lines| self.short_of(lines, now)) {
            return Err(short);
        }
        for (part, (cost, held)) in held.iter_mut().enumerate() {
            let (pool, cost) = (self.parts.at(part).0.pool(), *cost);
            if cost == 0 {
                continue;
            }
            let first = lines.is_some_and(|lines| lines.is_first(part));
            *held = match pool.hold(cost, first, now) {
                Ok(()) => Held::Permits(None),
                Err(_) if pool.lets_all_pass() => Held::Passes,
                Err(_) => Held::Share(pool.take_share(cost, first).ok_or(part)?),
            };
        }
        // The pace comes after the permits of all parts: a turn in a steady flow is harder to undo.
        (0..held.len()).try_for_each(|part| self.take_pace(part, &mut held[part], now))
    }

    /// Returns the first part that is short, as far as can be seen without setting anything aside. Waiting callers look
    /// before they take: putting permits back wakes the next caller in line, and two callers could wake each other
    /// without end.
    fn short_of(&self, lines: &Lines<'_>, now: Moment) -> Option<usize> {
        (0..self.parts.count()).find(|&part| {
            let (pool, cost) = (self.parts.at(part).0.pool(), self.cost(part));
            cost > 0 && !pool.might_give(cost, lines.is_first(part), now)
        })
    }

    /// Takes from the pace of a limit with a steady flow, or returns the part if it is too early.
    fn take_pace(&self, part: usize, (cost, held): &mut Paying, now: Moment) -> Result<(), usize> {
        let Held::Permits(pace) = held else { return Ok(()) };
        let (pool, cost) = (self.parts.at(part).0.pool(), *cost);
        match pool.hold_pace(cost, now) {
            Ok(taken) => *pace = taken,
            Err(_) if pool.lets_all_pass() => {
                pool.put_back(cost);
                *held = Held::Passes;
            }
            Err(_) => return Err(part),
        }
        Ok(())
    }

    fn put_back(&self, part: usize, (cost, held): Paying, lines: Option<&Lines<'_>>) {
        let pool = self.parts.at(part).0.pool();
        match held {
            Held::Nothing | Held::Passes => return,
            Held::Share(taken) => pool.put_back_share(taken),
            Held::Permits(pace) => {
                pool.put_back_pace(pace);
                pool.put_back_quietly(cost);
            }
        }
        // After the permits are back: a caller that became first meanwhile has found nothing. The first in line must
        // not wake itself, which would never end.
        if !lines.is_some_and(|lines| lines.stands(part) && lines.is_first(part)) {
            pool.call_line();
        }
    }
}
