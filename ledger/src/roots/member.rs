//! The allocator's side of a shared store: a machine that says which call of the store comes next, and is told its
//! outcome. It decides what to read, what to write and what to believe. A shell carries the calls; a simulator carries
//! the same calls through virtual time.
//!
//! A job is begun by [`Member::ask`], [`Member::sign`] or [`Member::leave`], and goes on by [`Member::on_answer`] until
//! it is [`Next::Done`]. There is one job at a time: a new job takes the place of one that is not over. A job that is
//! given up leaves nothing behind that is believed later.

mod ask;
mod contention;
mod follow;
mod leave;
mod notice;
mod open;
mod remembered;
mod sweep;
mod time;

use super::idle::Idle;
use super::timekeeping::Timekeeping;
use super::{Exchange, Head, Reply, RootAsk, RootClock, RootError, SIGN_EVERY, Signer, TimeSource, Watch};
use crate::cells::{Cell, CellsError, Swap, Swapped, Timeline};
use crate::overrides::{LimitOverrides, Suspensions, Version};
use contention::Contention;
use lessor_protocol::Moment;
use open::Found;
use remembered::Remembered;
use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;
use sweep::Sweep;

pub use notice::{MemberError, Notice};

/// Tries in one exchange or with one head, while other allocators are faster.
const TRIES: u32 = 6;

/// How long an allocator lends by a head after it wrote that head, where the store is several servers. Another
/// allocator may have found a loss at a server that this one does not ask.
const HEAD_HOLDS: Duration = Duration::from_secs(1);

/// How much later than it was found a loss there is dated. By then no allocator lends by the earlier head, though its
/// clock may be slow by a tenth, and the store's fast by as much.
const LOSS_LATER: Duration = Duration::from_millis(1_250);

/// A call of a store. The shell splits a call that is larger than a store takes, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Reads the store's clock.
    Time,
    /// Loads the cells of these names, the last one last, and the timeline that they are on.
    Load(Vec<String>),
    /// Does these swaps, if the store is on this timeline.
    Swap(Timeline, Vec<Swap>),
}

/// The answer of a store to a [`Call`] of the same kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The time that its clock showed.
    Time(Moment),
    /// The timeline, and the cells in the order of the names.
    Loaded(Timeline, Vec<Option<Cell>>),
    /// The outcomes of the swaps, in their order.
    Swapped(Vec<Swapped>),
}

/// What a job needs next.
#[derive(Debug)]
pub enum Next {
    /// This call of the store, and [`Member::on_answer`] with its answer.
    Call(Call),
    /// Nothing: the job is over. The outcome of each ask of [`Host::asks`], in their order; empty for other jobs. It is
    /// `None` if other allocators were faster each time, or the configuration has no such root.
    Done(Result<Vec<Option<Result<Reply, RootError>>>, MemberError>),
}

/// What a [`Member`] knows and does through the allocator that it belongs to.
pub trait Host {
    /// Draws a number that no other call has drawn or will draw.
    fn draw(&mut self) -> u64;
    /// Returns the calendar, as the clock of the machine shows it.
    fn wall(&self) -> Moment;
    /// Whether an operator said that no allocator has lent anything yet.
    fn is_fresh(&self) -> bool;
    /// Returns what to ask roots in the exchange begun by [`Member::ask`]; `None` where the configuration has no such
    /// root.
    fn asks(&mut self) -> Vec<Option<RootAsk>>;
    /// Returns what operators have suspended, as far as is known.
    fn suspensions(&self) -> Suspensions;
    /// Returns the version of the newest configuration that is known, and its limits that are below others, each with
    /// the one above.
    fn configuration(&self) -> (Version, BTreeMap<String, String>);
    /// Returns the limits that operators have put and removed, as far as is known.
    fn overrides(&self) -> LimitOverrides;
    /// Goes by the overrides `there` in the store, where they are newer.
    fn follow_overrides(&mut self, there: &LimitOverrides);
    /// Goes by the `suspensions` in the store, whose clock shows `there`.
    fn follow_suspensions(&mut self, suspensions: &Suspensions, there: Moment);
    /// Lends nothing more of what is leased from the store until the store answers again.
    fn hold_back(&mut self);
    /// Tells operators and metrics.
    fn tell(&mut self, notice: Notice);
}

/// One of the allocators that share a store.
#[derive(Debug)]
pub struct Member {
    signer: Signer,
    /// What is known of the time of the store, in the era that is known.
    clock: RootClock,
    /// What is known of the keeper of the time, where the store has no clock.
    timekeeping: Option<Timekeeping>,
    /// Finds out which clock is wrong if the time does not fit.
    watch: Watch,
    era: Option<u64>,
    /// Whether another allocator had written to the store, as far as this one has read.
    has_seen: bool,
    /// Whether the clock of the store was found to have been set.
    has_stepped: bool,
    head: Option<(Cell, Head)>,
    /// The id of the last head that this allocator went by, and when that was written, on the clock of the store then.
    written: Option<(u64, Moment)>,
    /// When the last swap of the head that was done was sent, on the own clock.
    wrote_head: Moment,
    /// Whether the store is several servers, so that a swap of a root may miss what was lost elsewhere.
    is_on_several: bool,
    /// The content of the cells of roots, as far as this allocator knows.
    known: Remembered,
    /// When a signature last succeeded or failed, on the own clock. `failed` counts failures in a row.
    signed: Moment,
    failed: u32,
    /// When this allocator last read the overrides, and in which life of the head.
    looked: Option<(Moment, (u64, u64))>,
    /// Roots that may be of no use after a while.
    idle: Idle,
    /// How long it takes to swap roots.
    contention: Contention,
    job: Job,
    step: Step,
    tries: u32,
}

/// The job in progress.
#[derive(Clone, Copy, Debug)]
enum Job {
    Ask { rtt: Duration, seq: u64 },
    Sign,
    Leave,
}

/// The answer that is awaited, and what it is for.
#[derive(Debug)]
enum Step {
    Nothing,
    /// The time, asked for at this instant on the own clock.
    Time(Moment, AfterTime),
    /// The cell of the time. The first read began at the first instant, this one at the second.
    LoadStamp(Moment, Moment, AfterTime),
    /// The cell of the time becomes this allocator's stamp. The first read began at the first instant, the swap at the
    /// second.
    SwapStamp(Moment, Moment, AfterTime),
    /// The head, to go by it.
    LoadHead,
    /// The head, to take the name of this allocator off it.
    LoadToLeave,
    /// The head becomes this one. An allocator that is in doubt does not go by it even then.
    SwapHead {
        next: Cell,
        head: Box<Head>,
        is_in_doubt: bool,
        sent: Moment,
    },
    /// The overrides, before the allocator goes by this head. The look at them began at the instant.
    LoadOverrides(Cell, Box<Head>, Moment),
    SwapOverrides(Cell, Box<Head>, Moment),
    /// Roots that are not known, and the head after them.
    LoadRoots {
        names: Vec<String>,
        asks: Vec<Option<RootAsk>>,
    },
    /// Roots become what they are after the asks. The call began at the instant.
    SwapRoots {
        exchange: Box<Exchange>,
        places: Vec<bool>,
        began: Moment,
    },
    /// The head again, because roots were made.
    CheckHead {
        exchange: Box<Exchange>,
        places: Vec<bool>,
    },
    LoadIdle(Sweep),
    SwapIdle(Sweep),
}

/// What follows once the time is known.
#[derive(Debug)]
enum AfterTime {
    LoadHead,
    SignHead,
    /// Goes on with the head that was found on another timeline than the one whose time was known.
    Read(Found),
    /// Judges the head that was found, which is of another era.
    Judge(Found, Box<Head>),
}

impl Member {
    /// Creates a member that knows nothing yet of its store, whose time comes from `source`. The allocator is called
    /// `node`, and its clock and the store's may each be off by `drift_ppm`.
    pub fn new(node: String, drift_ppm: u32, source: TimeSource) -> Self {
        Member {
            signer: Signer { session: 0, node },
            clock: RootClock::new(drift_ppm, source),
            timekeeping: (source == TimeSource::Allocators).then(|| Timekeeping::new(drift_ppm)),
            watch: Watch::default(),
            era: None,
            has_seen: false,
            has_stepped: false,
            head: None,
            written: None,
            wrote_head: Moment::ORIGIN,
            is_on_several: false,
            known: Remembered::default(),
            signed: Moment::ORIGIN,
            failed: 0,
            looked: None,
            idle: Idle::default(),
            job: Job::Leave,
            step: Step::Nothing,
            tries: 0,
            contention: Contention::default(),
        }
    }

    /// Returns the member of a store that is several servers, as a cluster is. Each server can lose what it has, and a
    /// swap notices a loss of its own server alone. So this member lends by a head only for a second after it wrote
    /// that head.
    pub fn on_several_servers(mut self) -> Self {
        self.is_on_several = true;
        self
    }

    /// Begins the `seq`-th exchange of `session`, whose farthest nodes are `rtt` away from the store. [`Host::asks`]
    /// says what it asks.
    pub fn ask(&mut self, session: u64, seq: u64, rtt: Duration, now: Moment, host: &mut impl Host) -> Next {
        self.begin(session, Job::Ask { rtt, seq }, now);
        match self.head.is_some() && self.head_holds(now) {
            true => self.ask_roots(now, host),
            false => self.open(now, host),
        }
    }

    /// Signs the head, if it is time to; returns `None` if it is not. Also takes away roots that are of no use.
    pub fn sign(&mut self, session: u64, now: Moment, host: &mut impl Host) -> Option<Next> {
        if now < self.signs_next() {
            return None;
        }
        self.begin(session, Job::Sign, now);
        Some(match self.head.is_some() {
            true => self.ask_time(now, AfterTime::SignHead, host),
            false => self.open(now, host),
        })
    }

    /// Returns when it is time to sign, on the own clock. A follower of a keeper reads the time as it signs, so it
    /// signs when the next stamp is expected.
    pub fn signs_next(&self) -> Moment {
        let stamp = self.timekeeping.as_ref().and_then(|time| time.next_read(&self.clock, self.signed));
        let (least, most) = (self.signed + SIGN_EVERY / 2, self.signed + SIGN_EVERY * 3 / 2);
        stamp.map_or(self.signed + SIGN_EVERY, |stamp| stamp.clamp(least, most))
    }

    /// Takes the answer of the store, or its failure, at `now`. Returns what the job needs next.
    pub fn on_answer(&mut self, said: Result<Said, CellsError>, now: Moment, host: &mut impl Host) -> Next {
        let step = mem::replace(&mut self.step, Step::Nothing);
        let said = match said {
            Ok(said) => said,
            Err(error) => return self.failed_at(step, error, now, host),
        };
        match (step, said) {
            (Step::Time(asked, after), Said::Time(said)) => self.on_time(said, asked, after, now, host),
            (Step::LoadStamp(began, asked, after), Said::Loaded(timeline, cells)) => {
                let cell = cells.into_iter().next().flatten();
                self.on_stamp(&timeline, cell, (began, asked), after, now, host)
            }
            (Step::SwapStamp(began, asked, after), Said::Swapped(swapped)) => {
                self.stamp_swapped(swapped, (began, asked), after, now, host)
            }
            (Step::LoadHead, Said::Loaded(timeline, cells)) => {
                self.read_head(timeline, cells.into_iter().next().flatten(), now, host)
            }
            (Step::LoadToLeave, Said::Loaded(timeline, cells)) => {
                self.leave_head(&timeline, cells.into_iter().next().flatten(), now, host)
            }
            (Step::SwapHead { next, head, is_in_doubt, sent }, Said::Swapped(swapped)) => {
                if swapped.first() == Some(&Swapped::Done) {
                    self.wrote_head = sent;
                }
                self.head_swapped(next, *head, is_in_doubt, &swapped, now, host)
            }
            (Step::LoadOverrides(cell, head, began), Said::Loaded(_, cells)) => {
                self.on_overrides(cell, head, began, cells, now, host)
            }
            (Step::SwapOverrides(cell, head, began), Said::Swapped(swapped)) => {
                if swapped.first() == Some(&Swapped::Done) {
                    host.tell(Notice::OverridesRewritten);
                }
                self.follow_head(cell, *head, began, now, host)
            }
            (Step::LoadRoots { names, asks }, Said::Loaded(_, cells)) => {
                self.roots_loaded(names, asks, cells, now, host)
            }
            (Step::SwapRoots { exchange, places, began }, Said::Swapped(swapped)) => {
                self.roots_swapped(exchange, places, swapped, now.since(began), now, host)
            }
            (Step::CheckHead { mut exchange, places }, Said::Loaded(_, cells)) => {
                if self.goes_on(cells.into_iter().next().flatten()).is_err() {
                    exchange.discard_made();
                }
                self.finish_asks(*exchange, &places, now, host)
            }
            (Step::LoadIdle(sweep), Said::Loaded(_, cells)) => self.idle_loaded(sweep, cells, now),
            (Step::SwapIdle(sweep), Said::Swapped(_)) => self.idle_swapped(sweep, now),
            _ => self.fail(MemberError::Mismatch, now),
        }
    }

    /// Gives up the job: no answer comes any more, or it would be too late.
    pub fn give_up(&mut self, now: Moment) {
        let step = mem::replace(&mut self.step, Step::Nothing);
        if let Step::SwapStamp(..) = step {
            self.timekeeping.iter_mut().for_each(Timekeeping::mark_write_unknown);
        }
        if let Step::LoadIdle(sweep) | Step::SwapIdle(sweep) = step {
            self.keep_all_idle(sweep, now);
        }
        self.forget();
    }

    /// Returns the time of the store at `local` on the own clock, or a little before it, if that is known.
    pub fn time(&self, local: Moment) -> Option<Moment> {
        self.clock.now(local)
    }

    /// Returns the latest time that another allocator may take it to be at `local` on the own clock, if that is known.
    pub fn latest(&self, local: Moment) -> Option<Moment> {
        self.clock.latest(local)
    }

    /// Returns the head that it goes by.
    pub fn head(&self) -> Option<&Head> {
        self.head.as_ref().map(|(_, head)| head)
    }

    /// Returns the timeline of the server whose time it goes by.
    pub fn timeline(&self) -> Option<&Timeline> {
        self.clock.timeline()
    }

    /// Returns when its last signature succeeded or failed, on the own clock.
    pub fn signed(&self) -> Moment {
        self.signed
    }

    /// Returns how many signatures in a row have failed.
    pub fn failed(&self) -> u32 {
        self.failed
    }

    /// Whether the allocator may still lend by the head that it knows.
    fn head_holds(&self, now: Moment) -> bool {
        !self.is_on_several || now.since(self.wrote_head) < HEAD_HOLDS
    }

    /// Begins a job, and gives up the one before if it was not over.
    fn begin(&mut self, session: u64, job: Job, now: Moment) {
        if !matches!(self.step, Step::Nothing) {
            self.give_up(now);
        }
        (self.signer.session, self.job, self.tries) = (session, job, 0);
    }

    fn call(&mut self, step: Step, call: Call) -> Next {
        self.step = step;
        Next::Call(call)
    }

    /// Goes on with the job, now that the head is known and what it says is followed.
    fn goes_by_head(&mut self, now: Moment, host: &mut impl Host) -> Next {
        match self.job {
            Job::Ask { .. } => self.ask_roots(now, host),
            Job::Sign => {
                self.failed = 0;
                self.sweep(now)
            }
            Job::Leave => Next::Done(Ok(vec![])),
        }
    }

    /// Ends the job with an error.
    fn fail(&mut self, error: MemberError, now: Moment) -> Next {
        if matches!(self.job, Job::Sign) {
            (self.signed, self.failed) = (now, self.failed.saturating_add(1));
        }
        self.forget();
        Next::Done(Err(error))
    }

    /// Handles the failure of the call of `step`.
    fn failed_at(&mut self, step: Step, error: CellsError, now: Moment, host: &mut impl Host) -> Next {
        if let Step::LoadIdle(sweep) | Step::SwapIdle(sweep) = step {
            // The head is signed all the same.
            self.keep_all_idle(sweep, now);
            (self.signed, self.head) = (now, None);
            return Next::Done(Ok(vec![]));
        }
        if let Step::SwapStamp(..) = step {
            self.timekeeping.iter_mut().for_each(Timekeeping::mark_write_unknown);
        }
        if let Step::SwapRoots { exchange, .. } = step {
            host.tell(Notice::NotSwapped(exchange.waiting()));
        }
        self.fail(error.into(), now)
    }

    /// Forgets cells and head: a call on its way may have changed them, or it is another store.
    fn forget(&mut self) {
        self.known.clear();
        self.head = None;
    }
}
