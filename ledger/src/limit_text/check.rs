//! Checks one raw limit. Every problem begins with the key, and names the value and what would be right.

use super::{RULES_EXAMPLE, RawLimit, sharing};
use crate::Rule;
use crate::named::{NAMES_MAX, Named, Names};
use crate::registry::{KEYS_MAX, Keyed, LESSEES_MAX, LimitConfig, Upstream, too_short_for_flow};
use crate::rule_text::{Count, RawRule, rule};
use lessor_protocol::{Fallback, Key, PERMITS_MAX};
use std::collections::BTreeMap;
use std::time::Duration;

/// Most rules of one limit. Each ask walks all of them, and each key keeps books for each.
const RULES_MAX: usize = 16;

/// Checks the limit `raw`, with `margin` for windows that say none. `address` reads the upstream.
///
/// # Errors
/// The first problem, beginning with the key.
pub fn limit(raw: &RawLimit, margin: Duration, address: Address) -> Result<LimitConfig, String> {
    sharing::check_bounds(raw)?;
    let counts = [("keys_max", raw.keys_max), ("names_max", raw.names_max), ("lessees_max", raw.lessees_max)];
    for (name, count) in counts {
        at_least_one(name, count, 1)?;
    }
    decided_limit(raw, margin, address)
}

/// Checks as [`limit`] does, but not how many entries the limit has, nor how large its counts are. An earlier version
/// may have had other bounds when it kept a decision about the limit, and without that decision the file holds.
///
/// # Errors
/// The first problem, beginning with the key.
pub fn decided_limit(raw: &RawLimit, margin: Duration, address: Address) -> Result<LimitConfig, String> {
    Check { limit: raw, margin, address }.checked()
}

/// Reads the address of an upstream, or says what is wrong with it.
pub type Address = fn(&str) -> Result<Upstream, String>;

/// Checks a bound, which is at least one, or nothing would ever be admitted, and at most [`PERMITS_MAX`]: a decision
/// about a limit is kept in a form that holds no larger number.
///
/// # Errors
/// The problem, beginning with the `name` of the bound.
pub fn at_least_one(name: &str, raw: Option<Count>, default: usize) -> Result<usize, String> {
    match raw {
        Some(Count(given)) if given > PERMITS_MAX => Err(out_of_bounds(name, given)),
        raw => count(name, raw, default),
    }
}

/// Checks a bound, which is at least one.
fn count(name: &str, raw: Option<Count>, default: usize) -> Result<usize, String> {
    let Some(Count(given)) = raw else {
        return Ok(default);
    };
    let count = usize::try_from(given).ok().filter(|count| *count > 0);
    count.ok_or_else(|| out_of_bounds(name, given))
}

fn out_of_bounds(name: &str, given: u64) -> String {
    format!("{name} is {given}: use a number from 1 to {PERMITS_MAX}")
}

struct Check<'a> {
    limit: &'a RawLimit,
    /// Margin of windows that say none.
    margin: Duration,
    address: Address,
}

impl Check<'_> {
    fn checked(&self) -> Result<LimitConfig, String> {
        let raw = self.limit;
        let name = self.name()?;
        let upstream = self.upstream()?;
        let rules = match (&raw.rules, &upstream) {
            (Some(rules), _) => self.rules("rules", rules)?,
            (None, Some(_)) => vec![],
            (None, None) => return Err(format!("rules is missing: say for example rules = {RULES_EXAMPLE}")),
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
            lessees_max: count("lessees_max", raw.lessees_max, LESSEES_MAX)?,
            weights: sharing::weights(raw)?,
        })
    }

    /// Reads the upstream, if there is one.
    fn upstream(&self) -> Result<Option<Upstream>, String> {
        let raw = self.limit;
        let Some(text) = &raw.upstream else { return Ok(None) };
        let upstream = (self.address)(text)?;
        let decided = "the upstream allocator decides that, leave it out";
        let said = [
            ("rules", raw.rules.is_some()),
            ("override", !raw.overrides.is_empty()),
            ("parent", raw.parent.is_some()),
            ("guaranteed", !raw.guaranteed.is_empty()),
            ("reserve", raw.reserve.is_some_and(|reserve| reserve.0 > 0)),
            ("safe", raw.safe.is_some()),
            ("ease_off", raw.ease_off == Some(true)),
        ];
        match said.into_iter().find(|(_, is_said)| *is_said) {
            Some((key, _)) => Err(format!("{key} is set on a limit with upstream = {text:?}: {decided}")),
            None => Ok(Some(upstream)),
        }
    }

    fn name(&self) -> Result<Named, String> {
        let raw = self.limit;
        let name = Named::try_new(&raw.name).map_err(|problem| format!("name {problem}"))?;
        match (name.names(), raw.names_max) {
            (Names::One, Some(Count(names_max))) => Err(format!(
                "names_max is {names_max}, which needs a name that ends in *: this limit has one name"
            )),
            (Names::One, None) => Ok(name),
            (Names::Many { .. }, names_max) => {
                Ok(name.with_names_max(count("names_max", names_max, NAMES_MAX)?))
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
                    "{named}.key is {text:?}, which is there twice: give each key one override"
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
            (true, keys_max) => Ok(Keyed::Yes { keys_max: count("keys_max", keys_max, KEYS_MAX)? }),
            (false, None) => Ok(Keyed::No),
            (false, Some(Count(keys_max))) => {
                Err(format!("keys_max is {keys_max}, which needs keyed = true: this limit has no keys"))
            }
        }
    }

    /// Checks the rules of the list called `named`.
    fn rules(&self, named: &str, raw: &[RawRule]) -> Result<Vec<Rule>, String> {
        if raw.is_empty() {
            return Err(format!("{named} is empty: a limit needs at least one rule"));
        }
        if raw.len() > RULES_MAX {
            return Err(format!("{named} has {} rules: use at most {RULES_MAX}", raw.len()));
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
            return Err(format!(
                "{problem}: only one leaky_bucket can pace calls, use a token_bucket for the other rate"
            ));
        }
        if let Some((index, problem)) = too_short_for_flow(&rules) {
            return Err(format!("{named}[{index}].per {problem}"));
        }
        match second(|rule| matches!(rule, Rule::Concurrency(_))) {
            Some(problem) => {
                Err(format!("{problem}: put the lower limit and the longest call into one rule"))
            }
            None => Ok(rules),
        }
    }
}

fn is_window(rule: &Rule) -> bool {
    match rule {
        Rule::SlidingWindow(_) | Rule::SlidingLog(_) | Rule::FixedWindow(_) => true,
        Rule::TokenBucket(_) | Rule::LeakyBucket(_) | Rule::Concurrency(_) => false,
    }
}
