//! Pools that have no name yet. Those of keys are made some at a time, so that what each call reads of them lies together,
//! and what is seldom read elsewhere: nobody waits for as many pages of memory. Nobody calls a pool without a name.

use super::{CLOCK, Cold, Condition, Hot, LocalPool, PoolName};
use crate::called::Called;
use crate::fallback::Standby;
use crate::keys::KeyText;
use crate::line::Line;
use crate::refill::Refill;
use crate::slot::Slot;
use crate::ticks::Ticks;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};

/// Round trip to reckon with until one was measured, in microseconds.
const RTT_UNTOLD_US: u32 = 1_000;

/// Blanks are made at a time: this part of the keys that there ever were, and so many at most. They are memory that nobody
/// uses yet, 160 KB at most. Made one by one, a call among a million keys took a third longer.
const BATCH_PART: usize = 8;
const BATCH_MAX: usize = 512;

/// A pool without a name.
#[derive(Debug)]
pub(crate) struct Blank(Arc<LocalPool>);

/// For the keys that come next.
#[derive(Debug, Default)]
pub(crate) struct Blanks {
    made: Vec<Blank>,
    /// How many were ever taken.
    taken: usize,
}

impl Blanks {
    /// The next one.
    pub(crate) fn next(&mut self, ticks: &Ticks) -> Blank {
        if self.made.is_empty() {
            let batch = (self.taken / BATCH_PART).clamp(1, BATCH_MAX);
            self.made.extend((0..batch).map(|_| Blank::new(ticks.clone())));
        }
        self.taken += 1;
        self.made.pop().expect("some were made")
    }
}

impl Blank {
    pub(crate) fn new(ticks: Ticks) -> Self {
        Blank(Arc::new(LocalPool {
            slot: Slot::new(),
            hot: Hot {
                queued: AtomicU64::new(0),
                ceiling: AtomicU64::new(lessor_protocol::PERMITS_MAX),
                chance: AtomicU64::new(0),
                rtt_us: AtomicU32::new(RTT_UNTOLD_US),
                condition: AtomicU8::new(Condition::Good as u8),
                passes: AtomicBool::new(false),
                nudged: AtomicBool::new(false),
                is_paced: AtomicBool::new(false),
                counts_flights: AtomicBool::new(false),
                low_water: AtomicU32::new(0),
                late_ns: ticks.late_ns(),
                ticks,
            },
            cold: None,
            text: KeyText::new(None),
        }))
    }

    /// A pool with nothing in it.
    pub(crate) fn name(self, name: PoolName, eager: bool, called: Arc<Called>) -> Arc<LocalPool> {
        let Blank(mut blank) = self;
        let pool = Arc::get_mut(&mut blank).expect("nobody knows it yet");
        let refill = Refill::new(CLOCK.now(), eager);
        pool.text = KeyText::new(name.key.as_deref());
        pool.cold = Some(Box::new(Cold {
            name,
            shadow_refused: AtomicU64::new(0),
            standby: Standby::default(),
            keys: OnceLock::new(),
            pace: refill.pace().clone(),
            largest: AtomicU64::new(0),
            overdrawn: AtomicU64::new(0),
            doubted: AtomicBool::new(false),
            line: Mutex::new(Line::default()),
            refill: Mutex::new(refill),
            feedback: OnceLock::new(),
            called,
            is_known: AtomicBool::new(false),
            is_forgotten: AtomicBool::new(false),
            me: OnceLock::new(),
        }));
        blank.cold().me.get_or_init(|| Arc::downgrade(&blank));
        blank
    }
}
