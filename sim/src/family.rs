//! The limit of a run, as one pool or as a family: the last of its rules may be kept by pools above, one each. What is
//! lent is charged to all of them, so that together they promise what one pool with all the rules would. Several pools
//! with the same rules may be below those. The world drives it.

use lessor_ledger::CarryOver;
use lessor_ledger::pool::{
    Above, AskError, Checkpoint, Goodbye, HighWater, Holder, ObservationEffect, Past, Plan, Pool, PoolView,
    SessionId,
};
use lessor_ledger::rule::Gap;
use lessor_ledger::share::{Share, Sharing};
use lessor_protocol::{Answer, Ask, Moment, Observed, Refusal, SafeShare};
use std::sync::Arc;
use std::time::Duration;

/// The pools that nodes ask, and those above them.
#[derive(Debug)]
pub struct Family {
    lowest: Vec<Member>,
    above: Vec<Member>,
}

/// What is written down of pools, by their place, and what may be lent by that.
pub type Rows = Vec<(usize, Option<(Checkpoint, HighWater)>)>;

#[derive(Debug)]
struct Member {
    plan: Arc<Plan>,
    past: Past,
    /// When it began with what was written down.
    restored: Option<Moment>,
    /// Whether a checkpoint of a pool before this one may be written down, which is of no use any more.
    is_outdated: bool,
    pool: Pool,
}

impl Member {
    fn new(plan: Arc<Plan>, past: Past, since: Moment, now: Moment) -> Self {
        let pool = past.pool_by(&plan, since, now);
        Member { plan, past, pool, restored: None, is_outdated: false }
    }

    /// Begins anew if that makes no difference.
    fn forget(&mut self, now: Moment) -> bool {
        let is_forgettable = self.pool.is_forgettable(now);
        if is_forgettable {
            let restored = self.restored;
            let is_outdated = self.is_outdated || self.pool.has_checkpoint();
            let new = Member::new(self.plan.clone(), self.past, Moment::ORIGIN, now);
            *self = Member { restored, is_outdated, ..new };
            if let Some(restored) = restored {
                self.pool.forget_safe_shares(restored);
            }
        }
        is_forgettable
    }
}

/// The pool that nodes ask, where the last rules of `plan` are kept in `above` pools of their own.
pub fn lowest(plan: &Plan, above: usize) -> Plan {
    let own = plan.rules.len() - above.min(plan.rules.len() - 1);
    Plan { rules: plan.rules[..own].to_vec(), ..plan.clone() }
}

impl Family {
    /// So many `limits` with the rules of `plan`, the last of which are in `above` pools of their own; after what is
    /// `past`. They go by the plan `since` a moment.
    pub fn new(plan: &Plan, limits: usize, above: usize, past: Past, since: Moment, now: Moment) -> Self {
        let plans = Family::plans(plan, above).into_iter();
        let mut members: Vec<Member> =
            plans.map(|plan| Member::new(Arc::new(plan), past, since, now)).collect();
        let above = members.split_off(1);
        for _ in 1..limits {
            members.push(Member::new(members[0].plan.clone(), past, since, now));
        }
        Family { lowest: members, above }
    }

    /// What each of them keeps of `plan`, the lowest first.
    fn plans(plan: &Plan, above: usize) -> Vec<Plan> {
        let lowest = lowest(plan, above);
        let higher = plan.rules[lowest.rules.len()..].iter().map(|rule| Plan {
            rules: vec![*rule],
            sharing: Sharing::default(),
            ..plan.clone()
        });
        std::iter::once(lowest).chain(higher).collect()
    }

    /// The same of a region: its pool leases what it lends, and so does one `above`, if there is one.
    pub fn borrowed(plan: &Plan, above: bool, now: Moment) -> Self {
        let plan = Arc::new(Plan { rules: vec![], is_borrowed: true, ..plan.clone() });
        let member = || Member::new(plan.clone(), Past::None, Moment::ORIGIN, now);
        Family { lowest: vec![member()], above: if above { vec![member()] } else { vec![] } }
    }

    /// See [`Pool::asks_above`]: the soonest of them.
    pub fn asks_above(&mut self, now: Moment, rtt: Duration) -> Moment {
        let each = self.pools().map(|pool| pool.asks_above(now, rtt));
        each.min().unwrap_or(Moment::NEVER)
    }

    /// All pools, the lowest first.
    pub fn pools(&mut self) -> impl Iterator<Item = &mut Pool> {
        self.lowest.iter_mut().chain(&mut self.above).map(|member| &mut member.pool)
    }

    fn with<T>(&mut self, limit: usize, act: impl FnOnce(&mut Pool, &mut [Above<'_>]) -> T) -> T {
        let above = self.above.iter_mut().map(|member| Above { pool: &mut member.pool, share: Share::EVEN });
        act(&mut self.lowest[limit].pool, &mut above.collect::<Vec<_>>())
    }

    /// See [`Pool::renew`].
    ///
    /// # Errors
    /// The same.
    pub fn renew(
        &mut self,
        limit: usize,
        now: Moment,
        holder: Holder,
        seq: u64,
        ask: Ask,
    ) -> Result<Answer, AskError> {
        self.with(limit, |pool, above| pool.renew_below(above, now, holder, seq, ask))
    }

    /// See [`Pool::settle_only`].
    ///
    /// # Errors
    /// The same.
    pub fn settle_only(
        &mut self,
        limit: usize,
        now: Moment,
        holder: Holder,
        seq: u64,
        ask: Ask,
        refusal: Refusal,
    ) -> Result<Answer, AskError> {
        self.with(limit, |pool, above| pool.settle_below(above, now, holder, seq, ask, refusal))
    }

    /// See [`Pool::observe`].
    pub fn observe(
        &mut self,
        limit: usize,
        now: Moment,
        id: SessionId,
        observed: &Observed,
    ) -> ObservationEffect {
        self.lowest[limit].pool.observe(now, id, observed)
    }

    /// See [`Pool::change`]: each of them goes on by its own of the rules of `plan`. For a single limit.
    pub fn change(&mut self, plan: &Plan, carry: CarryOver, now: Moment) {
        let plans = Family::plans(plan, self.above.len());
        for (member, plan) in self.lowest.iter_mut().chain(&mut self.above).zip(plans) {
            member.plan = Arc::new(plan);
            member.pool.change(member.plan.clone(), carry, now);
        }
    }

    /// See [`Pool::top_up`]: all of them are.
    pub fn top_up(&mut self, permits: u64, now: Moment) {
        let members = self.lowest.iter_mut().chain(&mut self.above);
        members.for_each(|member| member.pool.top_up(permits, now));
    }

    /// See [`Pool::leave`].
    ///
    /// # Errors
    /// The same.
    pub fn leave(
        &mut self,
        limit: usize,
        now: Moment,
        id: SessionId,
        seq: u64,
        goodbye: Goodbye,
    ) -> Result<u64, AskError> {
        self.with(limit, |pool, above| pool.leave_below(above, now, id, seq, goodbye))
    }

    /// See [`Pool::safe_share`].
    pub fn safe_share(&mut self, limit: usize, now: Moment, id: SessionId) -> Option<SafeShare> {
        self.lowest[limit].pool.safe_share(now, id)
    }

    /// How the one above `limit` looks.
    pub fn view_above(&mut self, now: Moment) -> Option<PoolView> {
        self.above.first_mut().map(|member| member.pool.view(now))
    }

    /// The books of `limit`, and what it can lend with those above it.
    pub fn view(&mut self, limit: usize, now: Moment) -> PoolView {
        let lowest = self.lowest[limit..].iter_mut().take(1);
        let views = lowest.chain(&mut self.above).map(|member| member.pool.view(now));
        let least = views.reduce(|lowest, view| PoolView {
            available: lowest.available.min(view.available),
            sessions: lowest.sessions.max(view.sessions),
            over: lowest.over.max(view.over),
            quarantine: lowest.quarantine.max(view.quarantine),
            ..lowest
        });
        least.expect("there is one at least")
    }

    /// The most that can ever be lent at once.
    pub fn ceiling(&self) -> u64 {
        let members = self.lowest.iter().chain(&self.above);
        members.map(|member| member.pool.ceiling()).min().unwrap_or(0)
    }

    /// Whether all that was lent of `limit` may be known, see [`Pool::may_be_known`].
    pub fn may_be_known(&self, limit: usize) -> bool {
        let mut asked = self.lowest[limit..].iter().take(1).chain(&self.above);
        asked.all(|member| member.pool.may_be_known())
    }

    /// What is to be written down of those that want it, by their place, and of all that have a checkpoint in the `is_first` step
    /// of a life; `None` of one whose checkpoint is of no use any more. See [`Pool::checkpoint`].
    pub fn write_down(&mut self, now: Moment, span: Duration, is_first: bool) -> Rows {
        let members = self.lowest.iter_mut().chain(&mut self.above).enumerate();
        let written = members.filter_map(|(place, member)| {
            let is_outdated = std::mem::take(&mut member.is_outdated);
            match member.pool.wants_checkpoint() || (is_first && member.pool.has_checkpoint()) {
                true => member.pool.checkpoint(now, span).map(|written| (place, Some(written))),
                false => is_outdated.then_some((place, None)),
            }
        });
        written.collect()
    }

    /// Whether there is something to write down of any of them.
    pub fn wants_checkpoint(&self) -> bool {
        let mut members = self.lowest.iter().chain(&self.above);
        members.any(|member| member.is_outdated || member.pool.wants_checkpoint())
    }

    /// See [`Pool::raise_high_water`]: the checkpoint of the pool at `place` is durable.
    pub fn raise_high_water(&mut self, place: usize, mark: HighWater) {
        let member = self.lowest.iter_mut().chain(&mut self.above).nth(place);
        member.expect("it was there when it was written down").pool.raise_high_water(mark);
    }

    /// They go on with what was written down of them, by place, where something was; `false` if one of them cannot.
    pub fn restore(&mut self, checkpoints: &[Option<Checkpoint>], gap: Gap, now: Moment) -> bool {
        let mut each = self.lowest.iter_mut().chain(&mut self.above).zip(checkpoints);
        each.all(|(member, checkpoint)| {
            member.restored = Some(now);
            let Some(checkpoint) = checkpoint else {
                member.pool.forget_safe_shares(now);
                return true;
            };
            let restored = Pool::from_checkpoint(member.plan.clone(), checkpoint, gap, now);
            restored.map(|pool| member.pool = pool).is_some()
        })
    }

    /// Drops what cannot be told from new, each for itself, and makes it anew: which of the lowest, and which of those above.
    pub fn forget(&mut self, now: Moment) -> (Vec<bool>, Vec<bool>) {
        let forget =
            |members: &mut Vec<Member>| members.iter_mut().map(|member| member.forget(now)).collect();
        (forget(&mut self.lowest), forget(&mut self.above))
    }
}
