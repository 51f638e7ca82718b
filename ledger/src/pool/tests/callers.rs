//! Callers of a pool and of one above it, each of which asks as its answers say. They spend what they are lent at once, or
//! gather it for one large call.

use super::*;

/// A pool, and the one above it.
pub(super) struct Pools {
    pub(super) below: Pool,
    pub(super) above: Pool,
}

impl Pools {
    pub(super) fn new(below: Rule, above: Rule) -> Self {
        Pools { below: pool(vec![below]), above: pool(vec![above]) }
    }
}

/// A session, and what it calls for.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) id: u64,
    /// Whether it asks the pool below.
    pub(super) is_below: bool,
    pub(super) share: Share,
    /// Permits that it tries to spend in a second.
    pub(super) demand: u64,
    /// Permits that its callers wait for.
    pub(super) waiting: u64,
    /// Permits that its calls take each.
    pub(super) largest: u64,
    /// Time between two of its calls, in milliseconds, if it calls for [`Caller::largest`] permits once in a while.
    pub(super) every: u64,
    pub(super) held: u64,
    pub(super) spent: u64,
    /// How long its calls have waited, in milliseconds.
    pub(super) waits: Vec<u64>,
    pub(super) due: u64,
    pub(super) began: u64,
}

impl Caller {
    pub(super) fn new(id: u64) -> Self {
        let waits = vec![];
        let (is_below, share) = (false, Share::EVEN);
        Caller {
            id,
            is_below,
            share,
            demand: 0,
            waiting: 0,
            largest: 1,
            every: 0,
            held: 0,
            spent: 0,
            waits,
            due: 0,
            began: 0,
        }
    }

    /// Asks at `at`, in milliseconds.
    fn ask(&mut self, pools: &mut Pools, at: u64, seq: u64) {
        let waiting = if at < self.began { 0 } else { self.waiting };
        let want = waiting.saturating_sub(self.held);
        let asked = Ask {
            spent_total: self.spent,
            held: self.held,
            want,
            waiting: want,
            demand_milli: self.demand.saturating_mul(1_000).min(PERMITS_MAX),
            largest: if want > 0 { self.largest } else { 0 },
            ..Ask::default()
        };
        let holder = Holder { id: SessionId(self.id), share: self.share, rtt: Duration::ZERO };
        let answer = match self.is_below {
            true => {
                let mut above = [Above { pool: &mut pools.above, share: self.share }];
                pools.below.renew_below(&mut above, millis(at), holder, seq, asked)
            }
            false => pools.above.renew(millis(at), holder, seq, asked),
        };
        let lent = grant(answer);
        self.held = lent.kept + lent.permits;
        let calls = self.held / self.largest;
        if waiting > 0 && calls > 0 {
            self.spent += calls * self.largest;
            self.held -= calls * self.largest;
            self.waits.push(at - self.began);
            self.began = at + self.every;
        }
        let wait = u64::try_from(lent.ask_after.as_millis()).expect("a short time");
        self.due = at + wait.max(10);
    }
}

/// Has `callers` ask for `millis` milliseconds.
pub(super) fn play(pools: &mut Pools, callers: &mut [Caller], millis: u64) {
    for at in 0..millis {
        for caller in callers.iter_mut().filter(|caller| caller.due <= at) {
            caller.ask(pools, at, at + 1);
        }
    }
}
