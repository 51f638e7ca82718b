//! The names of scenarios, as the files of mistakes use them.

use super::Scenario;

impl Scenario {
    /// All scenarios.
    pub const ALL: [Scenario; 55] = [
        Scenario::Any,
        Scenario::FullWindow,
        Scenario::TinyBucket,
        Scenario::LateAsks,
        Scenario::ShortWindow,
        Scenario::Restarts,
        Scenario::BucketRestarts,
        Scenario::Lowered,
        Scenario::NewWindows,
        Scenario::Capped,
        Scenario::Paused,
        Scenario::PausedRestarts,
        Scenario::LateReports,
        Scenario::FarVendor,
        Scenario::FixedRestarts,
        Scenario::Flow,
        Scenario::FlowParts,
        Scenario::OddBucket,
        Scenario::OddWindow,
        Scenario::Cap,
        Scenario::CapRestarts,
        Scenario::Outside,
        Scenario::Reserving,
        Scenario::InVain,
        Scenario::CutOff,
        Scenario::HandedOn,
        Scenario::CutOffRestarts,
        Scenario::Slewed,
        Scenario::Above,
        Scenario::AboveRestarts,
        Scenario::Written,
        Scenario::WrittenCap,
        Scenario::WrittenFlow,
        Scenario::Regions,
        Scenario::Stored,
        Scenario::StoreLoses,
        Scenario::StoreEmptied,
        Scenario::StoreSet,
        Scenario::StoreSetTwice,
        Scenario::StoreClose,
        Scenario::StoreSmall,
        Scenario::StoreClockless,
        Scenario::StoreSafe,
        Scenario::SafeChanged,
        Scenario::SafeRulesChanged,
        Scenario::SafeAnew,
        Scenario::StoreChanged,
        Scenario::StorePut,
        Scenario::StoreFamily,
        Scenario::StoreDecided,
        Scenario::RegionsCapped,
        Scenario::StoreCapped,
        Scenario::Overlong,
        Scenario::WrittenAbove,
        Scenario::Removed,
    ];

    /// Returns the scenario called `name`.
    pub fn named(name: &str) -> Option<Scenario> {
        Scenario::ALL.into_iter().find(|scenario| format!("{scenario:?}") == name)
    }
}
