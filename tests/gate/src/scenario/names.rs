//! The scenarios, and their names in the files of mistakes.

/// Declares the kinds of fleets, and finds them by name.
macro_rules! scenarios {
    ($($(#[$doc:meta])* $scenario:ident,)*) => {
        /// A kind of fleet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Scenario { $($(#[$doc])* $scenario,)* }

        impl Scenario {
            /// Returns the scenario called `name`.
            pub fn named(name: &str) -> Option<Scenario> {
                match name {
                    $(stringify!($scenario) => Some(Scenario::$scenario),)*
                    _ => None,
                }
            }
        }
    };
}

scenarios! {
    /// Any fleet that the generator draws.
    Any,
    /// A window of minutes in full use, on quick links: a permit that is free a thousandth of it too early is taken.
    FullWindow,
    /// A bucket of one to three permits, and asks that get lost: the whole bucket is out when a lease ends unheard.
    TinyBucket,
    /// Fixed windows that are nearly used up, and messages that take seconds: asks written in one window arrive in the
    /// next.
    LateAsks,
    /// Fixed windows of a tenth of a second, on links as slow as that: leases reach over every boundary, and end
    /// unheard.
    ShortWindow,
    /// An allocator that dies every few seconds and is back at once, without other faults.
    Restarts,
    /// As `Restarts`, with a bucket as the only rule.
    BucketRestarts,
    /// A limit that is lowered to a few permits while a node holds a good part of it, and gives nothing back.
    Lowered,
    /// Limits of minutes, with leases of seconds, that become short fixed windows again and again.
    NewWindows,
    /// A window in full use, which gets a cap on calls in flight. The cap changes to one of shorter calls, and goes
    /// again.
    Capped,
    /// A limit in full use that is paused and resumed.
    Paused,
    /// As `Paused`, under an allocator that dies every second and writes down the pause.
    PausedRestarts,
    /// As `LateAsks`, with windows of first use, beyond which no lease reaches.
    LateReports,
    /// Sliding windows in full use whose vendor is as far away as their margin allows.
    FarVendor,
    /// As `Restarts`, with fixed windows as the only rule, in slow use: leases last long and often reach over a
    /// boundary.
    FixedRestarts,
    /// A steady flow that all nodes want, and asks that get lost: rates change hands, and leases end unheard.
    Flow,
    /// A steady flow of which each node has a part that changes all the time, and many answers that get lost.
    FlowParts,
    /// A bucket with one of its options, full within a second or two, in bursts with pauses between them.
    OddBucket,
    /// Windows of first use, or of a calendar.
    OddWindow,
    /// A cap on calls in flight as the only rule, and messages that get lost or take seconds: leases end unheard.
    Cap,
    /// As `Cap`, under an allocator that dies every minute, without other faults.
    CapRestarts,
    /// A limit in full use whose vendor reports less left than it should have.
    Outside,
    /// A short window in full use by calls that reserve more than they need, and messages that get lost. Leases end
    /// while calls go on, and bring less than was reserved when they are renewed.
    Reserving,
    /// One or two nodes whose calls mostly come to nothing (nine in ten), because they find another limit short.
    /// Threads are stopped while they have set permits aside.
    InVain,
    /// A window in full use, up to half of which is the reserve for safe shares. Links are cut for longer than a share
    /// may last, and nodes die.
    CutOff,
    /// As `CutOff`, with one share at a time that lasts for less than a window.
    HandedOn,
    /// As `CutOff`, under an allocator that dies once in a while.
    CutOffRestarts,
    /// A window in full use by nodes whose links are cut, while their clocks or the allocator's are slewed.
    Slewed,
    /// A limit with plenty below a scarce one, with another period.
    Above,
    /// A limit of a short window below a scarce one of a long window, under an allocator that dies once in a while.
    AboveRestarts,
    /// A short window under an allocator that dies every second and writes down what it lends.
    Written,
    /// As `Written`, with a cap on calls in flight beside a window, in full use by calls of seconds.
    WrittenCap,
    /// As `Written`, with the steady flow of `Flow`.
    WrittenFlow,
    /// Regions that lease from one allocator and lend on, see [`lessor_sim::generator::topologies`].
    Regions,
    /// Allocators that share a store.
    Stored,
    /// A shared store in full use, which loses cells.
    StoreLoses,
    /// A shared store in full use, while processes die. The store is emptied as one of them asks for the first time.
    StoreEmptied,
    /// A shared store in full use, whose clock is set.
    StoreSet,
    /// As `StoreSet`, with the clock set again before all have heard of it.
    StoreSetTwice,
    /// A shared store in full use of a short window.
    StoreClose,
    /// A shared store in full use of a bucket of a few permits, or one that is emptied.
    StoreSmall,
    /// A shared store without a clock: in full use of a short window, or with faults.
    StoreClockless,
    /// A shared store whose nodes go on with a part of the reserve while no allocator answers.
    StoreSafe,
    /// Safe shares whose number and length change in the configuration of one allocator, or of several.
    SafeChanged,
    /// As `SafeChanged`, of allocators that share a store.
    StoreSafeChanged,
    /// As `SafeChanged`, with changes of the reserve and the rules too.
    SafeRulesChanged,
    /// One allocator whose reserve becomes a small one, and that then dies or whose limit begins anew.
    SafeAnew,
    /// As `Stored`, while files change, of one allocator after the other.
    StoreChanged,
    /// As `StoreChanged`, while operators also put the limit over the API of some allocator.
    StorePut,
    /// As `Stored`, while operators pause and block, and the store may lose what it had.
    StoreDecided,
    /// As `Stored`, with a limit below another one.
    StoreFamily,
    /// As `Regions`, with a cap on calls in flight.
    RegionsCapped,
    /// As `Regions`, with a limit that operators change and pause again and again.
    RegionsPaused,
    /// As `Stored`, with rules that have options.
    StoreRules,
    /// A shared store in full use, whose clock is set while all its allocators are dead.
    StoreUnwatched,
    /// As `Stored`, with a cap on calls in flight.
    StoreCapped,
    /// A cap on calls in flight, and calls longer than the longest time, see [`lessor_sim::generator::overlong`].
    Overlong,
    /// Limits below a scarce one, under an allocator that dies every second and writes down what it lends.
    WrittenAbove,
    /// A limit in full use that operators remove and put again.
    Removed,
}
