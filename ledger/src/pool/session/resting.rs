//! Carries a session at rest, which has no lease and no part in a steady flow, to bytes and back.

use super::{Burn, Said, Session, SessionCalls, Told};
use crate::packed::Carrier;
use crate::pool::ages::Age;
use crate::pool::rates::Turn;
use crate::share::Share;
use lessor_protocol::{Answer, Grant, InFlight, Moment, Rate, Refusal, RefusalReason};
use std::collections::VecDeque;
use std::time::Duration;

/// Rates told where there is no steady flow, in the order of their numbers.
const RATES: [Rate; 2] = [Rate::Free, Rate::Nothing];

/// Reasons of refusals, in the order of their numbers.
const REASONS: [RefusalReason; 5] = [
    RefusalReason::Quarantine,
    RefusalReason::Stopping,
    RefusalReason::Paused,
    RefusalReason::Blocked,
    RefusalReason::Other,
];

/// Ages, in the order of their numbers.
const AGES: [Age; 4] = [Age::Gone, Age::Silent, Age::Fresh, Age::Asking];

impl Session {
    /// Whether the session has nothing live and no part in a steady flow.
    pub(in crate::pool) fn is_at_rest(&self) -> bool {
        let has_rate = self.told.answer().grant().is_some_and(|grant| !RATES.contains(&grant.rate));
        !self.is_live() && self.age != Age::Asking && *self.turn == Turn::default() && !has_rate
    }

    /// Carries the session.
    pub(in crate::pool) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        for at in
            [&mut self.answered, &mut self.end, &mut self.lent, &mut self.turned_over.0, &mut self.reviewed]
        {
            carrier.moment(at);
        }
        let mut waited = self.waited.into();
        carrier.number(&mut waited);
        self.waited = u32::try_from(waited).unwrap_or(self.waited);
        carrier.number(&mut self.seq);
        carrier.unless(Told::NOTHING, &mut self.told, |carrier, told| {
            let mut answer = told.answer();
            carry_answer(carrier, &mut answer);
            *told = Told::of(&answer);
        });
        carry_one_of(&AGES, &mut self.age, carrier);
        carrier.span(&mut self.term);
        carrier.span(&mut self.rtt);
        let counts = [
            &mut self.spent,
            &mut self.turned_over.1,
            &mut self.burned,
            &mut self.demand_milli,
            &mut self.waiting,
            &mut self.wanted,
            &mut self.held,
        ];
        for count in counts {
            carrier.number(count);
        }
        carrier.flag(&mut self.has_left);
        carrier.flag(&mut self.is_unproven);
        carrier.rare(&mut self.share, carry_share);
        carrier.rare(&mut self.said, carry_said);
        carrier.rare(&mut self.burns, carry_burns);
        carrier.rare(&mut self.calls, SessionCalls::carry);
    }
}

/// Carries `value` as its number in `all`, where the first is the most usual.
fn carry_one_of<T: Copy + PartialEq>(all: &[T], value: &mut T, carrier: &mut Carrier<'_>) {
    let mut place = all.iter().position(|one| one == value).unwrap_or(0) as u64;
    carrier.number(&mut place);
    *value = usize::try_from(place).ok().and_then(|place| all.get(place)).copied().unwrap_or(*value);
}

fn carry_said(said: &mut Said, carrier: &mut Carrier<'_>) {
    for count in [&mut said.shadow_refused, &mut said.observed, &mut said.refused] {
        carrier.number(count);
    }
}

fn carry_burns(burns: &mut VecDeque<Burn>, carrier: &mut Carrier<'_>) {
    let blank = || Burn { at: Moment::ORIGIN, permits: 0 };
    carrier.list(burns, blank, |carrier, burn| {
        carrier.moment(&mut burn.at);
        carrier.number(&mut burn.permits);
    });
}

fn carry_share(share: &mut Share, carrier: &mut Carrier<'_>) {
    carrier.number(&mut share.weight);
    carrier.number(&mut share.priority);
    carrier.number(&mut share.owner.0);
    let mut group = share.group.map(|group| group as u64);
    carrier.option(&mut group, || 0, Carrier::number);
    share.group = group.and_then(|group| usize::try_from(group).ok());
}

fn carry_answer(carrier: &mut Carrier<'_>, answer: &mut Answer) {
    let mut refusal = match *answer {
        Answer::Grant(_) => None,
        Answer::Refusal(refusal) => Some(refusal),
    };
    let blank = Refusal { reason: RefusalReason::Other, retry_after: Duration::ZERO };
    carrier.option(
        &mut refusal,
        || blank,
        |carrier, refusal| {
            carry_one_of(&REASONS, &mut refusal.reason, carrier);
            carrier.span(&mut refusal.retry_after);
        },
    );
    match (refusal, answer) {
        (Some(refusal), answer) => *answer = Answer::Refusal(refusal),
        (None, Answer::Grant(grant)) => carry_grant(carrier, grant),
        // A new session, into which this reads, was granted nothing.
        (None, Answer::Refusal(_)) => debug_assert!(false, "it has become a grant"),
    }
}

fn carry_grant(carrier: &mut Carrier<'_>, grant: &mut Grant) {
    carrier.number(&mut grant.kept);
    carrier.number(&mut grant.permits);
    carrier.number(&mut grant.ceiling);
    for span in [&mut grant.term, &mut grant.horizon, &mut grant.ask_after] {
        carrier.span(span);
    }
    carrier.option(&mut grant.retry_after, Default::default, Carrier::span);
    carry_one_of(&RATES, &mut grant.rate, carrier);
    let blank = InFlight { longest: Duration::ZERO, hold: None };
    carrier.option(
        &mut grant.in_flight,
        || blank,
        |carrier, cap| {
            carrier.span(&mut cap.longest);
            carrier.option(&mut cap.hold, || 0, Carrier::number);
        },
    );
}
