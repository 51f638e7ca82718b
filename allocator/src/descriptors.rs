//! Connections against the descriptors that this process may have open. With none left it accepts no connection, reaches
//! no store, and reads no file.

use std::sync::OnceLock;

/// Descriptors for all but connections of peers: the store, files that are read again, upstreams, the runtime.
const OTHERS: usize = 64;

/// A warning to operators, if there are too few descriptors for the configured connections.
#[derive(Debug, Default)]
pub(crate) struct FewDescriptors(OnceLock<String>);

impl FewDescriptors {
    /// Returns the bounds of connections, in all and of one address: `configured`, or lower ones if those and
    /// `of_operators` do not fit into `descriptors`.
    pub(crate) fn bounds(
        &self,
        descriptors: u64,
        configured: (usize, usize),
        of_operators: usize,
    ) -> (usize, usize) {
        let (max, per_address) = configured;
        let room = usize::try_from(descriptors).unwrap_or(usize::MAX).saturating_sub(OTHERS + of_operators);
        if max <= room {
            return configured;
        }
        let lower = room.max(1);
        let part = lower as u128 * per_address as u128 / max as u128;
        let (of_address, configured) = (part.max(1) as usize, max);
        let warning = format!(
            "this process may open {descriptors} files, too few for server.connections_max ({configured}): at most \
             {lower} connections are open at once, {of_address} of one address. Raise the limit (`ulimit -n`, or \
             LimitNOFILE of systemd), or lower connections_max"
        );
        tracing::warn!("{warning}");
        // No other thread can have set it.
        let _ = self.0.set(warning);
        (lower, of_address)
    }

    /// Returns the warning, if there is one.
    pub(crate) fn warning(&self) -> Option<String> {
        self.0.get().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_fit_into_the_descriptors_and_leave_some() {
        let bounds = |descriptors, configured, of_operators| {
            let few = FewDescriptors::default();
            let bounds = few.bounds(descriptors, configured, of_operators);
            assert_eq!(few.warning().is_some(), bounds != configured);
            bounds
        };
        for enough in [4_096 + 64, u64::MAX] {
            assert_eq!(bounds(enough, (4_096, 3_072), 0), (4_096, 3_072));
        }
        assert_eq!(bounds(1_024, (4_096, 3_072), 0), (960, 720));
        assert_eq!(bounds(1_024, (4_096, 3_072), 256), (704, 528));
        assert_eq!(bounds(1_024, (4_096, 4_096), 0), (960, 960), "a fleet behind one proxy");
        assert_eq!(bounds(8, (4_096, 3_072), 256), (1, 1));
    }
}
