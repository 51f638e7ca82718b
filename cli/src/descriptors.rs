//! The descriptors that this process may have open: one for each connection, and some more.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit to the highest one that this process may have, and returns it; `None` if there is none. A shell starts
/// processes with a limit of 1,024, for the sake of old programs.
pub(crate) fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // A filter of system calls may end a process that sets a limit, needed or not.
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    getrlimit(Resource::Nofile).current
}
