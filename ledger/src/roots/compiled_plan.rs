//! The plan of a root with its rules as they are written in its cell, compiled once for all asks of the root.

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
    /// Compiles `plan` for roots that go by the time of `source`.
    pub fn new(plan: Plan, source: TimeSource) -> Self {
        let rules = rule_text::write(&plan.rules).into();
        CompiledPlan { plan: Arc::new(plan), rules, source }
    }

    /// Returns the plan: the rules that must hold, and how permits are shared.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Returns the source of the time that these roots go by.
    pub(super) fn time_source(&self) -> TimeSource {
        self.source
    }

    /// Returns the plan with `rules` as another allocator wrote them. `None` if this version does not know such rules.
    pub(super) fn by(&self, rules: &RawValue) -> Option<Arc<Plan>> {
        // Nearly always they are the plan's own rules, and to read them would take longer than all the rest.
        if rules.get() == self.rules.get() {
            return Some(self.plan.clone());
        }
        let rules = rule_text::read(rules)?;
        Some(Arc::new(Plan { rules, ..(*self.plan).clone() }))
    }

    /// Returns `rules` as they are written in a cell.
    pub(super) fn written(&self, rules: &[Rule]) -> Arc<RawValue> {
        match rules == self.plan.rules {
            true => self.rules.clone(),
            false => rule_text::write(rules).into(),
        }
    }
}
