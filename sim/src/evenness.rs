//! How evenly a sliding window is spent while more is wanted than it has: the permits of each second, and of each
//! window from the start. The world reports each admission; nothing here judges it.

use crate::SECOND;
use lessor_ledger::Rule;
use lessor_protocol::moment::nanos;

/// Windows of steady demand after which admissions are even.
const SETTLES: u64 = 3;
/// The shortest window whose seconds say anything, in nanoseconds.
const PER_MIN: u64 = 2 * SECOND;

/// Permits admitted by the second and by the window.
#[derive(Clone, Debug)]
pub struct Evenness {
    /// Permits and nanoseconds of the window.
    limit: u64,
    per: u64,
    seconds: Vec<u64>,
    windows: Vec<u64>,
}

/// How even the admissions were, as parts of the window's average rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Even {
    /// The slowest and the fastest second after three windows.
    pub seconds: (f64, f64),
    /// The median deviation of a second from the average.
    pub off: f64,
    /// The least that a window had of its permits: among the first three, and after them (1 at most).
    pub windows: (f64, f64),
}

impl Evenness {
    /// Makes the counters for the first of `rules` that is a sliding window, if that is long enough.
    pub fn new(rules: &[Rule]) -> Option<Self> {
        let window = rules.iter().find_map(Rule::sliding)?;
        let (limit, per) = (window.limit(), nanos(window.per()));
        (per >= PER_MIN && limit > 0).then_some(Evenness::of(limit, per))
    }

    /// Makes the counters for a window of `limit` permits and `per` nanoseconds.
    pub fn of(limit: u64, per: u64) -> Self {
        Evenness { limit, per, seconds: vec![], windows: vec![] }
    }

    /// Counts `permits` admitted at `real`.
    pub fn admitted(&mut self, real: u64, permits: u64) {
        for (counts, span) in [(&mut self.seconds, SECOND), (&mut self.windows, self.per)] {
            let place = usize::try_from(real / span).expect("a run is not that long");
            counts.resize(counts.len().max(place + 1), 0);
            counts[place] += permits;
        }
    }

    /// Returns the figures at `real`; `None` before a whole second has passed after three windows.
    pub fn figures(&self, real: u64) -> Option<Even> {
        let whole = |counts: &[u64], from: u64, span: u64| -> Vec<f64> {
            let average = self.limit as f64 * span as f64 / self.per as f64;
            let (from, to) = (from.div_ceil(span), real / span);
            (from..to).map(|place| counts.get(place as usize).map_or(0.0, |&n| n as f64 / average)).collect()
        };
        let settled = SETTLES * self.per;
        let mut seconds = whole(&self.seconds, settled, SECOND);
        let windows = whole(&self.windows, 0, self.per);
        let (first, later) = windows.split_at_checked(SETTLES as usize)?;
        seconds.sort_by(f64::total_cmp);
        let least = |shares: &[f64]| shares.iter().copied().fold(f64::INFINITY, f64::min);
        let mut off: Vec<f64> = seconds.iter().map(|share| (share - 1.0).abs()).collect();
        off.sort_by(f64::total_cmp);
        Some(Even {
            seconds: (*seconds.first()?, *seconds.last()?),
            off: off[off.len() / 2],
            windows: (least(first), least(later).min(1.0)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_count_after_three_windows_and_windows_from_the_start() {
        let rules = crate::setup::parse_rules("sliding_window 20/2s").expect("a rule");
        let mut even = Evenness::new(&rules).expect("it is long enough");
        for second in 0..8 {
            even.admitted(second * SECOND, if second == 7 { 12 } else { 9 });
        }
        assert_eq!(even.figures(7 * SECOND).map(|even| even.seconds), Some((0.9, 0.9)));
        let figures = even.figures(8 * SECOND).expect("four windows");
        assert_eq!(figures.seconds, (0.9, 1.2));
        assert!((figures.off - 0.2).abs() < 1e-9);
        assert_eq!(figures.windows, (0.9, 1.0));
        assert_eq!(even.figures(6 * SECOND), None, "no second is after three windows");
    }
}
