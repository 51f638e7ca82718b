//! The limits of an allocator that shares a store: those of its file, but for limits that operators put or removed over
//! the API of any allocator. The shipping [`EffectiveLimits`] decides which of both hold.

use crate::limits::{FIRST, File};
use crate::setup::parse_rules;
use crate::text::rules_text;
use lessor_ledger::Rule;
use lessor_ledger::overrides::{EffectiveLimits, LimitOverrides, ReadLimit, Version};
use lessor_ledger::pool::FixedParts;
use lessor_ledger::registry::{LimitConfig, Registry, by_name};
use lessor_ledger::roots::parents_of;
use lessor_protocol::Moment;
use serde_json::Value;
use std::collections::BTreeMap;

/// The limits that an allocator goes by.
#[derive(Debug)]
pub(super) struct Configured {
    effective: EffectiveLimits<Reader>,
    /// The limits of its registry.
    limits: BTreeMap<String, LimitConfig>,
    /// The rules of the limit that nodes ask, or its last ones before it was removed.
    last: Vec<Rule>,
}

/// Reads the rules of the limit that nodes ask.
#[derive(Clone, Debug)]
struct Reader(LimitConfig);

impl ReadLimit for Reader {
    fn read(&self, _: &str, put: &Value) -> Result<LimitConfig, String> {
        Ok(LimitConfig { rules: rules_of(put), ..self.0.clone() })
    }
}

/// Writes the limit that nodes ask as an operator puts it.
pub(super) fn put(rules: &[Rule]) -> Value {
    Value::String(rules_text(rules))
}

/// Reads the rules in what [`put`] returned.
pub(super) fn rules_of(put: &Value) -> Vec<Rule> {
    let text = put.as_str().expect("it was put as a text");
    parse_rules(&text.replace(',', " ")).expect("it was written by this simulator")
}

impl Configured {
    /// Makes the limits of a process that begins with its `file`, which are `leased`.
    pub(super) fn new(file: &File, leased: &[LimitConfig]) -> Self {
        let asked = leased.first().expect("nodes ask one").clone();
        let last = asked.rules.clone();
        let effective = EffectiveLimits::new(Reader(asked), file.version, leased);
        Configured { effective, limits: by_name(leased), last }
    }

    /// Goes by a new `file`. Returns whether the limit that nodes ask begins anew.
    pub(super) fn file_is(
        &mut self,
        file: &File,
        leased: &[LimitConfig],
        now: Moment,
        registry: &mut Registry,
    ) -> bool {
        self.effective.file_is(file.version, leased);
        self.go_by_them(now, registry)
    }

    /// Goes by the overrides in the store. Returns whether the limit that nodes ask begins anew.
    pub(super) fn follow(&mut self, there: &LimitOverrides, now: Moment, registry: &mut Registry) -> bool {
        self.effective.follow(there).is_some() && self.go_by_them(now, registry)
    }

    fn go_by_them(&mut self, now: Moment, registry: &mut Registry) -> bool {
        let changes = self.effective.changes(&self.limits);
        registry.go_by(now, &changes).expect("there are few limits");
        changes.gone.iter().for_each(|name| _ = self.limits.remove(name));
        self.limits.extend(by_name(&changes.put));
        let Some(asked) = self.limits.get(FIRST) else { return false };
        let before = std::mem::replace(&mut self.last, asked.rules.clone());
        FixedParts::of(&before) != FixedParts::of(&asked.rules)
    }

    /// Whether the limit that nodes ask exists.
    pub(super) fn has_asked(&self) -> bool {
        self.limits.contains_key(FIRST)
    }

    /// Returns the newest file and decision that the allocator knows.
    pub(super) fn newest(&self) -> Version {
        self.effective.newest()
    }

    /// Returns the version of the configuration that the limit called `name` follows.
    pub(super) fn version_of(&self, name: &str) -> Version {
        self.effective.version_of(name)
    }

    /// Returns the version of the root that the limit called `name` asks for the name `asked`.
    pub(super) fn version_for(&self, name: &str, asked: &str) -> Version {
        self.effective.version_for(name, asked)
    }

    /// Returns the version of the last put or removal of the limit that nodes ask, as far as the allocator knows.
    pub(super) fn newest_put(&self) -> Version {
        let put = self.known().holding(0).find(|(name, _)| *name == FIRST);
        put.map_or(Version::default(), |(_, put)| put.version)
    }

    /// Returns the overrides that the allocator knows.
    pub(super) fn known(&self) -> &LimitOverrides {
        self.effective.known()
    }

    /// Returns the limits that are below others, each with the one above.
    pub(super) fn parents(&self) -> BTreeMap<String, String> {
        parents_of(self.limits.iter().map(|(name, limit)| (name.as_str(), limit.parent.as_deref())))
    }
}
