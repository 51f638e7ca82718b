//! The progress of a demo on stderr: permits left in each pool and calls of each node. Two lines, redrawn once a second
//! on a terminal, or added each second if an operator asked for them.

use super::books::Books;
use super::fleet::Fleet;
use super::line::Tally;
use std::fmt::Write as _;
use std::future::Future;
use std::io::{IsTerminal as _, Write as _};
use std::pin::pin;
use std::time::Duration;

/// Interval at which it is drawn.
const DRAW_EVERY: Duration = Duration::from_secs(1);

/// Most nodes with a figure of their own; the others are shown as one sum. More would not fit on a line.
const NODES_SHOWN: usize = 8;

/// Columns of a terminal that does not report its width.
const COLUMNS: usize = 80;

/// Moves back over the two lines that were drawn last, and erases everything below.
const BACK: &str = "\x1b[2F\x1b[J";

/// The state of the progress display.
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
    /// `drawn`: whether there are lines to draw over.
    Redrawn {
        drawn: bool,
    },
    LineByLine,
}

impl<'a> Progress<'a> {
    /// Creates a display that is shown if stderr is a terminal, or if `asked` for.
    pub(crate) fn new(asked: bool, limits: &'a [&'a str]) -> Self {
        let how = match (std::io::stderr().is_terminal(), asked) {
            (true, _) => How::Redrawn { drawn: false },
            (false, true) => How::LineByLine,
            (false, false) => How::Not,
        };
        Progress { how, limits, second: 0, admitted: Vec::new(), refused: 0 }
    }

    async fn draw(&mut self, fleet: &Fleet, books: &Books) {
        let (admitted, refused) = self.changes(fleet.tallies());
        if self.how == How::Not {
            return;
        }
        let mut pools = format!("{:>4} s", self.second);
        for limit in self.limits {
            if let Ok(available) = books.available(limit).await {
                let _ = write!(pools, "  {limit} {available:>5} left");
            }
        }
        let _ = write!(pools, "  refused/s {refused:>4}");
        self.print(&[pools, nodes_line(&admitted)]);
        self.second += 1;
    }

    /// Returns the calls since the last time: admitted by each node, refused by all.
    fn changes<'t>(&mut self, tallies: impl Iterator<Item = &'t Tally>) -> (Vec<u64>, u64) {
        let counts: Vec<_> = tallies.map(|tally| tally.count(0)).collect();
        let now: Vec<u64> = counts.iter().map(|count| count.admitted).collect();
        let refused: u64 = counts.iter().map(|count| count.refused).sum();
        self.admitted.resize(now.len(), 0);
        let admitted = now.iter().zip(&self.admitted).map(|(now, before)| now.saturating_sub(*before));
        let changes = (admitted.collect(), refused.saturating_sub(self.refused));
        (self.admitted, self.refused) = (now, refused);
        changes
    }

    fn print(&mut self, lines: &[String; 2]) {
        let mut text = String::new();
        let width = match &mut self.how {
            How::Not => return,
            How::LineByLine => usize::MAX,
            How::Redrawn { drawn } => {
                text.push_str(if *drawn { BACK } else { "" });
                *drawn = true;
                // Cut to the width of the terminal: a line that wraps cannot be drawn over.
                columns()
            }
        };
        for line in lines {
            text.extend(line.chars().take(width));
            text.push('\n');
        }
        // Nothing is lost if stderr is closed: the table goes to stdout.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if self.how == (How::Redrawn { drawn: true }) {
            let _ = std::io::stderr().write_all(BACK.as_bytes());
        }
    }
}

/// Takes in news and draws `progress` until `end`, or until all nodes have left.
pub(crate) async fn follow(
    fleet: &mut Fleet,
    progress: &mut Progress<'_>,
    books: &Books,
    end: impl Future<Output = ()>,
) {
    let mut end = pin!(end);
    let mut second = tokio::time::interval(DRAW_EVERY);
    loop {
        tokio::select! {
            () = &mut end => return,
            more = fleet.hear() => if !more { return },
            _ = second.tick() => progress.draw(fleet, books).await,
        }
    }
}

fn nodes_line(admitted: &[u64]) -> String {
    let shown = admitted.len().min(NODES_SHOWN);
    let mut line = "        admitted/s by node".to_owned();
    for rate in &admitted[..shown] {
        let _ = write!(line, " {rate:>4}");
    }
    if admitted.len() > shown {
        let _ = write!(line, " +{}", admitted[shown..].iter().sum::<u64>());
    }
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
        assert_eq!(progress.changes([tally(5, 1), tally(7, 2)].iter()), (vec![5, 7], 3));
        assert_eq!(progress.changes([tally(6, 1), tally(9, 9)].iter()), (vec![1, 2], 7));
    }

    #[test]
    fn nodes_beyond_the_line_are_one_sum() {
        let line = nodes_line(&[1; NODES_SHOWN + 3]);
        assert!(line.ends_with(" 1 +3"), "{line}");
    }
}
