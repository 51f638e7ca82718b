//! The report of a scenario, as a few lines for people or one JSON object for machines, and its verdict.

use crate::demo::table::rounded;
use crate::failure::Failure;
use serde::Serialize;
use std::fmt;

/// The whole report.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// Its name.
    pub(crate) scenario: &'static str,
    /// Number of users, each of which made all calls of the scenario.
    pub(crate) users: usize,
    /// Fewest and most grants of any user.
    pub(crate) granted_min: u64,
    pub(crate) granted_max: u64,
    /// Fewest and most grants that each user should get.
    pub(crate) granted_must: u64,
    pub(crate) granted_may: u64,
    /// The most grants of any user in any window as long as the scenario.
    pub(crate) most_in_any_window: u64,
    /// Calls that were admitted too soon after the one before of the same user.
    pub(crate) breaches: u64,
    /// Calls that were made.
    pub(crate) calls: u64,
    /// Exchanges with the allocator for every 1,000 calls.
    #[serde(serialize_with = "rounded")]
    pub(crate) exchanges_per_1000_calls: f64,
    /// Where the allocator kept its books.
    pub(crate) store: String,
    /// Node processes.
    pub(crate) nodes: usize,
    /// Seconds of the scenario that passed in one second.
    pub(crate) speed: f64,
    /// Duration of the run in seconds.
    #[serde(serialize_with = "rounded")]
    pub(crate) seconds: f64,
    /// Whether it ran to its end.
    pub(crate) is_whole: bool,
}

impl Report {
    /// Checks that every user got enough grants, and none too many. If the run was stopped early, only the latter is
    /// checked.
    ///
    /// # Errors
    /// If a user got too few or too many grants.
    pub(crate) fn verdict(&self) -> Result<(), Failure> {
        let is_too_much = self.breaches > 0 || self.most_in_any_window > self.granted_may;
        let is_too_little = self.is_whole && self.granted_min < self.granted_must;
        match (is_too_much, is_too_little) {
            (true, _) => Err(Failure::Run("a user got more than the limit allows".to_owned())),
            (false, true) => Err(Failure::Run("a user got less than the limit must grant".to_owned())),
            (false, false) => Ok(()),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "scenario         {}: {} users, {} calls", self.scenario, self.users, self.calls)?;
        writeln!(
            f,
            "granted          {} to {} per user, {} to {} expected",
            self.granted_min, self.granted_max, self.granted_must, self.granted_may
        )?;
        writeln!(f, "most in a window {}", self.most_in_any_window)?;
        writeln!(f, "too soon         {}", self.breaches)?;
        writeln!(f, "exchanges        {:.1} per 1,000 calls", self.exchanges_per_1000_calls)?;
        let Report { nodes, seconds, speed, store, .. } = self;
        write!(f, "ran              {nodes} nodes for {seconds:.0} s at speed {speed}, books in: {store}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(granted_min: u64, most_in_any_window: u64, breaches: u64, is_whole: bool) -> Report {
        Report {
            scenario: "export-per-user",
            users: 2,
            granted_min,
            granted_max: 300,
            granted_must: 297,
            granted_may: 300,
            most_in_any_window,
            breaches,
            calls: 119_132,
            exchanges_per_1000_calls: 12.345_678,
            store: "embedded".to_owned(),
            nodes: 2,
            speed: 30.0,
            seconds: 20.000_4,
            is_whole,
        }
    }

    #[test]
    fn too_little_and_too_much_are_failures() {
        let is_good = |report: Report| report.verdict().is_ok();
        assert!(is_good(report(297, 300, 0, true)));
        assert!(!is_good(report(296, 300, 0, true)));
        assert!(is_good(report(20, 20, 0, false)), "it was stopped before its end");
        assert!(!is_good(report(300, 301, 0, true)));
        assert!(!is_good(report(20, 20, 1, false)));
    }

    #[test]
    fn machines_get_exactly_these_names() {
        let json = serde_json::to_string(&report(299, 300, 0, true)).expect("plain data");
        let expected = concat!(
            r#"{"scenario":"export-per-user","users":2,"granted_min":299,"granted_max":300,"granted_must":297,"#,
            r#""granted_may":300,"most_in_any_window":300,"breaches":0,"calls":119132,"#,
            r#""exchanges_per_1000_calls":12.3457,"store":"embedded","nodes":2,"speed":30.0,"#,
            r#""seconds":20.0004,"is_whole":true}"#,
        );
        assert_eq!(json, expected);
    }
}
