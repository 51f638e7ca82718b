//! The known state of a cluster: the master of each slot, the replication id of each master, and the timeline.
//!
//! The timeline is the set of the ids of all masters that have slots. An id is random and never drawn again. So the set
//! tells one state of the cluster from every other one in which a server may have lost something. A slot that moves
//! between two of these masters takes its keys with it, and the set stays the same.

use super::slots::Slots;
use crate::cells::url::Address;
use crate::cells::{CellsError, Timeline};
use lessor_protocol::foreign::excerpt;
use std::collections::BTreeMap;

/// Hexadecimal digits of a replication id.
const ID_DIGITS: usize = 40;

/// The masters, their slots and their ids.
#[derive(Debug)]
pub(super) struct Topology {
    pub(super) slots: Slots,
    pub(super) ids: BTreeMap<Address, String>,
    pub(super) timeline: Timeline,
    /// The master whose clock is used. It follows from the timeline alone, so all allocators on a timeline use one
    /// clock.
    pub(super) clock: Address,
}

impl Topology {
    /// Makes a topology of masters with ids.
    ///
    /// # Errors
    /// If there is no master with slots, or an id is malformed.
    pub(super) fn new(slots: Slots, ids: BTreeMap<Address, String>) -> Result<Self, CellsError> {
        let first = ids.iter().min_by_key(|(_, id)| *id).map(|(address, _)| address.clone());
        let Some(clock) = first else {
            return Err(CellsError::Unreachable("no server of the cluster has any slot".to_owned()));
        };
        Ok(Topology { timeline: timeline(&ids)?, slots, ids, clock })
    }

    /// Returns the id of a master that has slots.
    pub(super) fn id(&self, address: &Address) -> Option<&str> {
        self.ids.get(address).map(String::as_str)
    }
}

/// Names the set of ids by their number and their exclusive-or. Random ids are told apart by that as well as by
/// themselves, and the head has room for the name however many masters there are.
fn timeline(ids: &BTreeMap<Address, String>) -> Result<Timeline, CellsError> {
    let mut all = [0; ID_DIGITS];
    for (address, id) in ids {
        let digits = id.chars().map(|digit| digit.to_digit(16)).collect::<Option<Vec<u32>>>();
        let Some(digits) = digits.filter(|digits| digits.len() == ID_DIGITS) else {
            let id = excerpt(id);
            return Err(CellsError::Unfit(format!(
                "master_replid is {id:?}: it must have {ID_DIGITS} hexadecimal digits ({address})"
            )));
        };
        all.iter_mut().zip(digits).for_each(|(all, digit)| *all ^= digit);
    }
    let all: String = all.into_iter().filter_map(|digit| char::from_digit(digit, 16)).collect();
    Ok(Timeline::new(format!("cluster-of-{}-{all}", ids.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[char]) -> BTreeMap<Address, String> {
        let address = |port| Address { host: "h".to_owned(), port };
        (1..).zip(ids).map(|(port, digit)| (address(port), digit.to_string().repeat(ID_DIGITS))).collect()
    }

    #[test]
    fn a_timeline_is_of_a_set_of_ids_whatever_their_order() {
        let of = |some: &[char]| timeline(&ids(some)).expect("good ids").to_string();
        assert_eq!(of(&['1', '2', '4']), format!("cluster-of-3-{}", "7".repeat(ID_DIGITS)));
        assert_eq!(of(&['1', '2', '4']), of(&['4', '1', '2']));
        for other in [&['1', '2'][..], &['1', '2', '5'], &['1', '2', '4', 'f'], &['7']] {
            assert_ne!(of(&['1', '2', '4']), of(other), "{other:?}");
        }
        for wrong in ["", "1", &"g".repeat(ID_DIGITS)] {
            let mut wrongs = ids(&['1']);
            wrongs.values_mut().for_each(|id| *id = wrong.to_owned());
            let error = timeline(&wrongs).expect_err("no id").to_string();
            assert!(error.contains("master_replid is") && error.contains("h:1"), "{error}");
        }
    }

    #[test]
    fn the_clock_is_that_of_the_first_id() {
        use crate::cells::redis::answer::Answer;
        let slots = || Slots::read(Answer::List(vec![]), &ids(&['1']).into_keys().next().expect("one"));
        let slots = || slots().expect("none has any");
        let known = Topology::new(slots(), ids(&['3', '2', '4'])).expect("good ids");
        assert_eq!(known.clock.to_string(), "h:2");
        assert!(Topology::new(slots(), BTreeMap::new()).is_err());
    }
}
