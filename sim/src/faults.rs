//! Faults of a run: which strike, how often, and how often they did. The world asks; nothing changes by itself.

use std::collections::BTreeMap;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A message never arrives.
    Loss,
    /// A message arrives again, later.
    Duplicate,
    /// A message takes seconds.
    LongDelay,
    /// A link is cut both ways.
    Cut,
    /// A link is cut from the allocator to the node: asks arrive, answers do not.
    CutBack,
    /// A link is cut from the node to the allocator: asks do not arrive.
    CutThere,
    /// A node dies at some moment and comes back as a new session.
    NodeCrash,
    /// … between writing an ask and sending it.
    CrashBeforeSend,
    /// … right after sending an ask.
    CrashAfterSend,
    /// … when the answer is there and before it is installed.
    CrashBeforeInstall,
    /// A node leaves in good order and comes back.
    NodeLeave,
    /// A node does nothing for a while; its clock goes on.
    NodePause,
    /// A node's clock jumps ahead.
    ClockJump,
    /// A clock changes its rate, within the drift bound.
    ClockRate,
    /// A clock is slewed by a daemon, ten times as fast as chrony does.
    ClockSlew,
    /// A node and its clock stand still. This breaks an assumption, so it is on only where a test wants that.
    Freeze,
    /// The allocator dies and comes back without its books.
    AllocatorRestart,
    /// The allocator does nothing for a while.
    AllocatorPause,
    /// The link between a region and its upstream is cut both ways.
    RegionCut,
    /// A region dies and comes back without its books.
    RegionCrash,
    /// A region is stopped in good order and comes back.
    RegionLeave,
    /// A fate strikes the store that allocators share: one that the setup names.
    StoreTrouble,
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
    pub(crate) const OF_REGIONS: [Fault; 4] =
        [Fault::RegionCut, Fault::RegionCrash, Fault::RegionLeave, Fault::StoreTrouble];

    /// All faults.
    pub const ALL: [Fault; 22] = [
        Fault::Loss,
        Fault::Duplicate,
        Fault::LongDelay,
        Fault::CrashBeforeSend,
        Fault::CrashAfterSend,
        Fault::CrashBeforeInstall,
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
        Fault::RegionCut,
        Fault::RegionCrash,
        Fault::RegionLeave,
        Fault::StoreTrouble,
    ];

    /// Returns the name of the fault in reports and setups.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Loss => "message_lost",
            Fault::Duplicate => "message_repeated",
            Fault::LongDelay => "message_late",
            Fault::Cut => "link_cut",
            Fault::CutBack => "link_cut_to_node",
            Fault::CutThere => "link_cut_to_allocator",
            Fault::NodeCrash => "node_crash",
            Fault::CrashBeforeSend => "node_crash_before_send",
            Fault::CrashAfterSend => "node_crash_after_send",
            Fault::CrashBeforeInstall => "node_crash_before_install",
            Fault::NodeLeave => "node_leave",
            Fault::NodePause => "node_pause",
            Fault::ClockJump => "clock_jump",
            Fault::ClockRate => "clock_rate",
            Fault::ClockSlew => "clock_slew",
            Fault::Freeze => "node_freeze",
            Fault::AllocatorRestart => "allocator_restart",
            Fault::AllocatorPause => "allocator_pause",
            Fault::RegionCut => "region_cut",
            Fault::RegionCrash => "region_crash",
            Fault::RegionLeave => "region_leave",
            Fault::StoreTrouble => "store_trouble",
        }
    }
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
