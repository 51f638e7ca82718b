//! How it is served: which peers are let in, and where their decisions are written down. A server says so once, before its first peer.

use super::Shared;
use crate::access::Access;
use crate::audit::Audit;
use crate::config::Exposure;
use crate::http::Bodies;
use crate::memory::ShortMemory;
use crate::open_secrets::OpenSecrets;

/// What stands wrong with the machine that it runs on, as it was found last.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// Files of secrets that all can read.
    pub(crate) open_secrets: OpenSecrets,
    pub(crate) short_memory: ShortMemory,
}

impl Shared {
    /// Where it lets in any peer of another machine.
    pub(crate) fn exposures(&self) -> &[Exposure] {
        self.exposures.get().map_or(&[], Vec::as_slice)
    }

    /// Who may do what; `None` if no identity is asked for, or what proves one was not read yet.
    pub(crate) fn access(&self) -> Option<&Access> {
        self.access.get()
    }

    /// That is who may do what from now on.
    pub(crate) fn lets_in(&self, access: Access) {
        // A server serves once.
        let _ = self.access.set(access);
    }

    /// Where decisions are written down.
    pub(crate) fn audit(&self) -> &Audit {
        &self.audit
    }

    /// The bodies of requests that are being read.
    pub(crate) fn bodies(&self) -> &Bodies {
        &self.bodies
    }

    /// What stands wrong with its machine.
    pub(crate) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// It serves so from now on.
    pub(crate) fn is_exposed(&self, exposures: Vec<Exposure>) {
        // A server serves once.
        let _ = self.exposures.set(exposures);
    }
}
