//! Reservations on one pool, and permits that a call costs beyond its reservation. The refill keeps the books. Nothing
//! here waits.

use super::{CLOCK, LocalPool};
use crate::slot::{SLOT_MAX, Short};

impl LocalPool {
    /// Sets `permits` aside until [`LocalPool::settle`]. Returns the number of the reservation; `None` if there is
    /// nothing to settle. Otherwise as [`LocalPool::take`].
    pub(crate) fn reserve(&self, permits: u64, first: bool) -> Result<Option<u64>, Short> {
        if permits == 0 {
            return Ok(None);
        }
        if !first && self.slow_path().has_line() {
            return Err(Short::Empty);
        }
        if self.is_paced() {
            self.hold_at_pace(permits, first, CLOCK.now())?;
            return Ok(self.reserve_held(permits));
        }
        self.reserve_from_slot(permits, first).map(Some)
    }

    /// As [`LocalPool::reserve`], once no line is in the way and the limit has no steady flow.
    pub(super) fn reserve_from_slot(&self, permits: u64, first: bool) -> Result<u64, Short> {
        let mut refill = self.refill();
        // Read under the lock: a caller that waited for it must not spend from a lease that has ended meanwhile.
        let reserved = refill.reserve(self.slot(), permits, CLOCK.now());
        drop(refill);
        match reserved {
            Ok((number, left)) => {
                self.spent_down_to(left, permits);
                Ok(number)
            }
            Err(short) => {
                self.collected_in_vain(permits, first);
                Err(short)
            }
        }
    }

    /// As [`LocalPool::reserve`], but in shadow mode or fallback a call may pass without permits, and is then not
    /// counted.
    pub(crate) fn reserve_or_pass(&self, permits: u64, first: bool) -> Result<Option<u64>, Short> {
        match self.reserve(permits, first) {
            Err(_) if self.try_pass(permits, first) => Ok(None),
            reserved => reserved,
        }
    }

    /// As [`LocalPool::reserve`], for permits that [`LocalPool::hold`] set aside.
    pub(crate) fn reserve_held(&self, permits: u64) -> Option<u64> {
        if permits == 0 {
            return None;
        }
        let (number, left) = self.refill().reserve_held(self.slot(), permits, CLOCK.now());
        self.spent_down_to(left, permits);
        Some(number)
    }

    /// Gives back up to `permits` of the reservation `number`. Returns how many can be spent again.
    pub(crate) fn give_back(&self, number: u64, permits: u64) -> u64 {
        let mut refill = self.refill();
        let back = refill.give_back(self.slot(), number, permits, CLOCK.now());
        drop(refill);
        if back > 0 {
            self.call_line();
        }
        back
    }

    /// Counts what is left of the reservation `number` as spent.
    pub(crate) fn settle(&self, number: u64) {
        self.refill().settle(number);
    }

    /// Whether the reservation `number` can still give permits back.
    pub(crate) fn is_open(&self, number: u64) -> bool {
        self.refill().is_open(self.slot(), number, CLOCK.now())
    }

    /// Charges `permits` that a call has cost beyond its reservation. Takes what is there, and returns how many were
    /// taken and how many are owed; the next permits to arrive pay for the latter. At most as many are ever owed as one
    /// call can take: more would be nonsense, and would shut all callers out for ever.
    pub(crate) fn overdraw(&self, permits: u64) -> (u64, u64) {
        let taken = self.take_up_to(permits, false).unwrap_or(0);
        let lacking = permits - taken;
        if lacking > 0 && self.lets_all_pass() {
            self.let_pass(lacking);
            return (permits, 0);
        }
        let most = self.ceiling().min(SLOT_MAX).saturating_sub(self.overdrawn());
        let owed = lacking.min(most);
        if self.owe_share(owed) {
            return (taken, owed);
        }
        let unpaid = if self.is_paced() { owed - self.pay_at_pace(owed) } else { owed };
        if unpaid > 0 {
            self.owe_in_line(unpaid);
        }
        (taken, owed)
    }

    /// Owes `permits` as a caller that is first in line: no other caller overtakes it, and the permits are asked for.
    pub(super) fn owe_in_line(&self, permits: u64) {
        self.cold.overdraft.owe(permits, self.slow_path());
        self.call_first();
        self.nudge();
    }

    /// Permits that are owed now.
    fn overdrawn(&self) -> u64 {
        let at_pace = self.pace().map_or(0, |pace| pace.owed(CLOCK.now()));
        self.cold.overdraft.owed().saturating_add(at_pace)
    }

    /// Pays up to `owed` permits of a steady flow from the slot, and owes them to the pace: callers wait until it has
    /// minted as many. Returns how many were paid. (A debt in line would wait for a waker, and no waker is called when
    /// the next permit is due.)
    fn pay_at_pace(&self, owed: u64) -> u64 {
        let Some(pace) = self.pace() else { return 0 };
        let now = CLOCK.now();
        loop {
            let part = owed.min(self.slot().balance().free);
            if part == 0 {
                return 0;
            }
            match self.slot().take(part, now) {
                Ok(left) => {
                    pace.owe(part, now);
                    self.spent_down_to(left, part);
                    return part;
                }
                // Another thread has taken some of them; others may be left.
                Err(Short::Empty | Short::Early) if part > 1 => {}
                Err(_) => return 0,
            }
        }
    }

    /// Pays as much of what is owed as there are permits.
    pub(super) fn pay_overdrawn(&self) {
        let pay = |owed| {
            let paid = match self.is_paced() {
                true => self.pay_at_pace(owed),
                false => self.take_up_to(owed, true).unwrap_or(0),
            };
            // Without an allocator no permits arrive, and the debt would keep callers from the safe share.
            if self.owe_share(owed - paid) { owed } else { paid }
        };
        self.cold.overdraft.pay(self.slow_path(), pay, || self.could_pay());
    }

    /// Whether there are permits that could pay for a debt.
    fn could_pay(&self) -> bool {
        let has_pace = !self.is_paced() || self.pace().is_some();
        has_pace && CLOCK.now() < self.slot().deadline() && self.slot().balance().free > 0
    }
}
