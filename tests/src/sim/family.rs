//! The limit of a run, as one pool or as a family: the last of its rules may be kept by pools above, one each. What is
//! lent is charged to all of them, so that together they promise what one pool with all the rules would: the oracle
//! need not know. The world drives it; several pools below one are judged in `tests/family.rs`.

use lessor_allocator::pool::{Above, AskError, Holder, LesseeId, Plan, Pool, PoolView};
use lessor_allocator::share::{Share, Sharing};
use lessor_protocol::{Answer, Ask, Carry, Moment, Refusal};
use std::sync::Arc;

/// The pool that nodes ask, and those above it.
#[derive(Debug)]
pub struct Family {
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    plan: Arc<Plan>,
    lost: Option<Moment>,
    pool: Pool,
}

impl Member {
    fn new(plan: Arc<Plan>, lost: Option<Moment>, now: Moment) -> Self {
        let pool = match lost {
            Some(lost) => Pool::after_loss(plan.clone(), lost, now),
            None => Pool::new(plan.clone(), now),
        };
        Member { plan, lost, pool }
    }
}

/// The pool that nodes ask, where the last rules of `plan` are kept in `above` pools of their own.
pub fn lowest(plan: &Plan, above: usize) -> Plan {
    let own = plan.rules.len() - above.min(plan.rules.len() - 1);
    Plan { rules: plan.rules[..own].to_vec(), ..plan.clone() }
}

impl Family {
    /// All rules of `plan`, the last of them in `above` pools of their own, after a loss if there was one.
    pub fn new(plan: &Plan, above: usize, lost: Option<Moment>, now: Moment) -> Self {
        let plans = Family::plans(plan, above).into_iter();
        Family { members: plans.map(|plan| Member::new(Arc::new(plan), lost, now)).collect() }
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

    fn with<T>(&mut self, act: impl FnOnce(&mut Pool, &mut [Above<'_>]) -> T) -> T {
        let (lowest, above) = self.members.split_first_mut().expect("there is one at least");
        let above = above.iter_mut().map(|member| Above { pool: &mut member.pool, share: Share::EVEN });
        act(&mut lowest.pool, &mut above.collect::<Vec<_>>())
    }

    /// See [`Pool::renew`].
    ///
    /// # Errors
    /// The same.
    pub fn renew(&mut self, now: Moment, holder: Holder, seq: u64, ask: Ask) -> Result<Answer, AskError> {
        self.with(|pool, above| pool.renew_below(above, now, holder, seq, ask))
    }

    /// See [`Pool::settle_only`].
    ///
    /// # Errors
    /// The same.
    pub fn settle_only(
        &mut self,
        now: Moment,
        holder: Holder,
        seq: u64,
        ask: Ask,
        refusal: Refusal,
    ) -> Result<Answer, AskError> {
        self.with(|pool, above| pool.settle_below(above, now, holder, seq, ask, refusal))
    }

    /// See [`Pool::change`]: each of them goes on by its own of the rules of `plan`.
    pub fn change(&mut self, plan: &Plan, carry: Carry, now: Moment) {
        let plans = Family::plans(plan, self.members.len() - 1);
        for (member, plan) in self.members.iter_mut().zip(plans) {
            member.plan = Arc::new(plan);
            member.pool.change(member.plan.clone(), carry, now);
        }
    }

    /// See [`Pool::top_up`]: all of them are.
    pub fn top_up(&mut self, permits: u64, now: Moment) {
        self.members.iter_mut().for_each(|member| member.pool.top_up(permits, now));
    }

    /// See [`Pool::leave`].
    ///
    /// # Errors
    /// The same.
    pub fn leave(
        &mut self,
        now: Moment,
        id: LesseeId,
        seq: u64,
        spent_total: u64,
        running: Option<u64>,
    ) -> Result<u64, AskError> {
        self.with(|pool, above| pool.leave_below(above, now, id, seq, spent_total, running))
    }

    /// The books of the lowest, and what all of them can lend.
    pub fn view(&mut self, now: Moment) -> PoolView {
        let views = self.members.iter_mut().map(|member| member.pool.view(now));
        let least = views.reduce(|lowest, view| PoolView {
            available: lowest.available.min(view.available),
            lessees: lowest.lessees.max(view.lessees),
            over: lowest.over.max(view.over),
            quarantine: lowest.quarantine.max(view.quarantine),
            ..lowest
        });
        least.expect("there is one at least")
    }

    /// The most that can ever be lent at once.
    pub fn ceiling(&self) -> u64 {
        self.members.iter().map(|member| member.pool.ceiling()).min().unwrap_or(0)
    }

    /// Drops what cannot be told from new, each for itself, and makes it anew. For each rule whether that was so; the
    /// first one is the lowest's.
    pub fn forget(&mut self, now: Moment) -> Vec<bool> {
        let mut is_new = vec![];
        for member in &mut self.members {
            let is_forgettable = member.pool.is_forgettable(now);
            is_new.extend(member.plan.rules.iter().map(|_| is_forgettable));
            if is_forgettable {
                *member = Member::new(member.plan.clone(), member.lost, now);
            }
        }
        is_new
    }
}
