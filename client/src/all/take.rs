//! Taking all parts of a call or none. Permits are set aside, which leaves no trace when it is undone, until all are there.

use super::lines::Lines;
use super::parts::Parts;
use super::{All, same};
use crate::guard::Guard;
use crate::local_pool::CLOCK;
use crate::pace::Taken;
use crate::reservation::Reservation;
use lessor_holder::safe_allowance::Paid;
use lessor_protocol::Moment;

/// What one part pays, and what was set aside for it.
type Paying = (u64, Held);

/// What was set aside for one part.
#[derive(Clone, Copy, Debug)]
pub(super) enum Held {
    /// Nothing: it costs nothing, or an earlier part on the same limit pays for it.
    Nothing,
    /// Permits, and a turn in a steady flow.
    Permits(Option<Taken>),
    /// A part of the reserve, without an allocator.
    Share(Paid),
    /// Nothing: the limit is in shadow mode, or passes everything.
    Passes,
}

impl<P: Parts> All<P> {
    /// The first part on the same limit as `part`: it pays for all of them.
    fn payer(&self, part: usize) -> usize {
        let (limit, _) = self.parts.at(part);
        (0..part).find(|&before| same(self.parts.at(before).0, limit)).unwrap_or(part)
    }

    /// What `part` pays: its own cost and that of later parts on the same limit, or nothing.
    pub(super) fn cost(&self, part: usize) -> u64 {
        if self.payer(part) != part {
            return 0;
        }
        let (limit, permits) = self.parts.at(part);
        let later = (part + 1..self.parts.count()).map(|later| self.parts.at(later));
        later.filter(|(other, _)| same(other, limit)).fold(permits, |sum, (_, more)| sum.saturating_add(more))
    }

    /// Spends every part, or names the one that is short. `lines` are those that the caller stands in.
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

    /// The same for a call that ends with its guards.
    pub(super) fn start(&self, lines: Option<&Lines<'_>>) -> Result<P::Each<Guard>, usize> {
        let held = self.hold(lines)?;
        Ok(self.parts.each(|part| {
            let (limit, permits) = self.parts.at(part);
            let counted = self.settles(&held, part) && limit.pool().enter_held(permits);
            limit.guard(permits, counted)
        }))
    }

    /// The same for a call that is settled when it is over.
    pub(super) fn set_aside(&self, lines: Option<&Lines<'_>>) -> Result<P::Each<Reservation>, usize> {
        let held = self.hold(lines)?;
        Ok(self.parts.each(|part| {
            let (limit, permits) = self.parts.at(part);
            let number = if self.settles(&held, part) { limit.pool().reserve_held(permits) } else { None };
            limit.reservation(number, permits)
        }))
    }

    /// Whether permits were set aside for `part`. If it passes without, that is counted.
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

    /// Sets aside what every part pays; or puts back what was set aside, and names the part that is short.
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
        // One reading for all parts: they are checked within nanoseconds of each other.
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
                Err(_) if pool.is_shadow() => Held::Passes,
                Err(_) => Held::Share(pool.take_share(cost, first).ok_or(part)?),
            };
        }
        // Once the permits of all are set aside: what a pace has let through is harder to undo.
        (0..held.len()).try_for_each(|part| self.take_pace(part, &mut held[part], now))
    }

    /// The first part that is short, as far as can be seen without setting anything aside. Callers that wait look first: what
    /// is set aside and put back wakes the next in line, and two that did so to each other would never rest.
    fn short_of(&self, lines: &Lines<'_>, now: Moment) -> Option<usize> {
        (0..self.parts.count()).find(|&part| {
            let (pool, cost) = (self.parts.at(part).0.pool(), self.cost(part));
            cost > 0 && !pool.might_give(cost, lines.is_first(part), now)
        })
    }

    /// Takes from the pace of a limit that has a steady flow; or names the part, which is too early.
    fn take_pace(&self, part: usize, (cost, held): &mut Paying, now: Moment) -> Result<(), usize> {
        let Held::Permits(pace) = held else { return Ok(()) };
        let (pool, cost) = (self.parts.at(part).0.pool(), *cost);
        match pool.hold_pace(cost, now) {
            Ok(taken) => *pace = taken,
            Err(_) if pool.is_shadow() => {
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
        // Looked at after it is back: a caller that came to be first meanwhile found nothing. The first in line itself would
        // wake itself, for ever.
        if !lines.is_some_and(|lines| lines.stands(part) && lines.is_first(part)) {
            pool.call_line();
        }
    }
}
