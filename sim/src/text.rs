//! A whole setup in one line of text, and back. Failures print it, `simulate --replay` runs it, and found cases are
//! kept as such lines. Unlike a seed of the generator, a line keeps its meaning when the generator changes.
//!
//! `seed=5 rules=sliding_window,100/1000000000ns,margin,0ns nodes=3 message_lost=0.2 node_crash=2000000000/500000000`:
//! words `name=value` in any order, times in nanoseconds. A fault has its chance, or the mean time between two strikes
//! and the longest one. Missing words are as in [`bare`].

use crate::SECOND;
use crate::adversary::Lie;
use crate::faults::{Fault, Faults};
use crate::live;
use crate::network::Latency;
use crate::setup::{Calls, Sabotage, Setup, parse_rules, plan};
use crate::topology::{Fate, Lag, Regions, Shared, Topology};
use crate::traffic::Workload;
use lessor_ledger::Rule;
use lessor_ledger::pool::Plan;
use lessor_ledger::rule::{RefillStyle, TokenBucket, Windows};
use lessor_ledger::share::{Believe, Safe, Trust};
use lessor_protocol::ClockBounds;
use lessor_protocol::moment::nanos;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

/// Makes a setup of one node that calls now and then on a limit that allows nothing, for a second, without faults.
pub fn bare() -> Setup {
    Setup {
        seed: 1,
        plan: plan(vec![], false),
        above: 0,
        siblings: 0,
        topology: Topology::Allocator,
        nodes: 1,
        pools: 1,
        adversaries: vec![],
        workload: Workload::Steady,
        priorities: 0,
        identities: 0,
        demand: 1.0,
        cost_max: 1,
        calls: Calls::Mixed,
        reserves: 0,
        in_vain: 0,
        sprees: 0,
        store: 0,
        patience: 0,
        latency: Latency { one_way: 0, jitter: 0 },
        distances: vec![],
        faults: Faults::default(),
        live: vec![],
        drifting: false,
        start: SECOND,
        lasts: SECOND,
        then_calm: false,
        sabotage: Sabotage::None,
        replay: String::new(),
    }
}

/// Writes `setup` in one line, without the command that runs it again: that command contains the line.
pub fn write(setup: &Setup) -> String {
    let Plan { rules, clocks, ease_off, lessees_max, .. } = &setup.plan;
    let (seed, rules, drift) = (setup.seed, rules_text(rules), clocks.drift_ppm());
    let plan =
        format!("seed={seed} rules={rules} drift={drift} ease_off={ease_off} lessees_max={lessees_max}");
    let missing = words(&bare());
    let differs = |word: &String| !missing.contains(word);
    joined([plan].into_iter().chain(words(setup).into_iter().filter(differs)), " ")
}

/// Returns the words of `setup` that need not be said where they are the same for a bare one.
fn words(setup: &Setup) -> Vec<String> {
    let mut words = vec![];
    let mut say = |name: &str, value: &dyn Display| words.push(format!("{name}={value}"));
    let sharing = &setup.plan.sharing;
    say("priorities", &setup.priorities);
    say("reserve", &sharing.reserve);
    say("lease_max", &sharing.lease_max);
    sharing.guaranteed.iter().for_each(|permits| say("guaranteed", permits));
    if let Some(safe) = sharing.safe {
        say("safe", &safe_text(safe));
    }
    let Trust { believe, longest, keep_percent, ease } = sharing.vendor;
    let times = [longest, ease].map(nanos);
    say("vendor", &format!("{}/{}/{keep_percent}/{}", believe.name(), times[0], times[1]));
    say("above", &setup.above);
    say("siblings", &setup.siblings);
    if let Topology::Regions(Regions { count, far: Latency { one_way, jitter } }) = setup.topology {
        say("regions", &format!("{count}/{one_way}/{jitter}"));
    }
    if let Some(shared) = setup.topology.shared() {
        say_shared(shared, &mut say);
    }
    say("nodes", &setup.nodes);
    say("identities", &setup.identities);
    say("pools", &setup.pools);
    say("foes", &joined(setup.adversaries.iter().map(|lie| lie.name()), ","));
    say("workload", &setup.workload.name());
    say("demand", &setup.demand);
    say("cost_max", &setup.cost_max);
    say("calls", &setup.calls.name());
    say("reserves", &setup.reserves);
    say("in_vain", &setup.in_vain);
    say("sprees", &setup.sprees);
    say("store", &setup.store);
    say("patience", &setup.patience);
    say("one_way", &setup.latency.one_way);
    say("jitter", &setup.latency.jitter);
    say("distances", &joined(setup.distances.iter(), ","));
    say("drifting", &setup.drifting);
    say("start", &setup.start);
    say("lasts", &setup.lasts);
    say("then_calm", &setup.then_calm);
    say("sabotage", &setup.sabotage.name());
    say("live", &joined(setup.live.iter(), "|"));
    for (fault, chance) in &setup.faults.chance {
        say(fault.name(), chance);
    }
    for (fault, (every, longest)) in &setup.faults.every {
        say(fault.name(), &format!("{every}/{longest}"));
    }
    words
}

fn joined(parts: impl Iterator<Item = impl Display>, between: &str) -> String {
    parts.map(|part| part.to_string()).collect::<Vec<_>>().join(between)
}

/// Reads a setup from `text`, and adds the command that runs it again.
///
/// # Errors
/// Says in words what could not be read.
pub fn read(text: &str) -> Result<Setup, String> {
    let mut setup = bare();
    for word in text.split_whitespace() {
        let (name, value) = word.split_once('=').ok_or(format!("{word:?}: say name=value"))?;
        hear(&mut setup, name, value)?;
    }
    if setup.plan.rules.is_empty() || setup.nodes == 0 {
        return Err("say rules=… and at least one node".to_owned());
    }
    // Otherwise time would not go on.
    if !setup.demand.is_finite() || setup.faults.every.values().any(|&(every, _)| every == 0) {
        return Err("demand must be finite, and the interval of each fault above 0".to_owned());
    }
    let most = if setup.lends_on() { 1 } else { setup.limits() };
    if !(1..=most).contains(&setup.pools) {
        return Err(format!("pools={}: a node asks 1 to {most} limits here", setup.pools));
    }
    if setup.lends_on() && (setup.siblings > 0 || setup.store > 0) {
        return Err("siblings and store need nodes that ask the allocator itself".to_owned());
    }
    setup.replay = command(&setup);
    Ok(setup)
}

/// Returns the command that runs `setup` again.
pub fn command(setup: &Setup) -> String {
    format!("lessor simulate --replay '{}'", write(setup))
}

fn hear(setup: &mut Setup, name: &str, value: &str) -> Result<(), String> {
    match name {
        "seed" => setup.seed = number(value)?,
        "rules" => setup.plan.rules = parse_rules(&value.replace(',', " "))?,
        "drift" => {
            setup.plan.clocks =
                ClockBounds::try_new(number(value)?).ok_or(format!("a drift of {value} is too large"))?
        }
        "ease_off" => setup.plan.ease_off = number(value)?,
        "lessees_max" => setup.plan.lessees_max = number(value)?,
        "vendor" => setup.plan.sharing.vendor = trust(value)?,
        "above" => setup.above = number(value)?,
        "siblings" => setup.siblings = number(value)?,
        "priorities" => setup.priorities = number(value)?,
        "identities" => setup.identities = number(value)?,
        "safe" => setup.plan.sharing.safe = Some(safe(value)?),
        "reserve" => setup.plan.sharing.reserve = number(value)?,
        "lease_max" => setup.plan.sharing.lease_max = number(value)?,
        "guaranteed" => setup.plan.sharing.guaranteed.push(number(value)?),
        "regions" => setup.topology = Topology::Regions(regions(value)?),
        "allocators" | "fates" | "ways" | "clockless" | "of_two_minds" | "lag" => {
            hear_shared(&mut setup.topology, name, value)?;
        }
        "nodes" => setup.nodes = number(value)?,
        "pools" => setup.pools = number(value)?,
        "foes" => {
            let adversaries = value.split(',').map(|name| one_of(name, Lie::named));
            setup.adversaries = adversaries.collect::<Result<_, _>>()?;
        }
        "live" => setup.live = value.split('|').map(live::parse).collect::<Result<_, _>>()?,
        "workload" => setup.workload = one_of(value, Workload::named)?,
        "demand" => setup.demand = number(value)?,
        "cost_max" => setup.cost_max = number(value)?,
        "calls" => setup.calls = one_of(value, Calls::named)?,
        "reserves" => setup.reserves = number(value)?,
        "in_vain" => setup.in_vain = number(value)?,
        "sprees" => setup.sprees = number(value)?,
        "store" => setup.store = number(value)?,
        "patience" => setup.patience = number(value)?,
        "one_way" => setup.latency.one_way = number(value)?,
        "jitter" => setup.latency.jitter = number(value)?,
        "distances" => setup.distances = value.split(',').map(number).collect::<Result<_, _>>()?,
        "drifting" => setup.drifting = number(value)?,
        "start" => setup.start = number(value)?,
        "lasts" => setup.lasts = number(value)?,
        "then_calm" => setup.then_calm = number(value)?,
        "sabotage" => setup.sabotage = one_of(value, Sabotage::named)?,
        _ => {
            let fault = one_of(name, Fault::named)?;
            match value.split_once('/') {
                Some((every, longest)) => {
                    setup.faults.every.insert(fault, (number(every)?, number(longest)?));
                }
                None => {
                    setup.faults.chance.insert(fault, number(value)?);
                }
            }
        }
    }
    Ok(())
}

/// Reads the number of regions, and how far away they are: `3/10000000/5000000`.
fn regions(text: &str) -> Result<Regions, String> {
    let parts: Vec<&str> = text.split('/').collect();
    let [count, one_way, jitter] = parts[..] else {
        return Err(format!("{text:?}: say for example 3/10000000/5000000"));
    };
    Ok(Regions { count: number(count)?, far: Latency { one_way: number(one_way)?, jitter: number(jitter)? } })
}

/// Writes a store that allocators share.
fn say_shared(shared: &Shared, say: &mut impl FnMut(&str, &dyn Display)) {
    let Shared { count, far: Latency { one_way, jitter }, ways, fates, is_clockless, of_two_minds, lag } =
        shared;
    say("allocators", &format!("{count}/{one_way}/{jitter}"));
    if !fates.is_empty() {
        say("fates", &joined(fates.iter().map(|fate| fate.name()), ","));
    }
    if !ways.is_empty() {
        say("ways", &joined(ways.iter().map(|(there, back)| format!("{there}/{back}")), ","));
    }
    if *is_clockless {
        say("clockless", is_clockless);
    }
    if *of_two_minds {
        say("of_two_minds", of_two_minds);
    }
    match lag {
        None => {}
        Some(Lag::Stalled) => say("lag", &"stalled"),
        Some(Lag::Slewed(ppm)) => say("lag", ppm),
    }
}

fn hear_shared(topology: &mut Topology, name: &str, value: &str) -> Result<(), String> {
    if name == "allocators" {
        let Regions { count, far } = regions(value)?;
        *topology = Topology::Store(Shared::of(count, far));
        return Ok(());
    }
    let Topology::Store(shared) = topology else {
        return Err(format!("{name:?} comes after allocators=…, as in allocators=3/1000000/1000000"));
    };
    let way = |text: &str| {
        let (there, back) = text.split_once('/').ok_or(format!("{text:?}: say for example 50000/7000000"))?;
        Ok::<_, String>((number(there)?, number(back)?))
    };
    match name {
        "fates" => {
            let fates = value.split(',').map(|name| one_of(name, Fate::named));
            shared.fates = fates.collect::<Result<_, _>>()?;
        }
        "ways" => shared.ways = value.split(',').map(way).collect::<Result<_, _>>()?,
        "clockless" => shared.is_clockless = number(value)?,
        "of_two_minds" => shared.of_two_minds = number(value)?,
        _ => shared.lag = Some(if value == "stalled" { Lag::Stalled } else { Lag::Slewed(number(value)?) }),
    }
    Ok(())
}

/// Writes a safe share as [`safe`] reads it.
pub(crate) fn safe_text(Safe { nodes, lasts }: Safe) -> String {
    format!("{nodes}/{}", nanos(lasts))
}

/// Reads how many nodes go on by themselves, and for how long: `3/5000000000`.
pub(crate) fn safe(text: &str) -> Result<Safe, String> {
    let (nodes, lasts) = text.split_once('/').ok_or(format!("{text:?}: say for example \"3/5000000000\""))?;
    Ok(Safe { nodes: number(nodes)?, lasts: Duration::from_nanos(number(lasts)?) })
}

/// Reads how far the vendor is believed: `trim/1000000000/10/5000000000`.
fn trust(text: &str) -> Result<Trust, String> {
    let parts: Vec<&str> = text.split('/').collect();
    let [believe, longest, keep_percent, ease] = parts[..] else {
        return Err(format!("{text:?}: say for example trim/1000000000/10/0"));
    };
    Ok(Trust {
        believe: one_of(believe, Believe::named)?,
        longest: Duration::from_nanos(number(longest)?),
        keep_percent: number(keep_percent)?,
        ease: Duration::from_nanos(number(ease)?),
    })
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} cannot be read"))
}

fn one_of<T>(name: &str, named: fn(&str) -> Option<T>) -> Result<T, String> {
    named(name).ok_or(format!("{name:?} is not known"))
}

/// Writes `rules` as [`parse_rules`] reads them, with commas for spaces.
pub(crate) fn rules_text(rules: &[Rule]) -> String {
    rules.iter().map(rule).collect::<Vec<_>>().join("+")
}

fn rule(rule: &Rule) -> String {
    match rule {
        Rule::SlidingWindow(it) | Rule::SlidingLog(it) => {
            format!("{},{}/{}ns,margin,{}ns", rule.kind(), it.limit(), nanos(it.per()), nanos(it.margin()))
        }
        Rule::FixedWindow(rule) => format!("fixed_window,{}/{}", rule.limit(), windows(&rule.windows())),
        Rule::TokenBucket(rule) => bucket(rule),
        Rule::LeakyBucket(rule) => {
            format!("leaky_bucket,{}/{}ns,burst,{}", rule.refill(), nanos(rule.per()), rule.burst())
        }
        Rule::Concurrency(rule) => format!("concurrency,{}/{}ns", rule.limit(), nanos(rule.longest())),
    }
}

fn windows(windows: &Windows) -> String {
    match windows {
        Windows::Epoch { per } => format!("{}ns", nanos(*per)),
        Windows::FirstUse { per } => format!("{}ns,anchor,first_use", nanos(*per)),
        Windows::Calendar(calendar) => {
            let mut text = format!("{},zone,{}", calendar.unit().name(), calendar.zone().name());
            let weekday = calendar.anchor_weekday().map(str::to_owned);
            if let Some(day) = calendar.anchor_day().map(|day| day.to_string()).or(weekday) {
                text.push_str(&format!(",anchor_day,{day}"));
            }
            text
        }
    }
}

fn bucket(rule: &TokenBucket) -> String {
    let per = nanos(rule.per());
    let mut text = format!("token_bucket,{}/{per}ns,capacity,{}", rule.refill(), rule.capacity());
    text.push_str(&format!(",initial,{}", rule.initial()));
    if rule.refill_style() != RefillStyle::Greedy {
        text.push_str(&format!(",style,{}", rule.refill_style().name()));
    }
    if rule.debt() > 0 {
        text.push_str(&format!(",debt,{}", rule.debt()));
    }
    if let Some(warm_up) = rule.warm_up() {
        let over = nanos(warm_up.over());
        text.push_str(&format!(",warm_up,{over}ns,cold_factor,{}", warm_up.cold_factor()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::draw;
    use crate::generator::lengthy::lengthy;
    use crate::generator::overlong::overlong;
    use crate::generator::topologies;

    #[test]
    fn a_setup_is_read_back_as_it_was_written() {
        for seed in 0..500 {
            let mut drawn = draw(seed);
            drawn.sabotage = Sabotage::ALL[seed as usize % Sabotage::ALL.len()];
            let read = read(&write(&drawn)).expect("what was written");
            assert_eq!(Setup { replay: drawn.replay.clone(), ..read }, drawn);
        }
    }

    #[test]
    fn a_topology_is_read_back_as_it_was_written() {
        let lagging = topologies::store_lagging(1, Lag::Slewed(-5_000));
        for setup in (0..100).map(topologies::any).chain([lagging, overlong(1)]).chain((0..20).map(lengthy)) {
            assert_eq!(read(&write(&setup)), Ok(setup));
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (text, name) in [
            ("", "rules"),
            ("seed", "seed"),
            ("seed=x", "\"x\""),
            ("colour=3", "colour"),
            ("rules=window,5/s", "window"),
            ("workload=wild", "wild"),
            ("rules=fixed_window,5/1s nodes=0", "node"),
            ("node_crash=1/", "\"\""),
            ("rules=fixed_window,5/1s node_crash=0/5", "interval"),
            ("rules=fixed_window,5/1s demand=NaN", "finite"),
            ("rules=fixed_window,5/1s regions=2", "3/10000000"),
            ("rules=fixed_window,5/1s fates=set", "allocators="),
            ("rules=fixed_window,5/1s allocators=2/1/1 fates=lost", "lost"),
            ("rules=fixed_window,5/1s regions=2/1/1 store=5", "store"),
            ("rules=fixed_window,5/1s siblings=2 pools=4", "1 to 3"),
            ("rules=fixed_window,5/1s pools=0", "1 to 1"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(name), "{text:?}: {error}");
        }
    }
}
