//! What is to be simulated: the limit, the fleet, the load and the trouble. Drawn from a seed, or given on the command
//! line; the world only reads it.

use crate::sim::faults::Faults;
use crate::sim::foe::Lie;
use crate::sim::network::Latency;
use crate::sim::traffic::Workload;
use lessor_allocator::pool::Plan;
use lessor_allocator::share::{Share, Sharing};
use lessor_protocol::rule::{Concurrency, FixedWindow, LeakyBucket, SlidingWindow, TokenBucket};
use lessor_protocol::{Rule, Terms};
use std::time::Duration;

/// Everything that a run depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Every die of the run is thrown from it.
    pub seed: u64,
    /// The limit.
    pub plan: Plan,
    /// How many of its rules, the last ones, are kept by limits above it.
    pub above: usize,
    /// How many nodes.
    pub nodes: usize,
    /// Those beside them that do not play by the rules, while there is trouble.
    pub foes: Vec<Lie>,
    /// The shape of demand.
    pub workload: Workload,
    /// How many ranks of nodes there are, the last of which comes first. One or none: all are alike.
    pub priorities: u64,
    /// Calls a second in total, on average.
    pub demand: f64,
    /// A call costs 1 to this many permits.
    pub cost_max: u64,
    /// How long a caller waits in line, in nanoseconds; 0 is one that only tries.
    pub patience: u64,
    /// The network.
    pub latency: Latency,
    /// The trouble.
    pub faults: Faults,
    /// Whether clocks run at different rates, up to the drift of the plan.
    pub drifting: bool,
    /// What the allocator's clock shows at first.
    pub start: u64,
    /// How long load and trouble last, in nanoseconds.
    pub lasts: u64,
    /// Whether then, without trouble, progress is owed.
    pub then_calm: bool,
    /// Something that is wrong on purpose.
    pub sabotage: Sabotage,
    /// The command that runs it again.
    pub replay: String,
}

impl Setup {
    /// What `node` counts for: ranks and guaranteed groups go round.
    pub fn share(&self, node: usize) -> Share {
        let groups = self.plan.sharing.guaranteed.len();
        let group = Some(node % (groups + 1)).filter(|group| *group < groups);
        Share { priority: node as u64 % self.priorities.max(1), group, ..Share::EVEN }
    }

    /// Whether `node` is owed its turn: nobody comes before it, and nothing is kept from it without something for it.
    pub fn is_owed(&self, node: usize) -> bool {
        let share = self.share(node);
        let first = (self.nodes as u64).min(self.priorities.max(1)) - 1;
        share.priority == first && (share.group.is_some() || self.plan.sharing.guaranteed.is_empty())
    }

    /// How long a session that says nothing is known to the pool at least: three terms where sessions are scarce, for
    /// then those that hold nothing make room.
    pub fn remembered(&self) -> Duration {
        let are_scarce = self.plan.lessees_max <= 1_000 || self.foes.contains(&Lie::Crowd);
        if are_scarce { 3 * self.plan.term() } else { Duration::from_secs(10) }
    }
}

/// Something wrong on purpose, to see it reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// Nothing.
    #[default]
    None,
    /// The oracle believes in a limit one smaller.
    StricterOracle,
    /// Nodes forget that they spent the last permit of each ask.
    UnderReport,
}

impl Sabotage {
    /// All of them.
    pub const ALL: [Sabotage; 3] = [Sabotage::None, Sabotage::StricterOracle, Sabotage::UnderReport];

    /// Its name in setups.
    pub fn name(self) -> &'static str {
        match self {
            Sabotage::None => "none",
            Sabotage::StricterOracle => "stricter_oracle",
            Sabotage::UnderReport => "under_report",
        }
    }
}

/// Reads rules as people write them: `sliding_window 9000/30s margin 250ms`,
/// `token_bucket 1000/1s capacity 1000 initial 0`, `fixed_window 1000000/1h`, `concurrency 25/2m`,
/// `leaky_bucket 10/1s burst 1`; several are joined by ` + `.
///
/// # Errors
/// In words, what could not be read.
pub fn parse_rules(text: &str) -> Result<Vec<Rule>, String> {
    text.split('+').map(|rule| parse_rule(rule.trim())).collect()
}

fn parse_rule(text: &str) -> Result<Rule, String> {
    let mut words = text.split_whitespace();
    let (Some(kind), Some(amount)) = (words.next(), words.next()) else {
        return Err(format!("{text:?}: say for example \"sliding_window 9000/30s\""));
    };
    let (count, per) = amount.split_once('/').ok_or(format!("{amount:?}: say for example \"9000/30s\""))?;
    let (count, per) = (number(count)?, span(per)?);
    let (mut margin, mut capacity, mut initial) = (Duration::ZERO, count, None);
    let mut burst = LeakyBucket::BURST;
    while let Some(option) = words.next() {
        let value = words.next().ok_or(format!("{option:?} lacks its value"))?;
        match option {
            "margin" => margin = span(value)?,
            "capacity" => capacity = number(value)?,
            "initial" => initial = Some(number(value)?),
            "burst" => burst = number(value)?,
            _ => return Err(format!("{option:?}: use margin, capacity, initial or burst")),
        }
    }
    let rule = match kind {
        "sliding_window" => SlidingWindow::try_new(count, per, margin).map(Rule::SlidingWindow),
        "fixed_window" => FixedWindow::try_new(count, per).map(Rule::FixedWindow),
        "token_bucket" => {
            TokenBucket::try_new(capacity, count, per, initial.unwrap_or(capacity)).map(Rule::TokenBucket)
        }
        "leaky_bucket" => LeakyBucket::try_new(burst, count, per).map(Rule::LeakyBucket),
        "concurrency" => Concurrency::try_new(count, per).map(Rule::Concurrency),
        _ => {
            let kinds = "sliding_window, fixed_window, token_bucket, leaky_bucket or concurrency";
            return Err(format!("{kind:?}: use {kinds}"));
        }
    };
    rule.map_err(|error| error.to_string())
}

fn number(text: &str) -> Result<u64, String> {
    text.replace('_', "").parse().map_err(|_| format!("{text:?} is not a number"))
}

fn span(text: &str) -> Result<Duration, String> {
    // "30s", and "s" for one of them.
    let text = if text.starts_with(|letter: char| letter.is_ascii_digit()) {
        text.to_owned()
    } else {
        format!("1{text}")
    };
    humantime::parse_duration(&text).map_err(|_| format!("{text:?} is not a length of time"))
}

/// A limit with `rules` and everything else as shipped.
pub fn plan(rules: Vec<Rule>, ease_off: bool) -> Plan {
    Plan { rules, terms: Terms::default(), ease_off, lessees_max: 10_000, sharing: Sharing::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_people_write_them() {
        let rules = parse_rules("sliding_window 9_000/30s margin 250ms + token_bucket 5/s capacity 20");
        let second = Duration::from_secs(1);
        let margin = Duration::from_millis(250);
        assert_eq!(
            rules,
            Ok(vec![
                Rule::SlidingWindow(SlidingWindow::try_new(9_000, 30 * second, margin).expect("valid")),
                Rule::TokenBucket(TokenBucket::try_new(20, 5, second, 20).expect("valid")),
            ])
        );
        for wrong in ["", "sliding_window", "sliding_window 5", "window 5/s", "fixed_window 5/s margin"] {
            assert!(parse_rules(wrong).is_err(), "{wrong:?}");
        }
    }
}
