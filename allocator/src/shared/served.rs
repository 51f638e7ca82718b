//! How the server is run: the peers that are let in, and where decisions are written. Set once, before the first peer.

use super::Shared;
use crate::access::Access;
use crate::audit::Audit;
use crate::config::Exposure;
use crate::http::Bodies;
use crate::memory::ShortMemory;
use crate::open_secrets::OpenSecrets;

/// Problems of the machine, as found at the last look.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// Files of secrets that every user can read.
    pub(crate) open_secrets: OpenSecrets,
    pub(crate) short_memory: ShortMemory,
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

    /// Problems of the machine.
    pub(crate) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Sets the exposed addresses.
    pub(crate) fn set_exposures(&self, exposures: Vec<Exposure>) {
        // A server serves once.
        let _ = self.exposures.set(exposures);
    }
}
