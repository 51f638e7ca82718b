//! What a demo shows while it runs, on stderr: what is left in each pool and how fast each node goes. One line,
//! redrawn once a second where there is a terminal, a new line each second where somebody asked for it.

use super::allocator::Hosted;
use super::fleet::Fleet;
use super::line::Tally;
use std::fmt::Write as _;
use std::future::Future;
use std::io::{IsTerminal as _, Write as _};
use std::pin::pin;
use std::time::Duration;

/// How often it is drawn.
const DRAW_EVERY: Duration = Duration::from_secs(1);

/// Nodes that get a number of their own; the rest is shown as one sum. More would not fit on a line.
const NODES_SHOWN: usize = 8;

/// Columns of a terminal that does not say how many it has.
const COLUMNS: usize = 80;

/// The line.
#[derive(Debug)]
pub(crate) struct Progress<'a> {
    how: How,
    /// Limits whose pools are shown.
    limits: &'a [&'a str],
    second: u64,
    /// Calls that each node had admitted, and all together refused, when it was last drawn.
    admitted: Vec<u64>,
    refused: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Not,
    Redrawn,
    LineByLine,
}

impl<'a> Progress<'a> {
    /// Shown if stderr is a terminal, or if `asked` for.
    pub(crate) fn new(asked: bool, limits: &'a [&'a str]) -> Self {
        let how = match (std::io::stderr().is_terminal(), asked) {
            (true, _) => How::Redrawn,
            (false, true) => How::LineByLine,
            (false, false) => How::Not,
        };
        Progress { how, limits, second: 0, admitted: Vec::new(), refused: 0 }
    }

    async fn draw(&mut self, fleet: &Fleet, allocator: &Hosted) {
        let rates = self.rates(fleet.tallies());
        if self.how == How::Not {
            return;
        }
        let mut line = format!("{:>4} s", self.second);
        for limit in self.limits {
            if let Ok(pools) = allocator.pools(limit).await {
                let available: u64 = pools.iter().map(|pool| pool.available).sum();
                let _ = write!(line, "  {limit} {available:>5} left");
            }
        }
        line.push_str(&rates);
        self.print(&line);
        self.second += 1;
    }

    /// What changed since the last time, in calls.
    fn rates<'t>(&mut self, tallies: impl Iterator<Item = &'t Tally>) -> String {
        let counts: Vec<_> = tallies.map(|tally| tally.count(0)).collect();
        self.admitted.resize(counts.len(), 0);
        let refused = counts.iter().map(|count| count.refused).sum();
        let mut rates = Vec::new();
        for (before, count) in self.admitted.iter_mut().zip(&counts) {
            rates.push(count.admitted.saturating_sub(*before));
            *before = count.admitted;
        }
        let line = rates_line(&rates, refused - self.refused.min(refused));
        self.refused = refused;
        line
    }

    fn print(&self, line: &str) {
        let mut stderr = std::io::stderr().lock();
        // Nothing is lost if stderr is closed: the table goes to stdout.
        let _ = match self.how {
            How::Not => Ok(()),
            How::LineByLine => writeln!(stderr, "{line}"),
            // Cut to the width of the terminal: a line that wraps cannot be redrawn.
            How::Redrawn => write!(stderr, "\r\x1b[2K{:.*}", columns(), line).and_then(|()| stderr.flush()),
        };
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if self.how == How::Redrawn {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
    }
}

/// Takes in news and draws `progress` until `end`, or until all nodes have left.
pub(crate) async fn follow(
    fleet: &mut Fleet,
    progress: &mut Progress<'_>,
    allocator: &Hosted,
    end: impl Future<Output = ()>,
) {
    let mut end = pin!(end);
    let mut second = tokio::time::interval(DRAW_EVERY);
    loop {
        tokio::select! {
            () = &mut end => return,
            more = fleet.hear() => if !more { return },
            _ = second.tick() => progress.draw(fleet, allocator).await,
        }
    }
}

fn rates_line(rates: &[u64], refused: u64) -> String {
    let shown = rates.len().min(NODES_SHOWN);
    let mut line = "  admitted/s".to_owned();
    for rate in &rates[..shown] {
        let _ = write!(line, " {rate:>3}");
    }
    if rates.len() > shown {
        let _ = write!(line, " +{}", rates[shown..].iter().sum::<u64>());
    }
    let _ = write!(line, "  refused/s {refused:>3}");
    line
}

fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|&columns| columns > 0).unwrap_or(COLUMNS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::line::Count;

    fn tally(admitted: u64, refused: u64) -> Tally {
        Tally { counts: vec![Count { admitted, refused }], ..Tally::default() }
    }

    #[test]
    fn it_shows_what_changed_since_the_last_time() {
        let mut progress = Progress::new(false, &[]);
        assert_eq!(progress.rates([tally(5, 1), tally(7, 2)].iter()), "  admitted/s   5   7  refused/s   3");
        assert_eq!(progress.rates([tally(6, 1), tally(9, 9)].iter()), "  admitted/s   1   2  refused/s   7");
    }

    #[test]
    fn nodes_beyond_the_line_are_one_sum() {
        let line = rates_line(&[1; NODES_SHOWN + 3], 0);
        assert!(line.contains(" +3 "), "{line}");
    }
}
