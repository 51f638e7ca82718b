//! The messages between the demo and its node processes: one JSON object a line, orders on a node's stdin, news on its
//! stdout. All instants are of the steady [`lessor_protocol::Clock`], whose origin every process of one machine shares.

use super::latency::Buckets;
use lessor::{Builder, Tls, Token};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// An order of the demo to a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// The first line: the job. The node connects and says [`News::Ready`].
    Job(Job),
    /// Begin, counting from this instant.
    Go {
        /// The instant, the same for all nodes.
        at_ns: u64,
    },
    /// Finish calls in flight, return all permits, and say [`News::Done`].
    Stop,
}

/// The job of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// Its name, for people.
    pub(crate) name: String,
    /// Addresses of the allocators that it may ask: at least one.
    pub(crate) allocators: Vec<String>,
    /// Files with which it proves its identity, if the allocators ask for that.
    pub(crate) proof: Option<Proof>,
    /// Whether it serves its metrics.
    pub(crate) metrics: bool,
    /// The calls that it makes.
    pub(crate) work: Work,
}

impl Job {
    /// Makes a job for each of `hands`, whose calls on `limit` at `allocator` wait up to `patience` each.
    pub(crate) fn replays(
        hands: &[Vec<DealtCall>],
        limit: &str,
        allocator: &str,
        patience: Duration,
        metrics: bool,
    ) -> Vec<Job> {
        let patience_ns = patience.as_nanos() as u64;
        let job = |(node, calls): (usize, &Vec<DealtCall>)| Job {
            name: format!("demo-{}", node + 1),
            allocators: vec![allocator.to_owned()],
            proof: None,
            metrics,
            work: Work::Replay { limit: limit.to_owned(), calls: calls.clone(), patience_ns },
        };
        hands.iter().enumerate().map(job).collect()
    }
}

/// The files with which a node proves its identity. Each may be replaced by a newer one at any time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Proof {
    /// The authority of the allocators.
    pub(crate) ca: PathBuf,
    /// Its certificate.
    pub(crate) certificate: PathBuf,
    /// The key of its certificate.
    pub(crate) key: PathBuf,
    /// Its token.
    pub(crate) token: PathBuf,
}

/// The calls that a node makes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Work {
    /// The contract: calls by a schedule of its own, until told to stop.
    Contract {
        /// The vendor's address.
        vendor: String,
        /// Number of the node in the fleet, from 0.
        node: usize,
        /// Number of nodes.
        nodes: usize,
        /// The seed of the whole fleet.
        seed: u64,
    },
    /// The replay: these calls, until they are made.
    Replay {
        /// The limit, which has keys.
        limit: String,
        /// The calls in the order in which they come due.
        calls: Vec<DealtCall>,
        /// How long each may wait for a permit.
        patience_ns: u64,
    },
}

/// One request of a trace, dealt to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DealtCall {
    /// When the call is due, in nanoseconds since the beginning of the replay.
    pub(crate) due_ns: u64,
    /// The client that calls.
    pub(crate) client: String,
}

/// A message of a node to the demo.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum News {
    /// The node is connected, and serves its metrics at the address if it is to.
    Ready { metrics: Option<SocketAddr> },
    /// Totals so far. Sent a few times a second.
    Progress(Tally),
    /// The node has left. The last line.
    Done(Report),
}

/// Totals of a node so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// One count for each limit, in the order of the configuration; the first is of all calls.
    pub(crate) counts: Vec<Count>,
    /// Exchanges with the allocator.
    pub(crate) exchanges: u64,
    /// Exchanges that failed.
    pub(crate) failed_exchanges: u64,
    /// Calls that the node refused for another reason than the contract: no allocator lent, or none was reached.
    pub(crate) unlent: u64,
    /// Admitted calls that did not reach the vendor: too late to be sent, or the connection broke.
    pub(crate) unsent: u64,
    /// Calls that the vendor refused.
    pub(crate) vendor_refused: u64,
}

/// Calls on one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Count {
    /// Admitted by the node.
    pub(crate) admitted: u64,
    /// Refused by the node.
    pub(crate) refused: u64,
}

/// The final report of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The final totals.
    pub(crate) tally: Tally,
    /// Findings of one kind of work.
    pub(crate) found: Found,
}

/// Findings of one kind of work.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Found {
    /// How long `try_acquire` took: histograms, as `(nanoseconds, calls)` of the buckets in use.
    Contract(Buckets),
    /// Which of its calls were admitted, and when: `(index in the job, instant in nanoseconds)`.
    Replay(Vec<(u32, u64)>),
}

impl Proof {
    /// Returns the TLS settings.
    pub(crate) fn tls(&self) -> Tls {
        Tls::new().ca(&self.ca).certificate(&self.certificate, &self.key)
    }

    /// Makes the client of `builder` prove its identity with these files.
    pub(crate) fn given_to(&self, builder: Builder) -> Builder {
        builder.tls(self.tls()).token(Token::file(&self.token))
    }
}

impl Tally {
    /// Adds another node's totals.
    pub(crate) fn add(&mut self, other: &Tally) {
        self.counts.resize(self.counts.len().max(other.counts.len()), Count::default());
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            sum.admitted += count.admitted;
            sum.refused += count.refused;
        }
        self.exchanges += other.exchanges;
        self.failed_exchanges += other.failed_exchanges;
        self.unlent += other.unlent;
        self.unsent += other.unsent;
        self.vendor_refused += other.vendor_refused;
    }

    /// Returns the count of limit number `limit`; zero if it is missing.
    pub(crate) fn count(&self, limit: usize) -> Count {
        self.counts.get(limit).copied().unwrap_or_default()
    }

    /// Exchanges with the allocator for every 1,000 calls that were tried, admitted and refused together.
    pub(crate) fn exchanges_per_1000_calls(&self) -> f64 {
        let calls = self.count(0).admitted + self.count(0).refused;
        1000.0 * self.exchanges as f64 / calls.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(admitted: u64, refused: u64) -> Count {
        Count { admitted, refused }
    }

    #[test]
    fn tallies_add_up_limit_by_limit() {
        let mut sum = Tally::default();
        for refused in [1, 2] {
            let counts = vec![count(10, refused), count(3, 0)];
            let more = Tally { counts, exchanges: 5, failed_exchanges: 2, unlent: 3, ..Tally::default() };
            sum.add(&Tally { unsent: 1, ..more });
        }
        assert_eq!(sum.counts, [count(20, 3), count(6, 0)]);
        assert_eq!((sum.exchanges, sum.unsent), (10, 2));
        assert_eq!((sum.failed_exchanges, sum.unlent), (4, 6));
        assert!((sum.exchanges_per_1000_calls() - 10_000.0 / 23.0).abs() < 1e-9);
    }

    #[test]
    fn no_call_is_no_division_by_zero() {
        assert!(Tally::default().exchanges_per_1000_calls() < 1e-9);
    }

    #[test]
    fn an_order_and_a_report_survive_their_line() {
        let order = serde_json::to_string(&Order::Go { at_ns: u64::MAX }).expect("plain data");
        assert_eq!(order, r#"{"go":{"at_ns":18446744073709551615}}"#);
        let news = News::Done(Report { tally: Tally::default(), found: Found::Replay(vec![(0, 7)]) });
        let line = serde_json::to_string(&news).expect("plain data");
        let back: News = serde_json::from_str(&line).expect("what was written can be read");
        assert!(matches!(back, News::Done(Report { found: Found::Replay(found), .. }) if found == [(0, 7)]));
    }
}
