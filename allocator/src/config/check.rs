//! Raw → checked. Every error names the limit, the key and the value, and says what would be right.

use super::family;
use super::raw::{Count, RawConfig, RawLimit, RawRule, RawServer};
use super::rules::rule;
use super::sharing;
use super::{
    CONNECTIONS_MAX, Config, ConfigError, KEYS_MAX, Keyed, LESSEES_MAX, LISTEN, LimitConfig, NAMES_MAX,
    Named, Names, ServerConfig,
};
use lessor_protocol::{Fallback, Key, Rule, Terms};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use toml::Spanned;

pub(super) fn config(text: &str, raw: &RawConfig, margin: Duration) -> Result<Config, ConfigError> {
    let mut names = BTreeSet::new();
    let mut limits = vec![];
    for limit in &raw.limit {
        let check = Check { text, limit, margin };
        if !names.insert(limit.name.get_ref()) {
            return Err(check.wrong(&limit.name, "is there twice: every limit needs a name of its own"));
        }
        limits.push(check.limit()?);
    }
    family::check(&limits).map_err(|(index, problem)| {
        let limit = &raw.limit[index];
        let offset = limit.parent.as_ref().map_or(0, |parent| parent.span().start);
        Check { text, limit, margin }.wrong_at(offset, problem)
    })?;
    if limits.is_empty() {
        return Err(ConfigError::at(text, 0, "there is no [[limit]]: say at least one"));
    }
    Ok(Config {
        terms: terms(text, raw.clock_drift_ppm.as_ref())?,
        server: server(text, &raw.server)?,
        limits,
    })
}

fn terms(text: &str, raw: Option<&Spanned<Count>>) -> Result<Terms, ConfigError> {
    let Some(raw) = raw else {
        return Ok(Terms::default());
    };
    let Count(ppm) = *raw.get_ref();
    let terms = u32::try_from(ppm).ok().and_then(Terms::try_new);
    terms.ok_or_else(|| {
        let problem = format!(
            "clock_drift_ppm is {ppm}: a clock that is off by more than a tenth is broken, use at most {}",
            Terms::DRIFT_PPM_MAX
        );
        ConfigError::at(text, raw.span().start, problem)
    })
}

fn server(text: &str, raw: &RawServer) -> Result<ServerConfig, ConfigError> {
    let listen = raw.listen.as_ref();
    let address = listen.map_or(LISTEN, |listen| listen.get_ref());
    let listen = address.parse::<SocketAddr>().map_err(|_| {
        let problem =
            format!("server.listen is {address:?}: use an IP address and a port, for example {LISTEN:?}");
        ConfigError::at(text, listen.map_or(0, |listen| listen.span().start), problem)
    })?;
    let connections_max =
        at_least_one(raw.connections_max.as_ref(), CONNECTIONS_MAX).map_err(|(offset, problem)| {
            ConfigError::at(text, offset, format!("server.connections_max {problem}"))
        })?;
    Ok(ServerConfig { listen, connections_max })
}

/// A bound: at least one, or nothing would ever be let in. Else where it stands, and what is wrong with it.
fn at_least_one(raw: Option<&Spanned<Count>>, default: usize) -> Result<usize, (usize, String)> {
    let Some(raw) = raw else {
        return Ok(default);
    };
    match usize::try_from(raw.get_ref().0) {
        Ok(count) if count > 0 => Ok(count),
        _ => {
            let problem = format!("is {}: use a number from 1 on", raw.get_ref().0);
            Err((raw.span().start, problem))
        }
    }
}

/// One limit, and the text that it stands in.
struct Check<'a> {
    text: &'a str,
    limit: &'a RawLimit,
    /// Of windows that say none.
    margin: Duration,
}

impl Check<'_> {
    /// `problem` with this limit, where `place` stands.
    fn wrong<T>(&self, place: &Spanned<T>, problem: impl std::fmt::Display) -> ConfigError {
        self.wrong_at(place.span().start, problem)
    }

    fn wrong_at(&self, offset: usize, problem: impl std::fmt::Display) -> ConfigError {
        let problem = format!("limit {:?}: {problem}", self.limit.name.get_ref());
        ConfigError::at(self.text, offset, problem)
    }

    fn limit(&self) -> Result<LimitConfig, ConfigError> {
        let raw = self.limit;
        let name = self.name()?;
        let rules = self.rules(&raw.name, "rules", &raw.rules)?;
        let (overrides, guaranteed) = (self.overrides()?, self.shared(sharing::guaranteed(raw))?);
        Ok(LimitConfig {
            name,
            sharing: self.shared(sharing::sharing(raw, &rules, overrides.values(), &guaranteed))?,
            priorities: self.shared(sharing::priorities(raw))?,
            guaranteed,
            overrides,
            keyed: self.keyed()?,
            shadow: raw.shadow,
            fallback: self.fallback()?,
            parent: raw.parent.as_ref().map(|parent| parent.get_ref().clone()),
            ease_off: raw.ease_off.unwrap_or_else(|| rules.iter().any(is_window)),
            rules,
            lessees_max: self.at_least_one("lessees_max", raw.lessees_max.as_ref(), LESSEES_MAX)?,
            weights: self.shared(sharing::weights(raw))?,
        })
    }

    fn name(&self) -> Result<Named, ConfigError> {
        let raw = self.limit;
        let name = Named::try_new(raw.name.get_ref());
        let name = name.map_err(|problem| self.wrong(&raw.name, format!("name {problem}")))?;
        match (name.names(), &raw.names_max) {
            (Names::One, Some(names_max)) => {
                Err(self
                    .wrong(names_max, "names_max needs a name that ends in *: this limit has but one name"))
            }
            (Names::One, None) => Ok(name),
            (Names::Many { .. }, names_max) => {
                Ok(name.with_names_max(self.at_least_one("names_max", names_max.as_ref(), NAMES_MAX)?))
            }
        }
    }

    fn overrides(&self) -> Result<BTreeMap<Key, Vec<Rule>>, ConfigError> {
        let mut overrides = BTreeMap::new();
        for (index, raw) in self.limit.overrides.iter().enumerate() {
            if !self.limit.keyed {
                let problem = format!("override[{index}] needs keyed = true: this limit has no keys");
                return Err(self.wrong(&raw.key, problem));
            }
            let text = raw.key.get_ref();
            let wrong = |problem| self.wrong(&raw.key, format!("override[{index}].key {problem}"));
            let key = Key::try_new(text).map_err(|error| wrong(error.to_string()))?;
            let rules = self.rules(&raw.key, &format!("override[{index}].rules"), &raw.rules)?;
            if overrides.insert(key, rules).is_some() {
                return Err(wrong(format!("is {text:?}, which is there twice: say once what holds for it")));
            }
        }
        Ok(overrides)
    }

    fn fallback(&self) -> Result<Fallback, ConfigError> {
        let Some(raw) = &self.limit.fallback else { return Ok(Fallback::default()) };
        let value = raw.get_ref();
        let names = Fallback::ALL.map(|fallback| format!("{:?}", fallback.name())).join(", ");
        let problem = || self.wrong(raw, format!("fallback is {value:?}: use one of {names}"));
        Fallback::named(value).ok_or_else(problem)
    }

    fn keyed(&self) -> Result<Keyed, ConfigError> {
        let keys_max = self.limit.keys_max.as_ref();
        match (self.limit.keyed, keys_max) {
            (true, keys_max) => {
                Ok(Keyed::Yes { keys_max: self.at_least_one("keys_max", keys_max, KEYS_MAX)? })
            }
            (false, None) => Ok(Keyed::No),
            (false, Some(keys_max)) => {
                Err(self.wrong(keys_max, "keys_max needs keyed = true: this limit has no keys"))
            }
        }
    }

    fn at_least_one(
        &self,
        name: &str,
        raw: Option<&Spanned<Count>>,
        default: usize,
    ) -> Result<usize, ConfigError> {
        at_least_one(raw, default)
            .map_err(|(offset, problem)| self.wrong_at(offset, format!("{name} {problem}")))
    }

    /// What a check of how the limit is shared came to.
    fn shared<T>(&self, checked: Result<T, (usize, String)>) -> Result<T, ConfigError> {
        checked.map_err(|(offset, problem)| self.wrong_at(offset, problem))
    }

    /// The rules in the list `named` so, which stands beside `place`.
    fn rules(
        &self,
        place: &Spanned<String>,
        named: &str,
        raw: &[Spanned<RawRule>],
    ) -> Result<Vec<Rule>, ConfigError> {
        if raw.is_empty() {
            let problem = format!("{named} is empty: say at least one, or the limit would promise nothing");
            return Err(self.wrong(place, problem));
        }
        let rules = raw.iter().enumerate().map(|(index, raw)| {
            let rule = rule(raw.get_ref(), self.margin);
            rule.map_err(|problem| self.wrong(raw, format!("{named}[{index}].{problem}")))
        });
        let rules: Vec<Rule> = rules.collect::<Result<_, _>>()?;
        let is_paced = |(_, rule): &(usize, &Rule)| rule.flow().is_some();
        if let Some((second, _)) = rules.iter().enumerate().filter(is_paced).nth(1) {
            let problem =
                "is the second leaky_bucket: calls keep one pace, say the other rate as a token_bucket";
            return Err(self.wrong(&raw[second], format!("{named}[{second}] {problem}")));
        }
        if let Some((index, problem)) = too_short_for_flow(&rules) {
            return Err(self.wrong(&raw[index], format!("{named}[{index}].per {problem}")));
        }
        let caps = rules.iter().zip(raw).filter(|(rule, _)| matches!(rule, Rule::Concurrency(_)));
        match caps.map(|(_, raw)| raw).nth(1) {
            Some(second) => {
                Err(self
                    .wrong(second, "concurrency is there twice: say the lower limit and the longest call"))
            }
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
