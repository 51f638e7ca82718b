//! A limit whose keys hold permits that no allocator lent. It is for measuring what a lookup costs among more keys
//! than any allocator extends leases for in two seconds. The benches use it; nothing that ships does.

use crate::limit::Limit;
use crate::local_pool::CLOCK;
use crate::shared::Shared;
use crate::slot::SLOT_MAX;
use crate::ticks::{HotClock, Ticks};
use std::sync::Arc;
use std::time::Duration;

/// For longer than anything is measured.
const LEASED: Duration = Duration::from_secs(24 * 3600);

/// A limit of whose `keys` each holds four billion permits, and which no task refills.
///
/// # Panics
/// If the system gives no clock.
pub fn bench_support<'a>(keys: impl Iterator<Item = &'a str>) -> Limit {
    let ticks = Ticks::try_new(HotClock::Coarse).expect("it needs no thread");
    let shared = Arc::new(Shared::new(ticks));
    for key in keys {
        // Made beside each other, as by callers that come one after the other.
        let _plain = shared.pool("stocked", None);
        shared.pool("stocked", Some(key)).slot().install(SLOT_MAX, 0, CLOCK.now() + LEASED);
    }
    Limit::new(shared.pool("stocked", None), shared)
}
