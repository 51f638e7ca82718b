//! Raw → checked. Every error names the limit, the key and the value, and says what would be right.

use super::family;
use super::place;
use super::raw::{RULES, RawConfig, RawLimit, RawServer, RawStore};
use super::sharing;
use super::store;
use super::upstream;
use super::{
    CONNECTIONS_MAX, Config, ConfigError, KEYS_MAX, Keyed, LESSEES_MAX, LISTEN, LimitConfig, NAMES_MAX,
    Named, Names, ServerConfig, Upstream,
};
use lessor_ledger::Rule;
use lessor_ledger::rule_text::{Count, RawRule, rule};
use lessor_protocol::{ClockBounds, Fallback, Key, NodeName};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

pub(super) fn config(text: &str, raw: &RawConfig, margin: Duration) -> Result<Config, ConfigError> {
    let mut names = BTreeSet::new();
    let mut limits = vec![];
    let check = |index: usize| Check { text, limit: &raw.limit[index], index, margin };
    for (index, limit) in raw.limit.iter().enumerate() {
        if !names.insert(&limit.name) {
            let name = &limit.name;
            return Err(check(index)
                .wrong(format!("name is {name:?}, which is there twice: every limit needs one of its own")));
        }
        limits.push(check(index).limit()?);
    }
    let wrong = |problem: String| ConfigError::at(text, place::offset(text, &problem), problem);
    let server = server(&raw.server, &raw.store).map_err(wrong)?;
    for (index, limit) in limits.iter_mut().enumerate() {
        server.store.lends(limit).map_err(|problem| check(index).wrong(problem))?;
    }
    family::check(&limits).map_err(|(index, problem)| check(index).wrong(problem))?;
    if limits.is_empty() {
        return Err(ConfigError::at(text, 0, "there is no [[limit]]: say at least one"));
    }
    Ok(Config { clocks: clocks(raw.clock_drift_ppm).map_err(wrong)?, server, limits })
}

fn clocks(raw: Option<Count>) -> Result<ClockBounds, String> {
    let Some(Count(ppm)) = raw else {
        return Ok(ClockBounds::default());
    };
    let clocks = u32::try_from(ppm).ok().and_then(ClockBounds::try_new);
    clocks.ok_or_else(|| {
        format!(
            "clock_drift_ppm is {ppm}: a clock that is off by more than a tenth is broken, use at most {}",
            ClockBounds::DRIFT_PPM_MAX
        )
    })
}

fn server(raw: &RawServer, raw_store: &RawStore) -> Result<ServerConfig, String> {
    let address = raw.listen.as_deref().unwrap_or(LISTEN);
    let listen = address.parse::<SocketAddr>().map_err(|_| {
        format!("server.listen is {address:?}: use an IP address and a port, for example {LISTEN:?}")
    })?;
    let connections_max = at_least_one("server.connections_max", raw.connections_max, CONNECTIONS_MAX)?;
    let node = raw.node.as_deref().map(NodeName::try_new).transpose();
    let node = node.map_err(|error| format!("server.node {error}"))?;
    let hosts = raw.hosts.iter().map(|host| host_name(host)).collect::<Result<_, _>>()?;
    let upstreams = raw.upstreams.iter().map(|address| Upstream::try_new(address));
    let upstreams =
        upstreams.collect::<Result<_, _>>().map_err(|problem| format!("server.upstreams: {problem}"))?;
    Ok(ServerConfig { listen, connections_max, node, hosts, upstreams, store: store::store(raw_store)? })
}

/// `name` as a request's `Host` has it, without a port.
fn host_name(name: &str) -> Result<String, String> {
    let is_name =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    let wrong =
        || format!("server.hosts has {name:?}: use names without a port, for example \"lessor.example.com\"");
    is_name.then(|| name.to_ascii_lowercase()).ok_or_else(wrong)
}

/// A bound: at least one, or nothing would ever be let in.
fn at_least_one(name: &str, raw: Option<Count>, default: usize) -> Result<usize, String> {
    let Some(Count(given)) = raw else {
        return Ok(default);
    };
    let count = usize::try_from(given).ok().filter(|count| *count > 0);
    count.ok_or_else(|| format!("{name} is {given}: use a number from 1 on"))
}

/// One limit, and the text that it stands in.
struct Check<'a> {
    text: &'a str,
    limit: &'a RawLimit,
    /// Which one it is there.
    index: usize,
    /// Of windows that say none.
    margin: Duration,
}

impl Check<'_> {
    /// `problem` with this limit, which begins with the key that is wrong.
    fn wrong(&self, problem: String) -> ConfigError {
        let offset = place::offset(self.text, &format!("limit[{}].{problem}", self.index));
        ConfigError::at(self.text, offset, format!("limit {:?}: {problem}", self.limit.name))
    }

    fn limit(&self) -> Result<LimitConfig, ConfigError> {
        self.checked().map_err(|problem| self.wrong(problem))
    }

    fn checked(&self) -> Result<LimitConfig, String> {
        let raw = self.limit;
        let name = self.name()?;
        let upstream = upstream::upstream(raw)?;
        let rules = match (&raw.rules, &upstream) {
            (Some(rules), _) => self.rules("rules", rules)?,
            (None, Some(_)) => vec![],
            (None, None) => return Err(format!("rules is missing: say for example rules = {RULES}")),
        };
        let (overrides, guaranteed) = (self.overrides()?, sharing::guaranteed(raw)?);
        Ok(LimitConfig {
            name,
            sharing: sharing::sharing(raw, &rules, overrides.values(), &guaranteed)?,
            priorities: sharing::priorities(raw)?,
            guaranteed,
            overrides,
            keyed: self.keyed()?,
            shadow: raw.shadow,
            fallback: self.fallback()?,
            parent: raw.parent.clone(),
            upstream,
            ease_off: raw.ease_off.unwrap_or_else(|| rules.iter().any(is_window)),
            rules,
            lessees_max: at_least_one("lessees_max", raw.lessees_max, LESSEES_MAX)?,
            weights: sharing::weights(raw)?,
        })
    }

    fn name(&self) -> Result<Named, String> {
        let raw = self.limit;
        let name = Named::try_new(&raw.name).map_err(|problem| format!("name {problem}"))?;
        match (name.names(), raw.names_max) {
            (Names::One, Some(Count(names_max))) => Err(format!(
                "names_max is {names_max}, which needs a name that ends in *: this limit has but one name"
            )),
            (Names::One, None) => Ok(name),
            (Names::Many { .. }, names_max) => {
                Ok(name.with_names_max(at_least_one("names_max", names_max, NAMES_MAX)?))
            }
        }
    }

    fn overrides(&self) -> Result<BTreeMap<Key, Vec<Rule>>, String> {
        let mut overrides = BTreeMap::new();
        for (index, raw) in self.limit.overrides.iter().enumerate() {
            let (named, text) = (format!("override[{index}]"), &raw.key);
            if !self.limit.keyed {
                return Err(format!(
                    "{named} is for key = {text:?}, which needs keyed = true: this limit has no keys"
                ));
            }
            let key = Key::try_new(text).map_err(|error| format!("{named}.key {error}"))?;
            let rules = self.rules(&format!("{named}.rules"), &raw.rules)?;
            if overrides.insert(key, rules).is_some() {
                return Err(format!(
                    "{named}.key is {text:?}, which is there twice: say once what holds for it"
                ));
            }
        }
        Ok(overrides)
    }

    fn fallback(&self) -> Result<Fallback, String> {
        let Some(value) = &self.limit.fallback else { return Ok(Fallback::default()) };
        let names = Fallback::ALL.map(|fallback| format!("{:?}", fallback.name())).join(", ");
        let problem = || format!("fallback is {value:?}: use one of {names}");
        Fallback::named(value).ok_or_else(problem)
    }

    fn keyed(&self) -> Result<Keyed, String> {
        match (self.limit.keyed, self.limit.keys_max) {
            (true, keys_max) => Ok(Keyed::Yes { keys_max: at_least_one("keys_max", keys_max, KEYS_MAX)? }),
            (false, None) => Ok(Keyed::No),
            (false, Some(Count(keys_max))) => {
                Err(format!("keys_max is {keys_max}, which needs keyed = true: this limit has no keys"))
            }
        }
    }

    /// The rules in the list `named` so.
    fn rules(&self, named: &str, raw: &[RawRule]) -> Result<Vec<Rule>, String> {
        if raw.is_empty() {
            return Err(format!("{named} is empty: say at least one, or the limit would promise nothing"));
        }
        let rules = raw.iter().enumerate().map(|(index, raw)| {
            rule(raw, self.margin).map_err(|problem| format!("{named}[{index}].{problem}"))
        });
        let rules: Vec<Rule> = rules.collect::<Result<_, _>>()?;
        let second = |is_it: fn(&Rule) -> bool| {
            let those = rules.iter().enumerate().filter(|(_, rule)| is_it(rule));
            those
                .map(|(index, rule)| {
                    format!("{named}[{index}].kind is {:?} for the second time", rule.kind())
                })
                .nth(1)
        };
        if let Some(problem) = second(|rule| rule.flow().is_some()) {
            return Err(format!("{problem}: calls keep one pace, say the other rate as a token_bucket"));
        }
        if let Some((index, problem)) = too_short_for_flow(&rules) {
            return Err(format!("{named}[{index}].per {problem}"));
        }
        match second(|rule| matches!(rule, Rule::Concurrency(_))) {
            Some(problem) => Err(format!("{problem}: say the lower limit and the longest call in one rule")),
            None => Ok(rules),
        }
    }
}

/// A fixed window beside a leaky bucket ends every lease at its boundary, and what buckets have saved up is lost with it:
/// where that is often, little would flow.
pub(super) fn too_short_for_flow(rules: &[Rule]) -> Option<(usize, String)> {
    /// Windows last for so many intervals at least, and for so long.
    const INTERVALS: u32 = 10;
    const LEAST: Duration = Duration::from_secs(10);
    let interval = rules.iter().find_map(Rule::flow)?.interval()?;
    let least = interval.saturating_mul(INTERVALS).max(LEAST);
    rules.iter().enumerate().find_map(|(index, rule)| {
        let Rule::FixedWindow(rule) = rule else { return None };
        let problem = format!("is {:?}, too short beside a leaky_bucket: use at least {least:?}", rule.per());
        (rule.per() < least).then_some((index, problem))
    })
}

fn is_window(rule: &Rule) -> bool {
    match rule {
        Rule::SlidingWindow(_) | Rule::SlidingLog(_) | Rule::FixedWindow(_) => true,
        Rule::TokenBucket(_) | Rule::LeakyBucket(_) | Rule::Concurrency(_) => false,
    }
}
