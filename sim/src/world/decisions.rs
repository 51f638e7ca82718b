//! Decisions of operators where allocators share a store. An operator asks one allocator, which runs the shipping
//! [`Publish`]; all others follow the decision from the store.

use super::World;
use super::configured::put;
use super::event::{Event, Message, Phase};
use super::regions::Region;
use super::shared::Store;
use crate::SECOND;
use crate::limits::FIRST;
use crate::live::Act;
use crate::oracle::{Verdict, must};
use crate::topology::Shared;
use lessor_ledger::Rule;
use lessor_ledger::cells::CellsError;
use lessor_ledger::overrides::{Decision, Next, Publish, Suspended, Suspensions, Version};
use lessor_ledger::roots::Said;
use lessor_protocol::moment::nanos;
use lessor_protocol::{Moment, NodeName};
use std::time::Duration;

/// How long an operator waits, in nanoseconds. A publication dropped after that may have been decided.
const PUBLISH_MAX: u64 = 3 * SECOND;

/// Nanoseconds between two attempts of operators to lift what they decided, once the trouble is over.
const LIFT_EVERY: u64 = SECOND / 2;

/// What an allocator knows of the decisions of operators.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    /// The newest decisions it follows, for all limits.
    pub(super) known: Suspensions,
    /// The publication under way, the call it waits for, and its number.
    publish: Option<(Publish, Published)>,
    waits: Option<u64>,
    number: u64,
    /// Whether another publication about the same node or pause was under way, so that the later one is unknown.
    is_contested: bool,
    /// Decisions published here in this life, and not decided about anywhere since.
    published: Vec<Decision>,
    /// The newest version put over the API here in this life.
    put: Version,
}

/// The subject of a publication.
#[derive(Clone, Debug)]
enum Published {
    Suspension(Decision),
    /// The limit that nodes ask: put or removed.
    Limit,
    /// The newest version, which goes into the head.
    Newest,
}

impl Published {
    fn decision(&self) -> Option<&Decision> {
        match self {
            Published::Suspension(decision) => Some(decision),
            Published::Limit | Published::Newest => None,
        }
    }
}

impl World {
    /// Performs an operator's act at some allocator that shares a store.
    pub(super) fn operate_at_store(&mut self, act: &Act) -> Verdict {
        let decision = match act {
            Act::Pause(nanos) => Decision::Pause(Some(Duration::from_nanos(*nanos))),
            Act::Resume => Decision::Resume,
            Act::Block(node) => Decision::Block(self.setup.name(*node)),
            Act::Unblock(node) => Decision::Unblock(self.setup.name(*node)),
            Act::Safe(safe) => {
                self.one_shares_otherwise(|file| file.safe = *safe);
                return Ok(());
            }
            Act::Reserve(permits) => {
                self.one_shares_otherwise(|file| file.reserve = *permits);
                return Ok(());
            }
            Act::Change(_, rules) => {
                self.roll_out(rules);
                return Ok(());
            }
            Act::Put(rules) => return self.put_at_store(Some(rules)),
            Act::Remove => return self.put_at_store(None),
            Act::TopUp(_) | Act::Outside(_) => return Ok(()),
        };
        let region = self.rng.usize(..self.regions.len());
        self.decide(region, decision)
    }

    fn decide(&mut self, region: usize, decision: Decision) -> Verdict {
        let at = &self.regions[region];
        if !at.up || at.paused_until > self.real || at.decisions.publish.is_some() {
            return Ok(());
        }
        let mut is_contested = false;
        for Region { decisions, .. } in &mut self.regions {
            decisions.published.retain(|before| node_of(before) != node_of(&decision));
            let publishes = decisions.publish.as_ref().and_then(|(_, published)| published.decision());
            if publishes.is_some_and(|other| node_of(other) == node_of(&decision)) {
                (decisions.is_contested, is_contested) = (true, true);
            }
        }
        let source = self.setup.topology.shared().map(Shared::time_source).unwrap_or_default();
        let at = &mut self.regions[region];
        at.decisions.is_contested = is_contested;
        let number = at.decisions.number + 1;
        self.log.note(self.real, "an operator decides at allocator # (#)", &[region as u64, number]);
        let publish = Publish::suspension(FIRST, decision.clone()).by_time_of(source);
        self.publish(region, publish, Published::Suspension(decision))
    }

    /// Lets an operator put the limit that nodes ask at some allocator, or remove it there if it exists.
    fn put_at_store(&mut self, rules: Option<&[Rule]>) -> Verdict {
        let region = self.rng.usize(..self.regions.len());
        let at = &self.regions[region];
        if !at.up
            || at.paused_until > self.real
            || at.decisions.publish.is_some()
            || (rules.is_none() && !at.configured.has_asked())
        {
            return Ok(());
        }
        let source = self.setup.topology.shared().map(Shared::time_source).unwrap_or_default();
        let event = match rules {
            Some(_) => "! an operator puts the limit at allocator #",
            None => "! an operator removes the limit at allocator #",
        };
        self.log.note(self.real, event, &[region as u64]);
        let publish = Publish::limit(FIRST, rules.map(put)).by_time_of(source);
        self.publish(region, publish, Published::Limit)
    }

    fn publish(&mut self, region: usize, mut publish: Publish, published: Published) -> Verdict {
        let at = &mut self.regions[region];
        let next = publish.begin();
        at.decisions.publish = Some((publish, published));
        at.decisions.number += 1;
        let (life, number) = (at.life, at.decisions.number);
        self.push(self.real + PUBLISH_MAX, Event::PublishTimesOut { region, life, number });
        self.publish_goes_on(region, next)
    }

    /// Ends a publication whose operator waits no longer.
    pub(super) fn publish_times_out(&mut self, region: usize, life: u64, number: u64) {
        let at = &mut self.regions[region];
        if at.life == life && at.decisions.number == number {
            (at.decisions.publish, at.decisions.waits) = (None, None);
        }
    }

    /// Delivers the answer to a call of a publication. Returns false if `letter` is no such call.
    pub(super) fn publish_hears(
        &mut self,
        region: usize,
        letter: u64,
        said: &Result<Said, CellsError>,
    ) -> Result<bool, crate::oracle::Violation> {
        let at = &mut self.regions[region];
        if at.decisions.waits != Some(letter) {
            return Ok(false);
        }
        at.decisions.waits = None;
        let Some((mut publish, decision)) = at.decisions.publish.take() else { return Ok(true) };
        let next = self.as_member(region, |_, _, here| publish.on_answer(said.clone(), here));
        self.regions[region].decisions.publish = Some((publish, decision));
        self.publish_goes_on(region, next)?;
        Ok(true)
    }

    /// Resumes a publication after its pause.
    pub(super) fn publish_wakes(&mut self, region: usize, life: u64, number: u64) -> Verdict {
        let at = &mut self.regions[region];
        if at.life != life || at.decisions.number != number {
            return Ok(());
        }
        let Some((mut publish, decision)) = at.decisions.publish.take() else { return Ok(()) };
        let next = self.as_member(region, |_, _, here| publish.go_on(here));
        self.regions[region].decisions.publish = Some((publish, decision));
        self.publish_goes_on(region, next)
    }

    fn publish_goes_on(&mut self, region: usize, next: Next) -> Verdict {
        let at = &self.regions[region];
        let (life, number) = (at.life, at.decisions.number);
        match next {
            Next::Call(call) => {
                let letter = self.send_to_store(region, call);
                self.regions[region].decisions.waits = Some(letter);
            }
            Next::Pause(span) => {
                self.push(self.real + nanos(span), Event::PublishWakes { region, life, number });
            }
            // The precondition always holds: operators agree here.
            Next::Check => self.push(self.real, Event::PublishWakes { region, life, number }),
            Next::Done(done) => {
                let at = &mut self.regions[region];
                at.decisions.waits = None;
                match (done, at.decisions.publish.take()) {
                    (Ok(_), Some((_, Published::Suspension(decision)))) => {
                        return self.is_decided(region, decision);
                    }
                    (Ok(done), Some((_, Published::Limit))) => return self.is_put(region, done.newest),
                    (Ok(_) | Err(_), _) => {}
                }
            }
        }
        Ok(())
    }

    /// K7: an allocator goes at once by a decision that was published there.
    fn is_decided(&mut self, region: usize, decision: Decision) -> Verdict {
        self.log.note(self.real, "allocator # has published a decision", &[region as u64]);
        let decisions = &mut self.regions[region].decisions;
        let known = &decisions.known;
        must("K7", holds(known, &decision), || {
            format!("{decision:?} was published at allocator {region}, which knows {known:?}")
        })?;
        if !decisions.is_contested {
            decisions.published.push(decision);
        }
        Ok(())
    }

    /// K7: a limit is unknown only where an operator removed it.
    pub(super) fn is_removed_at(&mut self, region: usize, message: &Message) -> Verdict {
        let at = [region as u64, message.node as u64];
        self.log.note(self.real, "there is no limit any more at allocator #, for node #", &at);
        must("K7", !self.regions[region].configured.has_asked(), || {
            format!("no limit at allocator {region} for {message:?}, and no operator removed it")
        })
    }

    /// K7: an allocator goes at once by a put or removal made there, or by a newer one. Publishes its version in the
    /// head.
    fn is_put(&mut self, region: usize, newest: Version) -> Verdict {
        let known = self.regions[region].configured.version_of(FIRST);
        must("K7", known >= newest, || {
            format!("{newest:?} was put at allocator {region}, which goes by {known:?}")
        })?;
        self.regions[region].decisions.put = known;
        self.publish(region, Publish::newest(newest), Published::Newest)
    }

    /// K7: a decision made at a living allocator holds there until an operator decides again about the same.
    pub(super) fn decisions_hold(&self) -> Verdict {
        self.regions.iter().enumerate().try_for_each(|(region, Region { decisions, configured, .. })| {
            let (put, newest) = (decisions.put, configured.newest_put());
            must("K7", put <= newest, || {
                format!("{put:?} was put at allocator {region}, which has forgotten it and knows {newest:?}")
            })?;
            let known = &decisions.known;
            let lost = decisions.published.iter().find(|decision| !holds(known, decision));
            must("K7", lost.is_none(), || {
                format!("{lost:?} was published at allocator {region}, which has forgotten it: {known:?}")
            })
        })
    }

    /// Lifts what operators decided, once the trouble is over, for as long as the store knows of any.
    pub(super) fn lift(&mut self) -> Verdict {
        if self.phase > Phase::Settling {
            return Ok(());
        }
        self.decisions_hold()?;
        self.push(self.real + LIFT_EVERY, Event::Lift);
        if self.regions.iter().any(|region| region.up && !region.configured.has_asked()) {
            let rules = self.centre.rules.clone();
            return self.put_at_store(Some(&rules));
        }
        let Some(head) = self.shared.as_ref().and_then(|store| store.head()) else { return Ok(()) };
        let Some(suspended) = head.suspensions().of(FIRST) else { return Ok(()) };
        let region = self.rng.usize(..self.regions.len());
        match suspended.blocked().next() {
            Some(node) => self.decide(region, Decision::Unblock(node)),
            None if is_over(suspended, self.root_clock()) => Ok(()),
            None => self.decide(region, Decision::Resume),
        }
    }

    /// V8: soon after all trouble, each allocator follows the last decisions that the store has.
    pub(super) fn all_follow(&self) -> Verdict {
        let Some(head) = self.shared.as_ref().and_then(|store| store.head()) else { return Ok(()) };
        let newest = head.suspensions();
        let other = |region: &&Region| region.decisions.known != *newest;
        let other = self.regions.iter().find(other).map(|region| &region.decisions.known);
        must("V8", other.is_none(), || format!("an allocator goes by {other:?}, the store has {newest:?}"))?;
        let Some(there) = self.shared.as_ref().and_then(Store::overrides) else { return Ok(()) };
        let other =
            self.regions.iter().map(|region| region.configured.known()).find(|known| **known != there);
        must("V8", other.is_none(), || format!("an allocator goes by {other:?}, the store has {there:?}"))
    }
}

/// Whether the limit is suspended as `decision` says. A pause may be over.
fn holds(known: &Suspensions, decision: &Decision) -> bool {
    let suspended = known.of(FIRST).cloned().unwrap_or_default();
    let is_blocked = |node: &NodeName| suspended.blocked().any(|blocked| blocked == *node);
    match decision {
        Decision::Pause(_) => true,
        Decision::Resume => suspended.until().is_none(),
        Decision::Block(node) => is_blocked(node),
        Decision::Unblock(node) => !is_blocked(node),
    }
}

/// Returns the node that `decision` is about; `None` if it is about all.
fn node_of(decision: &Decision) -> Option<&NodeName> {
    match decision {
        Decision::Pause(_) | Decision::Resume => None,
        Decision::Block(node) | Decision::Unblock(node) => Some(node),
    }
}

fn is_over(suspended: &Suspended, now: Moment) -> bool {
    suspended.until().is_none_or(|until| until <= now)
}
