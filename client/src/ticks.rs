//! The clock that callers read at every spend, to learn whether time has passed since the exact clock was read. It is
//! the system's coarse clock, or a counter moved by a thread of this client.

use crate::slot::LATE_STEPS;
use lessor_protocol::{CoarseClock, Tick};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Interval of the counting thread. It matches the fastest coarse clock of a system: less would cause wake-ups for
/// nothing, more would let each stripe spend longer without a look at the exact clock.
const TICK: Duration = Duration::from_millis(1);

/// Longest delay assumed of the counting thread, which needs a core to count. For this time at the end of each lease,
/// every call reads the exact clock: more would slow down nodes that are lent little at a time.
const TICK_LATE_NS: u64 = 20_000_000;

/// Part of a step by which slewing may lengthen it. The kernel lets a daemon slow the coarse clock by a tenth and a
/// thousandth, so a step takes longer by less than an eighth.
const SLEWED_PART: u32 = 8;

/// The clock that tells callers of a [`crate::Client`] that time has passed. The exact clock costs 60 to 120 ns; a call
/// reads it only after this clock has moved, or when a lease is about to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HotClock {
    /// The system's coarse clock, which costs some nanoseconds a call. The kernel moves it, so it is right after a
    /// process was stopped, starved of processor time, or suspended with the whole machine. On a system without such a
    /// clock, every call reads the exact clock.
    ///
    /// It assumes that the kernel's timer moves the coarse clock at least once in six of its steps while threads of the
    /// process run, and whenever the machine is suspended or resumed. Six steps are 24 ms at 250 a second, or 27 ms
    /// while a daemon slows the clock as far as the kernel allows.
    ///
    /// A hypervisor may withhold the core that moves the clock for longer, or stop a machine and let its clock jump.
    /// Then at most 512 permits from each stripe of a slot are spent too late. That bound holds for each key, although
    /// all keys that are looked up in one limit ([`crate::Limit::try_acquire_key`]) share a reading, because the
    /// permits spent since are counted for each key.
    #[default]
    Coarse,
    /// A counter in memory, which a thread of this client moves each millisecond: the cheapest clock.
    ///
    /// It assumes that this thread is never kept from running for longer than 20 ms while other threads of the process
    /// run. After a stop or a suspend, or on a starved machine, a caller may be ahead of the counter and spend permits
    /// of a lease that has ended: up to 512 from each stripe of a slot. Where the cap must hold in these cases too, use
    /// [`HotClock::Coarse`].
    Tick,
    /// No clock: every call reads the exact one.
    Exact,
}

/// The source of a pool's ticks.
#[derive(Clone, Debug)]
pub(crate) enum Ticks {
    None,
    /// The coarse clock, and how late a reading may be, in nanoseconds.
    System(CoarseClock, u32),
    Ours(Arc<Ticker>),
}

/// A counter that a thread moves as long as the counter has a reader.
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

    /// Returns the current tick, and [`Ticks::late_ns`].
    #[inline(always)]
    pub(crate) fn look(&self) -> Option<(Tick, u64)> {
        match self {
            Ticks::System(clock, late_ns) => Some((clock.tick(), u64::from(*late_ns))),
            Ticks::Ours(ticker) => Some((Tick::of(ticker.0.load(Ordering::Relaxed)), TICK_LATE_NS)),
            Ticks::None => None,
        }
    }

    /// Returns the current tick.
    pub(crate) fn tick(&self) -> Option<Tick> {
        self.look().map(|(tick, _)| tick)
    }

    /// Longest time, in nanoseconds, for which the clock may show the same tick.
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

/// Counts until `ticker` has no reader left.
fn count(ticker: &Weak<Ticker>) {
    while let Some(ticker) = ticker.upgrade() {
        ticker.0.fetch_add(1, Ordering::Relaxed);
        drop(ticker);
        std::thread::park_timeout(TICK);
    }
}
