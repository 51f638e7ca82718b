//! One exchange with a pool and the pools above it: takes them out of their limits, lends them to the exchange, and puts them
//! back. The pools decide what is charged where.

use super::Caller;
use super::{DEPTH_MAX, key_above};
use crate::pool::Above;
use crate::registry::limit::{Kept, Limit, PoolId};
use crate::rejection::{AskRejection, Reason};
use lessor_protocol::Moment;
use std::collections::BTreeMap;

/// A pool, the limit that it is of, and which of its pools.
type Member = (String, PoolId, Box<Kept>);

/// The pools of an exchange, the lowest first.
#[derive(Debug)]
pub(super) struct Family {
    members: Vec<Member>,
}

/// The limit above the one called `name`, and its pool that is above `id`.
fn parent(
    limits: &BTreeMap<String, Limit>,
    name: &str,
    id: &PoolId,
) -> Result<Option<(String, PoolId)>, AskRejection> {
    let Some(parent) = limits.get(name).and_then(|limit| limit.config().parent.as_ref()) else {
        return Ok(None);
    };
    let above = limits.get(parent.as_str()).ok_or_else(|| {
        let detail = format!("{name:?} is below {:?}, which there is no limit of", parent.as_str());
        AskRejection::new(Reason::LimitUnknown, "limit", detail)
    })?;
    if !above.is_keyed() {
        return Ok(Some((parent.to_string(), PoolId::default())));
    }
    let key = key_above(name, id.key.as_ref(), parent)
        .map_err(|detail| AskRejection::new(Reason::Invalid, "key", detail))?;
    Ok(Some((parent.to_string(), PoolId::from(Some(key)))))
}

impl Family {
    /// Takes the pools out of `limits`, from `id` of the limit called `name` up. Makes those that are not there yet.
    ///
    /// # Errors
    /// If there is no room for one of them, or a key has no parent. All are back then.
    pub(super) fn open(
        limits: &mut BTreeMap<String, Limit>,
        now: Moment,
        name: &str,
        id: PoolId,
    ) -> Result<Self, AskRejection> {
        let mut family = Family { members: vec![] };
        match family.open_all(limits, now, name, id) {
            Ok(()) => Ok(family),
            Err(wrong) => {
                family.close(limits, now);
                Err(wrong)
            }
        }
    }

    fn open_all(
        &mut self,
        limits: &mut BTreeMap<String, Limit>,
        now: Moment,
        name: &str,
        id: PoolId,
    ) -> Result<(), AskRejection> {
        let mut next = Some((name.to_owned(), id));
        while let Some((name, id)) = next {
            // Allocators that did not know of each other may have put limits that do not fit together.
            if self.members.len() > DEPTH_MAX || self.members.iter().any(|(other, ..)| *other == name) {
                let detail = format!(
                    "limits are above each other in a circle, or more than {DEPTH_MAX}, from {name:?} on"
                );
                return Err(AskRejection::new(Reason::Invalid, "limit", detail));
            }
            next = parent(limits, &name, &id)?;
            let limit = limits.get_mut(&name).expect("it was found a moment ago");
            let kept = limit.open(now, &id)?;
            self.members.push((name, id, kept));
        }
        Ok(())
    }

    /// Puts the pools back, with their part of the sums.
    pub(super) fn close(self, limits: &mut BTreeMap<String, Limit>, now: Moment) {
        for (name, id, kept) in self.members {
            limits.get_mut(&name).expect("none is taken out meanwhile").close(now, id, kept);
        }
    }

    /// Runs `act` on the lowest pool and those above it, with the share of `caller` by each limit.
    pub(super) fn with<T>(
        &mut self,
        limits: &BTreeMap<String, Limit>,
        caller: &Caller,
        act: impl FnOnce(&mut crate::pool::Pool, &mut [Above<'_>]) -> T,
    ) -> T {
        let (lowest, rest) = self.members.split_first_mut().expect("there is one at least");
        let above = rest.iter_mut().map(|(name, _, kept)| {
            let share = limits[name.as_str()].config().share(&caller.node);
            Above { pool: &mut kept.pool, share }
        });
        act(&mut lowest.2.pool, &mut above.collect::<Vec<_>>())
    }
}
