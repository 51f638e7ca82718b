//! How the server is run: the peers that are let in, and where decisions are written. Set once, before the first peer.

use super::Shared;
use crate::access::Access;
use crate::audit::Audit;
use crate::config::Exposure;
use crate::http::Bodies;
use crate::memory::ShortMemory;
use crate::open_secrets::OpenSecrets;
use lessor_protocol::Moment;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long an unusable answer of an upstream is a warning. An upstream that lends nothing is asked at least this often
/// while nodes want permits.
const UNFIT_FOR: Duration = Duration::from_secs(60);

/// Problems of the machine and of upstreams, as found at the last look.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// Files of secrets that every user can read.
    pub(crate) open_secrets: OpenSecrets,
    pub(crate) short_memory: ShortMemory,
    pub(crate) unfit: UnfitAnswers,
}

/// The last unusable answer of each upstream: when it came, and what was wrong.
#[derive(Debug, Default)]
pub(crate) struct UnfitAnswers(Mutex<BTreeMap<String, (Moment, String)>>);

impl UnfitAnswers {
    /// Records an answer of `upstream` that came at `now`.
    pub(crate) fn note(&self, upstream: &str, now: Moment, detail: String) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.retain(|_, (at, _)| now.since(*at) < UNFIT_FOR);
        last.insert(upstream.to_owned(), (now, detail));
    }

    /// Returns a warning about each upstream whose last unusable answer is recent.
    pub(crate) fn warnings(&self, now: Moment) -> Vec<String> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = last.iter().filter(|(_, (at, _))| now.since(*at) < UNFIT_FOR);
        let warning = |upstream, detail| format!("{upstream} does not lend what is asked of it: {detail}");
        recent.map(|(upstream, (_, detail))| warning(upstream, detail)).collect()
    }
}

impl Shared {
    /// Addresses that let in any peer of another machine.
    pub(crate) fn exposures(&self) -> &[Exposure] {
        self.exposures.get().map_or(&[], Vec::as_slice)
    }

    /// Identities and their rights; `None` if no identity is required, or the rights were not read yet.
    pub(crate) fn access(&self) -> Option<&Access> {
        self.access.get()
    }

    /// Sets the identities and their rights.
    pub(crate) fn set_access(&self, access: Access) {
        // A server serves once.
        let _ = self.access.set(access);
    }

    /// The audit log.
    pub(crate) fn audit(&self) -> &Audit {
        &self.audit
    }

    /// The bodies of requests that are being read.
    pub(crate) fn bodies(&self) -> &Bodies {
        &self.bodies
    }

    /// The bodies that are being read of peers that have not proven an identity.
    pub(crate) fn bodies_of_strangers(&self) -> &Bodies {
        &self.bodies_of_strangers
    }

    /// Problems of the machine and of upstreams.
    pub(crate) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Sets the exposed addresses.
    pub(crate) fn set_exposures(&self, exposures: Vec<Exposure>) {
        // A server serves once.
        let _ = self.exposures.set(exposures);
    }
}
