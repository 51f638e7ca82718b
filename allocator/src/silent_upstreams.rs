//! The upstream allocators that do not answer. Their tasks record that; exchanges, readiness and pages ask. A shared
//! store that does not answer is in [`crate::shared_store_status`].

use crate::config::Upstream;
use lessor_protocol::lock_anyway::LockAnyway;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The upstreams that were asked last in vain. An upstream that was never asked is not among them.
#[derive(Debug, Default)]
pub(crate) struct SilentUpstreams {
    silent: Mutex<BTreeSet<Upstream>>,
    any: AtomicBool,
}

impl SilentUpstreams {
    /// Records whether `upstream` is silent.
    pub(crate) fn note(&self, upstream: &Upstream, is_silent: bool) {
        let mut silent = self.silent.lock_anyway();
        if is_silent {
            silent.insert(upstream.clone());
        } else {
            silent.remove(upstream);
        }
        self.any.store(!silent.is_empty(), Ordering::Relaxed);
    }

    /// Whether there are any. Every exchange asks.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Returns them all.
    pub(crate) fn all(&self) -> BTreeSet<Upstream> {
        self.silent.lock_anyway().clone()
    }
}
