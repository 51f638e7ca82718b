//! Usual values of the parts of a pool or session that are rarely set, and a compact optional moment.

use super::session::Said;
use crate::pacing::Pacer;
use crate::share::Share;
use lessor_protocol::Moment;
pub(super) use lessor_protocol::rare::{Rare, Usual};

/// An optional moment in the room of a [`Moment`]: [`Moment::NEVER`] stands for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MaybeMoment(Moment);

impl MaybeMoment {
    pub(super) const NONE: Self = MaybeMoment(Moment::NEVER);

    pub(super) fn get(self) -> Option<Moment> {
        Some(self.0).filter(|at| *at != Moment::NEVER)
    }
}

impl From<Option<Moment>> for MaybeMoment {
    fn from(at: Option<Moment>) -> Self {
        MaybeMoment(at.unwrap_or(Moment::NEVER))
    }
}

impl Usual for Pacer {
    const USUAL: &'static Self = &Pacer::Free;
}

impl Usual for Share {
    const USUAL: &'static Self = &Share::EVEN;
}

impl Usual for Said {
    const USUAL: &'static Self = &Said::NOTHING;
}
