//! Limits that several allocators lease from one store. Each limit and key has a root pool in a cell there, and each
//! allocator is one of its sessions. [`Member`] is the allocator's side of such a store: it says which call comes next,
//! and a shell carries the call to the store and its answer back.

mod clock;
mod clock_uncertainty;
mod compiled_plan;
mod exchange;
mod families;
mod head;
mod idle;
mod member;
mod root;
#[cfg(test)]
mod tests;
mod time_source;
mod timekeeping;
mod watch;

pub use clock::{RootClock, Stepped};
pub use clock_uncertainty::stricter;
pub use compiled_plan::CompiledPlan;
pub use exchange::{Exchange, RootAnswer, RootAsk};
pub use families::{BELOW_MAX, Families, ParentRef, parents_of};
pub use head::{Head, SIGN_EVERY, Signed, Signer};
pub use member::{Call, Host, Member, MemberError, Next, Notice, Said};
pub use root::{Read, Reply, RootError, RootSpec, is_forgettable, read, to_pool};
pub use time_source::TimeSource;
pub use watch::{Verdict, Watch};

/// Name of the cell of the head.
pub const HEAD: &str = "head";

/// Name of the cell of the limits that operators have put and removed. Neither a root nor the head has this name.
pub const OVERRIDES: &str = "limits";

/// Returns the name of the cell of a root: that of a limit, or of a key of it. All names differ, because names of
/// limits have no space.
pub fn cell_of(limit: &str, key: Option<&str>) -> String {
    match key {
        Some(key) => format!("root {limit} {key}"),
        None => format!("root {limit}"),
    }
}

/// Whether the root in `cell` is that of a key.
pub fn is_of_key(cell: &str) -> bool {
    cell.split(' ').count() > 2
}

/// Returns the limit whose root is in `cell`.
pub fn limit_of(cell: &str) -> Option<&str> {
    cell.strip_prefix("root ")?.split(' ').next()
}
