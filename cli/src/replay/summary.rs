//! The results of a replay for each limit and key: a table for people or one JSON object for machines. It remembers
//! every admission; without `--summary` or `--plot` a replay makes none.

use super::answer::Answer;
use super::contract::PoolId;
use super::lineage::Lineage;
use super::request::{Call, Request};
use crate::limits::table;
use crate::window::most_in_any;
use lessor_allocator::Config;
use lessor_ledger::Rule;
use lessor_ledger::exact::Admission;
use lessor_protocol::moment::nanos;
use lessor_protocol::{Key, Moment};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// The results of a replay.
#[derive(Debug)]
pub(crate) struct Summary {
    /// The windows over which the most is looked for, for each limit: those of its rules.
    spans: BTreeMap<String, BTreeSet<Duration>>,
    lineage: Lineage,
    pools: BTreeMap<PoolId, Found>,
    misread: u64,
}

/// The results of one limit and key.
#[derive(Debug, Default)]
struct Found {
    /// Admissions in the order in which they were served.
    admissions: Vec<Admission>,
    /// Times in nanoseconds, and the permits asked for.
    asked: Vec<(u64, u64)>,
    /// Permits charged, also for pools below, without those given back.
    kept: Vec<Admission>,
    /// Calls that were accepted, at once or later.
    promised: u64,
    refused: u64,
    shadow_refused: u64,
    refunded: u64,
}

/// Times in nanoseconds, with the permits asked for and admitted.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    pub(crate) asked: Vec<(u64, u64)>,
    pub(crate) admitted: Vec<(u64, u64)>,
}

/// One line of the table.
#[derive(Debug, Serialize)]
struct Row {
    limit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// Admitted calls.
    admitted: u64,
    /// Refused calls, including those that gave up because the limit was changed while they waited.
    refused: u64,
    /// Calls that would have been refused or made to wait if the limit were not in shadow mode.
    shadow_refused: u64,
    /// Permits admitted, and permits of them given back, up to the largest number. `most` excludes the latter, and includes permits that limits
    /// below admitted.
    permits: u64,
    refunded: u64,
    most: Vec<Most>,
    longest_wait_ns: u64,
}

/// The most permits that were admitted in any window of a length, aligned or not.
#[derive(Debug, Serialize)]
struct Most {
    window_ns: u64,
    permits: u64,
}

impl Summary {
    /// Creates a summary without results.
    pub(crate) fn new(config: &Config) -> Self {
        let spans = config.limits.iter().map(|limit| (limit.name.to_string(), spans(&limit.rules)));
        Summary { spans: spans.collect(), lineage: Lineage::new(config), pools: BTreeMap::new(), misread: 0 }
    }

    /// Records that `request` was answered with `answer`.
    pub(crate) fn answered(&mut self, request: &Request, answer: &Answer) {
        if let Call::Set(rules, _) = &request.call {
            let name = self.lineage.limit(&request.limit).unwrap_or_default();
            self.spans.insert(name, spans(rules));
            return;
        }
        let key = request.key.as_deref().and_then(|key| Key::try_new(key).ok());
        let id = (request.limit.clone(), key);
        if let Call::Refund(permits) = request.call {
            return self.refunded(id, request.at, permits);
        }
        let found = self.pools.entry(id).or_default();
        if let Call::TryAcquire(permits) | Call::Acquire(permits, _) = request.call {
            found.asked.push((request.at.as_nanos(), permits));
        }
        match request.call {
            // A probe admits nothing.
            Call::TryAcquire(0) | Call::Acquire(0, _) | Call::Peek(_) | Call::TopUp(_) => {}
            Call::TryAcquire(_) | Call::Acquire(..) if answer.shadow => found.shadow_refused += 1,
            Call::TryAcquire(_) | Call::Acquire(..) if answer.ok => found.promised += 1,
            Call::TryAcquire(_) | Call::Acquire(..) => found.refused += 1,
            Call::Refund(_) | Call::Set(..) => unreachable!("they are counted above"),
        }
    }

    /// Records that `permits` came back to the pool `id` and those above it.
    fn refunded(&mut self, id: PoolId, at: Moment, permits: u64) {
        for (index, id) in self.chain(id).into_iter().enumerate() {
            let longest = self.spans(&id.0).last().copied().unwrap_or_default();
            let found = self.pools.entry(id).or_default();
            let refunded = found.refund(at, permits, longest);
            if index == 0 {
                found.refunded = found.refunded.saturating_add(refunded);
            }
        }
    }

    /// Returns the pool `id` and those above it.
    fn chain(&self, id: PoolId) -> Vec<PoolId> {
        let name = self.lineage.limit(&id.0).unwrap_or_default();
        self.lineage.chain(&name, id.clone()).unwrap_or_else(|_| vec![id])
    }

    /// Returns the requests and admissions over time, for each limit, all its keys together.
    pub(crate) fn flows(&self) -> Vec<(String, Flow)> {
        let mut flows: BTreeMap<String, Flow> = BTreeMap::new();
        for ((limit, _), found) in &self.pools {
            let flow = flows.entry(limit.clone()).or_default();
            flow.asked.extend(&found.asked);
            let admitted = found.admissions.iter();
            flow.admitted.extend(admitted.map(|admission| (admission.at.as_nanos(), admission.permits)));
        }
        flows.into_iter().collect()
    }

    /// Counts an invalid line.
    pub(crate) fn misread(&mut self) {
        self.misread += 1;
    }

    /// Records an admission.
    pub(crate) fn admitted(&mut self, id: &PoolId, admission: Admission) {
        for (index, id) in self.chain(id.clone()).into_iter().enumerate() {
            let found = self.pools.entry(id).or_default();
            found.kept.push(admission);
            if index == 0 {
                found.admissions.push(admission);
            }
        }
    }

    /// Formats the results as one JSON object.
    pub(crate) fn json(&self) -> String {
        serde_json::json!({ "limits": self.rows(), "misread": self.misread }).to_string()
    }

    fn rows(&self) -> Vec<Row> {
        let rows =
            self.pools.iter().map(|((limit, key), found)| found.row(limit, key.as_ref(), &self.spans(limit)));
        rows.collect()
    }

    /// Returns the windows of the limit for `name`, the shortest first.
    fn spans(&self, name: &str) -> BTreeSet<Duration> {
        let spans = self.lineage.limit(name).and_then(|name| self.spans.get(&name));
        spans.cloned().unwrap_or_default()
    }
}

impl Found {
    /// Removes up to `permits` that were given back at `at`. Like the limiter, it removes the oldest that any rule
    /// still counts. Returns how many.
    fn refund(&mut self, at: Moment, permits: u64, longest: Duration) -> u64 {
        let counts = |admission: &Admission| admission.at + longest > at;
        let mut left = permits;
        let first = self.kept.partition_point(|admission| !counts(admission));
        for admission in &mut self.kept[first..] {
            let part = left.min(admission.permits);
            admission.permits -= part;
            left -= part;
        }
        permits - left
    }

    fn row(&self, limit: &str, key: Option<&Key>, spans: &BTreeSet<Duration>) -> Row {
        let admitted = self.admissions.len() as u64;
        let waits = self.admissions.iter().map(|admission| nanos(admission.at.since(admission.since)));
        let kept = self.kept.iter().map(|admission| (admission.at, admission.permits));
        let most =
            |span: &Duration| Most { window_ns: nanos(*span), permits: most_in_any(kept.clone(), *span) };
        Row {
            limit: limit.to_owned(),
            key: key.map(Key::to_string),
            admitted,
            refused: self.refused + self.promised.saturating_sub(admitted),
            shadow_refused: self.shadow_refused,
            permits: self
                .admissions
                .iter()
                .fold(0u64, |sum, admission| sum.saturating_add(admission.permits)),
            refunded: self.refunded,
            most: spans.iter().map(most).collect(),
            longest_wait_ns: waits.max().unwrap_or(0),
        }
    }
}

/// Returns the windows over which `rules` count.
fn spans(rules: &[Rule]) -> BTreeSet<Duration> {
    rules.iter().map(Rule::period).collect()
}

/// Titles of the table, and least widths of its columns.
const TITLES: [&str; 7] =
    ["limit", "key", "admitted", "refused", "permits", "longest wait", "most in any window"];

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = vec![TITLES.map(str::to_owned)];
        table.extend(self.rows().iter().map(Row::cells));
        let table = table::aligned(&table);
        match self.misread {
            0 => f.write_str(table.trim_end_matches('\n')),
            misread => write!(f, "{table}{misread} lines had an error"),
        }
    }
}

impl Row {
    fn cells(&self) -> [String; TITLES.len()] {
        let span = |nanos: u64| humantime::format_duration(Duration::from_nanos(nanos)).to_string();
        let most = self.most.iter().map(|most| format!("{} in {}", most.permits, span(most.window_ns)));
        let with = |count: u64, what: &str| match count {
            0 => String::new(),
            count => format!(" ({count} {what})"),
        };
        [
            self.limit.clone(),
            self.key.clone().unwrap_or_else(|| "-".to_owned()),
            self.admitted.to_string(),
            format!("{}{}", self.refused, with(self.shadow_refused, "in shadow")),
            format!("{}{}", self.permits, with(self.refunded, "refunded")),
            span(self.longest_wait_ns),
            most.collect::<Vec<_>>().join(", "),
        ]
    }
}
