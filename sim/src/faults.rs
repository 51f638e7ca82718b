//! Faults of a run: which strike, how often, and how often they did. The world asks; nothing changes by itself.

use std::collections::BTreeMap;

lessor_protocol::words! {
    /// A kind of fault.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Fault {
        /// A message never arrives.
        Loss = "message_lost",
        /// A message arrives again, later.
        Duplicate = "message_repeated",
        /// A message takes seconds.
        LongDelay = "message_late",
        /// A link is cut both ways.
        Cut = "link_cut",
        /// A link is cut from the allocator to the node: asks arrive, answers do not.
        CutBack = "link_cut_to_node",
        /// A link is cut from the node to the allocator: asks do not arrive.
        CutThere = "link_cut_to_allocator",
        /// A node dies at some moment and comes back as a new session.
        NodeCrash = "node_crash",
        /// … between writing an ask and sending it.
        CrashBeforeSend = "node_crash_before_send",
        /// … right after sending an ask.
        CrashAfterSend = "node_crash_after_send",
        /// … when the answer is there and before it is installed.
        CrashBeforeInstall = "node_crash_before_install",
        /// A node leaves in good order and comes back.
        NodeLeave = "node_leave",
        /// A node does nothing for a while; its clock goes on.
        NodePause = "node_pause",
        /// A node's clock jumps ahead.
        ClockJump = "clock_jump",
        /// A clock changes its rate, within the drift bound.
        ClockRate = "clock_rate",
        /// A clock is slewed by a daemon, ten times as fast as chrony does.
        ClockSlew = "clock_slew",
        /// A node and its clock stand still. This breaks an assumption, so it is on only where a test wants that.
        Freeze = "node_freeze",
        /// The allocator dies and comes back without its books.
        AllocatorRestart = "allocator_restart",
        /// The allocator does nothing for a while.
        AllocatorPause = "allocator_pause",
        /// The link between a region and its upstream is cut both ways.
        RegionCut = "region_cut",
        /// A region dies and comes back without its books.
        RegionCrash = "region_crash",
        /// A region is stopped in good order and comes back.
        RegionLeave = "region_leave",
        /// A region, or an allocator that shares a store, does nothing for a while; its clock goes on. Answers wait for it.
        RegionPause = "region_pause",
        /// A fate strikes the store that allocators share: one that the setup names.
        StoreTrouble = "store_trouble",
    }
}

impl Fault {
    /// Faults that strike nodes or the allocator at random moments, rather than at a message or an exchange.
    pub const TIMED: [Fault; 12] = [
        Fault::Cut,
        Fault::CutBack,
        Fault::CutThere,
        Fault::NodeCrash,
        Fault::NodeLeave,
        Fault::NodePause,
        Fault::ClockJump,
        Fault::ClockRate,
        Fault::ClockSlew,
        Fault::Freeze,
        Fault::AllocatorRestart,
        Fault::AllocatorPause,
    ];

    /// Faults that strike at random moments where regions or a store are between nodes and the allocator.
    pub(crate) const OF_REGIONS: [Fault; 5] =
        [Fault::RegionCut, Fault::RegionCrash, Fault::RegionLeave, Fault::StoreTrouble, Fault::RegionPause];
}

/// How hard each fault strikes. A fault without an entry is off.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// The chance at each message or exchange.
    pub chance: BTreeMap<Fault, f64>,
    /// For timed faults, the mean time between two and the longest that one lasts, in nanoseconds.
    pub every: BTreeMap<Fault, (u64, u64)>,
}

impl Faults {
    /// Whether `fault` strikes now.
    pub(crate) fn strikes(&self, fault: Fault, rng: &mut fastrand::Rng) -> bool {
        self.chance.get(&fault).is_some_and(|&chance| rng.f64() < chance)
    }
}

/// How often each fault struck.
pub(crate) type Struck = BTreeMap<Fault, u64>;
