//! What a root is made of, with its rules as they are written in its cell: once for all that is asked of it.

use super::TimeSource;
use crate::Rule;
use crate::pool::Plan;
use crate::rule_text;
use serde_json::value::RawValue;
use std::sync::Arc;

/// A plan, and its rules as they are written. Clones share both.
#[derive(Clone, Debug)]
pub struct CompiledPlan {
    plan: Arc<Plan>,
    rules: Arc<RawValue>,
    source: TimeSource,
}

impl CompiledPlan {
    /// Roots by `plan`, whose rules are kept by the time of `source`.
    pub fn new(plan: Plan, source: TimeSource) -> Self {
        let rules = rule_text::write(&plan.rules).into();
        CompiledPlan { plan: Arc::new(plan), rules, source }
    }

    /// What must hold, and how it is shared.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Who tells the time that they go by.
    pub(super) fn time_source(&self) -> TimeSource {
        self.source
    }

    /// The same, but for the rules, which are those that an allocator wrote. `None` if this version does not know such rules.
    pub(super) fn by(&self, rules: &RawValue) -> Option<Arc<Plan>> {
        // Nearly always they are the same: reading them would take longer than all the rest.
        if rules.get() == self.rules.get() {
            return Some(self.plan.clone());
        }
        let rules = rule_text::read(rules)?;
        Some(Arc::new(Plan { rules, ..(*self.plan).clone() }))
    }

    /// These `rules` as they are written.
    pub(super) fn written(&self, rules: &[Rule]) -> Arc<RawValue> {
        match rules == self.plan.rules {
            true => self.rules.clone(),
            false => rule_text::write(rules).into(),
        }
    }
}
