//! The report of the replay, as one table for people or one JSON object for machines.

use crate::demo::table::{percent, rounded};
use serde::Serialize;
use std::fmt;

/// The whole report.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// The one limit.
    pub(crate) limits: [LimitReport; 1],
    /// Requests of the trace that came due: all of them, unless it was stopped early.
    pub(crate) requests: u64,
    /// Clients that sent them.
    pub(crate) clients: u64,
    /// Requests that one central, omniscient sliding window would have admitted, waits included.
    pub(crate) central_admitted: u64,
    /// Admitted requests as a share of `central_admitted`.
    #[serde(serialize_with = "rounded")]
    pub(crate) admitted_share_of_central: f64,
    /// Exchanges with the allocator for every 1,000 requests.
    #[serde(serialize_with = "rounded")]
    pub(crate) exchanges_per_1000_calls: f64,
    /// Node processes.
    pub(crate) nodes: usize,
    /// Seconds of the trace that passed in one second.
    pub(crate) speed: f64,
    /// Duration of the run in seconds.
    #[serde(serialize_with = "rounded")]
    pub(crate) seconds: f64,
}

/// The limit of each client, in the trace's own time.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LimitReport {
    pub(crate) name: &'static str,
    pub(crate) limit: u64,
    pub(crate) window_s: u64,
    pub(crate) admitted: u64,
    /// Requests that would have waited longer than they may.
    pub(crate) refused: u64,
    /// The most admissions of any client in any window.
    pub(crate) max_in_any_window: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [limit] = &self.limits;
        writeln!(
            f,
            "limit            {} calls of each client in any {} s of the trace",
            limit.limit, limit.window_s
        )?;
        writeln!(f, "requests         {} of {} clients", self.requests, self.clients)?;
        writeln!(f, "admitted         {}", limit.admitted)?;
        writeln!(f, "refused          {}", limit.refused)?;
        writeln!(f, "most in a window {}", limit.max_in_any_window)?;
        writeln!(
            f,
            "central          {} admitted by one exact central sliding window; the fleet admitted {} of that",
            self.central_admitted,
            percent(self.admitted_share_of_central)
        )?;
        writeln!(f, "exchanges        {:.1} per 1,000 calls", self.exchanges_per_1000_calls)?;
        write!(f, "ran              {} nodes for {:.0} s at speed {}", self.nodes, self.seconds, self.speed)
    }
}
