//! Draws fleets with periods as long as in contracts: a minute and more, where other setups have five seconds at most.

use super::any;
use crate::live::Act;
use crate::remade::remade;
use crate::setup::Setup;
use lessor_ledger::Rule;

/// Most calls a second: a run is long, and more would show nothing new and take longer.
const DEMAND_MAX: f64 = 60.0;

/// Draws the fleet of `any(seed)` with rules that count for 5 to 25 times as long. Round trips and faults keep their
/// length.
pub fn lengthy(seed: u64) -> Setup {
    let mut setup = any(seed);
    let times = fastrand::Rng::with_seed(seed ^ 0x1e46_7ed0_0000_0000).u32(5..=25);
    stretch(&mut setup.plan.rules, times);
    for live in &mut setup.live {
        live.at *= u64::from(times);
        if let Act::Change(_, rules) | Act::Put(rules) = &mut live.act {
            stretch(rules, times);
        }
    }
    setup.lasts *= u64::from(times);
    setup.demand = (setup.demand / f64::from(times)).clamp(2.0, DEMAND_MAX);
    setup.named()
}

/// Makes the periods of `rules` `times` as long. A calendar stays as it is.
fn stretch(rules: &mut [Rule], times: u32) {
    for rule in rules {
        *rule = remade(rule, |permits| permits, |span| span * times).expect("numbers in range");
    }
}
