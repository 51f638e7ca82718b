//! The families of a contract, each with the names of its pools. Finds a family by number; the families themselves
//! decide what is charged where.

use crate::replay::contract::{OnAdmission, PoolId};
use lessor_ledger::Rule;
use lessor_ledger::exact::{Family, Place};
use lessor_protocol::Moment;
use std::rc::Rc;

/// All families of a contract.
#[derive(Debug, Default)]
pub(super) struct Families {
    /// Families by number; `None` for numbers in `free`.
    all: Vec<Option<NamedFamily>>,
    free: Vec<usize>,
}

/// The position of a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) family: usize,
    pub(super) place: Place,
}

/// One family, with the names of its pools.
#[derive(Debug)]
struct NamedFamily {
    family: Family,
    /// Names by place.
    names: Vec<Rc<PoolId>>,
}

impl Families {
    /// Adds a pool with `rules`, right below `above`, or in a new family.
    pub(super) fn add(
        &mut self,
        above: Option<Member>,
        id: Rc<PoolId>,
        rules: &[Rule],
        now: Moment,
    ) -> Member {
        let Some(Member { family, place }) = above else {
            return self.found(NamedFamily { family: Family::new(rules, now), names: vec![id] });
        };
        let kin = self.kin(family);
        let place = kin.family.add(place, rules, now);
        match kin.names.get_mut(place.index()) {
            Some(name) => *name = id,
            None => kin.names.push(id),
        }
        Member { family, place }
    }

    fn found(&mut self, kin: NamedFamily) -> Member {
        let family = self.free.pop().unwrap_or(self.all.len());
        match self.all.get_mut(family) {
            Some(free) => *free = Some(kin),
            None => self.all.push(Some(kin)),
        }
        Member { family, place: Place::FIRST }
    }

    /// Removes the pool. No pool may be below it, and no caller may wait in it.
    pub(super) fn remove(&mut self, member: Member) {
        let family = self.family(member);
        family.remove(member.place);
        if family.is_empty() {
            self.all[member.family] = None;
            self.free.push(member.family);
        }
    }

    /// Removes the pool if it equals a new one, and no pool or caller needs it. Returns whether it did.
    pub(super) fn forget(&mut self, member: Member, now: Moment) -> bool {
        let is_fresh = self.family(member).is_fresh(now, member.place);
        if is_fresh {
            self.remove(member);
        }
        is_fresh
    }

    /// Returns the family of `member`.
    pub(super) fn family(&mut self, member: Member) -> &mut Family {
        &mut self.kin(member.family).family
    }

    /// Reports what the family with this number has admitted since the last call.
    pub(super) fn tell(&mut self, family: usize, on_admission: OnAdmission<'_>) {
        let NamedFamily { family, names } = self.kin(family);
        for (place, admission) in family.admitted() {
            on_admission(&names[place.index()], admission);
        }
    }

    /// Serves all calls that wait, and reports them.
    pub(super) fn run_out(&mut self, on_admission: OnAdmission<'_>) {
        for family in 0..self.all.len() {
            if self.all[family].is_some() {
                self.kin(family).family.run_out();
                self.tell(family, on_admission);
            }
        }
    }

    /// Returns the number of families.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    fn kin(&mut self, family: usize) -> &mut NamedFamily {
        self.all[family].as_mut().expect("one of its pools is there")
    }
}
