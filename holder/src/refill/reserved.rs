//! Permits that callers have reserved because they know only later how many their calls cost. They are out of the slot and
//! not spent yet, so every report says that they are held. The handles call it under the pool's lock; as the rest of a
//! refill, it reads no clock.
//!
//! The allocator takes what a lease held for spent when it ends unheard. So does this: a reservation is over when its
//! lease is, and gives nothing back from then on.

use super::Refill;
use crate::permits::{Pacer, Permits, Short};
use lessor_protocol::Moment;
use lessor_protocol::rare::Usual;
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest that a reservation stays open. One that its caller lost, in a call that never ends, would keep permits from
/// everybody for as long as the process lives; the longest calls there are, to a model that writes at length, take a few
/// minutes.
pub(super) const RESERVED_MAX: Duration = Duration::from_secs(600);

/// What is reserved of one pool.
#[derive(Clone, Debug)]
pub(super) struct Reserved {
    /// By number; those that began first end first.
    open: BTreeMap<u64, Reservation>,
    /// The permits of all of them.
    permits: u64,
    /// How many there ever were.
    numbers: u64,
    /// Permits that ever came back: they were tried for all the same.
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
    /// Permits that are reserved.
    pub(super) fn permits(&self) -> u64 {
        self.permits
    }

    /// Permits that were tried for and are not spent: reserved, or given back.
    pub(super) fn tried(&self) -> u64 {
        self.permits + self.given_back
    }

    /// All are spent: what is not known to be unspent by now will not be believed any more.
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

    /// Those that are open for too long are spent.
    fn spend_until(&mut self, now: Moment) {
        while let Some(first) = self.open.first_entry()
            && first.get().ends <= now
        {
            self.permits -= first.remove().permits;
        }
    }

    /// Of the reservation `number`, up to `permits` are not needed. Returns how many that are.
    fn give_back(&mut self, number: u64, permits: u64) -> u64 {
        let Some(open) = self.open.get_mut(&number) else { return 0 };
        let back = permits.min(open.permits);
        open.permits -= back;
        self.permits -= back;
        self.given_back += back;
        back
    }

    /// What is left of the reservation `number` is spent.
    fn spend(&mut self, number: u64) {
        self.permits -= self.open.remove(&number).map_or(0, |open| open.permits);
    }
}

impl<P: Pacer> Refill<P> {
    /// Sets `permits` aside and returns the number of the reservation, with how many are still free. [`Refill::settle`]
    /// must follow.
    ///
    /// # Errors
    /// As [`Permits::take`].
    pub fn reserve(&mut self, slot: &impl Permits, permits: u64, now: Moment) -> Result<(u64, u64), Short> {
        let left = slot.take(permits, now)?;
        Ok((self.reserved.begin(permits, now), left))
    }

    /// The same for what was set aside by `Slot::hold` of the client.
    pub fn reserve_held(&mut self, slot: &impl Permits, permits: u64, now: Moment) -> (u64, u64) {
        let left = slot.spend_held(permits);
        (self.reserved.begin(permits, now), left)
    }

    /// Of the reservation `number`, up to `permits` were not needed. Returns how many can be spent again: none once its
    /// lease has ended, for they count as spent.
    pub fn give_back(&mut self, slot: &impl Permits, number: u64, permits: u64, now: Moment) -> u64 {
        self.let_go_of_reserved(slot, now);
        let back = self.reserved.give_back(number, permits);
        if self.is_stopped {
            self.removed += back;
            return 0;
        }
        // Their lease goes on, or they would be spent by now.
        slot.install(back, 0, Moment::ORIGIN);
        back
    }

    /// What is left of the reservation `number` was spent.
    pub fn settle(&mut self, number: u64) {
        self.reserved.spend(number);
    }

    /// The call that the reservation `number` is for begins, and says when it ends, with [`Refill::hand_back`]. Returns its
    /// permits. `None` if the reservation is over: its permits are spent.
    pub fn enter_reserved(&mut self, slot: &impl Permits, number: u64, now: Moment) -> Option<u64> {
        self.let_go_of_reserved(slot, now);
        let permits = self.reserved.open.get(&number)?.permits;
        self.reserved.spend(number);
        self.calls.take(permits, now);
        Some(permits)
    }

    /// What is reserved, in permits.
    pub fn reserved(&self) -> u64 {
        self.reserved.permits()
    }

    /// Whether the reservation `number` can still give something back at `now`.
    pub fn is_open(&self, slot: &impl Permits, number: u64, now: Moment) -> bool {
        let open = self.reserved.open.get(&number);
        now < slot.deadline() && open.is_some_and(|open| now < open.ends)
    }

    /// What is reserved is spent where its time is over: no report after the end of a lease says that it is held.
    pub(super) fn let_go_of_reserved(&mut self, slot: &impl Permits, now: Moment) {
        if let Some(reserved) = self.reserved.unusual() {
            reserved.spend_until(now);
        }
        if now >= slot.deadline() {
            self.spend_all_reserved();
        }
    }

    /// All that is reserved is spent.
    pub(super) fn spend_all_reserved(&mut self) {
        if let Some(reserved) = self.reserved.unusual() {
            reserved.spend_all();
        }
    }
}
