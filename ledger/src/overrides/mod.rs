//! What operators decide about limits over the API, beside what the files say.
//!
//! In reading order: [`Suspension`] (one limit is paused, or lends nothing to blocked nodes), [`Suspensions`] (the same
//! for all limits, in a shared store), [`LimitOverrides`] (limits that were put and removed there), [`Version`] (which
//! of a file and a decision is newer), [`EffectiveLimits`] (the limits that hold at one allocator, by its file and the
//! overrides), [`Publish`] (how a decision gets into a shared store).

mod effective;
mod limits;
mod publish;
mod suspension;
mod suspensions;
mod version;

pub use effective::{Changes, EffectiveLimits, ReadLimit, Unusable};
pub use limits::{LimitOverride, LimitOverrides, OverridesFull};
pub use publish::{Next, Publish, PublishError, Published};
pub use suspension::{BLOCKED_MAX, News, SavedSuspension, Suspension};
pub use suspensions::{Decision, SUSPENDED_MAX, Suspended, Suspensions, SuspensionsFull};
pub use version::Version;
