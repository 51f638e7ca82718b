//! The places of one call in the lines of all its limits. The call stands in the line of the limit that is short. In
//! the other lines it stands aside: it keeps its place there and keeps no other caller waiting.
//!
//! Two limits may both have a line all the time, and one has no permits whenever the other gives some. So a call that
//! is first everywhere, and has been short of each limit in turn, stands in all lines until each limit gives: no caller
//! behind it takes the permits it waits for.

use super::All;
use super::parts::Parts;
use crate::local_pool::{CLOCK, Condition};
use crate::refusal::Refusal;
use crate::tally::End;
use crate::wait::{Alarm, Place, in_span};
use lessor_protocol::Moment;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Least time for which a call may stand in several lines at once: some exchanges with a distant allocator. Less would
/// end before both limits can give; more would keep other callers waiting longer where one limit gives nothing.
const STAND_MIN: Duration = Duration::from_secs(1);

/// The places of one call, in the order of its parts; `None` for a part that costs nothing.
pub(super) struct Lines<'a> {
    places: Vec<Option<Place<'a>>>,
    /// The part that is short.
    short: usize,
    /// Changes of the short part: their number, the time of the last one, and the longest time between two.
    turns: usize,
    turned: Moment,
    longest: Duration,
    /// Since when the call stands in all lines; `None` if it does not.
    stands_since: Option<Moment>,
}

impl<P: Parts> All<P> {
    /// Returns what `take` takes: at once, or after a wait for all parts.
    pub(super) async fn wait<T>(
        &self,
        take: impl Fn(&Self, Option<&Lines<'_>>) -> Result<T, usize>,
    ) -> Result<T, Refusal> {
        let short = match take(self, None) {
            Ok(taken) => return Ok(taken),
            Err(short) => short,
        };
        let waiting = async {
            let mut lines = Lines::join(self, short)?;
            let mut alarm = Alarm::new();
            poll_fn(|cx| lines.poll(cx, &mut alarm, |lines| take(self, Some(lines)))).await
        };
        in_span(self.parts.at(short).0.pool(), self.cost(short), waiting).await
    }
}

impl<'a> Lines<'a> {
    /// Joins the line of the part that is `short`, and stands aside in the others.
    fn join<P: Parts>(all: &'a All<P>, short: usize) -> Result<Self, Refusal> {
        let place = |part| {
            let ((limit, _), cost) = (all.parts.at(part), all.cost(part));
            let (pool, priority) = (limit.pool(), limit.priority());
            match cost {
                0 => Ok(None),
                _ if part != short => Ok(Some(Place::join_aside(pool, priority, cost))),
                _ => {
                    let place = Place::join(pool, priority, cost).ok_or_else(|| pool.turn_away(cost))?;
                    pool.nudge();
                    Ok(Some(place))
                }
            }
        };
        let places = (0..all.parts.count()).map(place).collect::<Result<_, Refusal>>()?;
        let (turned, longest) = (CLOCK.now(), Duration::ZERO);
        Ok(Lines { places, short, turns: 0, turned, longest, stands_since: None })
    }

    /// Whether the call is first in the line of `part`, or would be if it did not stand aside.
    pub(super) fn is_first(&self, part: usize) -> bool {
        self.places[part].as_ref().is_some_and(Place::is_first)
    }

    /// Whether the call stands in the line of `part` rather than aside, and so keeps callers behind it waiting.
    pub(super) fn stands(&self, part: usize) -> bool {
        self.places[part].as_ref().is_some_and(Place::stands)
    }

    fn poll<T>(
        &mut self,
        cx: &Context<'_>,
        alarm: &mut Alarm,
        take: impl Fn(&Self) -> Result<T, usize>,
    ) -> Poll<Result<T, Refusal>> {
        // The lines know the waker before the permits are looked at, as in the line of one limit.
        self.places.iter_mut().flatten().filter(|place| place.stands()).for_each(|place| {
            place.stand(cx.waker());
        });
        let refused = |place: &Place<'_>| place.pool().refuse_for_good(place.permits());
        if let Some(refusal) = self.places.iter().flatten().find_map(refused) {
            return self.end(End::Refused, Err(refusal));
        }
        // Each round ends in the line of the part that is short. After this many rounds, other callers are just as
        // fast.
        for _ in 0..self.places.len() + 2 {
            let taken = if self.is_first(self.short) { take(self) } else { Err(self.short) };
            let short = match taken {
                Ok(taken) => return self.end(End::Admitted, Ok(taken)),
                Err(short) => short,
            };
            if !self.turn_to(short, cx.waker(), CLOCK.now()) {
                self.set_alarm(alarm, cx);
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Stands in the line of the part that is `short`, and aside in the others unless it is time to stand in all.
    /// Returns whether another attempt is worthwhile: the short part changed, or the call came back to a line that did
    /// not have its waker.
    fn turn_to(&mut self, short: usize, waker: &Waker, now: Moment) -> bool {
        let turns = short != self.short;
        if turns {
            self.longest = self.longest.max(now.since(self.turned));
            (self.short, self.turned, self.turns) = (short, now, self.turns + 1);
        }
        let stands_in_all = self.stands_in_all(now);
        let mut came_back = false;
        for (part, place) in self.places.iter_mut().enumerate() {
            let Some(place) = place else { continue };
            if part == short || stands_in_all {
                came_back |= place.stand(waker);
            } else {
                place.step_aside();
            }
        }
        turns || came_back
    }

    /// Whether the call may keep others waiting in all lines. Each part must have been short before, the call must be
    /// first in each line, and no limit may be paused. It ends after twice the time that the slowest limit took to
    /// give.
    fn stands_in_all(&mut self, now: Moment) -> bool {
        let mut places = self.places.iter().flatten();
        let is_next = |place: &Place<'_>| place.is_first() && place.pool().condition() != Condition::Paused;
        if self.turns < places.clone().count() || !places.all(is_next) {
            self.stands_since = None;
            return false;
        }
        if now.since(*self.stands_since.get_or_insert(now)) <= self.longest_stand() {
            return true;
        }
        (self.turns, self.longest, self.stands_since) = (0, Duration::ZERO, None);
        false
    }

    fn longest_stand(&self) -> Duration {
        STAND_MIN.max(self.longest * 2)
    }

    /// Sets a timer for what no waker reports: a permit of a steady flow is due, or the call has stood in all lines for
    /// too long.
    fn set_alarm(&self, alarm: &mut Alarm, cx: &Context<'_>) {
        let Some(place) = self.places[self.short].as_ref().filter(|place| place.is_first()) else { return };
        let now = CLOCK.now();
        let early = place.pool().early_by(place.permits(), now);
        let steps_aside = self.stands_since.map(|since| (since + self.longest_stand()).since(now));
        if let Some(wait) = early.into_iter().chain(steps_aside).min() {
            alarm.set(place.pool(), wait.max(Duration::from_millis(1)), cx);
        }
    }

    fn end<T>(&mut self, end: End, with: Result<T, Refusal>) -> Poll<Result<T, Refusal>> {
        self.places.iter_mut().flatten().for_each(|place| place.end = end);
        Poll::Ready(with)
    }
}
