//! The contract as its vendor enforces it: true sliding windows over the instants at which calls arrived. The fake
//! vendor asks it about every arrival, and the final table shows its counts. It knows nothing of leases, takes the time
//! as an argument, and has the last word.

use super::shift::Shift;
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use lessor_sim::evenness::{Even, Evenness};
use std::collections::VecDeque;
use std::time::Duration;

/// Both limits of the contract: every call counts on the first, a message on both.
#[derive(Debug)]
pub(crate) struct Judge {
    rest: Window,
    messages: Window,
    /// When the limit of all calls is halved.
    halves_at: Moment,
    /// When the limit of all calls is restored.
    restores_at: Moment,
    shift: Option<Shift>,
}

/// The state of a limit, as the vendor announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The vendor's name for the limit.
    pub(crate) policy: &'static str,
    /// Calls allowed in a window.
    pub(crate) limit: u64,
    /// The window.
    pub(crate) per: Duration,
    /// Calls that the vendor would admit now.
    pub(crate) left: u64,
    /// Time until `left` can grow.
    pub(crate) lasts: Duration,
}

/// The answer of the vendor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Within the contract.
    Admitted,
    /// Over the contract: a 429.
    TooMany,
}

/// Counts of one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Calls within the contract.
    pub(crate) admitted: u64,
    /// Admitted calls that arrived after the first window was over.
    pub(crate) admitted_after_first: u64,
    /// Calls answered 429 because of this limit.
    pub(crate) too_many: u64,
    /// The most arrivals in any window, admitted or not.
    pub(crate) most: u64,
}

impl Judge {
    /// Creates a judge of both limits, each `(calls, window)`.
    pub(crate) fn new(rest: (u64, Duration), messages: (u64, Duration)) -> Self {
        let (rest, messages) = (Window::new("rest", rest), Window::new("messages", messages));
        Judge { rest, messages, halves_at: Moment::NEVER, restores_at: Moment::NEVER, shift: None }
    }

    /// Measures from `start` on: each limit's first window is over one window later.
    pub(crate) fn measure_from(&mut self, start: Moment) {
        for window in [&mut self.rest, &mut self.messages] {
            window.first_over = start + window.per;
        }
    }

    /// Admits only half as many calls from `at` on, whatever was admitted before.
    pub(crate) fn halve_at(&mut self, at: Moment) {
        self.halves_at = at;
    }

    /// Admits as many calls as at first from `at` on, if the limit was halved.
    pub(crate) fn restore_at(&mut self, at: Moment) {
        self.restores_at = at;
    }

    /// Judges a plain call.
    pub(crate) fn call(&mut self, now: Moment) -> (Verdict, Standing) {
        self.change(now);
        let verdict = judge(now, &mut [&mut self.rest]);
        self.note(now, verdict);
        (verdict, self.rest.standing(now))
    }

    /// Judges a message: it takes one of each limit or nothing. Returns the standing of the limit that refused it, or
    /// else of messages.
    pub(crate) fn message(&mut self, now: Moment) -> (Verdict, Standing) {
        self.change(now);
        let is_full = self.rest.is_full_at(now);
        let verdict = judge(now, &mut [&mut self.rest, &mut self.messages]);
        // A refusal for messages alone has nothing to do with the change.
        let is_of_rest = verdict == Verdict::Admitted || is_full;
        if is_of_rest {
            self.note(now, verdict);
        }
        let shown = if is_full { &self.rest } else { &self.messages };
        (verdict, shown.standing(now))
    }

    /// Returns what followed the halving of the contract, if it was halved.
    pub(crate) fn shift(&self) -> Option<&Shift> {
        self.shift.as_ref()
    }

    /// Returns the longest time in which no call was admitted, from the first admitted call until now.
    pub(crate) fn longest_gap(&self, now: Moment) -> Duration {
        self.rest.gap.max(self.rest.gap_until(now))
    }

    /// Returns the calls admitted in the window that ends now.
    pub(crate) fn in_window(&mut self, now: Moment) -> u64 {
        forget(&mut self.rest.admitted, now, self.rest.per);
        self.rest.admitted.len() as u64
    }

    /// Applies the changes that are due at `now`.
    fn change(&mut self, now: Moment) {
        if now >= self.halves_at {
            self.halve(now);
        }
        if now >= self.restores_at && self.shift.is_some() {
            self.restore(now);
        }
    }

    fn halve(&mut self, now: Moment) {
        let at = std::mem::replace(&mut self.halves_at, Moment::NEVER);
        self.rest.limit /= 2;
        forget(&mut self.rest.admitted, now, self.rest.per);
        let room = now + if self.rest.is_full() { self.rest.standing(now).lasts } else { Duration::ZERO };
        self.shift = Some(Shift::new(at, self.rest.limit, room));
    }

    fn restore(&mut self, now: Moment) {
        let at = std::mem::replace(&mut self.restores_at, Moment::NEVER);
        let in_window = self.in_window(now);
        self.rest.limit = self.rest.agreed;
        if let Some(shift) = &mut self.shift {
            shift.restore(at, self.rest.limit, in_window);
        }
    }

    fn note(&mut self, now: Moment, verdict: Verdict) {
        let in_window = self.rest.admitted.len() as u64;
        if let Some(shift) = &mut self.shift {
            shift.arrived(now, verdict == Verdict::Admitted, in_window);
        }
    }

    /// Returns how evenly each limit was used in the first `ran` of the run, unless the contract changed meanwhile.
    pub(crate) fn even(&self, ran: Duration) -> [Option<Even>; 2] {
        let even = |window: &Window| window.evenness.figures(nanos(ran));
        if self.shift.is_some() { [None; 2] } else { [even(&self.rest), even(&self.messages)] }
    }

    /// Returns the counts so far, of all calls and of messages.
    pub(crate) fn seen(&self) -> [Seen; 2] {
        [self.rest.seen, self.messages.seen]
    }
}

/// One limit. Windows are half-open: an arrival at `t` has left the window at exactly `t + per`.
#[derive(Debug)]
struct Window {
    policy: &'static str,
    /// The limit at first.
    agreed: u64,
    limit: u64,
    per: Duration,
    first_over: Moment,
    /// Admitted arrivals of the last `per`. Never more than `limit`.
    admitted: VecDeque<Moment>,
    /// All arrivals of the last `per`, as many as the network delivers: that is the point of counting them.
    arrivals: VecDeque<Moment>,
    /// The last admitted arrival, and the longest time between two of them.
    last: Option<Moment>,
    gap: Duration,
    seen: Seen,
    evenness: Evenness,
}

impl Window {
    fn new(policy: &'static str, (limit, per): (u64, Duration)) -> Self {
        Window {
            policy,
            agreed: limit,
            limit,
            per,
            first_over: Moment::NEVER,
            admitted: VecDeque::new(),
            arrivals: VecDeque::new(),
            last: None,
            gap: Duration::ZERO,
            seen: Seen::default(),
            evenness: Evenness::of(limit, nanos(per)),
        }
    }

    fn arrive(&mut self, now: Moment) {
        forget(&mut self.admitted, now, self.per);
        forget(&mut self.arrivals, now, self.per);
        self.arrivals.push_back(now);
        // A window is fullest at an arrival, so looking at arrivals covers every window.
        self.seen.most = self.seen.most.max(self.arrivals.len() as u64);
    }

    fn is_full(&self) -> bool {
        self.admitted.len() as u64 >= self.limit
    }

    fn is_full_at(&mut self, now: Moment) -> bool {
        forget(&mut self.admitted, now, self.per);
        self.is_full()
    }

    /// Returns the standing, once arrivals that have left the window are removed.
    fn standing(&self, now: Moment) -> Standing {
        let used = self.admitted.len();
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        // There is room for one more once this arrival has left.
        let leaving = self.admitted.get(used.saturating_sub(limit)).copied();
        let lasts = leaving.map_or(self.per, |oldest| (oldest + self.per).since(now));
        let left = self.limit.saturating_sub(used as u64);
        Standing { policy: self.policy, limit: self.limit, per: self.per, left, lasts }
    }

    fn gap_until(&self, now: Moment) -> Duration {
        self.last.map_or(Duration::ZERO, |last| now.since(last))
    }

    fn admit(&mut self, now: Moment) {
        self.gap = self.gap.max(self.gap_until(now));
        self.last = Some(now);
        self.admitted.push_back(now);
        self.seen.admitted += 1;
        self.seen.admitted_after_first += u64::from(now >= self.first_over);
        if self.first_over < Moment::NEVER {
            self.evenness.admitted(nanos(now.since(self.first_over.before(self.per))), 1);
        }
    }
}

fn judge(now: Moment, windows: &mut [&mut Window]) -> Verdict {
    for window in windows.iter_mut() {
        window.arrive(now);
    }
    let mut verdict = Verdict::Admitted;
    for window in windows.iter_mut().filter(|window| window.is_full()) {
        window.seen.too_many += 1;
        verdict = Verdict::TooMany;
    }
    if verdict == Verdict::Admitted {
        for window in windows.iter_mut() {
            window.admit(now);
        }
    }
    verdict
}

fn forget(instants: &mut VecDeque<Moment>, now: Moment, per: Duration) {
    while instants.front().is_some_and(|&oldest| now.since(oldest) >= per) {
        instants.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Admitted, TooMany};
    use lessor_protocol::moment::millis as at;

    const PER: Duration = Duration::from_millis(100);

    fn judge_of(rest: u64, messages: u64) -> Judge {
        Judge::new((rest, PER), (messages, PER))
    }

    #[test]
    fn an_arrival_leaves_the_window_exactly_one_window_later() {
        let mut judge = judge_of(1, 1);
        assert_eq!(judge.call(at(0)).0, Admitted);
        assert_eq!(judge.call(at(100).before(Duration::from_nanos(1))).0, TooMany);
        assert_eq!(judge.call(at(100)).0, Admitted);
    }

    #[test]
    fn windows_slide_two_bursts_around_an_edge_are_one_window() {
        let mut judge = judge_of(10, 10);
        for _ in 0..10 {
            assert_eq!(judge.call(at(95)).0, Admitted);
        }
        assert_eq!(judge.call(at(105)).0, TooMany);
        assert_eq!(judge.call(at(194)).0, TooMany);
        assert_eq!(judge.call(at(195)).0, Admitted);
    }

    #[test]
    fn a_message_takes_one_of_each_or_nothing() {
        let mut judge = judge_of(3, 1);
        assert_eq!(judge.message(at(0)).0, Admitted);
        // Refused on messages: it must not have used up a call.
        assert_eq!(judge.message(at(1)).0, TooMany);
        assert_eq!(judge.call(at(2)).0, Admitted);
        assert_eq!(judge.call(at(3)).0, Admitted);
        assert_eq!(judge.call(at(4)).0, TooMany);
        let [rest, messages] = judge.seen();
        assert_eq!((rest.admitted, rest.too_many), (3, 1));
        assert_eq!((messages.admitted, messages.too_many), (1, 1));
    }

    #[test]
    fn the_fullest_window_counts_what_was_turned_away_too() {
        let mut judge = judge_of(2, 2);
        for millis in [0, 10, 20, 30, 200, 290, 310] {
            judge.call(at(millis));
        }
        assert_eq!(judge.seen()[0].most, 4);
        assert_eq!(judge.seen()[1].most, 0);
    }

    #[test]
    fn a_call_turned_away_does_not_count_against_the_next() {
        let mut judge = judge_of(1, 1);
        assert_eq!(judge.call(at(0)).0, Admitted);
        assert_eq!(judge.call(at(90)).0, TooMany);
        assert_eq!(judge.call(at(110)).0, Admitted);
    }

    #[test]
    fn a_contract_that_is_halved_says_so_and_when_there_is_room_again() {
        let mut judge = judge_of(4, 4);
        for millis in [0, 10, 20, 30] {
            assert_eq!(judge.call(at(millis)).0, Admitted);
        }
        judge.halve_at(at(40));
        let (verdict, standing) = judge.call(at(50));
        assert_eq!((verdict, standing.limit, standing.left), (TooMany, 2, 0));
        // Three must have left: the third of them came at 20.
        assert_eq!(standing.lasts, Duration::from_millis(70));
        assert_eq!(judge.call(at(119)).0, TooMany);
        assert_eq!(judge.call(at(120)).0, Admitted);
        let report =
            judge.shift().expect("it was halved").report(at(0), 1, 2, judge.rest.admitted.len() as u64);
        assert_eq!((report.vendor_429, report.limit), (2, 2));
    }

    #[test]
    fn a_gap_is_without_a_call_that_is_admitted_and_lasts_until_now() {
        let mut judge = judge_of(2, 2);
        assert_eq!(judge.longest_gap(at(500)), Duration::ZERO, "before the first call");
        // The third is turned away.
        for millis in [500, 530, 560, 610] {
            judge.call(at(millis));
        }
        let longest = |millis| judge.longest_gap(at(millis)).as_millis();
        assert_eq!((longest(610), longest(690), longest(691)), (80, 80, 81));
    }

    #[test]
    fn a_contract_that_is_restored_says_so_and_counts_what_was_admitted_before() {
        let mut judge = judge_of(4, 4);
        judge.halve_at(at(40));
        judge.restore_at(at(60));
        let calls =
            [(0, Admitted), (45, Admitted), (50, TooMany), (60, Admitted), (70, Admitted), (80, TooMany)];
        for (millis, expected) in calls {
            assert_eq!(judge.call(at(millis)).0, expected, "at {millis} ms");
        }
        assert_eq!(judge.call(at(100)).1.limit, 4);
        let report = judge.shift().expect("it was halved").report(at(0), 1, 2, 4);
        assert_eq!((report.limit, report.vendor_429, report.used_at_the_end), (2, 1, 1.0));
        let restored = report.restored.expect("it was restored");
        assert_eq!((restored.limit, restored.vendor_429), (4, 1));
        assert_eq!(restored.whole_after_s, Some(0.01), "since its window holds four, at 70 ms");
    }

    #[test]
    fn what_arrives_after_the_first_window_is_counted_apart() {
        let mut judge = judge_of(10, 10);
        judge.call(at(0));
        judge.measure_from(at(50));
        for millis in [60, 149, 150, 400] {
            judge.call(at(millis));
        }
        assert_eq!(judge.seen()[0].admitted, 5);
        assert_eq!(judge.seen()[0].admitted_after_first, 2);
    }
}
