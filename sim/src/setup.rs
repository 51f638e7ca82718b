//! What is to be simulated: the limit, the fleet, the load and the trouble. Drawn from a seed, or given on the command
//! line; the world only reads it.

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
    Calendar, Concurrency, FixedWindow, LeakyBucket, RefillStyle, RuleError, SlidingLog, SlidingWindow,
    TokenBucket, Unit, WarmUp, Windows, Zone, term,
};
use lessor_ledger::share::{Owner, Share, Sharing};
use lessor_protocol::ClockBounds;
use std::collections::BTreeMap;
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
    /// How many limits like the one that nodes ask are beside it, below the same one if that is below any. Desks go round.
    pub siblings: usize,
    /// Who lends to nodes.
    pub topology: Topology,
    /// How many nodes.
    pub nodes: usize,
    /// How many limits each of them asks, all in one exchange.
    pub pools: usize,
    /// Those beside them that do not play by the rules, while there is trouble.
    pub adversaries: Vec<Lie>,
    /// The shape of demand.
    pub workload: Workload,
    /// How many ranks of nodes there are, the last of which comes first. One or none: all are alike.
    pub priorities: u64,
    /// How many identities there are, to which nodes belong in turn, beside one of the adversaries. None: no identity is known.
    pub identities: u64,
    /// Calls a second in total, on average.
    pub demand: f64,
    /// A call costs 1 to this many permits.
    pub cost_max: u64,
    /// How long calls take where that counts.
    pub calls: Calls,
    /// Of a hundred calls, how many reserve while there is trouble: more than they cost in the end.
    pub reserves: u64,
    /// Of a hundred calls, how many need another limit too while there is trouble, and find too little of that one.
    pub in_vain: u64,
    /// Of a thousand calls that come while there is trouble, how many make their node spend all that it has at the last instant.
    pub sprees: u64,
    /// How long it takes until a checkpoint is durable, in nanoseconds; 0 where the allocator writes nothing down.
    pub store: u64,
    /// How long a caller waits in line, in nanoseconds; 0 is one that only tries.
    pub patience: u64,
    /// The network.
    pub latency: Latency,
    /// The trouble.
    pub faults: Faults,
    /// What operators do meanwhile.
    pub live: Vec<Live>,
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
    /// The same, with the command that runs it again.
    #[must_use]
    pub fn named(self) -> Setup {
        Setup { replay: text::command(&self), ..self }
    }

    /// Whether daemons slew clocks.
    pub fn slews(&self) -> bool {
        self.faults.every.contains_key(&Fault::ClockSlew)
    }

    /// All sets of rules that are in force at some time.
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

    /// How long a lease lasts by `rules`.
    fn term_of(&self, rules: &[Rule]) -> Duration {
        term(rules).clamp(self.plan.sharing.term_min, self.plan.sharing.term_max)
    }

    /// The longest that a lease lasts by any of them.
    pub fn term(&self) -> Duration {
        self.rule_sets().map(|rules| self.term_of(rules)).max().unwrap_or_default()
    }

    /// How many limits nodes ask.
    pub fn limits(&self) -> usize {
        let are_apart = self.above < self.plan.rules.len();
        1 + if are_apart { self.siblings } else { 0 }
    }

    /// How many desks there are: one for each limit that a node asks.
    pub fn desks(&self) -> usize {
        self.nodes * self.pools
    }

    /// The sender of messages that `desk` is at. Those of adversaries and regions come after the desks of nodes.
    pub fn home(&self, desk: usize) -> usize {
        desk.checked_sub(self.desks()).map_or(desk / self.pools, |after| self.nodes + after)
    }

    /// Which of the limits `desk` asks.
    pub fn limit(&self, desk: usize) -> usize {
        desk % self.limits()
    }

    /// How many pools nodes ask: one of each limit, or one of each region.
    pub fn lenders(&self) -> usize {
        match self.topology.regions() {
            0 => self.limits(),
            regions => regions,
        }
    }

    /// Which of them `desk` asks.
    pub fn lender(&self, desk: usize) -> usize {
        match self.topology.shared() {
            // The first one has no nodes.
            Some(Shared { lag: Some(_), count, .. }) => 1 + desk % (count - 1).max(1),
            _ => desk % self.lenders(),
        }
    }

    /// Whether those lend on what they lease.
    pub fn lends_on(&self) -> bool {
        self.topology.regions() > 0
    }

    /// The rules that are judged for each of those by itself, and those that hold for all of them together.
    pub fn rules_apart(&self) -> (&[Rule], Option<&[Rule]>) {
        if self.lends_on() {
            return (&[], Some(&self.plan.rules));
        }
        if self.limits() == 1 {
            return (&self.plan.rules, None);
        }
        let (own, above) = self.plan.rules.split_at(self.plan.rules.len() - self.above);
        (own, Some(above).filter(|above| !above.is_empty()))
    }

    /// The identity of the sender `home` of messages. Regions have none.
    pub fn owner(&self, home: usize) -> Owner {
        match home {
            _ if self.identities == 0 => Owner::NONE,
            node if node < self.nodes => Owner(1 + node as u64 % self.identities),
            home if home < self.nodes + self.adversaries.len() => Owner(1 + self.identities),
            _ => Owner::NONE,
        }
    }

    /// What `node` counts for: ranks and guaranteed groups go round.
    pub fn share(&self, node: usize) -> Share {
        let groups = self.plan.sharing.guaranteed.len();
        let group = Some(node % (groups + 1)).filter(|group| *group < groups);
        Share { priority: node as u64 % self.priorities.max(1), group, ..Share::EVEN }
    }

    /// Whether `region` knows an older configuration than is right, and is lent nothing for that.
    pub fn is_old(&self, region: usize) -> bool {
        let of_two_minds = self.topology.shared().is_some_and(|shared| shared.of_two_minds);
        of_two_minds && region > 0 && region + 1 == self.topology.regions()
    }

    /// Whether `desk` is owed its turn: no node comes before it, and nothing is kept from it without something for it.
    pub fn is_owed(&self, desk: usize) -> bool {
        if self.is_old(self.lender(desk)) {
            return false;
        }
        let share = self.share(self.home(desk));
        let first = (self.nodes as u64).min(self.priorities.max(1)) - 1;
        share.priority == first && (share.group.is_some() || self.plan.sharing.guaranteed.is_empty())
    }

    /// How long a session that says nothing is known to the pool at least: three terms where sessions are scarce, for
    /// then those that hold nothing make room.
    pub fn remembered(&self) -> Duration {
        let are_scarce = self.plan.lessees_max <= 1_000 || self.adversaries.contains(&Lie::Crowd);
        // Of a family it is the pool that nodes ask which forgets, by the rules that it keeps itself.
        let shortest = self.rule_sets().map(|rules| {
            let plan = Plan { rules: rules.to_vec(), ..self.plan.clone() };
            limits::lowest(&plan, self.above).term()
        });
        if are_scarce { 3 * shortest.min().unwrap_or_default() } else { Duration::from_secs(10) }
    }
}

/// How long calls take where the limit caps what is in flight, and whether they say that they end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Calls {
    /// Most are short, a few as long as they may be. Some never say that they end.
    #[default]
    Mixed,
    /// They take the longest time, and none says that it ends.
    Silent,
    /// They take any time up to the longest, and all say that they end.
    Even,
    /// The same, and some take ten times as long as any should.
    Overlong,
}

impl Calls {
    /// All of them, with their names in setups.
    pub const ALL: [(&str, Calls); 4] = [
        ("mixed", Calls::Mixed),
        ("silent", Calls::Silent),
        ("even", Calls::Even),
        ("overlong", Calls::Overlong),
    ];

    /// Its name in setups.
    pub fn name(self) -> &'static str {
        Calls::ALL.iter().find(|(_, calls)| *calls == self).expect("all are listed").0
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
/// `token_bucket 1000/1s capacity 1000 initial 0`, `fixed_window 1000000/1h anchor first_use`,
/// `fixed_window 1000/month anchor_day 31 zone Europe/Berlin`, `concurrency 25/2m`,
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
        "sliding_log" => SlidingLog::try_new(count, span(per)?, margin).map(Rule::SlidingLog),
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

/// What may follow a rule, each with its value.
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

/// Windows of a calendar if `per` is the name of some, otherwise of that length.
fn parse_windows(per: &str, options: &BTreeMap<&str, &str>) -> Result<Windows, String> {
    let Ok(unit) = Unit::named(per) else {
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
    Plan {
        rules,
        is_borrowed: false,
        is_root: false,
        clocks: ClockBounds::default(),
        ease_off,
        lessees_max: 10_000,
        sharing: Sharing::default(),
    }
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
