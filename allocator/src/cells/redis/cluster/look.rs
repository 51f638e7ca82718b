//! Finds the masters of a cluster, and their ids.

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

/// Most masters that are asked for the slots, before the hosts of the URL.
const ASKED_MAX: usize = 4;

impl Cluster {
    /// Returns the known topology. If it may be out of date, first asks a server whether slots have moved.
    pub(super) async fn known(&mut self, deadline: Deadline) -> Result<Arc<Topology>, CellsError> {
        let Some(known) = self.known.clone() else { return self.look(None, deadline).await };
        if self.is_stale {
            let slots = self.slots(None, deadline).await?;
            if slots != known.slots {
                return self.identify(slots, deadline).await;
            }
            // A swap notices masters with new ids.
            self.is_stale = false;
        }
        Ok(known)
    }

    /// Asks a server for the slots, `first` before others, and all masters for their ids.
    pub(super) async fn look(
        &mut self,
        first: Option<&Address>,
        deadline: Deadline,
    ) -> Result<Arc<Topology>, CellsError> {
        let slots = self.slots(first, deadline).await?;
        self.identify(slots, deadline).await
    }

    /// Returns the slots, from the first server that answers. All handles ask the same servers first, if they can.
    async fn slots(&mut self, first: Option<&Address>, deadline: Deadline) -> Result<Slots, CellsError> {
        let clock = self.known.as_ref().map(|known| known.clock.clone());
        let masters = self.known.iter().flat_map(|known| known.slots.masters()).cloned();
        // Masters with a connection nearly always answer.
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
            // The remaining time is shared evenly.
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

    /// Asks the masters of `slots` for their ids. While no slot has moved, a silent master keeps its known id: a call
    /// that touches it finds out. A slot that has moved may have lost cells before, at a master that the call no longer
    /// touches. Then each master must tell its id.
    async fn identify(&mut self, slots: Slots, deadline: Deadline) -> Result<Arc<Topology>, CellsError> {
        let mut ids = match &self.known {
            Some(known) if known.slots == slots => known.ids.clone(),
            Some(_) | None => BTreeMap::new(),
        };
        let masters =
            slots.masters().iter().filter(|master| !ids.contains_key(master) || !self.is_silent(master));
        let masters: Vec<Address> = masters.cloned().collect();
        // The others do not wait long for a master whose id is known.
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

/// Returns the id of a master from its answer. If the server is no master, it was replaced, and not all servers know
/// that yet.
pub(super) fn id(answer: Answer, master: &Address) -> Result<String, CellsError> {
    let id = State::of(answer).and_then(|state| state.master());
    id.map(|id| id.as_str().to_owned()).map_err(|error| {
        CellsError::Unreachable(format!("{master}: the cluster says that it is a master: {error}"))
    })
}
