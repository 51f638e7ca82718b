//! Writes a checked limit back as raw text, with every default. Read again, it means the same.

use super::{RawLimit, RawOverride, RawTerm, safe, vendor};
use crate::Rule;
use crate::named::Names;
use crate::registry::{ByNode, Keyed, LimitConfig};
use crate::rule_text::{Count, Timespan, raw_rules};
use lessor_protocol::Key;

impl LimitConfig {
    /// Returns the limit as it would be written, with every default.
    pub fn raw(&self) -> RawLimit {
        let keys_max = match self.keyed {
            Keyed::No => None,
            Keyed::Yes { keys_max } => Some(Count(keys_max as u64)),
        };
        let names_max = match self.name.names() {
            Names::One => None,
            Names::Many { names_max } => Some(Count(names_max as u64)),
        };
        let by_node =
            |numbers: &ByNode| numbers.pairs().map(|(pattern, number)| (pattern, Count(number))).collect();
        let sharing = &self.sharing;
        RawLimit {
            name: self.name.to_string(),
            keyed: keys_max.is_some(),
            ease_off: Some(self.ease_off),
            shadow: self.shadow,
            parent: self.parent.clone(),
            fallback: Some(self.fallback.name().to_owned()),
            keys_max,
            names_max,
            lessees_max: Some(Count(self.lessees_max as u64)),
            weights: by_node(&self.weights),
            priorities: by_node(&self.priorities),
            guaranteed: by_node(&self.guaranteed),
            reserve: Some(Count(sharing.reserve)),
            safe: sharing.safe.map(safe::raw),
            lease_max: Some(Count(sharing.lease_max)),
            term: Some(RawTerm {
                min: Some(Timespan(sharing.term_min)),
                max: Some(Timespan(sharing.term_max)),
            }),
            vendor: Some(vendor::raw(&sharing.vendor)),
            upstream: self.leased_from().map(str::to_owned),
            rules: self.leased_from().is_none().then(|| raw_rules(&self.rules)),
            overrides: self.overrides.iter().map(raw_override).collect(),
        }
    }
}

fn raw_override((key, rules): (&Key, &Vec<Rule>)) -> RawOverride {
    RawOverride { key: key.to_string(), rules: raw_rules(rules) }
}
