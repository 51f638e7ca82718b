//! The sessions of a pool by their places. Most pools of keys have a single session, and a tree with one entry has room for eleven.

use crate::pool::family::Place;
use crate::pool::session::Session;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Sessions in the order of their places, so that the same asks give the same answers. They are in boxes, so that a
/// search reads places only.
#[derive(Clone, Debug, Default)]
pub(super) enum Places {
    #[default]
    None,
    One(Place, Box<Session>),
    /// At least two.
    Many(BTreeMap<Place, Box<Session>>),
}

impl Places {
    /// Returns the session at `place`.
    pub(super) fn get(&self, place: Place) -> Option<&Session> {
        match self {
            Places::One(one, session) if *one == place => Some(session),
            Places::None | Places::One(..) => None,
            Places::Many(many) => many.get(&place).map(|session| &**session),
        }
    }

    /// Returns the session at `place`, to be changed.
    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut Session> {
        match self {
            Places::One(one, session) if *one == place => Some(session),
            Places::None | Places::One(..) => None,
            Places::Many(many) => many.get_mut(&place).map(|session| &mut **session),
        }
    }

    /// Returns the session if it is the only one.
    pub(super) fn sole(&self) -> Option<(Place, &Session)> {
        if let Places::One(place, session) = self { Some((*place, session)) } else { None }
    }

    /// Returns the place that comes after `after`, or the first place.
    pub(super) fn next(&self, after: Option<Place>) -> Option<Place> {
        match self {
            Places::None => None,
            Places::One(place, _) => Some(*place).filter(|_| after < Some(*place)),
            Places::Many(many) => {
                let from = after.map_or(Bound::Unbounded, Bound::Excluded);
                many.range((from, Bound::Unbounded)).next().map(|(place, _)| *place)
            }
        }
    }

    /// Returns all sessions.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Place, &Session)> {
        let many = if let Places::Many(many) = self { Some(many) } else { None };
        let many = many.into_iter().flatten().map(|(place, session)| (*place, &**session));
        self.sole().into_iter().chain(many)
    }

    /// Returns all sessions, to be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Place, &mut Session)> {
        let (one, many) = match self {
            Places::None => (None, None),
            Places::One(place, session) => (Some((*place, &mut **session)), None),
            Places::Many(many) => (None, Some(many)),
        };
        let many = many.into_iter().flatten().map(|(place, session)| (*place, &mut **session));
        one.into_iter().chain(many)
    }

    /// Returns the number of sessions.
    pub(super) fn len(&self) -> usize {
        match self {
            Places::None => 0,
            Places::One(..) => 1,
            Places::Many(many) => many.len(),
        }
    }

    /// Adds `session` at `place`, where there is none.
    pub(super) fn insert(&mut self, place: Place, session: Box<Session>) {
        *self = match std::mem::take(self) {
            Places::None => Places::One(place, session),
            Places::One(first, one) => Places::Many(BTreeMap::from([(first, one), (place, session)])),
            Places::Many(mut many) => {
                many.insert(place, session);
                Places::Many(many)
            }
        };
    }

    /// Removes the session at `place` and returns it.
    pub(super) fn remove(&mut self, place: Place) -> Option<Box<Session>> {
        match std::mem::take(self) {
            Places::One(one, session) if one == place => Some(session),
            Places::Many(mut many) => {
                let removed = many.remove(&place);
                *self = match many.len() {
                    1 => {
                        many.pop_first().map_or(Places::None, |(place, session)| Places::One(place, session))
                    }
                    _ => Places::Many(many),
                };
                removed
            }
            others @ (Places::None | Places::One(..)) => {
                *self = others;
                None
            }
        }
    }
}
