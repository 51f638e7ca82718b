//! Gauges of one limit over all clients of this process. A counter adds up what several clients count, but a gauge has one
//! value: the client that reported last would overwrite what the others show.

use super::{Now, names};
use lessor_protocol::Fallback;
use lessor_protocol::lock_anyway::LockAnyway;
use metrics::gauge;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What one client shows of a limit.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    now: Now,
    fallen: Option<Fallback>,
}

/// By label, what each client of this process shows.
static SHOWN: Mutex<BTreeMap<Arc<str>, BTreeMap<u64, Shown>>> = Mutex::new(BTreeMap::new());

/// The part of one client in the gauges of a label. What it shows is taken back when it is dropped.
#[derive(Debug)]
pub(super) struct Gauges {
    limit: Arc<str>,
    number: u64,
}

impl Gauges {
    /// Makes a part that shows nothing yet.
    pub(super) fn new(limit: Arc<str>) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Gauges { limit, number: NUMBERS.fetch_add(1, Ordering::Relaxed) }
    }

    /// Shows the current figures, and the fallback that the limit is in, if any.
    pub(super) fn show(&self, now: Now, fallen: Option<Fallback>) {
        self.change(|shown| *shown = Shown { now, fallen });
    }

    /// As [`Gauges::show`], with the figures that were shown last.
    pub(super) fn show_fallback(&self, fallen: Option<Fallback>) {
        self.change(|shown| shown.fallen = fallen);
    }

    fn change(&self, change: impl FnOnce(&mut Shown)) {
        let mut labels = SHOWN.lock_anyway();
        let clients = labels.entry(self.limit.clone()).or_default();
        change(clients.entry(self.number).or_default());
        // The lock is held meanwhile, or an older sum could be the last one that is set.
        self.set(clients);
    }

    /// Sets the gauges to the sum over `clients`. Everything is looked up anew, because an exporter may have been
    /// installed since the last time.
    fn set(&self, clients: &BTreeMap<u64, Shown>) {
        let (mut now, mut is_in) = (Now::default(), [false; Fallback::ALL.len()]);
        for shown in clients.values() {
            now = now.with(shown.now);
            for (is_in, fallback) in is_in.iter_mut().zip(Fallback::ALL) {
                *is_in |= shown.fallen == Some(fallback);
            }
        }
        let limit = || self.limit.clone();
        gauge!(names::AVAILABLE, "limit" => limit()).set(now.available as f64);
        gauge!(names::WAITING, "limit" => limit()).set(now.waiting as f64);
        gauge!(names::LEASE_AGE, "limit" => limit()).set(now.lease_age);
        for (is_in, fallback) in is_in.into_iter().zip(Fallback::ALL) {
            let gauge = gauge!(names::FALLBACK, "limit" => limit(), "fallback" => fallback.name());
            gauge.set(f64::from(u8::from(is_in)));
        }
    }
}

impl Drop for Gauges {
    fn drop(&mut self) {
        let mut labels = SHOWN.lock_anyway();
        let Some(clients) = labels.get_mut(&self.limit) else { return };
        if clients.remove(&self.number).is_some() {
            self.set(clients);
        }
        if clients.is_empty() {
            labels.remove(&self.limit);
        }
    }
}
