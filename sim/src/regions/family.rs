//! Two limits in the store, one below the other: each call is charged to both. A region leases both and lends them together; one that
//! knows an older configuration, in which there is none above, is lent nothing.

use super::draw::rule;
use super::*;
use lessor_ledger::overrides::Version;
use lessor_ledger::roots::{CompiledPlan, ParentRef, RootSpec};

/// The limit below, and the one above.
pub(super) const NAMES: [&str; 2] = ["a", "above"];

/// What a region asks of the roots of both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asks {
    pub(super) own: Ask,
    pub(super) above: Option<Ask>,
}

impl World {
    /// The same world where the limit is below another one.
    pub(super) fn below_another(mut self) -> World {
        let (permits, span) = permits_per(&self.rule);
        // So that now one of both is what there is too little of, and now the other.
        let limit = (permits as f64 * (0.3 + 1.2 * self.rng.f64())) as u64 + 1;
        let per = span.mul_f64(0.5 + self.rng.f64()).max(Duration::from_millis(100));
        let above = rule(limit, per, &mut self.rng);
        self.below(above)
    }

    /// The same where that is `above`.
    pub(super) fn below(mut self, above: Rule) -> World {
        let now = shown(self.real, self.centre_ppm);
        (self.left[1], self.above) = (Left::of(&above, now), Some(above));
        let (real, borrowed) = (self.real, self.borrowed.clone());
        for region in &mut self.regions {
            region.above = Some(Pool::new(borrowed.clone(), region.clock(real)));
        }
        if let Some(store) = &mut self.store {
            let plan = |rule| Plan {
                rules: vec![lessor_ledger::roots::stricter(rule).expect("it can be kept")],
                ..(**store.specs[0].compiled.plan()).clone()
            };
            store.specs[1] = RootSpec { compiled: CompiledPlan::new(plan(&above)), ..store.specs[1].clone() };
        }
        self
    }

    /// The same where one of several regions knows an older configuration.
    pub(super) fn of_two_minds(mut self) -> World {
        if self.regions.len() > 1 {
            self.regions.last_mut().iter_mut().for_each(|region| region.above = None);
        }
        self
    }

    /// Whether a region knows an older configuration than is right.
    pub(super) fn is_old(&self, region: usize) -> bool {
        self.above.is_some() && self.regions[region].above.is_none()
    }

    /// What a region that leases by them knows of what the roots are made of.
    pub(super) fn specs(&self, region: usize) -> [RootSpec; 2] {
        let store = self.store.as_ref().expect("there is one");
        let knows = self.regions[region].above.is_some();
        let version = Version::of_file(if self.is_old(region) { 1 } else { 2 });
        let spec = |place: usize| {
            let parent = (place == 0 && knows).then(|| NAMES[1].to_owned());
            let parent_ref = ParentRef { limit: NAMES[place].to_owned(), parent, known: version };
            RootSpec { version, parent_ref, ..store.specs[place].clone() }
        };
        [spec(0), spec(1)]
    }

    /// Which configuration a region knows, and what that says of limits below others.
    pub(super) fn configuration(&self, region: usize) -> (Version, BTreeMap<String, String>) {
        let [own, _] = self.specs(region);
        let above = own.parent_ref.parent.map(|parent| (NAMES[0].to_owned(), parent));
        (own.version, above.into_iter().collect())
    }

    /// Whether a region knows an older configuration than is right, and no region has told the store of that yet. The region is
    /// not there yet: no region could know of a newer configuration.
    pub(super) fn is_too_early(&self, region: usize) -> bool {
        self.is_old(region) && !self.store.as_ref().is_some_and(Store::knows_families)
    }

    /// The root of the limit above has answered.
    pub(super) fn hear_from_above(
        &mut self,
        region: usize,
        first_sent: Moment,
        answer: Result<Answer, AskError>,
    ) -> Result<(), String> {
        let centre_died = self.centre_died;
        let at = &mut self.regions[region];
        let now = at.clock(self.real);
        if let Ok(Answer::Grant(grant)) = &answer {
            at.is_told(1, grant);
        }
        let Some(above) = &mut at.above else { return Ok(()) };
        match answer {
            Ok(Answer::Grant(grant)) => {
                if above.on_grant_above(now, first_sent, &grant) != GrantOutcome::Believed {
                    return Err(format!("region {region} was granted what cannot be: {grant:?}"));
                }
            }
            Ok(Answer::Refusal(refusal)) => above.on_refusal_above(now, refusal),
            Err(error @ AskError::Totals { .. }) if !centre_died => {
                return Err(format!("an honest region was not believed above: {error}"));
            }
            // What it holds is nothing that is known there: it goes on until its end.
            Err(_) => above.on_unrecognised_above(now),
        }
        Ok(())
    }
}
