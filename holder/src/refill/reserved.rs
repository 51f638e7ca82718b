//! Permits that callers have reserved because the cost of their calls is known only later. They are out of the slot and
//! not spent yet, so every report counts them as held. The handles call it under the pool's lock; like the rest of a
//! refill, it reads no clock.
//!
//! When a lease ends without a report, the allocator takes its permits for spent. So does this: a reservation ends with
//! its lease, and gives nothing back from then on. A caller may be paused before it spends permits that it has set
//! aside, or puts them back: they must not enter a later lease.

use super::Refill;
use crate::permits::{Pacer, Permits, Short};
use lessor_protocol::Moment;
use lessor_protocol::rare::Usual;
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest time that a reservation stays open. A reservation lost in a call that never ends would withhold permits for
/// as long as the process lives. The longest calls known, to a model that writes at length, take a few minutes.
pub(super) const RESERVED_MAX: Duration = Duration::from_secs(600);

/// The reservations of one pool.
#[derive(Clone, Debug)]
pub(super) struct Reserved {
    /// Open reservations by number, which is also the order in which they end.
    open: BTreeMap<u64, Reservation>,
    /// Permits in open reservations.
    permits: u64,
    /// Reservations made so far.
    numbers: u64,
    /// Permits given back so far: callers tried for them all the same.
    given_back: u64,
}

/// No caller has reserved anything yet.
impl Usual for Reserved {
    const USUAL: &'static Self = &Reserved { open: BTreeMap::new(), permits: 0, numbers: 0, given_back: 0 };
}

#[derive(Clone, Copy, Debug)]
struct Reservation {
    permits: u64,
    ends: Moment,
}

impl Reserved {
    /// Returns the permits that are reserved.
    pub(super) fn permits(&self) -> u64 {
        self.permits
    }

    /// Returns the permits that callers tried for and did not spend: reserved, or given back.
    pub(super) fn tried(&self) -> u64 {
        self.permits + self.given_back
    }

    /// Counts all reserved permits as spent: a later report that some are unspent would not be believed.
    fn spend_all(&mut self) {
        self.open.clear();
        self.permits = 0;
    }

    fn begin(&mut self, permits: u64, now: Moment) -> u64 {
        self.numbers += 1;
        self.permits += permits;
        self.open.insert(self.numbers, Reservation { permits, ends: now + RESERVED_MAX });
        self.numbers
    }

    /// Counts reservations that were open for too long as spent.
    fn spend_until(&mut self, now: Moment) {
        while let Some(first) = self.open.first_entry()
            && first.get().ends <= now
        {
            self.permits -= first.remove().permits;
        }
    }

    /// Takes up to `permits` back from the reservation `number`. Returns how many.
    fn give_back(&mut self, number: u64, permits: u64) -> u64 {
        let Some(open) = self.open.get_mut(&number) else { return 0 };
        let back = permits.min(open.permits);
        open.permits -= back;
        self.permits -= back;
        self.given_back += back;
        back
    }

    /// Spends the rest of the reservation `number`.
    fn spend(&mut self, number: u64) {
        self.permits -= self.open.remove(&number).map_or(0, |open| open.permits);
    }
}

impl<P: Pacer> Refill<P> {
    /// Sets `permits` aside and returns the number of the reservation, with the number of permits still free.
    /// [`Refill::settle`] must follow.
    ///
    /// # Errors
    /// As [`Permits::take`].
    pub fn reserve(&mut self, slot: &impl Permits, permits: u64, now: Moment) -> Result<(u64, u64), Short> {
        let left = slot.take(permits, now)?;
        Ok((self.reserved.begin(permits, now), left))
    }

    /// Does the same for permits that were set aside by `Slot::hold` of the client.
    pub fn reserve_held(&mut self, slot: &impl Permits, permits: u64, now: Moment) -> (u64, u64) {
        let left = slot.spend_held(permits);
        (self.reserved.begin(permits, now), left)
    }

    /// Gives back up to `permits` of the reservation `number`. Returns how many can be spent again: none once the lease
    /// has ended, because then they count as spent.
    pub fn give_back(&mut self, slot: &impl Permits, number: u64, permits: u64, now: Moment) -> u64 {
        self.let_go_of_reserved(slot, now);
        let back = self.reserved.give_back(number, permits);
        if self.is_stopped {
            self.removed += back;
            return 0;
        }
        // Their lease goes on, otherwise they would be spent by now.
        slot.install(back, 0, Moment::ORIGIN);
        back
    }

    /// Spends the rest of the reservation `number`.
    pub fn settle(&mut self, number: u64) {
        self.reserved.spend(number);
    }

    /// Begins the call of the reservation `number`, which reports its end with [`Refill::hand_back`]. Returns its
    /// permits; `None` if the reservation is over, so that its permits are spent.
    pub fn enter_reserved(&mut self, slot: &impl Permits, number: u64, now: Moment) -> Option<u64> {
        self.let_go_of_reserved(slot, now);
        let permits = self.reserved.open.get(&number)?.permits;
        self.reserved.spend(number);
        self.calls.take(permits, now);
        Some(permits)
    }

    /// Returns the permits that are reserved.
    pub fn reserved(&self) -> u64 {
        self.reserved.permits()
    }

    /// Whether the reservation `number` can still give something back at `now`.
    pub fn is_open(&self, slot: &impl Permits, number: u64, now: Moment) -> bool {
        let open = self.reserved.open.get(&number);
        now < slot.deadline() && open.is_some_and(|open| now < open.ends)
    }

    /// Spends reserved permits whose time is over: no report after the end of a lease counts them as held.
    pub(super) fn let_go_of_reserved(&mut self, slot: &impl Permits, now: Moment) {
        if let Some(reserved) = self.reserved.unusual() {
            reserved.spend_until(now);
        }
        if now >= slot.deadline() {
            self.spend_all_reserved();
        }
    }

    /// Spends all reserved permits.
    pub(super) fn spend_all_reserved(&mut self) {
        if let Some(reserved) = self.reserved.unusual() {
            reserved.spend_all();
        }
    }
}

impl<P: Pacer> Refill<P> {
    /// Puts `permits` into the slot until `deadline` at least, and takes out as many of `lost` as it can. Returns how many
    /// it took.
    ///
    /// Permits are all alike: for a lost permit that is set aside, a new one is taken out. If there are too few new ones, no
    /// permit is left free. Then the old deadline stays until the next exchange takes the rest out, so that permits put
    /// back meanwhile cannot be spent.
    pub(super) fn install(&self, slot: &impl Permits, permits: u64, lost: u64, deadline: Moment) -> u64 {
        if lost == 0 {
            return slot.install(permits, 0, deadline);
        }
        let mut dropped = slot.install(permits, lost, Moment::ORIGIN);
        let mut is_whole = true;
        if dropped < lost {
            let aside = slot.balance().held;
            // Permits put back since then are free and taken out here. Permits put back later are in `aside`.
            dropped += slot.install(0, lost - dropped, Moment::ORIGIN);
            is_whole = dropped == lost || aside == 0;
        }
        if is_whole {
            slot.install(0, 0, deadline);
        }
        dropped
    }
}
