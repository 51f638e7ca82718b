//! What a member tells: why a job failed, and what an operator or a metric hears of.

use super::HEAD_HOLDS;
use crate::cells::{CellsError, Timeline};
use crate::roots::RootError;
use std::time::Duration;

/// Why a job failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    /// The store does not answer, or answers with an error, which says what is known of the call.
    #[error(transparent)]
    Store(#[from] CellsError),
    /// The time of the store is not known well enough.
    #[error(transparent)]
    Time(RootError),
    /// It is not known which clock is wrong.
    #[error(
        "the clock of the store was set, or the clock of this machine stood still: other allocators must show which"
    )]
    InDoubt,
    /// Other allocators changed the head with each try.
    #[error("other allocators keep changing the head of the store")]
    Busy,
    /// The head went away while it was used, or another one is there.
    #[error("the head of the store was replaced")]
    OtherHead,
    /// Another version wrote the head, or another program.
    #[error("the head of the store cannot be used: {0}")]
    Head(String),
    /// Another version wrote the cell of the limits that operators have put and removed, or another program.
    #[error("the cell of the limits in the store cannot be used: {0}")]
    Overrides(String),
    /// Another version wrote the cell of the time, or another program.
    #[error("the cell of the time in the store cannot be used: {0}")]
    Stamp(String),
    /// The head was not signed for so long that another allocator may have found a loss meanwhile.
    #[error("this allocator has not signed the head of the store for {HEAD_HOLDS:?}")]
    NotSigned,
    /// The shell answered another call than it was given.
    #[error("an answer to another call")]
    Mismatch,
}

/// What an operator or a metric hears of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The store has no head: its time begins, on this timeline.
    Begins(Timeline),
    /// The clock of the store was set: another era begins.
    StoreStepped,
    /// The clock of the store was watched by no allocator: another era begins.
    Unwatched,
    /// No allocator was left that knew the time of the store: it goes by the calendar of this one, and another era begins.
    TimeBegins,
    /// This allocator keeps the time of the store from now on.
    KeepsTime,
    /// The clock of this machine was wrong: other allocators agree with the store.
    OwnStepped,
    /// The store went from the first timeline to the second, and may have lost what was written last.
    Moved(Timeline, Timeline),
    /// The store had lost what was put and removed over the API, and was told again.
    OverridesRewritten,
    /// The store lacks what was put and removed over the API, and there is no room for it any more.
    NoRoom,
    /// More roots wait to be taken away than are remembered. Others stay in the store until they are asked again.
    ManyIdle,
    /// The root in this cell goes by other rules under the same version of the configuration.
    Contested(String),
    /// A call that writes roots was answered.
    Swapped {
        /// Roots that were written.
        done: usize,
        /// Roots that another allocator wrote first.
        late: usize,
        /// How long the call took.
        took: Duration,
    },
    /// A call that writes this many roots failed.
    NotSwapped(usize),
}
