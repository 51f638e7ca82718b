//! A limit whose keys hold permits that no allocator lent. It serves to measure a lookup among more keys than any
//! allocator extends leases for in two seconds. Only the benches use it.

use crate::limit::Limit;
use crate::local_pool::CLOCK;
use crate::shared::Shared;
use crate::slot::SLOT_MAX;
use crate::ticks::{HotClock, Ticks};
use std::sync::Arc;
use std::time::Duration;

/// Longer than any measurement.
const LEASED: Duration = Duration::from_secs(24 * 3600);

/// Makes a limit with `keys` that hold four billion permits each and that no task refills.
///
/// # Panics
/// If the system gives no clock.
pub fn bench_support<'a>(keys: impl Iterator<Item = &'a str>) -> Limit {
    let ticks = Ticks::try_new(HotClock::Coarse).expect("this clock needs no thread");
    let shared = Arc::new(Shared::new(ticks));
    for key in keys {
        // The plain pool is looked up before each key, as by a caller that names the limit each time.
        let _plain = shared.pool("stocked", None);
        shared.pool("stocked", Some(key)).slot().install(SLOT_MAX, 0, CLOCK.now() + LEASED);
    }
    Limit::new(shared.pool("stocked", None), shared)
}
