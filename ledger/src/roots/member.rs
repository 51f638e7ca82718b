//! What an allocator does with a store that it shares: a machine that says which call of the store comes next, and is told what
//! came of it. It decides what to read, what to write and what to believe. A shell carries the calls; a simulator carries the
//! same calls through virtual time.
//!
//! A job is begun by [`Member::ask`], [`Member::sign`] or [`Member::leave`], and goes on by [`Member::on_answer`] until it is
//! [`Next::Done`]. There is one job at a time: one that begins while another is not over takes its place. A job that is given up
//! leaves nothing behind that is believed later.

mod ask;
mod contention;
mod follow;
mod leave;
mod open;
mod sweep;
mod time;

use super::idle::Idle;
use super::{Exchange, Head, RootAsk, RootClock, RootError, SIGN_EVERY, Signer, Watch};
use crate::cells::{Cell, CellsError, Swap, Swapped, Timeline};
use crate::overrides::{LimitOverrides, Suspensions, Version};
use contention::Contention;
use lessor_protocol::{Answer, Moment};
use open::Found;
use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;
use sweep::Sweep;

/// How often another allocator may be faster, in one exchange or with one head.
const TRIES: u32 = 6;

/// For so long after it wrote the head an allocator lends by it, where the store is several servers. Another allocator may have
/// found a loss at a server that this one does not ask.
const HEAD_HOLDS: Duration = Duration::from_secs(1);

/// So much later than it was found counts a loss there: no allocator lends by the head of before any more, though the clock of that
/// allocator may be slow by a tenth, and the store's fast by as much.
const LOSS_LATER: Duration = Duration::from_millis(1_250);

/// A call of a store. The shell splits one that is larger than a store takes, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// What its clock shows.
    Time,
    /// The cells of these names, and the timeline that they are on. The last is read last.
    Load(Vec<String>),
    /// These swaps, if it is on this timeline.
    Swap(Timeline, Vec<Swap>),
}

/// What a store answers to a [`Call`] of the same kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// What its clock showed.
    Time(Moment),
    /// The cells, in the order of the names.
    Loaded(Timeline, Vec<Option<Cell>>),
    /// What came of the swaps, in their order.
    Swapped(Vec<Swapped>),
}

/// What a job needs next.
#[derive(Debug)]
pub enum Next {
    /// This call of the store, and [`Member::on_answer`] with its answer.
    Call(Call),
    /// Nothing: the job is over. What came of each ask of [`Host::asks`], in their order; empty for other jobs. `None`: others
    /// were faster all the time, or the configuration knows no such root.
    Done(Result<Vec<Option<Result<Answer, RootError>>>, MemberError>),
}

/// Why a job came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    /// The store does not answer, or not well. Whether it did what it was told is not known.
    #[error(transparent)]
    Store(#[from] CellsError),
    /// The time of the store is not known well enough.
    #[error(transparent)]
    Time(RootError),
    /// Which clock is wrong is not known.
    #[error("its clock was set, or that of this machine stood still: it waits until others show which")]
    InDoubt,
    /// Other allocators changed the head with each try.
    #[error("its head changes all the time")]
    Busy,
    /// The head went while it was used, or another one is there.
    #[error("its head is another one now")]
    OtherHead,
    /// Another version wrote the head, or another program.
    #[error("its head is of no use: {0}")]
    Head(String),
    /// The same of the cell of the limits that operators have put and removed.
    #[error("the cell of its limits is of no use: {0}")]
    Overrides(String),
    /// The head was not signed for so long that another allocator may have found a loss meanwhile.
    #[error("its head was not signed for {HEAD_HOLDS:?}")]
    NotSigned,
    /// The shell answered another call than it was given.
    #[error("an answer to another call")]
    Mismatch,
}

/// What an operator or a metric hears of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The store has no head: its time begins, on this timeline.
    Begins(Timeline),
    /// The clock of the store was set: another era begins.
    StoreStepped,
    /// The clock of the store was watched by no allocator: another era begins.
    Unwatched,
    /// The clock of this machine was wrong: other allocators agree with the store.
    OwnStepped,
    /// The store went from the first timeline to the second, and may have lost what was written last.
    Moved(Timeline, Timeline),
    /// The store had lost what was put and removed over the API, and was told again.
    OverridesRewritten,
    /// The same, but there is no room for it any more.
    NoRoom,
    /// The root in this cell goes by other rules under the same version of the configuration.
    Contested(String),
    /// Roots were written, so many of them and so many in vain, and that took so long.
    Swapped {
        /// Roots that were written.
        done: usize,
        /// Roots that another allocator wrote first.
        late: usize,
        /// How long the call took.
        took: Duration,
    },
    /// A call that writes so many roots failed.
    NotSwapped(usize),
}

/// What a [`Member`] knows and does through the allocator that it belongs to.
pub trait Host {
    /// A number that no other call has drawn or will draw.
    fn draw(&mut self) -> u64;
    /// The calendar, as the clock of the machine shows it.
    fn wall(&self) -> Moment;
    /// Whether an operator said that no allocator has lent anything yet.
    fn is_fresh(&self) -> bool;
    /// What to ask roots in the exchange that was begun by [`Member::ask`]; `None` where the configuration has no such root.
    fn asks(&mut self) -> Vec<Option<RootAsk>>;
    /// What operators have suspended, as far as is known.
    fn suspensions(&self) -> Suspensions;
    /// The newest configuration that is known, and by it the limits that are below others, each with the one above.
    fn configuration(&self) -> (Version, BTreeMap<String, String>);
    /// The limits that operators have put and removed, as far as is known.
    fn overrides(&self) -> LimitOverrides;
    /// Goes by the overrides that the store has, where they are newer.
    fn follow_overrides(&mut self, there: &LimitOverrides);
    /// Goes by the suspensions that the store has, when it is `there` on its clock.
    fn follow_suspensions(&mut self, suspensions: &Suspensions, there: Moment);
    /// Lends nothing more of what is leased from the store until that answers again.
    fn hold_back(&mut self);
    /// Tells an operator.
    fn tell(&mut self, notice: Notice);
}

/// An allocator as one of those that share a store.
#[derive(Debug)]
pub struct Member {
    signer: Signer,
    /// What is known of the time of the store, in the era that is known.
    clock: RootClock,
    /// Which clock is wrong if that does not fit.
    watch: Watch,
    era: Option<u64>,
    /// Whether the clock of the store was found to have been set.
    has_stepped: bool,
    head: Option<(Cell, Head)>,
    /// When it sent the last swap of the head that was done, on the own clock.
    wrote_head: Moment,
    /// Whether a swap of a root may miss what was lost elsewhere in the store.
    is_on_several: bool,
    /// What is in cells, as far as this allocator knows.
    known: BTreeMap<String, Cell>,
    /// When the head was signed last, on the own clock, and how often in a row that has failed.
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

/// What is being done.
#[derive(Clone, Copy, Debug)]
enum Job {
    Ask { rtt: Duration, seq: u64 },
    Sign,
    Leave,
}

/// Which answer is awaited, and what it is for.
#[derive(Debug)]
enum Step {
    Nothing,
    /// The time, which was asked for at that instant on the own clock.
    Time(Moment, AfterTime),
    /// The head, to go by it.
    LoadHead,
    /// The head, by an allocator that leaves.
    LoadToLeave,
    /// The head becomes this one. In doubt it is not gone by, even then.
    SwapHead {
        next: Cell,
        head: Box<Head>,
        is_in_doubt: bool,
        sent: Moment,
    },
    /// The overrides, before this head is gone by. That began at the instant.
    LoadOverrides(Cell, Box<Head>, Moment),
    SwapOverrides(Cell, Box<Head>, Moment),
    /// Roots that are not known, and the head after them.
    LoadRoots {
        names: Vec<String>,
        asks: Vec<Option<RootAsk>>,
    },
    /// Roots become what they would be after the asks. That began at the instant.
    SwapRoots {
        exchange: Box<Exchange>,
        places: Vec<bool>,
        began: Moment,
    },
    /// The head again, for roots were made.
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
    /// The store was on another timeline than the one whose time was known.
    Read(Found),
    /// Its head was of another era.
    Judge(Found, Box<Head>),
}

impl Member {
    /// One that knows nothing of the store yet. It is called `node`, and its clock and the store's may each be off by `drift_ppm`.
    pub fn new(node: String, drift_ppm: u32) -> Self {
        Member {
            signer: Signer { session: 0, node },
            clock: RootClock::new(drift_ppm),
            watch: Watch::default(),
            era: None,
            has_stepped: false,
            head: None,
            wrote_head: Moment::ORIGIN,
            is_on_several: false,
            known: BTreeMap::new(),
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

    /// The same of a store that is several servers, as a cluster is. Each of them can lose what it has, and a swap notices that of
    /// its own server alone. So this one lends by a head only for a second after it wrote that.
    pub fn on_several_servers(mut self) -> Self {
        self.is_on_several = true;
        self
    }

    /// Begins an exchange: the `seq`-th of `session`, whose nodes are `rtt` away. What it asks is [`Host::asks`].
    pub fn ask(&mut self, session: u64, seq: u64, rtt: Duration, now: Moment, host: &mut impl Host) -> Next {
        self.begin(session, Job::Ask { rtt, seq }, now);
        match self.head.is_some() && self.head_holds(now) {
            true => self.ask_roots(now, host),
            false => self.open(now),
        }
    }

    /// Says that the allocator is there, if it is time to: `None` if it is not. Roots of no use are taken away with it.
    pub fn sign(&mut self, session: u64, now: Moment) -> Option<Next> {
        if now.since(self.signed) < SIGN_EVERY {
            return None;
        }
        self.begin(session, Job::Sign, now);
        Some(match self.head.is_some() {
            true => self.ask_time(now, AfterTime::SignHead),
            false => self.open(now),
        })
    }

    /// The store answered, or did not, by `now`.
    pub fn on_answer(&mut self, said: Result<Said, CellsError>, now: Moment, host: &mut impl Host) -> Next {
        let step = mem::replace(&mut self.step, Step::Nothing);
        let said = match said {
            Ok(said) => said,
            Err(error) => return self.failed_at(step, error, now, host),
        };
        match (step, said) {
            (Step::Time(asked, after), Said::Time(said)) => self.on_time(said, asked, after, now, host),
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
                    exchange.is_emptied();
                }
                self.finish_asks(*exchange, &places, now, host)
            }
            (Step::LoadIdle(sweep), Said::Loaded(_, cells)) => self.idle_loaded(sweep, cells, now),
            (Step::SwapIdle(sweep), Said::Swapped(_)) => self.idle_swapped(sweep, now),
            _ => self.fail(MemberError::Mismatch, now),
        }
    }

    /// The job is given up: no answer comes any more, or it would be too late.
    pub fn give_up(&mut self, now: Moment) {
        if let Step::LoadIdle(sweep) | Step::SwapIdle(sweep) = mem::replace(&mut self.step, Step::Nothing) {
            self.keep_all_idle(sweep, now);
        }
        self.forget();
    }

    /// The time of the store at `local` on the own clock, or a little before it, if that is known.
    pub fn time(&self, local: Moment) -> Option<Moment> {
        self.clock.now(local)
    }

    /// The head that it goes by.
    pub fn head(&self) -> Option<&Head> {
        self.head.as_ref().map(|(_, head)| head)
    }

    /// The server whose time it goes by.
    pub fn timeline(&self) -> Option<&Timeline> {
        self.clock.timeline()
    }

    /// When it signed last, on the own clock.
    pub fn signed(&self) -> Moment {
        self.signed
    }

    /// How many signatures in a row came to nothing.
    pub fn failed(&self) -> u32 {
        self.failed
    }

    /// Whether the head that is known can still be lent by.
    fn head_holds(&self, now: Moment) -> bool {
        !self.is_on_several || now.since(self.wrote_head) < HEAD_HOLDS
    }

    /// Begins a job; the one before is given up, if it was not over.
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

    /// The head is known, and what it says is followed.
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

    /// The job is over, and has come to nothing.
    fn fail(&mut self, error: MemberError, now: Moment) -> Next {
        if matches!(self.job, Job::Sign) {
            (self.signed, self.failed) = (now, self.failed.saturating_add(1));
        }
        self.forget();
        Next::Done(Err(error))
    }

    /// The store did not answer the call of `step`.
    fn failed_at(&mut self, step: Step, error: CellsError, now: Moment, host: &mut impl Host) -> Next {
        if let Step::LoadIdle(sweep) | Step::SwapIdle(sweep) = step {
            // What is signed is signed.
            self.keep_all_idle(sweep, now);
            (self.signed, self.head) = (now, None);
            return Next::Done(Ok(vec![]));
        }
        if let Step::SwapRoots { exchange, .. } = step {
            host.tell(Notice::NotSwapped(exchange.waiting()));
        }
        self.fail(error.into(), now)
    }

    /// What was on its way may be there, or another store.
    fn forget(&mut self) {
        self.known.clear();
        self.head = None;
    }
}
