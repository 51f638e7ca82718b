//! How a handle finds out where the masters of a cluster are, and which ids they have.

use super::lines::Question;
use super::slots::Slots;
use super::topology::Topology;
use super::{Cluster, Deadline};
use crate::cells::CellsError;
use crate::cells::redis::answer::{Answer, State};
use crate::cells::url::Address;
use redis::Pipeline;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Masters that are asked where the slots are, before those that the URL names.
const ASKED_MAX: usize = 4;

impl Cluster {
    /// What is known, unless something says that it is out of date, and a server that slots have moved.
    pub(super) async fn known(&mut self, deadline: Deadline) -> Result<Arc<Topology>, CellsError> {
        let Some(known) = self.known.clone() else { return self.look(None, deadline).await };
        if self.is_stale {
            let slots = self.slots(None, deadline).await?;
            if slots != known.slots {
                return self.identify(slots, deadline).await;
            }
            // Which ids its masters have, a swap finds out.
            self.is_stale = false;
        }
        Ok(known)
    }

    /// Asks a server where the slots are, `first` before others, and all masters for their ids.
    pub(super) async fn look(
        &mut self,
        first: Option<&Address>,
        deadline: Deadline,
    ) -> Result<Arc<Topology>, CellsError> {
        let slots = self.slots(first, deadline).await?;
        self.identify(slots, deadline).await
    }

    /// Where the slots are, as the first server says that answers. All handles ask the same ones first, if they can.
    async fn slots(&mut self, first: Option<&Address>, deadline: Deadline) -> Result<Slots, CellsError> {
        let clock = self.known.as_ref().map(|known| known.clock.clone());
        let masters = self.known.iter().flat_map(|known| known.slots.masters()).cloned();
        // Masters that are connected are there, nearly always.
        let (here, others): (Vec<_>, Vec<_>) = masters.partition(|master| self.lines.has(master));
        let some = clock.into_iter().chain(here).chain(others).take(ASKED_MAX);
        let all = first.cloned().into_iter().chain(some).chain(self.shared.place.hosts.iter().cloned());
        let mut seen = BTreeSet::new();
        let all = all.filter(|server| seen.insert(server.clone()));
        let (silent, mut order): (Vec<_>, Vec<_>) = all.partition(|server| self.is_silent(server));
        order.extend(silent);
        let mut error = CellsError::Unreachable("the cluster has no server".to_owned());
        for (at, server) in order.iter().enumerate() {
            let left = u32::try_from(order.len() - at).unwrap_or(u32::MAX);
            let mut slots = Pipeline::with_capacity(1);
            slots.cmd("CLUSTER").arg("SLOTS");
            let question = vec![(server.clone(), Question::Look(slots))];
            // Each of those that are left can have as long.
            let answered = self.ask(question, deadline.left() / left).await.pop();
            let Some((_, answer)) = answered else { continue };
            let slots =
                answer.and_then(|mut answers| Slots::read(answers.pop().unwrap_or(Answer::Strange), server));
            match slots {
                Ok(slots) => return Ok(slots),
                Err(why) => error = why,
            }
        }
        Err(error)
    }

    /// Asks the masters of `slots` for their ids. While no slot has moved, one that does not answer counts with the id that is known:
    /// a call that touches it finds out. A slot that has moved may have lost cells before that, at a master that the call does not
    /// touch any more. So then each master must show which id it has.
    async fn identify(&mut self, slots: Slots, deadline: Deadline) -> Result<Arc<Topology>, CellsError> {
        let mut ids = match &self.known {
            Some(known) if known.slots == slots => known.ids.clone(),
            Some(_) | None => BTreeMap::new(),
        };
        let masters =
            slots.masters().iter().filter(|master| !ids.contains_key(master) || !self.is_silent(master));
        let masters: Vec<Address> = masters.cloned().collect();
        // The others are not kept waiting for one whose id is known.
        let span = if ids.is_empty() { deadline.left() } else { deadline.left() / 4 };
        let mut info = Pipeline::with_capacity(1);
        info.cmd("INFO").arg("replication");
        let questions = masters.into_iter().map(|master| (master, Question::Look(info.clone())));
        for (master, answers) in self.ask(questions.collect(), span).await {
            match answers {
                Ok(mut answers) => {
                    let id = id(answers.pop().unwrap_or(Answer::Strange), &master)?;
                    ids.insert(master, id);
                }
                Err(CellsError::Unreachable(_)) if ids.contains_key(&master) => {}
                Err(error) => return Err(error),
            }
        }
        let known = Arc::new(Topology::new(slots, ids)?);
        self.lines.keep(known.slots.masters());
        self.silent.retain(|server, _| known.id(server).is_some());
        (self.is_stale, self.known) = (false, Some(Arc::clone(&known)));
        Ok(known)
    }
}

/// The id of a master that says this of itself. One that says that it is none has been replaced, and not all servers have heard of
/// that yet.
pub(super) fn id(answer: Answer, master: &Address) -> Result<String, CellsError> {
    let id = State::of(answer).and_then(|state| state.master());
    id.map(|id| id.as_str().to_owned()).map_err(|error| {
        CellsError::Unreachable(format!("{master}: the cluster says that it is a master: {error}"))
    })
}
