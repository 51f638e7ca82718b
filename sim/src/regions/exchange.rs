//! Who asks whom, and what becomes of it: nodes their region, regions the centre.

use super::family::Asks;
use super::*;

/// An exchange takes about so long, for those who have to reckon with it.
const fn rtt(one_way: u64) -> Duration {
    Duration::from_nanos(2 * one_way)
}

impl Region {
    /// It was granted something of the limit itself (0) or the one above that (1).
    pub(super) fn is_told(&mut self, place: usize, grant: &Grant) {
        if !grant.term.is_zero() {
            self.told[place] = grant.horizon;
        }
    }

    /// Whether one of its nodes is told to hold for no longer than this was told itself.
    fn passes_on(&self, grant: &Grant) -> bool {
        grant.term.is_zero() || self.told.iter().all(|told| grant.horizon <= *told)
    }
}

impl World {
    /// Asks if it is time, or wakes when it is.
    pub(super) fn look(&mut self, who: Who) {
        if who == Who::Centre || self.line(who).waits.is_some() {
            return;
        }
        let quiet_until = self.line(who).quiet_until;
        let due = match who {
            Who::Node(node) => {
                let at = &self.nodes[node];
                let seen = Seen { refused: at.refused, largest: 1, ..Seen::default() };
                let due = at.refill.due(&at.slot, seen, shown(self.real, at.ppm), rtt(self.near));
                when(due, at.ppm)
            }
            Who::Region(region) => {
                if self.is_too_early(region) {
                    return self.after(SECOND, Event::Wake(who));
                }
                let at = &mut self.regions[region];
                let now = at.clock(self.real);
                let pools = std::iter::once(&mut at.pool).chain(&mut at.above);
                let due = pools.map(|pool| pool.asks_above(now, rtt(self.far))).min();
                at.when(due.unwrap_or(Moment::NEVER), self.real)
            }
            Who::Centre => return,
        };
        let due = due.max(quiet_until);
        if due <= self.real {
            self.ask(who);
        } else if due < u64::MAX / 2 {
            self.after((due - self.real).min(SECOND), Event::Wake(who));
        }
    }

    fn ask(&mut self, who: Who) {
        let mut above = None;
        let (ask, now, way) = match who {
            Who::Node(node) => {
                let at = &mut self.nodes[node];
                let now = shown(self.real, at.ppm);
                let seen = Seen { refused: at.refused, largest: 1, ..Seen::default() };
                (at.refill.write(&at.slot, seen, now, rtt(self.near)), now, self.near)
            }
            Who::Region(region) => {
                self.figures.exchanges += 1;
                let at = &mut self.regions[region];
                let now = at.clock(self.real);
                let ask = at.pool.ask_above(now, rtt(self.far)).expect("it leases from the centre");
                above = at.above.as_mut().and_then(|pool| pool.ask_above(now, rtt(self.far)));
                (ask, now, self.far)
            }
            Who::Centre => return,
        };
        let line = self.line(who);
        line.seq += 1;
        line.waits = Some(now);
        let (session, seq) = (line.session, line.seq);
        self.after(TIMEOUT, Event::TimeOut(who, session, seq));
        if let (Who::Region(region), true) = (who, self.store.is_some()) {
            return self.ask_root(region, Asks { own: ask, above });
        }
        self.send(who, way, Event::Asks(who, session, seq, ask));
    }

    /// A region gives back what is not lent on, and is not there to hear what becomes of that.
    pub(super) fn leaves(&mut self, region: usize) {
        let at = &mut self.regions[region];
        let now = at.clock(self.real);
        let Some(ask) = at.pool.leave_above(now) else { return };
        let above = at.above.as_mut().and_then(|pool| pool.leave_above(now));
        at.line.seq += 1;
        let (session, seq) = (at.line.session, at.line.seq);
        match self.store.is_some() {
            true => self.leave_root(region, Asks { own: ask, above }),
            false => {
                self.send(Who::Region(region), self.far, Event::Asks(Who::Region(region), session, seq, ask))
            }
        }
    }

    /// A message between `who` and the one above is on its way.
    fn send(&mut self, who: Who, way: u64, event: Event) {
        let Trouble { loss, repeat, late, .. } = self.trouble;
        if self.line(who).cut_until > self.real || self.dice.f64() < loss {
            return;
        }
        for _ in 0..1 + u32::from(self.dice.f64() < repeat) {
            let more = if self.dice.f64() < late { self.dice.u64(0..4 * SECOND) } else { 0 };
            let wait = way + self.dice.u64(0..=way / 2) + more;
            self.after(wait, event);
        }
    }

    pub(super) fn answer(&mut self, who: Who, session: LesseeId, seq: u64, ask: Ask) -> Result<(), String> {
        let holder = |one_way| Holder { id: session, share: Share::EVEN, rtt: rtt(one_way) };
        let (answer, way) = match who {
            Who::Node(node) => {
                let region = self.nodes[node].region;
                let at = &mut self.regions[region];
                let now = at.clock(self.real);
                let mut above: Vec<Above<'_>> =
                    at.above.iter_mut().map(|pool| Above { pool, share: Share::EVEN }).collect();
                let answer = at.pool.renew_below(&mut above, now, holder(self.near), seq, ask);
                // What is asked again is answered as it was.
                let is_new = self.nodes[node].answered < (session, seq);
                self.nodes[node].answered = self.nodes[node].answered.max((session, seq));
                if let (Ok(Answer::Grant(grant)), true) = (&answer, is_new)
                    && !at.passes_on(grant)
                {
                    let told = at.told;
                    return Err(format!("a node may hold for {:?}, its region for {told:?}", grant.horizon));
                }
                self.look(Who::Region(region));
                (answer, self.near)
            }
            Who::Region(region) => {
                let rtt = self.regions[region].pool.distance_above(rtt(self.far));
                let holder = Holder { rtt, ..holder(self.far) };
                let answer = self.centre.renew(shown(self.real, self.centre_ppm), holder, seq, ask);
                if let (Err(error @ AskError::Totals { .. }), false) = (&answer, self.centre_died) {
                    return Err(format!("an honest region was not believed: {error}"));
                }
                (answer, self.far)
            }
            Who::Centre => return Ok(()),
        };
        self.send(who, way, Event::Hears(who, session, seq, answer));
        Ok(())
    }

    pub(super) fn hear(
        &mut self,
        who: Who,
        session: LesseeId,
        seq: u64,
        answer: Result<Answer, AskError>,
    ) -> Result<(), String> {
        let line = self.line(who);
        if (line.session, line.seq) != (session, seq) {
            return Ok(());
        }
        let Some(first_sent) = line.waits.take() else { return Ok(()) };
        match answer {
            Ok(Answer::Grant(grant)) => self.believe(who, first_sent, &grant)?,
            Ok(Answer::Refusal(refusal)) => match who {
                Who::Node(node) => {
                    let at = &mut self.nodes[node];
                    at.refill.refused(shown(self.real, at.ppm), refusal.retry_after, seq);
                }
                Who::Region(region) => {
                    let at = &mut self.regions[region];
                    at.pool.refused_above(at.clock(self.real), refusal);
                }
                Who::Centre => {}
            },
            Err(error) => self.disputed(who, error),
        }
        self.look(who);
        Ok(())
    }

    fn believe(&mut self, who: Who, first_sent: Moment, grant: &Grant) -> Result<(), String> {
        let (terms, dice) = (self.plan.terms, self.dice.u64(..));
        let is_believed = match who {
            Who::Node(node) => {
                let at = &mut self.nodes[node];
                let now = shown(self.real, at.ppm);
                at.refill.believe(&at.slot, grant, terms, first_sent, now, dice) == Belief::Installed
            }
            Who::Region(region) => {
                let at = &mut self.regions[region];
                let now = at.clock(self.real);
                at.is_told(0, grant);
                at.pool.hear_above(now, first_sent, grant) == HeardAbove::Believed
            }
            Who::Centre => true,
        };
        if is_believed { Ok(()) } else { Err(format!("{who:?} was granted what cannot be: {grant:?}")) }
    }

    fn disputed(&mut self, who: Who, error: AskError) {
        let code = match error {
            AskError::LeaseUnknown { .. } => code::LEASE_UNKNOWN,
            AskError::Totals { .. } => code::TOTALS_WRONG,
            AskError::Stale { .. } | AskError::Left => code::STALE_SEQUENCE,
            AskError::Full { .. } => code::LESSEES_FULL,
        };
        let remedy = remedy(code);
        if remedy == Remedy::BeginSession {
            self.sessions += 1;
            (self.line(who).session, self.line(who).seq) = (LesseeId(self.sessions), 0);
        }
        let dice = self.dice.u64(..);
        match who {
            Who::Node(node) => {
                let at = &mut self.nodes[node];
                let now = shown(self.real, at.ppm);
                match remedy {
                    Remedy::Disown => disown(&mut at.refill, &at.slot, now, dice),
                    Remedy::BeginSession => {
                        start_over(&mut at.refill, &at.slot, now, Duration::from_secs(1), dice);
                    }
                    Remedy::LookAgain => at.refill.refused(now, Duration::from_secs(1), dice),
                }
            }
            Who::Region(region) => {
                let at = &mut self.regions[region];
                let now = at.clock(self.real);
                at.pool.disowned_above(now);
                // Another session is one with both.
                if remedy == Remedy::BeginSession {
                    at.above.iter_mut().for_each(|pool| pool.disowned_above(now));
                }
            }
            Who::Centre => {}
        }
    }

    pub(super) fn failed(&mut self, who: Who) {
        match who {
            Who::Node(node) => self.nodes[node].refill.unanswered(),
            Who::Region(region) => {
                self.forget_store(region);
                let at = &mut self.regions[region];
                at.pool.unanswered_above();
                at.above.iter_mut().for_each(Pool::unanswered_above);
            }
            Who::Centre => {}
        }
        let wait = self.dice.u64(0..100 * MILLI);
        self.line(who).quiet_until = self.real + wait;
        self.look(who);
    }
}
