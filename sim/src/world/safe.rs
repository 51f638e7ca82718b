//! Safe shares: what nodes may spend of the reserve by themselves while no allocator answers.

use super::World;
use crate::oracle::{Verdict, must};
use lessor_protocol::{Moment, SafeShare};

impl World {
    /// Tells the node of `desk` its safe share, in the answer to an ask that was first sent at `first_sent`.
    ///
    /// K10: all that nodes may go by at a time is within the reserve, or within the largest one of the run.
    pub(super) fn hears_of_share(
        &mut self,
        desk: usize,
        share: Option<SafeShare>,
        first_sent: Moment,
    ) -> Verdict {
        let clocks = self.setup.plan.clocks;
        let at = &mut self.desks[desk];
        at.uses_safe_share = false;
        at.allowance.tell(share, first_sent, clocks);
        let Some(share) = share else { return Ok(()) };
        at.share = Some((share.permits, clocks.holder_end(first_sent, share.lasts)));
        let limit = self.setup.limit(desk);
        let held = self.desks.iter().enumerate().filter_map(|(other, desk)| {
            let (permits, ends) = desk.share?;
            let home = &self.nodes[self.home(other)];
            let is_held = self.setup.limit(other) == limit && home.up && home.now(self.real) < ends;
            is_held.then_some(permits)
        });
        let (held, reserve) = (held.sum::<u64>(), self.setup.reserve_most());
        must("K10", held <= reserve, || format!("nodes may go on with {held}, where {reserve} are kept back"))
    }
}
