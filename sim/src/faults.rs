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
    /// A region, or an allocator that shares a store, does nothing for a while; its clock goes on. Answers wait for it.
    RegionPause,
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
    pub(crate) const OF_REGIONS: [Fault; 5] =
        [Fault::RegionCut, Fault::RegionCrash, Fault::RegionLeave, Fault::StoreTrouble, Fault::RegionPause];

    /// All faults, with their names in reports and setups.
    pub const ALL: [(&str, Fault); 23] = [
        ("message_lost", Fault::Loss),
        ("message_repeated", Fault::Duplicate),
        ("message_late", Fault::LongDelay),
        ("node_crash_before_send", Fault::CrashBeforeSend),
        ("node_crash_after_send", Fault::CrashAfterSend),
        ("node_crash_before_install", Fault::CrashBeforeInstall),
        ("link_cut", Fault::Cut),
        ("link_cut_to_node", Fault::CutBack),
        ("link_cut_to_allocator", Fault::CutThere),
        ("node_crash", Fault::NodeCrash),
        ("node_leave", Fault::NodeLeave),
        ("node_pause", Fault::NodePause),
        ("clock_jump", Fault::ClockJump),
        ("clock_rate", Fault::ClockRate),
        ("clock_slew", Fault::ClockSlew),
        ("node_freeze", Fault::Freeze),
        ("allocator_restart", Fault::AllocatorRestart),
        ("allocator_pause", Fault::AllocatorPause),
        ("region_cut", Fault::RegionCut),
        ("region_crash", Fault::RegionCrash),
        ("region_leave", Fault::RegionLeave),
        ("region_pause", Fault::RegionPause),
        ("store_trouble", Fault::StoreTrouble),
    ];

    /// Returns the name in reports and setups.
    pub fn name(self) -> &'static str {
        Fault::ALL.iter().find(|(_, fault)| *fault == self).expect("all are listed").0
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
