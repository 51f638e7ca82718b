//! The last answer to a session, kept to be told again to the same ask. Nearly all answers grant permits, and say no
//! more.

use lessor_protocol::{Answer, Grant, Rate};
use std::time::Duration;

/// An answer, in as little room as it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::pool) enum Told {
    /// A grant without a rate or a cap.
    Permits(Permits),
    /// Any other answer.
    Other(Box<Answer>),
}

/// A grant without a rate or a cap, its spans in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pool) struct Permits {
    kept: u64,
    permits: u64,
    ceiling: u64,
    term: u64,
    horizon: u64,
    ask_after: u64,
    /// [`NEVER`] where none is told.
    retry_after: u64,
}

/// Stands for no span: no grant has one of this length.
const NEVER: u64 = u64::MAX;

impl Told {
    /// The answer of a session that has not asked yet.
    pub(super) const NOTHING: Told = Told::Permits(Permits {
        kept: 0,
        permits: 0,
        ceiling: 0,
        term: 0,
        horizon: 0,
        ask_after: 0,
        retry_after: NEVER,
    });

    /// Keeps `answer`.
    pub(in crate::pool) fn of(answer: &Answer) -> Self {
        Permits::of(answer).map_or_else(|| Told::Other(Box::new(*answer)), Told::Permits)
    }

    /// Returns the answer.
    pub(in crate::pool) fn answer(&self) -> Answer {
        match self {
            Told::Permits(permits) => permits.answer(),
            Told::Other(answer) => **answer,
        }
    }

    /// Returns the wait until the next ask, as the answer said it: zero if it was a refusal.
    pub(in crate::pool) fn ask_after(&self) -> Duration {
        match self {
            Told::Permits(permits) => Duration::from_nanos(permits.ask_after),
            Told::Other(answer) => answer.grant().map_or(Duration::ZERO, |grant| grant.ask_after),
        }
    }
}

impl Permits {
    /// Keeps `answer`; `None` if it says more than a grant of permits.
    fn of(answer: &Answer) -> Option<Self> {
        let Answer::Grant(grant) = answer else { return None };
        let Grant { kept, permits, ceiling, rate: Rate::Free, in_flight: None, .. } = *grant else {
            return None;
        };
        Some(Permits {
            kept,
            permits,
            ceiling,
            term: exact(grant.term)?,
            horizon: exact(grant.horizon)?,
            ask_after: exact(grant.ask_after)?,
            retry_after: grant.retry_after.map_or(Some(NEVER), exact)?,
        })
    }

    fn answer(self) -> Answer {
        let span = Duration::from_nanos;
        Answer::Grant(Grant {
            kept: self.kept,
            permits: self.permits,
            ceiling: self.ceiling,
            term: span(self.term),
            horizon: span(self.horizon),
            ask_after: span(self.ask_after),
            retry_after: (self.retry_after != NEVER).then_some(span(self.retry_after)),
            rate: Rate::Free,
            in_flight: None,
        })
    }
}

/// `span` in nanoseconds, if it is shorter than [`NEVER`].
fn exact(span: Duration) -> Option<u64> {
    u64::try_from(span.as_nanos()).ok().filter(|nanos| *nanos != NEVER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_protocol::{InFlight, Refusal, RefusalReason};

    #[test]
    fn what_was_told_is_told_again() {
        let plain = Told::NOTHING.answer();
        let Answer::Grant(nothing) = plain else { panic!("it grants nothing: {plain:?}") };
        let some = Grant {
            kept: 3,
            permits: 4,
            term: Duration::from_millis(250),
            ceiling: 9,
            ask_after: Duration::from_millis(5),
            ..nothing
        };
        let cap = InFlight { longest: Duration::from_secs(1), hold: Some(3) };
        let answers = [
            (plain, true),
            (Answer::Grant(some), true),
            (Answer::Grant(Grant { retry_after: Some(Duration::from_nanos(7)), ..some }), true),
            (Answer::Grant(Grant { retry_after: Some(Duration::MAX), ..some }), false),
            (Answer::Grant(Grant { retry_after: Some(Duration::from_nanos(NEVER)), ..some }), false),
            (Answer::Grant(Grant { rate: Rate::Nothing, ..some }), false),
            (Answer::Grant(Grant { in_flight: Some(cap), ..some }), false),
            (Answer::Refusal(Refusal { reason: RefusalReason::Paused, retry_after: Duration::ZERO }), false),
        ];
        for (answer, is_small) in answers {
            let told = Told::of(&answer);
            assert_eq!((told.answer(), matches!(told, Told::Permits(_))), (answer, is_small));
            assert_eq!(told.ask_after(), answer.grant().map_or(Duration::ZERO, |grant| grant.ask_after));
        }
        assert_eq!(Told::of(&plain), Told::NOTHING);
    }
}
