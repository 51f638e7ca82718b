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
        if who == Who::Centre || self.line(who).connection.open().is_some() {
            return;
        }
        let quiet_until = self.line(who).connection.quiet_until();
        let due = match who {
            Who::Node(node) => {
                let at = &self.nodes[node];
                let seen = Seen { refused: at.refused, largest: 1, ..Seen::default() };
                let due = at.refill.due(&at.slot, seen, shown(self.real, at.ppm), rtt(self.near));
                when(due.max(quiet_until), at.ppm)
            }
            Who::Region(region) => {
                if self.is_too_early(region) {
                    return self.after(SECOND, Event::Wake(who));
                }
                let at = &mut self.regions[region];
                let now = at.clock(self.real);
                let pools = std::iter::once(&mut at.pool).chain(&mut at.above);
                let due = pools.map(|pool| pool.asks_above(now, rtt(self.far))).min();
                at.when(due.unwrap_or(Moment::NEVER).max(quiet_until), self.real)
            }
            Who::Centre => return,
        };
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
        let (session, seq) = self.line(who).begin(now);
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
        let (session, seq) = at.line.begin(now);
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
        if self.line(who).cut_until > self.real || self.rng.f64() < loss {
            return;
        }
        for _ in 0..1 + u32::from(self.rng.f64() < repeat) {
            let more = if self.rng.f64() < late { self.rng.u64(0..4 * SECOND) } else { 0 };
            let wait = way + self.rng.u64(0..=way / 2) + more;
            self.after(wait, event);
        }
    }

    pub(super) fn answer(&mut self, who: Who, session: SessionId, seq: u64, ask: Ask) -> Result<(), String> {
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
        session: SessionId,
        seq: u64,
        answer: Result<Answer, AskError>,
    ) -> Result<(), String> {
        let now = self.clock(who);
        let connection = &mut self.line(who).connection;
        let Some((exchange, _)) = connection.on_answer(session.0, seq, now) else { return Ok(()) };
        connection.on_success();
        match who {
            Who::Node(node) => self.node_hears(node, exchange.first_sent, &answer)?,
            Who::Region(region) => self.region_hears(region, exchange.first_sent, &answer)?,
            Who::Centre => {}
        }
        self.look(who);
        Ok(())
    }

    fn node_hears(
        &mut self,
        node: usize,
        first_sent: Moment,
        answer: &Result<Answer, AskError>,
    ) -> Result<(), String> {
        let (rng, at) = (self.rng.u64(..), &mut self.nodes[node]);
        let now = shown(self.real, at.ppm);
        let heard = Heard { first_sent, now, clocks: self.plan.clocks };
        let word = answer.as_ref().map_err(word);
        match at.refill.on_answer(&at.slot, word, heard, false, rng) {
            Outcome::Impossible => Err(format!("node {node} was answered what cannot be: {answer:?}")),
            Outcome::Disputed => {
                self.begin_session(Who::Node(node));
                let at = &mut self.nodes[node];
                at.refill.begin_session(&at.slot, now, rng);
                Ok(())
            }
            Outcome::Installed | Outcome::Refused | Outcome::Unrecognised | Outcome::Unavailable => Ok(()),
        }
    }

    fn region_hears(
        &mut self,
        region: usize,
        first_sent: Moment,
        answer: &Result<Answer, AskError>,
    ) -> Result<(), String> {
        let at = &mut self.regions[region];
        let now = at.clock(self.real);
        match answer {
            Ok(Answer::Grant(grant)) => {
                at.is_told(0, grant);
                if at.pool.on_grant_above(now, first_sent, grant) != GrantOutcome::Believed {
                    return Err(format!("region {region} was granted what cannot be: {grant:?}"));
                }
            }
            Ok(Answer::Refusal(refusal)) => at.pool.on_refusal_above(now, *refusal),
            Err(error) => {
                at.pool.on_unrecognised_above(now);
                // Another session is one with both.
                if recovery(word(error)) == Recovery::BeginSession {
                    at.above.iter_mut().for_each(|pool| pool.on_unrecognised_above(now));
                    self.begin_session(Who::Region(region));
                }
            }
        }
        Ok(())
    }

    fn begin_session(&mut self, who: Who) {
        self.sessions += 1;
        let number = self.sessions - 1;
        self.line(who).connection.begin_session(number);
    }

    /// What the clock of `who` shows.
    fn clock(&self, who: Who) -> Moment {
        match who {
            Who::Node(node) => shown(self.real, self.nodes[node].ppm),
            Who::Region(region) => self.regions[region].clock(self.real),
            Who::Centre => unreachable!("it asks nothing"),
        }
    }

    pub(super) fn failed(&mut self, who: Who) {
        match who {
            Who::Node(node) => self.nodes[node].refill.unanswered(),
            Who::Region(region) => {
                self.forget_store(region);
                let at = &mut self.regions[region];
                at.pool.on_failure_above();
                at.above.iter_mut().for_each(Pool::on_failure_above);
            }
            Who::Centre => {}
        }
        let (now, rng) = (self.clock(who), self.rng.u64(..));
        self.line(who).connection.on_failure(now, 0, rng);
        self.look(who);
    }
}

impl Line {
    /// Begins an exchange. Returns its session and number.
    fn begin(&mut self, now: Moment) -> (SessionId, u64) {
        let exchange = self.connection.begin(now);
        (SessionId(exchange.session), exchange.seq)
    }
}

/// The word of `error` on the wire.
fn word(error: &AskError) -> &'static str {
    AskRejection::from(*error).reason.code()
}
