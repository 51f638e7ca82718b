//! Chooses the host of a store to connect to: the first usable one, from a given one on.

use super::CellsError;
use lessor_protocol::lease::whole_millis;
use lessor_protocol::{CLOCK, Moment};
use std::time::Duration;

/// The hosts that are tried one after the other, until one is usable.
pub(super) struct Tries {
    /// Hosts that are left.
    hosts: usize,
    all_hosts: usize,
    /// The time that there is for all of them, and when it is over.
    all: Duration,
    by: Moment,
    failed: Option<CellsError>,
}

impl Tries {
    /// Begins with all `hosts`, in `all` the time that there is.
    pub(super) fn new(hosts: usize, all: Duration) -> Self {
        Tries { hosts, all_hosts: hosts, all, by: CLOCK.now() + all, failed: None }
    }

    /// Returns the next host, from `first` on and around, with the longest time to connect to it, and the error if it
    /// takes longer. If the caller stops waiting, `first` is the one to begin with next time.
    pub(super) fn next(&mut self, first: &mut usize) -> Option<(usize, Duration, CellsError)> {
        let left = self.hosts;
        self.hosts = left.checked_sub(1)?;
        let host = *first % self.all_hosts;
        *first = host + 1;
        let patience = patience(self.all, self.by.since(CLOCK.now()), left);
        // The last one had all the time that was left.
        Some((host, patience, late(if left == 1 { self.all } else { whole_millis(patience) })))
    }

    /// Takes the error of a host.
    ///
    /// # Errors
    /// The same one, if the other hosts are unfit as well, or soon will be.
    pub(super) fn failed(&mut self, error: CellsError) -> Result<(), CellsError> {
        if let CellsError::Unfit(_) = error {
            return Err(error);
        }
        self.failed.get_or_insert(error);
        Ok(())
    }

    /// Returns why no host is usable: the first error.
    pub(super) fn error(self) -> CellsError {
        self.failed.unwrap_or_else(|| late(self.all))
    }
}

fn late(patience: Duration) -> CellsError {
    CellsError::Unreachable(format!("no answer within {patience:?}"))
}

/// Returns the longest time to connect to the next of `hosts`, with `left` of `all` time for all of them. After a host
/// that hangs there is time for others. A good host is let in slowly now and then, so each has a quarter at least.
fn patience(all: Duration, left: Duration, hosts: usize) -> Duration {
    let hosts = u32::try_from(hosts).unwrap_or(u32::MAX);
    (left / hosts).max(all / 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::{Cells, CellsConfig};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    /// The bug: each of two hosts had a quarter, and half of the time-out was of no use.
    #[test]
    fn hosts_share_the_time_that_is_left_and_four_have_a_quarter_each() {
        let all = Duration::from_secs(8);
        let silent = |hosts: usize| {
            let mut left = all;
            let mut each = vec![];
            for tried in 0..hosts {
                let next = patience(all, left, hosts - tried);
                left = left.saturating_sub(next);
                each.push(next.as_secs());
            }
            each
        };
        assert_eq!([silent(1), silent(2), silent(4)], [vec![8], vec![4, 4], vec![2; 4]]);
        assert_eq!(silent(5)[..4], [2; 4], "the time is over then");
        assert_eq!(patience(all, Duration::from_secs(7), 1).as_secs(), 7, "the first one refused");
    }

    /// The bug: with four silent members of etcd before it, the fifth was never asked.
    #[tokio::test]
    async fn a_host_after_four_silent_ones_is_asked_by_the_next_call() {
        for (scheme, rest) in [("postgres://u@", "/db?sslmode=disable"), ("etcd://", "")] {
            let mut silent = vec![];
            for _ in 0..4 {
                silent.push(TcpListener::bind("127.0.0.1:0").await.expect("a port"));
            }
            let fifth = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = |listener: &TcpListener| listener.local_addr().expect("it is bound").to_string();
            let hosts: Vec<String> = silent.iter().chain([&fifth]).map(address).collect();
            let url = format!("{scheme}{}{rest}", hosts.join(","));
            let config = CellsConfig::new(url.parse().expect("a URL"));
            let config = CellsConfig { timeout: Duration::from_millis(80), ..config };
            let mut cells = Cells::new(&config).expect("it is fit");
            for _ in 0..2 {
                assert!(cells.timeline().await.is_err(), "none of them answers");
            }
            // The connection waits to be accepted.
            timeout(Duration::from_secs(9), fifth.accept()).await.expect("it was asked").expect("a stream");
        }
    }
}
