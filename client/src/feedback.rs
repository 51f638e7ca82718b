//! What this process has heard from one pool's vendor, and what the next ask tells of it. Callers put in what they saw,
//! and the background task takes out what is still worth telling. The time is an argument, and nothing is decided here.

use crate::rate_limit_headers::RateLimitHeaders;
use lessor_protocol::observed::ANNOUNCED_MAX;
use lessor_protocol::{Announced, Left, Moment, Observed, PERMITS_MAX};
use std::time::Duration;

/// How long a vendor's remaining count is worth telling. Later, the vendor has counted more calls and released others.
/// It is longer than the time between two calls wherever the count matters.
const LEFT_FRESH: Duration = Duration::from_millis(100);

/// How long an announced contract is told after it was last seen, because some asks get lost.
const ANNOUNCED_FRESH: Duration = Duration::from_secs(2);

/// Shortest time between two changed contracts that are told at once: two endpoints of one vendor may have different
/// contracts.
const NEWS_EVERY: Duration = Duration::from_secs(1);

/// Longest time for which a statement of the vendor is remembered. No allocator believes one for longer.
const REMEMBERED_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// What a process has heard from its vendor about one pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feedback {
    number: u64,
    refused: u64,
    /// The part of `refused` that an earlier pool of this process has told.
    before: u64,
    /// Until when the vendor asks to be left alone, and whether it named the time.
    wait: Option<(Moment, bool)>,
    /// Permits that the vendor had left, when that was seen, and until when it holds.
    left: Option<(u64, Moment, Option<Moment>)>,
    announced: [Option<Announced>; ANNOUNCED_MAX],
    announced_at: Moment,
    /// When a changed contract was last told at once.
    news_at: Moment,
    /// Whether the vendor disagreed with this process since the flag was last taken.
    disagrees: bool,
}

impl Feedback {
    /// Makes an empty record whose numbers go on after the `number` answers and `refused` refusals that were told
    /// before.
    pub fn after(number: u64, refused: u64) -> Self {
        Feedback { number, refused, before: refused, ..Feedback::default() }
    }

    /// Returns the number of the last answer and the number of refusals, as they are told.
    pub fn totals(&self) -> (u64, u64) {
        (self.number, self.refused)
    }

    /// Takes in an answer that was seen at `now`, while this process had `in_hand` permits left. Returns whether the
    /// allocator should hear of it at once.
    pub fn see(&mut self, headers: &RateLimitHeaders, now: Moment, in_hand: u64) -> bool {
        if headers.is_empty() {
            return false;
        }
        let later = |span: Duration| now + span.min(REMEMBERED_MAX);
        self.number = (self.number + 1).min(PERMITS_MAX);
        if headers.refused {
            self.refused = (self.refused + 1).min(PERMITS_MAX);
            let before = self.wait.map_or(Moment::ORIGIN, |(until, _)| until);
            let until = later(headers.wait.unwrap_or_default());
            if until >= before {
                self.wait = Some((until, headers.wait.is_some()));
            }
        }
        let mut is_urgent = headers.refused;
        self.disagrees |= headers.refused;
        if let Some(Left { permits, lasts }) = headers.left {
            self.left = Some((permits, now, lasts.map(later)));
            // The vendor would refuse some of the permits in hand.
            is_urgent |= permits < in_hand;
            self.disagrees |= permits < in_hand;
        }
        if headers.announced.iter().any(Option::is_some) {
            let is_news = headers.announced != self.announced;
            (self.announced, self.announced_at) = (headers.announced, now);
            if is_news && now.since(self.news_at) >= NEWS_EVERY {
                self.news_at = now;
                is_urgent = true;
            }
        }
        is_urgent
    }

    /// Number of answers so far in which the vendor refused.
    pub fn refused(&self) -> u64 {
        self.refused - self.before
    }

    /// Whether the vendor refused, or had less left than this process, since the last call of this.
    pub fn takes_disagreement(&mut self) -> bool {
        std::mem::take(&mut self.disagrees)
    }

    /// Returns how long the vendor still asks to be left alone.
    pub fn waits(&self, now: Moment) -> Option<Duration> {
        let (until, is_said) = self.wait?;
        let until = if is_said { until } else { until + LEFT_FRESH };
        Some(until.since(now)).filter(|wait| !wait.is_zero())
    }

    /// Returns the observations to send with an ask that is written at `now`; `None` if the vendor said nothing
    /// recently.
    pub fn tell(&self, now: Moment) -> Option<Observed> {
        let wait = self.wait.filter(|(until, _)| now < *until + LEFT_FRESH);
        let left = self.left.filter(|(_, seen, until)| {
            now.since(*seen) <= LEFT_FRESH && until.is_none_or(|until| now < until)
        });
        let is_announced =
            self.announced_at > Moment::ORIGIN && now.since(self.announced_at) <= ANNOUNCED_FRESH;
        if wait.is_none() && left.is_none() && !is_announced {
            return None;
        }
        Some(Observed {
            number: self.number,
            refused_total: self.refused,
            wait: wait.map(|(until, is_said)| if is_said { until.since(now) } else { Duration::ZERO }),
            left: left
                .map(|(permits, _, until)| Left { permits, lasts: until.map(|until| until.since(now)) }),
            announced: if is_announced { self.announced } else { [None; ANNOUNCED_MAX] },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(millis: u64) -> Moment {
        Moment::ORIGIN + 1_000 * SECOND + Duration::from_millis(millis)
    }

    fn left(permits: u64) -> RateLimitHeaders {
        RateLimitHeaders {
            left: Some(Left { permits, lasts: Some(30 * SECOND) }),
            ..RateLimitHeaders::default()
        }
    }

    fn announced(limit: u64) -> RateLimitHeaders {
        let announced = [Some(Announced { limit, per: None }), None, None, None];
        RateLimitHeaders { announced, ..RateLimitHeaders::default() }
    }

    #[test]
    fn a_refusal_is_told_at_once_and_for_as_long_as_it_holds() {
        let mut feedback = Feedback::default();
        assert_eq!(feedback.tell(at(0)), None);
        assert!(feedback.see(&RateLimitHeaders::refused(Some(3 * SECOND)), at(0), 0));
        // A shorter pause that came later shortens nothing.
        assert!(feedback.see(&RateLimitHeaders::refused(Some(SECOND)), at(10), 0));
        let observed = feedback.tell(at(1_000)).expect("the wait still holds");
        assert_eq!((observed.number, observed.refused_total, observed.wait), (2, 2, Some(2 * SECOND)));
        assert_eq!(feedback.tell(at(1_000)), Some(observed), "telling it again changes nothing");
        assert_eq!(feedback.tell(at(3_100)), None);
    }

    #[test]
    fn a_refusal_that_does_not_say_how_long_is_told_as_one() {
        let mut feedback = Feedback::default();
        assert!(feedback.see(&RateLimitHeaders::refused(None), at(0), 0));
        let observed = feedback.tell(at(1)).expect("the refusal was just now");
        assert_eq!((observed.refused_total, observed.wait), (1, Some(Duration::ZERO)));
    }

    #[test]
    fn what_is_left_is_told_while_it_is_fresh_and_at_once_if_more_is_in_hand() {
        let mut feedback = Feedback::default();
        assert!(!feedback.see(&left(10), at(0), 10));
        assert!(feedback.see(&left(9), at(10), 10));
        let observed = feedback.tell(at(110)).expect("fresh");
        assert_eq!(
            observed.left,
            Some(Left { permits: 9, lasts: Some(30 * SECOND - Duration::from_millis(100)) })
        );
        assert_eq!(feedback.tell(at(111)), None);
    }

    #[test]
    fn a_contract_is_told_at_once_when_it_changes_and_not_all_the_time() {
        let mut feedback = Feedback::default();
        assert!(feedback.see(&announced(100), at(0), 0));
        assert!(!feedback.see(&announced(100), at(5_000), 0));
        assert!(feedback.see(&announced(50), at(5_001), 0));
        assert!(!feedback.see(&announced(100), at(5_002), 0), "two doors with two contracts");
        assert!(!feedback.see(&announced(50), at(5_003), 0));
        assert_eq!(feedback.tell(at(7_003)).map(|observed| observed.number), Some(5));
        assert_eq!(feedback.tell(at(7_004)), None);
    }
}
