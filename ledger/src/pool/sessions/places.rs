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
    Many(Box<Many>),
}

/// At least two sessions.
#[derive(Clone, Debug)]
pub(super) struct Many {
    /// All places. The place of the session that asks is empty.
    places: BTreeMap<Place, Option<Box<Session>>>,
    /// The session that asks, or asked last. An ask finds its session many times.
    asking: Option<(Place, Box<Session>)>,
}

impl Many {
    fn get(&self, place: Place) -> Option<&Session> {
        match &self.asking {
            Some((asking, session)) if *asking == place => Some(session),
            Some(_) | None => self.places.get(&place)?.as_deref(),
        }
    }

    fn get_mut(&mut self, place: Place) -> Option<&mut Session> {
        match &mut self.asking {
            Some((asking, session)) if *asking == place => Some(session),
            Some(_) | None => self.places.get_mut(&place)?.as_deref_mut(),
        }
    }

    fn attend(&mut self, place: Place) {
        if let Some(session) = self.places.get_mut(&place).and_then(Option::take) {
            self.put_back();
            self.asking = Some((place, session));
        }
    }

    /// Puts the session that asked into its place.
    fn put_back(&mut self) {
        if let Some((place, session)) = self.asking.take() {
            self.places.insert(place, Some(session));
        }
    }

    fn iter(&self) -> impl Iterator<Item = (Place, &Session)> {
        let asking = self.asking.as_ref().map(|(_, session)| &**session);
        self.places.iter().filter_map(move |(place, session)| Some((*place, session.as_deref().or(asking)?)))
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = (Place, &mut Session)> {
        self.put_back();
        self.places.iter_mut().filter_map(|(place, session)| Some((*place, session.as_deref_mut()?)))
    }
}

impl Places {
    /// Returns the session at `place`.
    pub(super) fn get(&self, place: Place) -> Option<&Session> {
        match self {
            Places::One(one, session) if *one == place => Some(session),
            Places::None | Places::One(..) => None,
            Places::Many(many) => many.get(place),
        }
    }

    /// Returns the session at `place`, to be changed.
    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut Session> {
        match self {
            Places::One(one, session) if *one == place => Some(session),
            Places::None | Places::One(..) => None,
            Places::Many(many) => many.get_mut(place),
        }
    }

    /// Keeps the session at `place`, which asks now, apart from the others: it is found without a search.
    pub(super) fn attend(&mut self, place: Place) {
        if let Places::Many(many) = self {
            many.attend(place);
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
                many.places.range((from, Bound::Unbounded)).next().map(|(place, _)| *place)
            }
        }
    }

    /// Returns all sessions.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Place, &Session)> {
        let many = if let Places::Many(many) = self { Some(many.iter()) } else { None };
        self.sole().into_iter().chain(many.into_iter().flatten())
    }

    /// Returns all sessions, to be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Place, &mut Session)> {
        let (one, many) = match self {
            Places::None => (None, None),
            Places::One(place, session) => (Some((*place, &mut **session)), None),
            Places::Many(many) => (None, Some(many.iter_mut())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// Returns the number of sessions.
    pub(super) fn len(&self) -> usize {
        match self {
            Places::None => 0,
            Places::One(..) => 1,
            Places::Many(many) => many.places.len(),
        }
    }

    /// Adds `session` at `place`, where there is none.
    pub(super) fn insert(&mut self, place: Place, session: Box<Session>) {
        *self = match std::mem::take(self) {
            Places::None => Places::One(place, session),
            Places::One(first, one) => {
                let places = BTreeMap::from([(first, Some(one)), (place, Some(session))]);
                Places::Many(Box::new(Many { places, asking: None }))
            }
            Places::Many(mut many) => {
                many.places.insert(place, Some(session));
                Places::Many(many)
            }
        };
    }

    /// Removes the session at `place` and returns it.
    pub(super) fn remove(&mut self, place: Place) -> Option<Box<Session>> {
        match std::mem::take(self) {
            Places::One(one, session) if one == place => Some(session),
            Places::Many(mut many) => {
                many.put_back();
                let removed = many.places.remove(&place).flatten();
                let last = if many.places.len() == 1 { many.places.pop_first() } else { None };
                *self = match last {
                    Some((place, Some(session))) => Places::One(place, session),
                    Some((_, None)) | None => Places::Many(many),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::SessionId;
    use crate::share::Share;
    use lessor_protocol::Moment;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn they_are_found_as_in_a_map_whichever_asks(steps in prop::collection::vec((0u8..5, 0u64..5), 0..80)) {
            let (mut places, mut map) = (Places::default(), BTreeMap::new());
            for (count, (step, number)) in (0..).zip(steps) {
                let place = Place::own(SessionId(number));
                match (step, map.get_mut(&place)) {
                    (0, None) => {
                        places.insert(place, Box::new(Session::new(Share::EVEN, Moment::ORIGIN)));
                        map.insert(place, 0);
                    }
                    (0, Some(spent)) => {
                        places.get_mut(place).expect("it is there").spent = count;
                        *spent = count;
                    }
                    (1, _) => {
                        let removed = places.remove(place).map(|session| session.spent);
                        prop_assert_eq!(removed, map.remove(&place));
                    }
                    (2, _) => {
                        places.iter_mut().for_each(|(_, session)| session.spent += 1);
                        map.values_mut().for_each(|spent| *spent += 1);
                    }
                    _ => places.attend(place),
                }
                let spent = places.iter().map(|(place, session)| (place, session.spent));
                prop_assert!(spent.eq(map.iter().map(|(place, spent)| (*place, *spent))));
                prop_assert_eq!(places.get(place).map(|session| session.spent), map.get(&place).copied());
                let next = map.range((Bound::Excluded(place), Bound::Unbounded)).next();
                prop_assert_eq!(places.next(Some(place)), next.map(|(place, _)| *place));
                prop_assert_eq!(places.len(), map.len());
            }
        }
    }
}
