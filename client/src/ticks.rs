//! Which clock callers read at every spend, to learn whether time has gone on since a caller read the exact one. It is the
//! system's coarse clock, or a thread of ours that counts. Pools read it; it decides nothing.

use crate::slot::LATE_STEPS;
use lessor_protocol::{CoarseClock, Tick};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often our own thread counts. As often as the system's own clock moves at best: more would be wakes for nothing,
/// fewer would let each stripe spend for longer without a look at the exact clock.
const TICK: Duration = Duration::from_millis(1);

/// How late our own thread is taken to be at most, for it needs a core to count. It is time at the end of each lease in
/// which every call reads the exact clock: more would slow those down that are lent little at a time.
const TICK_LATE_NS: u64 = 20_000_000;

/// The coarse clock is slewed like others: the kernel lets a daemon slow it by a tenth and a thousandth, and a step of it then
/// takes longer by less than an eighth.
const SLEWED_PART: u32 = 8;

/// Which clock tells callers of a [`crate::Client`] that time has gone on. The exact clock costs 60 to 120 ns; it is
/// read again whenever this one has moved, and whenever a lease is about to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HotClock {
    /// The system's coarse clock, some nanoseconds a call. It is moved by the kernel, and so is right after a process was
    /// stopped, starved of processor time, or asleep with the whole machine. Where there is none, every call reads
    /// the exact clock.
    ///
    /// It assumes that the kernel's timer moves that clock at least once in six of its steps (24 ms at 250 a second, or 27 ms
    /// while a daemon slows it as far as the kernel lets one) while
    /// our threads run, and whenever the machine is suspended or resumed. Where a hypervisor withholds the core
    /// that does so for longer, or stops a machine and lets its clock jump, what is spent too late is at most 512
    /// permits from each stripe of a slot. That holds for each key too, although all those that are looked up in one limit
    /// ([`crate::Limit::try_acquire_key`]) share a reading: what one of them spends since is counted for it alone.
    #[default]
    Coarse,
    /// A count in memory, which a thread of this client moves each millisecond: the cheapest.
    ///
    /// It assumes that this thread is never kept from running for longer than 20 ms while others of the process run.
    /// Where that does not hold, after a stop or a suspend or on starved machines, a caller may be ahead of it and spend
    /// permits of a lease that has ended: up to 512 from each stripe of a slot. Where the promise has to hold through
    /// those, use the other.
    Tick,
    /// None: every call reads the exact clock.
    Exact,
}

/// Where a pool takes ticks from.
#[derive(Clone, Debug)]
pub(crate) enum Ticks {
    None,
    /// And how late a reading may be, in nanoseconds.
    System(CoarseClock, u32),
    Ours(Arc<Ticker>),
}

/// Counts by itself as long as it has a reader.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Ticker(AtomicU64);

impl Ticks {
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn try_new(clock: HotClock) -> std::io::Result<Self> {
        Ok(match clock {
            HotClock::Exact => Ticks::None,
            HotClock::Coarse => CoarseClock::try_new().map_or(Ticks::None, |clock| {
                let late = clock.step() * LATE_STEPS;
                let late_ns = (late + late / SLEWED_PART).as_nanos();
                Ticks::System(clock, u32::try_from(late_ns).expect("a fraction of a second"))
            }),
            HotClock::Tick => Ticks::Ours(Ticker::start()?),
        })
    }

    /// What it shows, and [`Ticks::late_ns`].
    #[inline(always)]
    pub(crate) fn look(&self) -> Option<(Tick, u64)> {
        match self {
            Ticks::System(clock, late_ns) => Some((clock.tick(), u64::from(*late_ns))),
            Ticks::Ours(ticker) => Some((Tick::of(ticker.0.load(Ordering::Relaxed)), TICK_LATE_NS)),
            Ticks::None => None,
        }
    }

    /// What it shows.
    pub(crate) fn tick(&self) -> Option<Tick> {
        self.look().map(|(tick, _)| tick)
    }

    /// How long ago something may be at most that was while the clock showed the same, in nanoseconds.
    pub(crate) fn late_ns(&self) -> u64 {
        match self {
            Ticks::System(_, late_ns) => u64::from(*late_ns),
            Ticks::Ours(_) => TICK_LATE_NS,
            Ticks::None => 0,
        }
    }
}

impl Ticker {
    fn start() -> std::io::Result<Arc<Self>> {
        let ticker = Arc::new(Ticker(AtomicU64::new(0)));
        let weak = Arc::downgrade(&ticker);
        std::thread::Builder::new().name("lessor-tick".to_owned()).spawn(move || count(&weak))?;
        Ok(ticker)
    }
}

/// Counts until `ticker` has no reader any more.
fn count(ticker: &Weak<Ticker>) {
    while let Some(ticker) = ticker.upgrade() {
        ticker.0.fetch_add(1, Ordering::Relaxed);
        drop(ticker);
        std::thread::park_timeout(TICK);
    }
}
