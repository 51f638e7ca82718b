//! The limits of a run as an operator configures them: one or more that nodes ask, and the limits above. Each of the
//! last rules is kept by a limit of its own, above the one before. Together they promise what one limit with all the
//! rules would.

use crate::setup::Setup;
use crate::topology::Topology;
use lessor_ledger::Rule;
use lessor_ledger::named::Named;
use lessor_ledger::pool::Plan;
use lessor_ledger::registry::limit::PoolId;
use lessor_ledger::registry::{ByNode, Keyed, LimitConfig, Upstream};
use lessor_ledger::rule::{RefillStyle, TokenBucket};
use lessor_ledger::share::{Safe, Sharing};
use lessor_protocol::{Fallback, Key, NodeName};
use std::collections::BTreeMap;

/// The first of the limits that nodes ask. Acts of operators apply to it.
pub const FIRST: &str = "limit-0";

/// The limits of a run, and the one pool of each.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The name and the pool of each limit: first the limits that nodes ask, then those above, the lowest first.
    pools: Vec<(String, PoolId)>,
    /// The number of limits that nodes ask.
    asked: usize,
    /// The plan of the limits that nodes ask. Its rules are not used.
    plan: Plan,
    weights: Weights,
    /// The upstream of regions, or of allocators that share a store.
    upstream: Option<Upstream>,
}

/// The configuration file of a host that leases the limits.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// The version of the file. A root goes by the newest.
    pub version: u64,
    /// The rules of the limits.
    pub rules: Vec<Rule>,
    /// Permits of the reserve.
    pub reserve: u64,
    /// The part of the reserve that nodes may go on with.
    pub safe: Option<Safe>,
    /// Whether the file is an older one, in which the limit that nodes ask has no parent.
    pub is_old: bool,
}

impl File {
    /// The version of the first file that is not old.
    pub const FIRST: u64 = 2;

    /// Makes the file that `region` begins with.
    pub fn new(setup: &Setup, region: usize) -> Self {
        let is_old = setup.is_old(region);
        let (rules, &Sharing { reserve, safe, .. }) = (setup.plan.rules.clone(), &setup.plan.sharing);
        File { version: if is_old { File::FIRST - 1 } else { File::FIRST }, rules, reserve, safe, is_old }
    }
}

/// Priorities and guarantees of nodes, by their names.
#[derive(Clone, Debug)]
struct Weights {
    priorities: ByNode,
    guaranteed: ByNode,
}

/// Returns the part of `plan` that the pool asked by nodes keeps, where `above` limits keep the last rules.
pub fn lowest(plan: &Plan, above: usize) -> Plan {
    let own = plan.rules.len() - above.min(plan.rules.len() - 1);
    Plan { rules: plan.rules[..own].to_vec(), ..plan.clone() }
}

impl Limits {
    /// Whether the limits of `setup` are counted by key.
    pub(crate) fn are_keyed(setup: &Setup) -> bool {
        // A pool that is made after a change begins as one that was there all along. No judge here knows when such a
        // bucket was last refilled or warmed.
        let is_known = setup.live.is_empty() || !setup.rule_sets().flatten().any(depends_on_its_beginning);
        setup.seed.is_multiple_of(2) && is_known
    }

    /// Makes the limits of `setup`. In every other run they are counted by key, so pools are made at the first ask, and
    /// forgotten.
    pub fn new(setup: &Setup) -> Self {
        let are_keyed = Limits::are_keyed(setup);
        let (asked, above) = (setup.limits(), setup.above);
        let names = (0..asked).map(|limit| (format!("limit-{limit}"), above));
        let names = names.chain((0..above).map(|place| (format!("above-{place}"), above - 1 - place)));
        let pool = |(name, depth): (String, usize)| {
            let key = vec!["k"; depth + 1].join("/");
            let key = are_keyed.then(|| Key::try_new(&key).expect("letters and slashes"));
            (name, PoolId::from(key))
        };
        // Where all nodes are alike there is no list: each ask would look for its node in it.
        let are_ranked = setup.priorities > 1;
        let senders = if are_ranked { setup.nodes + setup.adversaries.len() } else { 0 };
        let ranks: Vec<(String, u64)> =
            (0..senders).map(|node| (setup.name(node).to_string(), setup.share(node).priority)).collect();
        let ranks: Vec<(&str, u64)> = ranks.iter().map(|(name, rank)| (name.as_str(), *rank)).collect();
        let groups = setup.plan.sharing.guaranteed.iter().enumerate();
        let groups: Vec<(String, u64)> =
            groups.map(|(group, &least)| (format!("{}*", group_stem(group)), least)).collect();
        let groups: Vec<(&str, u64)> = groups.iter().map(|(name, least)| (name.as_str(), *least)).collect();
        Limits {
            pools: names.map(pool).collect(),
            asked,
            plan: setup.plan.clone(),
            weights: Weights { priorities: ByNode::new(&ranks), guaranteed: ByNode::new(&groups) },
            upstream: match setup.topology {
                Topology::Allocator => None,
                Topology::Regions(_) => Some(Upstream::Address("http://allocator".to_owned())),
                Topology::Store(ref shared) => Some(Upstream::Store(shared.time_source())),
            },
        }
    }

    /// Returns the number of limits.
    pub fn count(&self) -> usize {
        self.pools.len()
    }

    /// Returns the places of the limits above those that nodes ask.
    pub fn above(&self) -> std::ops::Range<usize> {
        self.asked..self.pools.len()
    }

    /// Returns the name and the pool of the limit at `place`.
    pub fn pool(&self, place: usize) -> (&str, &PoolId) {
        let (name, id) = &self.pools[place];
        (name, id)
    }

    /// Returns the configuration of all limits under `rules`.
    pub(crate) fn configs(&self, rules: &[Rule]) -> Vec<LimitConfig> {
        let own = rules.len() - self.above().len();
        (0..self.count()).map(|place| self.config(place, rules.split_at(own))).collect()
    }

    fn config(&self, place: usize, (own, above): (&[Rule], &[Rule])) -> LimitConfig {
        let (name, id) = &self.pools[place];
        let higher = place.checked_sub(self.asked);
        let next = higher.map_or(self.asked, |_| place + 1);
        let Plan { ease_off, lessees_max, ref sharing, .. } = self.plan;
        let (sharing, priorities, guaranteed) = match higher {
            None => (sharing.clone(), self.weights.priorities.clone(), self.weights.guaranteed.clone()),
            Some(_) => (Sharing::default(), ByNode::default(), ByNode::default()),
        };
        LimitConfig {
            name: Named::try_new(name).expect("letters and digits"),
            parent: self.pools.get(next).map(|(name, _)| name.clone()),
            upstream: None,
            keyed: if id.key.is_some() { Keyed::Yes { keys_max: 100 } } else { Keyed::No },
            rules: higher.map_or(own, |place| &above[place..=place]).to_vec(),
            overrides: BTreeMap::new(),
            shadow: false,
            fallback: Fallback::default(),
            ease_off,
            lessees_max,
            weights: ByNode::default(),
            priorities,
            guaranteed,
            sharing,
        }
    }

    /// Returns the place of the limit called `name`.
    pub fn place(&self, name: &str) -> usize {
        self.pools.iter().position(|(other, _)| other == name).expect("it is one of these")
    }

    /// Returns the upstream of a host that leases the limits.
    ///
    /// # Panics
    /// If no host leases.
    pub fn upstream(&self) -> &Upstream {
        self.upstream.as_ref().expect("there are regions, or there is a store")
    }

    /// Changes how the limits that nodes ask are shared.
    pub(crate) fn share_otherwise(&mut self, change: impl FnOnce(&mut Sharing)) {
        change(&mut self.plan.sharing);
    }

    /// Returns the configuration of a host that leases the limits, by its `file`. From another allocator it leases one
    /// limit that nodes ask; from a store, all limits.
    pub fn leased(&self, file: &File) -> Vec<LimitConfig> {
        let File { ref rules, reserve, safe, is_old, version: _ } = *file;
        let mut configs = self.configs(rules);
        for config in configs.iter_mut().take(self.asked) {
            (config.sharing.reserve, config.sharing.safe) = (reserve, safe);
        }
        let is_stored = self.upstream().is_store();
        configs.truncate(if is_stored && !is_old { self.count() } else { 1 });
        for config in &mut configs {
            config.upstream = self.upstream.clone();
            if !is_stored {
                config.rules.clear();
            }
            if !is_stored || is_old {
                config.parent = None;
            }
        }
        configs
    }

    /// Returns the most permits that can ever be lent at once under `rules`.
    pub fn ceiling(&self, rules: &[Rule]) -> u64 {
        self.least(rules, Rule::ceiling)
    }

    /// Returns the most permits that a pool just made lends at once, below others that are full.
    pub fn beginning(&self, rules: &[Rule]) -> u64 {
        self.least(rules, |rule| rule.bucket().map_or_else(|| rule.ceiling(), TokenBucket::initial))
    }

    /// Returns the least of two amounts: what the lowest rules allow by `allowed`, without the reserve, and the
    /// ceilings above them.
    fn least(&self, rules: &[Rule], allowed: impl Fn(&Rule) -> u64) -> u64 {
        let (own, above) = rules.split_at(rules.len() - self.above().len());
        let own = own.iter().map(allowed).min().unwrap_or(u64::MAX);
        let above = above.iter().map(Rule::ceiling).min().unwrap_or(u64::MAX);
        own.saturating_sub(self.plan.sharing.reserve).min(above)
    }
}

/// Whether books of `rule` depend on when they began.
fn depends_on_its_beginning(rule: &Rule) -> bool {
    let is_even = |rule: &TokenBucket| rule.refill_style() == RefillStyle::Greedy && rule.warm_up().is_none();
    matches!(rule, Rule::TokenBucket(rule) if !is_even(rule))
}

/// Returns the prefix of the names of nodes in a guaranteed group.
fn group_stem(group: usize) -> String {
    format!("group-{group}-")
}

impl Setup {
    /// Returns the name of the sender at place `node`: a node, an adversary, or a region.
    pub fn name(&self, node: usize) -> NodeName {
        let stem = self.share(node).group.map_or_else(String::new, group_stem);
        NodeName::try_new(&format!("{stem}node-{node}")).expect("letters and digits")
    }
}
