//! How a pool begins: it holds nothing and has heard nothing.

use super::{CLOCK, Cold, Condition, Hot, HotRef, LocalPool, PoolName, UNKNOWN};
use crate::doorbell::Doorbell;
use crate::fallback::Standby;
use crate::overdraft::Overdraft;
use crate::pace::Refill;
use crate::tally::Tally;
use crate::ticks::Ticks;
use crate::wake_list::WakeList;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};

/// Assumed round trip until one was measured, in microseconds.
const INITIAL_RTT_US: u32 = 1_000;

impl LocalPool {
    /// Makes a pool whose hot state is at `hot_ref`, which no other pool has.
    pub(crate) fn new(
        hot_ref: HotRef,
        ticks: Ticks,
        name: PoolName,
        eager: bool,
        wake_list: Arc<WakeList>,
        tally: Arc<Tally>,
    ) -> Arc<LocalPool> {
        hot_ref.hot_state().set_key(name.key.as_deref());
        let hot = Hot {
            hot_ref,
            ceiling: AtomicU64::new(lessor_protocol::PERMITS_MAX),
            chance: AtomicU64::new(0),
            rtt_us: AtomicU32::new(INITIAL_RTT_US),
            condition: AtomicU8::new(Condition::Good as u8),
            passes: AtomicBool::new(false),
            doorbell: Doorbell::default(),
            counts_flights: AtomicBool::new(false),
            ticks,
        };
        let cold = |me| Cold {
            name,
            shadow_refused: AtomicU64::new(0),
            standby: Standby::default(),
            keys: OnceLock::new(),
            pace: OnceLock::new(),
            largest: AtomicU64::new(0),
            overdraft: Overdraft::default(),
            doubted: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            line: Mutex::default(),
            refill: Mutex::new(Refill::new(CLOCK.now(), eager)),
            feedback: OnceLock::new(),
            wake_list,
            tally,
            counted: Mutex::default(),
            left: AtomicU64::new(UNKNOWN),
            answers: AtomicU32::new(0),
            told_to_wait: AtomicU32::new(0),
            window_ms: AtomicU64::new(0),
            leased: AtomicU64::new(0),
            timed: AtomicU64::new(0),
            is_known: AtomicBool::new(false),
            is_forgotten: AtomicBool::new(false),
            me,
        };
        Arc::new_cyclic(|me| LocalPool { hot, cold: cold(me.clone()) })
    }
}
