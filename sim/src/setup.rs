//! What is simulated: the limit, the fleet, the load and the faults. A setup is drawn from a seed or given on the
//! command line; the world only reads it.

use crate::adversary::Lie;
use crate::faults::{Fault, Faults};
use crate::limits;
use crate::live::{Act, Live};
use crate::network::Latency;
use crate::text;
use crate::topology::{Shared, Topology};
use crate::traffic::Workload;
use lessor_ledger::Rule;
use lessor_ledger::pool::Plan;
use lessor_ledger::rule::{
    Calendar, Concurrency, FixedWindow, LeakyBucket, RefillStyle, RuleError, SlidingWindow, TokenBucket,
    Unit, WarmUp, Windows, Zone, term,
};
use lessor_ledger::share::{Owner, Share};
use std::collections::BTreeMap;
use std::time::Duration;

/// Everything that a run depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Seed of all random numbers of the run.
    pub seed: u64,
    /// The limit.
    pub plan: Plan,
    /// The number of rules, the last ones, that are kept by limits above.
    pub above: usize,
    /// The number of limits beside the first that nodes ask, like it and below the same one. Desks go round.
    pub siblings: usize,
    /// The hosts that lend to nodes.
    pub topology: Topology,
    /// The number of nodes.
    pub nodes: usize,
    /// The number of limits that each node asks, all in one exchange.
    pub pools: usize,
    /// Adversaries beside the nodes, while there is trouble.
    pub adversaries: Vec<Lie>,
    /// The shape of demand.
    pub workload: Workload,
    /// The number of ranks of nodes, the last of which comes first. One or none: all nodes are alike.
    pub priorities: u64,
    /// The number of identities, to which nodes belong in turn; adversaries have another one. 0: no identity is known.
    pub identities: u64,
    /// Mean number of calls a second, in total.
    pub demand: f64,
    /// The most permits that a call costs; the least is 1.
    pub cost_max: u64,
    /// How long calls take where the limit caps those in flight.
    pub calls: Calls,
    /// Calls in a hundred that reserve more than they cost in the end, while there is trouble.
    pub reserves: u64,
    /// Calls in a hundred that need another limit too and find too little of it, while there is trouble.
    pub in_vain: u64,
    /// Calls in a thousand that make their node spend all that it has at the last instant, while there is trouble.
    pub sprees: u64,
    /// How long it takes until a checkpoint is durable, in nanoseconds; 0 where the allocator writes none.
    pub store: u64,
    /// How long a caller waits in line, in nanoseconds; 0 if it only tries.
    pub patience: u64,
    /// The network.
    pub latency: Latency,
    /// How much longer than `latency` messages take one way, by node in turn, in nanoseconds. Empty: all nodes are alike.
    pub distances: Vec<u64>,
    /// The faults.
    pub faults: Faults,
    /// What operators do.
    pub live: Vec<Live>,
    /// Whether clocks run at different rates, up to the drift of the plan.
    pub drifting: bool,
    /// What the allocator's clock shows at first, in nanoseconds.
    pub start: u64,
    /// How long load and faults last, in nanoseconds.
    pub lasts: u64,
    /// Whether a phase without faults follows, in which progress is owed.
    pub then_calm: bool,
    /// A mistake made on purpose.
    pub sabotage: Sabotage,
    /// The command that runs the setup again.
    pub replay: String,
}

impl Setup {
    /// Sets the command that runs the setup again.
    #[must_use]
    pub fn named(self) -> Setup {
        Setup { replay: text::command(&self), ..self }
    }

    /// Returns the latency of the link of `node`.
    pub fn latency(&self, node: usize) -> Latency {
        let beyond = self.distances.get(node % self.distances.len().max(1)).copied().unwrap_or(0);
        Latency { one_way: self.latency.one_way + beyond, ..self.latency }
    }

    /// Returns the latency of the longest link of a node.
    pub fn longest_latency(&self) -> Latency {
        let beyond = self.distances.iter().copied().max().unwrap_or(0);
        Latency { one_way: self.latency.one_way + beyond, ..self.latency }
    }

    /// Whether daemons slew clocks.
    pub fn slews(&self) -> bool {
        self.faults.every.contains_key(&Fault::ClockSlew)
    }

    /// Returns all sets of rules that hold at some time.
    pub fn rule_sets(&self) -> impl Iterator<Item = &[Rule]> {
        let changed = self.live.iter().filter_map(|live| match &live.act {
            Act::Change(_, rules) | Act::Put(rules) => Some(rules.as_slice()),
            Act::Safe(_)
            | Act::Reserve(_)
            | Act::Remove
            | Act::TopUp(_)
            | Act::Pause(_)
            | Act::Resume
            | Act::Block(_)
            | Act::Unblock(_)
            | Act::Outside(_) => None,
        });
        std::iter::once(self.plan.rules.as_slice()).chain(changed)
    }

    /// Returns the term of a lease under `rules`.
    fn term_of(&self, rules: &[Rule]) -> Duration {
        term(rules).clamp(self.plan.sharing.term_min, self.plan.sharing.term_max)
    }

    /// Returns the longest term of a lease under any of the sets of rules.
    pub fn term(&self) -> Duration {
        self.rule_sets().map(|rules| self.term_of(rules)).max().unwrap_or_default()
    }

    /// Returns the number of limits that nodes ask.
    pub fn limits(&self) -> usize {
        let are_apart = self.above < self.plan.rules.len();
        1 + if are_apart { self.siblings } else { 0 }
    }

    /// Returns the number of desks: one for each limit that a node asks.
    pub fn desks(&self) -> usize {
        self.nodes * self.pools
    }

    /// Returns the sender of messages at `desk`. Adversaries and regions come after the desks of nodes.
    pub fn home(&self, desk: usize) -> usize {
        desk.checked_sub(self.desks()).map_or(desk / self.pools, |after| self.nodes + after)
    }

    /// Returns the limit that `desk` asks.
    pub fn limit(&self, desk: usize) -> usize {
        desk % self.limits()
    }

    /// Returns the number of pools that nodes ask: one of each limit, or one of each region.
    pub(crate) fn lenders(&self) -> usize {
        match self.topology.regions() {
            0 => self.limits(),
            regions => regions,
        }
    }

    /// Returns the pool that `desk` asks.
    pub fn lender(&self, desk: usize) -> usize {
        match self.topology.shared() {
            // The first allocator has no nodes.
            Some(Shared { lag: Some(_), count, .. }) => 1 + desk % (count - 1).max(1),
            _ => desk % self.lenders(),
        }
    }

    /// Whether the pools that nodes ask lend on what they lease.
    pub(crate) fn lends_on(&self) -> bool {
        self.topology.regions() > 0
    }

    /// Returns the rules that are judged for each such pool by itself, and those that hold for all together.
    pub(crate) fn rules_apart(&self) -> (&[Rule], Option<&[Rule]>) {
        if self.lends_on() {
            return (&[], Some(&self.plan.rules));
        }
        if self.limits() == 1 {
            return (&self.plan.rules, None);
        }
        let (own, above) = self.plan.rules.split_at(self.plan.rules.len() - self.above);
        (own, Some(above).filter(|above| !above.is_empty()))
    }

    /// Returns the identity of the sender at `home`. Regions have none.
    pub fn owner(&self, home: usize) -> Owner {
        match home {
            _ if self.identities == 0 => Owner::NONE,
            node if node < self.nodes => Owner(1 + node as u64 % self.identities),
            home if home < self.nodes + self.adversaries.len() => Owner(1 + self.identities),
            _ => Owner::NONE,
        }
    }

    /// Returns the priority and the group of `node`, which go round.
    pub fn share(&self, node: usize) -> Share {
        let groups = self.plan.sharing.guaranteed.len();
        let group = Some(node % (groups + 1)).filter(|group| *group < groups);
        Share { priority: node as u64 % self.priorities.max(1), group, ..Share::EVEN }
    }

    /// Whether `region` has an older configuration than the others, for which it is lent nothing.
    pub fn is_old(&self, region: usize) -> bool {
        let of_two_minds = self.topology.shared().is_some_and(|shared| shared.of_two_minds);
        of_two_minds && region > 0 && region + 1 == self.topology.regions()
    }

    /// Whether `desk` is owed its turn: its node has the highest priority, and is in a guaranteed group if there are
    /// any.
    pub(crate) fn is_owed(&self, desk: usize) -> bool {
        if self.is_old(self.lender(desk)) {
            return false;
        }
        let share = self.share(self.home(desk));
        let first = (self.nodes as u64).min(self.priorities.max(1)) - 1;
        share.priority == first && (share.group.is_some() || self.plan.sharing.guaranteed.is_empty())
    }

    /// Returns how long the pool remembers a silent session at least. Where sessions are scarce it is three terms,
    /// because sessions that hold nothing make room.
    pub fn remembered(&self) -> Duration {
        let are_scarce = self.plan.lessees_max <= 1_000 || self.adversaries.contains(&Lie::Crowd);
        // In a family, the pool that nodes ask forgets by the rules that it keeps itself.
        let shortest = self.rule_sets().map(|rules| {
            let plan = Plan { rules: rules.to_vec(), ..self.plan.clone() };
            limits::lowest(&plan, self.above).term()
        });
        if are_scarce { 3 * shortest.min().unwrap_or_default() } else { Duration::from_secs(10) }
    }
}

lessor_protocol::words! {
    /// How long calls take where the limit caps those in flight, and whether they say that they end.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Calls {
        /// Most are short, a few take the longest time. Some never say that they end.
        #[default]
        Mixed = "mixed",
        /// All take the longest time, and none says that it ends.
        Silent = "silent",
        /// Each takes any time up to the longest, and all say that they end.
        Even = "even",
        /// As [`Calls::Even`], but some take ten times the longest time.
        Overlong = "overlong",
    }
}

lessor_protocol::words! {
    /// A mistake made on purpose, to see it reported.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Sabotage {
        /// No mistake.
        #[default]
        None = "none",
        /// The oracle takes the limit to be one smaller.
        StricterOracle = "stricter_oracle",
        /// Nodes leave the last spent permit out of each ask.
        UnderReport = "under_report",
    }
}

/// Reads rules as people write them: `sliding_window 9000/30s margin 250ms`,
/// `token_bucket 1000/1s capacity 1000 initial 0`, `fixed_window 1000000/1h anchor first_use`,
/// `fixed_window 1000/month anchor_day 31 zone Europe/Berlin`, `concurrency 25/2m`,
/// `leaky_bucket 10/1s burst 1`; several are joined by ` + `.
///
/// # Errors
/// Says in words what could not be read.
pub fn parse_rules(text: &str) -> Result<Vec<Rule>, String> {
    text.split('+').map(|rule| parse_rule(rule.trim())).collect()
}

fn parse_rule(text: &str) -> Result<Rule, String> {
    let mut words = text.split_whitespace();
    let (Some(kind), Some(amount)) = (words.next(), words.next()) else {
        return Err(format!("{text:?}: say for example \"sliding_window 9000/30s\""));
    };
    let (count, per) = amount.split_once('/').ok_or(format!("{amount:?}: say for example \"9000/30s\""))?;
    let count = number(count)?;
    let mut options = BTreeMap::new();
    while let Some(option) = words.next() {
        let value = words.next().ok_or(format!("{option:?} lacks its value"))?;
        if !OPTIONS.contains(&option) {
            return Err(format!("{option:?}: use one of {OPTIONS:?}"));
        }
        options.insert(option, value);
    }
    let margin = options.get("margin").map_or(Ok(Duration::ZERO), |text| span(text))?;
    let rule = match kind {
        "sliding_window" => SlidingWindow::try_new(count, span(per)?, margin).map(Rule::SlidingWindow),
        "sliding_log" => SlidingWindow::try_new(count, span(per)?, margin).map(Rule::SlidingLog),
        "fixed_window" => FixedWindow::of(count, parse_windows(per, &options)?).map(Rule::FixedWindow),
        "token_bucket" => parse_bucket(count, span(per)?, &options)?.map(Rule::TokenBucket),
        "leaky_bucket" => {
            let burst = options.get("burst").map_or(Ok(LeakyBucket::BURST), |text| number(text))?;
            LeakyBucket::try_new(burst, count, span(per)?).map(Rule::LeakyBucket)
        }
        "concurrency" => Concurrency::try_new(count, span(per)?).map(Rule::Concurrency),
        _ => {
            let kinds =
                "sliding_window, sliding_log, fixed_window, token_bucket, leaky_bucket or concurrency";
            return Err(format!("{kind:?}: use {kinds}"));
        }
    };
    rule.map_err(|error| error.to_string())
}

/// Options that may follow a rule, each with a value.
const OPTIONS: [&str; 11] = [
    "anchor",
    "anchor_day",
    "burst",
    "capacity",
    "cold_factor",
    "debt",
    "initial",
    "margin",
    "style",
    "warm_up",
    "zone",
];

/// Reads windows of a calendar if `per` names a unit, or else of that length.
fn parse_windows(per: &str, options: &BTreeMap<&str, &str>) -> Result<Windows, String> {
    let Some(unit) = Unit::named(per) else {
        let per = span(per)?;
        return match options.get("anchor").copied() {
            None | Some("epoch") => Ok(Windows::Epoch { per }),
            Some("first_use") => Ok(Windows::FirstUse { per }),
            Some(other) => Err(format!("{other:?}: use epoch or first_use")),
        };
    };
    let said = |error: RuleError| error.to_string();
    let zone = options.get("zone").map_or(Ok(Zone::utc()), |name| Zone::try_new(name)).map_err(said)?;
    let calendar = Calendar::new(unit, zone);
    let calendar = match options.get("anchor_day") {
        None => Ok(calendar),
        Some(day) if unit == Unit::Week => calendar.with_anchor_weekday(day),
        Some(day) => calendar.with_anchor_day(number(day)?),
    };
    calendar.map(Windows::Calendar).map_err(said)
}

fn parse_bucket(
    refill: u64,
    per: Duration,
    options: &BTreeMap<&str, &str>,
) -> Result<Result<TokenBucket, RuleError>, String> {
    let amount = |name, default| options.get(name).map_or(Ok(default), |text| number(text));
    let capacity = amount("capacity", refill)?;
    let (initial, debt) = (amount("initial", capacity)?, amount("debt", 0)?);
    let factor = amount("cold_factor", WarmUp::COLD_FACTOR.into())?;
    let style = RefillStyle::named(options.get("style").copied().unwrap_or("greedy"));
    let warm_up = options.get("warm_up").map(|over| span(over)).transpose()?;
    let bucket = TokenBucket::try_new(capacity, refill, per, initial);
    let bucket = bucket.and_then(|bucket| bucket.with_refill_style(style?)?.with_debt(debt));
    Ok(match warm_up {
        None => bucket,
        Some(over) => bucket.and_then(|bucket| bucket.with_warm_up(WarmUp::try_new(over, factor)?)),
    })
}

fn number(text: &str) -> Result<u64, String> {
    text.replace('_', "").parse().map_err(|_| format!("{text:?} is not a number"))
}

fn span(text: &str) -> Result<Duration, String> {
    // "s" stands for "1s".
    let text = if text.starts_with(|letter: char| letter.is_ascii_digit()) {
        text.to_owned()
    } else {
        format!("1{text}")
    };
    humantime::parse_duration(&text).map_err(|_| format!("{text:?} is not a length of time"))
}

/// Makes a limit with `rules` and the shipping defaults.
pub fn plan(rules: Vec<Rule>, ease_off: bool) -> Plan {
    Plan { ease_off, ..Plan::of(rules) }
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
        for wrong in [
            "",
            "sliding_window",
            "sliding_window 5",
            "window 5/s",
            "fixed_window 5/s margin",
            "fixed_window 5/day zone Berlin",
        ] {
            assert!(parse_rules(wrong).is_err(), "{wrong:?}");
        }
    }
}
