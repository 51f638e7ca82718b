//! Limits that several allocators lease from one store: each limit and key has a root pool there, in a cell, and each
//! allocator is one of its sessions. [`Member`] is what an allocator does with such a store: it says which call comes next, and a shell
//! carries that to the store and back.

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
pub use families::{BELOW_MAX, Families, ParentRef};
pub use head::{Head, SIGN_EVERY, Signed, Signer};
pub use member::{Call, Host, Member, MemberError, Next, Notice, Said};
pub use root::{Read, Reply, RootError, RootSpec, is_forgettable, read, to_pool};
pub use time_source::TimeSource;
pub use watch::{Verdict, Watch};

/// The cell of the head.
pub const HEAD: &str = "head";

/// The cell of the limits that operators have put and removed. No root is called so, nor is the head.
pub const OVERRIDES: &str = "limits";

/// The cell of the root of a limit, and of a key of it. No two are alike: names of limits have no space.
pub fn cell_of(limit: &str, key: Option<&str>) -> String {
    match key {
        Some(key) => format!("root {limit} {key}"),
        None => format!("root {limit}"),
    }
}

/// Whether the root in that cell is of a key.
pub fn is_of_key(cell: &str) -> bool {
    cell.split(' ').count() > 2
}

/// The limit whose root that cell is.
pub fn limit_of(cell: &str) -> Option<&str> {
    cell.strip_prefix("root ")?.split(' ').next()
}
